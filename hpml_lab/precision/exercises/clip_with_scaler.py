"""A training step with GradScaler that clips the norm of the gradient, recorded call by call."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hpml_lab.core.exercises import Mistake, exercise
from hpml_lab.precision.recording import BARE_STEP, RecordingOptimizer, RecordingScaler

BATCHES = ((3.0, 20.0), (0.1, 0.3), (1e30, 0.0), (2.0, -9.0), (1.0, 3.0))  # magnitude of x, y; the third overflows


@exercise("clip-with-scaler", notebook="11_precision")
def judge_clip_with_scaler(answer: Callable) -> None:
    """A training step with GradScaler that clips the norm of the gradient, recorded call by call."""
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 1.0]]))
        model.bias.zero_()
    optimizer = RecordingOptimizer(list(model.parameters()), 0.01)
    scaler = RecordingScaler(optimizer)
    for x_size, y_size in BATCHES:
        x = x_size * torch.tensor([[1.0, 0.5, -0.2], [0.2, -1.0, 0.4]])
        y = torch.full((2, 1), y_size)
        gradients = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        scaler.seen, optimizer.stepped, scale = {}, [], scaler.get_scale()
        answer(model, optimizer, scaler, x, y, 1.0)
        check_calls(scaler, optimizer)
        check_gradient(scaler, optimizer, torch.cat([gradient.flatten() for gradient in gradients]), scale)


def check_calls(scaler: RecordingScaler, optimizer: RecordingOptimizer) -> None:
    """Raise the Mistake of a call that is missing."""
    if "scale" not in scaler.seen:
        raise Mistake("loss-not-scaled", "backward() ran on the plain loss. Call it on scaler.scale(loss).")
    if "step" not in scaler.seen:
        if optimizer.stepped:
            raise Mistake("step-without-scaler", BARE_STEP)
        raise Mistake("never-steps", "scaler.step(optimizer) is never called.")
    if "update" not in scaler.seen:
        raise Mistake("update-missing", "scaler.update() is missing: the scale never changes, and the next unscale_ raises.")


def check_gradient(scaler: RecordingScaler, optimizer: RecordingOptimizer, true: torch.Tensor, scale: float) -> None:
    """Raise the Mistake that explains a step with the wrong gradient; `true` is the right one before clipping."""
    if not true.isfinite().all():
        if optimizer.stepped:
            raise Mistake("stepped-on-overflow", "The weights changed although the gradients were infinite.")
        return
    if len(optimizer.stepped) > 1:
        raise Mistake("stepped-twice", "The optimizer stepped twice: scaler.step(optimizer) calls optimizer.step() itself.")
    if not optimizer.stepped:
        raise Mistake("wrong-gradient", "scaler.step skipped a batch whose true gradient is finite: yours was not.")
    [used] = optimizer.stepped
    clipped = true * min(1.0, 1.0 / (true.norm().item() + 1e-6))
    if torch.allclose(used, clipped, rtol=1e-3, atol=1e-5):  # however it was done: max_norm times the scale is right too
        return
    first = scaler.seen.get("unscale_", scaler.seen["step"])
    if true.norm() > 1 and first.norm() < 1.001:
        name = "clipped-before-unscale" if "unscale_" in scaler.seen else "never-unscaled"
        raise Mistake(name, "The gradients that were clipped are still scaled: their norm is 1024 times too large.")
    if not torch.allclose(first, scale * true, rtol=1e-3, atol=1e-3):
        raise Mistake("not-zeroed", "The gradient at the step is not that of this batch alone: the last one was not cleared.")
    if torch.allclose(used, true.clamp(-1, 1), rtol=1e-3):
        raise Mistake("clipped-by-value", "Each element was clipped separately. Clip the norm of the whole gradient.")
    if torch.allclose(used, true, rtol=1e-3, atol=1e-5):
        left = optimizer.gradient()
        if left is not None and left.norm() < 1.001:
            raise Mistake("clipped-after-step", "The gradients were clipped, but only after the step had used them.")
        raise Mistake("not-clipped", f"The step used a gradient with norm {true.norm():.2f}; max_norm is 1.")
    raise Mistake("wrong-gradient", f"The step used a gradient with norm {used.norm():.3g}; it should be {clipped.norm():.3g}.")
