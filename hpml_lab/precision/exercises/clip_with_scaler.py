"""A training step with GradScaler that clips the norm of the gradient, recorded call by call."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.precision.exercises.recording_scaler import BARE_STEP, RecordingOptimizer, RecordingScaler

X = torch.tensor([[1.0, 0.5, -0.2], [0.2, 1.0, -0.4]])
# Magnitudes of x and y, and max_norm. The first batch needs no clipping. The fourth overflows to NaN, also where a processor
# adds a product before it rounds it; the sixth to infinities, and only because of the scale.
BATCHES = (
    (0.1, 0.3, 1.0),
    (3.0, 20.0, 1.0),
    (2.0, -9.0, 0.3),
    (1e38, 0.0, 1.0),
    (1.0, 3.0, 1.7),
    (1.0, -1e37, 1.0),
    (0.1, 0.3, 0.25),
)


@exercise("clip-with-scaler", notebook="12_precision", takes="model, optimizer, scaler, x, y, max_norm", returns=None)
def judge_clip_with_scaler(answer: Callable) -> None:
    """A training step with GradScaler that clips the norm of the gradient, recorded call by call."""
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 1.0]]))
        model.bias.zero_()
    optimizer = RecordingOptimizer(list(model.parameters()), 0.01)
    scaler = RecordingScaler(optimizer)
    for x_size, y_size, max_norm in BATCHES:
        x, y = x_size * X, torch.full((2, 1), y_size)
        gradients = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        true = torch.cat([gradient.flatten() for gradient in gradients])
        scaler.seen, optimizer.stepped, scale, left = {}, [], scaler.get_scale(), optimizer.gradient()
        answer(model, optimizer, scaler, x, y, max_norm)
        overflow = not (scale * true).isfinite().all()
        check_calls(scaler, optimizer, overflow)
        if not overflow:
            check_gradient(scaler, optimizer, true, scale, max_norm, left)


def check_calls(scaler: RecordingScaler, optimizer: RecordingOptimizer, overflow: bool) -> None:
    """Raise the Mistake of a call that is missing, or of a step that an overflow should have prevented.

    optimizer.step() instead of scaler.step is right where the answer itself looks for an overflow after unscale_.
    """
    if "scale" not in scaler.seen:
        raise Mistake(
            "loss-not-scaled", "backward() runs on the loss that the given scaler has scaled: call it on scaler.scale(loss)."
        )
    if overflow and optimizer.stepped and "step" not in scaler.seen:
        raise Mistake("step-without-scaler", BARE_STEP)
    if overflow and optimizer.stepped:
        raise Mistake("stepped-on-overflow", f"The weights changed although the gradients were infinite. {BARE_STEP}")
    if not overflow and "step" not in scaler.seen and not optimizer.stepped:
        raise Mistake("never-steps", "The step is the scaler's: scaler.step(optimizer).")
    if "update" not in scaler.seen:
        where = "after a batch that overflowed " if overflow else ""
        if "step" not in scaler.seen and not overflow:
            raise Mistake("step-without-scaler", BARE_STEP)
        hint = f"scaler.update() is missing {where}at the end: the scale never changes, and the next unscale_ raises."
        raise Mistake("update-missing", hint)


def clipped(gradient: torch.Tensor, max_norm: float, kind: float = 2.0) -> torch.Tensor:
    return gradient * min(1.0, max_norm / (gradient.norm(kind).item() + 1e-6))


def check_gradient(
    scaler: RecordingScaler,
    optimizer: RecordingOptimizer,
    true: torch.Tensor,
    scale: float,
    max_norm: float,
    left: torch.Tensor | None,
) -> None:
    """Raise the Mistake that explains a step with the wrong gradient.

    true  the right gradient before clipping
    left  the gradient that was there before the step
    """
    if len(optimizer.stepped) > 1:
        raise Mistake(
            "stepped-twice", "scaler.step(optimizer) calls optimizer.step() itself: one more call would be a second step."
        )
    last = Mistake("not-zeroed", "The gradient at the step is that of this batch alone: the last one has to be cleared.")
    if not optimizer.stepped and left is not None and not left.isfinite().all():
        raise last
    if not optimizer.stepped:
        raise Mistake(
            "wrong-gradient",
            "scaler.step skipped a batch whose true gradient is finite: yours was not. || scaler.step skips whenever the "
            "gradient that it finds is not finite.",
        )
    [used] = optimizer.stepped
    if close(used, clipped(true, max_norm)):  # however it was done: max_norm times the scale is right too
        return
    first = scaler.seen.get("unscale_", scaler.seen.get("step", used))
    if left is not None and not close(first, scale * true) and close(first, scale * true + left):
        raise last
    large = f"The gradients that were clipped are still scaled: their norm is {scale:g} times too large."
    if "unscale_" not in scaler.seen:
        if close(first, clipped(true, max_norm)):
            hint = "You divided by the scale, and scaler.step, which cannot see that, did so again: use scaler.unscale_."
            raise Mistake("unscaled-by-hand", hint)
        if close(first, clipped(scale * true, max_norm)) or first.norm() <= max_norm / scale * 1.01:
            raise Mistake("never-unscaled", large)
    elif close(first, clipped(scale * true, max_norm)):
        raise Mistake("clipped-before-unscale", large)
    elif close(used * scale, clipped(true, max_norm)) or close(used, clipped(true / scale, max_norm)):
        raise Mistake("unscaled-twice", f"The step's gradient is {scale:g} times too small: unscale_ has divided it already.")
    if not close(first / scale, true):
        raise Mistake(
            "wrong-gradient",
            "Before clipping, the gradient is not that of F.mse_loss(model(x), y): "
            f"its norm is {first.norm() / scale:.3g} instead of {true.norm():.3g}.",
        )
    if close(used, true):
        after = optimizer.gradient()
        if after is not None and after.norm() <= 1.001 * max_norm:
            raise Mistake("clipped-after-step", "The gradients are clipped before the step uses them, not after it.")
        raise Mistake("not-clipped", f"The step used a gradient with norm {true.norm():.2f}; max_norm is {max_norm:g}.")
    if close(used, true * max_norm / true.norm()):
        raise Mistake("always-normalized", "A gradient shorter than max_norm is not made longer. Leave it as it is.")
    if close(used, true.clamp(-max_norm, max_norm)):
        raise Mistake("clipped-by-value", "Clip the norm of the whole gradient, not each element separately.")
    if any(close(used, clipped(true, max_norm, kind)) for kind in (1.0, float("inf"))):
        raise Mistake("another-norm", "The norm to clip is the Euclidean one, the root of the sum of squares.")
    weight, bias = true[:-1], true[-1:]
    parts = clipped(weight, max_norm), clipped(bias, max_norm)
    if close(used, torch.cat(parts)):
        hint = (
            "Weight and bias were clipped separately. Clip the norm of all gradients together: clip_grad_norm_ takes them all."
        )
        raise Mistake("clipped-separately", hint)
    if close(used, torch.cat([parts[0], bias])) or close(used, torch.cat([weight, parts[1]])):
        raise Mistake(
            "one-parameter-only",
            "The gradients of all parameters are clipped together, not one alone. Give all to clip_grad_norm_.",
        )
    if any(close(used, clipped(true, known)) for _, _, known in BATCHES):
        raise Mistake("max-norm-ignored", f"The gradient was clipped to {used.norm():.3g}, but max_norm is {max_norm:g} here.")
    wanted = clipped(true, max_norm).norm()
    raise Mistake("wrong-gradient", f"The step used a gradient with norm {used.norm():.3g}; it should be {wanted:.3g}.")


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two gradients agree within 0.1 % of their norm."""
    return bool((a - b).norm() <= 1e-3 * b.norm() + 1e-9)
