"""A training step with GradScaler that clips the norm of the gradient."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.steps import Steps

X = torch.tensor([[1.0, 0.5, -0.2], [0.2, 1.0, -0.4]])
# Magnitudes of x and y, and max_norm. The first batch needs no clipping. The fourth overflows to NaN, also where a processor
# adds a product before it rounds it; the sixth to infinities, and only because of the scale.
BATCHES = (
    (0.1, 0.3, 2.0),
    (3.0, 20.0, 1.0),
    (2.0, -9.0, 0.3),
    (1e38, 0.0, 1.0),
    (1.0, 3.0, 1.7),
    (1.0, -1e37, 1.0),
    (0.1, 0.3, 0.25),
)
TORCHS_ERRORS = {  # a part of what GradScaler says: (mistake, hint)
    "_scale is None": (
        "loss-not-scaled",
        "unscale_, step or update came before the scaler had scaled anything. || Before them the loss is scaled: "
        "scaler.scale(loss).backward().",
    ),
    "unscale_() has already": ("unscaled-twice", "unscale_ is called twice in one step. Call it once, right after backward()."),
    "after step()": ("unscale-after-step", "unscale_ comes after scaler.step: the weights have already changed."),
    "step() has already": ("stepped-twice", "scaler.step(optimizer) is called twice in one step."),
    "for this optimizer": (
        "no-gradients",
        "When the scaler looked, in unscale_ or else in step, no parameter had a gradient. || backward() comes before both, "
        "and zero_grad() not in between.",
    ),
    "prior to update": (
        "nothing-to-update",
        "At scaler.update() nobody has looked for infinities since the last one. || scaler.step(optimizer), or unscale_, looks "
        "for them; update() comes once, at the end.",
    ),
}


@exercise("clip-with-scaler", notebook="12_precision", takes="model, optimizer, scaler, x, y, max_norm", returns=None)
def judge_clip_with_scaler(answer: Callable) -> None:
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 1.0]]))
        model.bias.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    draw = drawn()
    batches = (*BATCHES, *((draw.uniform(0.5, 2), draw.uniform(2, 9), draw.uniform(0.2, 3)) for _ in range(3)))
    for x_size, y_size, max_norm in batches:
        x, y = x_size * X, torch.full((2, 1), y_size)
        gradients = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        true = torch.cat([gradient.flatten() for gradient in gradients])
        steps, scale, state = Steps(model, optimizer), scaler.get_scale(), scaler.state_dict()
        left = steps.gradient()
        try:
            answer(model, optimizer, scaler, x, y, max_norm)
        except (AssertionError, RuntimeError) as error:
            for text, mistake in TORCHS_ERRORS.items():
                if text in str(error):
                    raise Mistake(*mistake) from error
            raise
        if not (scale * true).isfinite().all():
            check_overflow(steps, scaler.get_scale() < scale)
            continue
        check_step(steps, true, scale, max_norm, left)
        if scaler.state_dict() == state:  # which counts the good steps
            raise Mistake(
                "update-missing",
                "The scaler is as it was before. || Each step ends with scaler.update(), or the scale never changes.",
            )


def check_overflow(steps: Steps, is_lowered: bool) -> None:
    if not torch.equal(steps.end, steps.start):
        raise Mistake(
            "stepped-on-overflow",
            "The weights changed although the gradients were infinite. || optimizer.step() also steps on infinite ones: "
            "scaler.step(optimizer) looks first.",
        )
    if not is_lowered:
        raise Mistake(
            "scale-not-lowered",
            "After a batch that overflowed the scale is what it was. || scaler.update() lowers it, after this batch, too, if "
            "scaler.step or unscale_ have seen the infinities.",
        )


def clipped(gradient: torch.Tensor, max_norm: float, kind: float = 2.0) -> torch.Tensor:
    return gradient * min(1.0, max_norm / (gradient.norm(kind).item() + 1e-6))


def check_step(steps: Steps, true: torch.Tensor, scale: float, max_norm: float, left: torch.Tensor) -> None:
    """Raise the Mistake that explains a batch without one step, or a step with the wrong gradient.

    true  the right gradient before clipping
    left  the gradient that was there before
    """
    if len(steps.gradients) > 1:
        raise Mistake(
            "stepped-twice", "scaler.step(optimizer) calls optimizer.step() itself: one more call would be a second step."
        )
    if not steps.gradients and not left.isfinite().all():
        raise Mistake("not-zeroed", "The gradient at the step is that of this batch alone: the last one has to be cleared.")
    steps.expect_some()
    [used] = steps.gradients
    if close(used, clipped(true, max_norm)):  # however it was done: max_norm times the scale is right too
        return
    parts = clipped(true[:-1], max_norm), clipped(true[-1:], max_norm)
    known = {
        "no-gradients": (
            (0 * true,),
            "At the optimizer's step the gradient was 0, or gone. || Nothing clears it between backward() and the step.",
        ),
        "clipped-before-unscale": (
            (clipped(scale * true, max_norm) / scale,),
            "The gradients that were clipped are still scaled: their norm is too large by the scale.",
        ),
        "unscaled-twice": (
            (clipped(true, max_norm) / scale, clipped(true / scale, max_norm)),
            "The step's gradient is too small by the scale: it was divided once more than multiplied. || scaler.step divides "
            "it, unless unscale_ has since the last update(); backward() runs on scaler.scale(loss).",
        ),
        "not-clipped": ((true,), "The step took the whole gradient. || It is clipped before the step, and after backward()."),
        "always-normalized": (
            (true * max_norm / true.norm(),),
            "The step's gradient has the norm max_norm, and the true one is shorter. || It is not made longer, and is "
            "clipped when it is no longer scaled.",
        ),
        "clipped-by-value": (
            (true.clamp(-max_norm, max_norm),),
            "Clip the norm of the whole gradient, not each element separately.",
        ),
        "another-norm": (
            (clipped(true, max_norm, 1.0), clipped(true, max_norm, float("inf"))),
            "The norm to clip is the Euclidean one, the root of the sum of squares.",
        ),
        "clipped-separately": (
            (torch.cat(parts),),
            "Weight and bias were clipped separately. Clip the norm of all gradients together: clip_grad_norm_ takes them all.",
        ),
        "one-parameter-only": (
            (torch.cat([parts[0], true[-1:]]), torch.cat([true[:-1], parts[1]])),
            "The gradients of all parameters are clipped together, not one alone. Give all to clip_grad_norm_.",
        ),
        "max-norm-ignored": (
            tuple(clipped(true, norm) for _, _, norm in BATCHES),
            "The gradient was clipped to another norm than max_norm, which differs from step to step.",
        ),
    }
    for name, (gradients, hint) in known.items():
        if any(close(used, gradient) for gradient in gradients):
            raise Mistake(name, hint)
    wanted = clipped(true, max_norm)
    factor = (used @ wanted / (wanted @ wanted)).item()
    is_multiple = f"{factor:.3g} times" if close(used, factor * wanted) else "not"
    hint = f"The gradient that the step took is {is_multiple} the clipped one of F.mse_loss(model(x), y): its norm is"
    raise Mistake("wrong-gradient", f"{hint} {used.norm():.3g} instead of {wanted.norm():.3g}.")


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two gradients agree within 0.1 % of their norm."""
    return bool((a - b).norm() <= 1e-3 * b.norm() + 1e-9)
