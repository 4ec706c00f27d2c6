"""The checks of notebook 11's exercises."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from hpml_lab.core.exercises import Mistake, exercise, expect, same
from hpml_lab.precision.formats import BF16, FP16, is_lost
from hpml_lab.precision.watched import BARE_STEP, WatchedDescent, WatchedScaler

NOTEBOOK = "11_precision"


# ---- loss-scaler --------------------------------------------------------------------------------------------------------

_NAN, _TINY = math.nan, 2.0**-26
_START_AT = torch.tensor([1.0, -1.0, 0.0])  # the third weight has gradients of 2^-26 alone: beside 1 such a step is lost
# The true gradients step by step. With a scale of 2^16 those of 2 and more overflow fp16; 2^-26 is zero in it without one.
_PLANTED = [(0.5, _TINY), (0.25, 0.1), (2.0, 0.1), (0.5, 0.1), (-0.3, _TINY), (0.5, 0.2), (0.1, 0.1), (0.2, 0.1)]
_PLANTED += [(_NAN, 0.1), (0.5, 0.1), (0.5, 0.3), (0.1, 0.1), (0.1, 0.2), (0.2, -8.0), (0.1, 0.1)]
_PLANTED = [(*two, _TINY) for two in _PLANTED]
_OPTIONS = ({"growth": 2.0, "backoff": 0.5, "interval": 3}, {"growth": 4.0, "backoff": 0.25, "interval": 2})


def _by_torch(growth: float, backoff: float, interval: int) -> list[list[float]]:
    """Weights and scale after each planted step by torch's own GradScaler."""
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=2.0**16, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    weight = _START_AT.clone().requires_grad_()
    optimizer, trace = WatchedDescent([weight], 0.1), []
    for planted in _PLANTED:
        one = scaler.scale(torch.ones(()))
        weight.grad = (one * torch.tensor(planted)).half().float()
        scaler.step(optimizer)
        scaler.update()
        trace.append(_shown(weight, scaler.get_scale()))
    return trace


def _shown(weight: torch.Tensor, scale: float) -> list[float]:
    """The weights, the third as a multiple of its gradient, and the scale."""
    *large, tiny = torch.as_tensor(weight).tolist()
    return [*large, tiny / _TINY, float(scale)]


def _played(step: Callable, options: dict[str, Any]) -> list[list[float]]:
    """The same for a student's step."""
    weight, scale, good, trace = _START_AT, 2.0**16, 0, []
    for planted in _PLANTED:
        calls = []

        def gradient_of(s: float, true: tuple[float, ...] = planted, calls: list = calls) -> torch.Tensor:
            calls.append(s)
            if len(calls) > 100:  # some gradients are NaN with every scale
                raise Mistake("tries-again", "A step asks for its gradient again and again. Skip it: the next step tries anew.")
            return (s * torch.tensor(true)).half().float()

        got = step(weight.clone(), scale, good, gradient_of, lr=0.1, **options)
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: end it with `return weight, scale, good`.")
        if not (isinstance(got, tuple | list) and len(got) == 3):
            raise Mistake("not-three-values", "Return three values: the weight, the scale and the count of good steps.")
        weight, scale, good = got
        trace.append(_shown(weight, scale))
    return trace


def _known(mistake: str) -> Callable:
    """One step of dynamic loss scaling with the given mistake in it."""

    def step(weight, scale, good, gradient_of, lr, growth, backoff, interval):
        grad = gradient_of(1.0 if mistake == "loss-not-scaled" else scale)
        finite = bool(grad.isfinite().all()) or mistake == "nan-missed" and not bool(grad.isinf().any())
        after = scale
        if not finite:
            if mistake != "scale-never-halved":
                after = scale * backoff
            if mistake == "stops-scaling":
                after = 1.0
            if mistake != "grows-right-after-backoff":
                good = 0
        else:
            good += 1
            if good >= interval or mistake == "grows-every-step":
                after = scale * growth
                good = good if mistake == "count-goes-on" else 0
        if mistake == "never-grows" and finite:
            after = scale
        if finite or mistake == "steps-on-overflow":
            used = after if mistake == "unscaled-by-the-new-scale" else scale
            divisor = {"not-unscaled": 1.0, "unscaled-twice": scale * scale}.get(mistake, used)
            weight = weight - lr * grad / divisor
        return weight, after, good

    return step


_SCALER_HINTS = {
    "loss-not-scaled": "The gradient was asked for with scale 1. Ask for it with the scale, or 2⁻²⁶ is zero in fp16.",
    "nan-missed": "A step with a NaN in the gradient was made. Infinity is not the only sign of an overflow: inf - inf is NaN.",
    "steps-on-overflow": "A step was made with infinite gradients. Look at them first, and leave the weights as they are.",
    "scale-never-halved": "The step was skipped, but the scale stayed: the next step overflows just so.",
    "stops-scaling": "After an overflow the scale fell to 1. Multiply it by backoff, once.",
    "grows-every-step": "The scale grows after each good step. It should after `interval` good steps in a row.",
    "grows-right-after-backoff": "Good steps from before an overflow still count: start again at 0 after one.",
    "count-goes-on": "After the scale has grown once, it grows at every step: the count of good steps starts again at 0.",
    "never-grows": "The scale never grows, so small gradients stay lost after the first overflow.",
    "unscaled-by-the-new-scale": "The gradient was made with the old scale but divided by the new one. Update the scale last.",
    "not-unscaled": "The weights move 65536 times too far: divide the gradient by the scale before the step.",
    "unscaled-twice": "The weights hardly move: the gradient is divided by the scale twice.",
}


@exercise("loss-scaler", notebook=NOTEBOOK)
def judge_loss_scaler(answer: Callable) -> None:
    """One step of dynamic loss scaling, set beside torch.amp.GradScaler over planted gradients."""
    for options in _OPTIONS:
        got, right = _played(answer, options), _by_torch(**options)
        if same(got, right):
            continue
        for name, hint in _SCALER_HINTS.items():
            if same(got, _played(_known(name), options)):
                raise Mistake(name, hint)
        at = next(step for step, (one, other) in enumerate(zip(got, right, strict=True)) if not same(one, other))
        given = ", ".join(f"{name} {value:g}" for name, value in options.items())
        raise Mistake(
            "wrong-value",
            f"With {given}, weights (the third over 2⁻²⁶) and scale after step {at + 1} of the planted gradients should be "
            f"{_row(right[at])}; yours are {_row(got[at])}.",
        )


def _row(numbers: list[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)


# ---- clip-with-scaler ---------------------------------------------------------------------------------------------------


_BATCHES = ((3.0, 20.0), (0.1, 0.3), (1e30, 0.0), (2.0, -9.0), (1.0, 3.0))  # size of x, y; the third overflows


@exercise("clip-with-scaler", notebook=NOTEBOOK)
def judge_clip_with_scaler(answer: Callable) -> None:
    """A training step with GradScaler and clipping of the gradient's norm, watched call by call."""
    model = torch.nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 1.0]]))
        model.bias.zero_()
    optimizer = WatchedDescent(list(model.parameters()), 0.01)
    scaler = WatchedScaler(optimizer)
    for x_size, y_size in _BATCHES:
        x = x_size * torch.tensor([[1.0, 0.5, -0.2], [0.2, -1.0, 0.4]])
        y = torch.full((2, 1), y_size)
        true = torch.cat([one.flatten() for one in torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))])
        scaler.seen, optimizer.stepped, scale = {}, [], scaler.get_scale()
        answer(model, optimizer, scaler, x, y, 1.0)
        _judge_step(scaler, optimizer, true, scale)


def _judge_step(scaler: WatchedScaler, optimizer: WatchedDescent, true: torch.Tensor, scale: float) -> None:
    seen, clipped = scaler.seen, true * min(1.0, 1.0 / (true.norm().item() + 1e-6))
    if "scale" not in seen:
        raise Mistake("loss-not-scaled", "backward() ran on the plain loss. Call it on scaler.scale(loss).")
    if "step" not in seen:
        if optimizer.stepped:
            raise Mistake("step-without-scaler", BARE_STEP)
        raise Mistake("never-steps", "scaler.step(optimizer) is never called.")
    if "update" not in seen:
        raise Mistake("update-missing", "scaler.update() is missing: the scale never changes, and the next unscale_ raises.")
    if not true.isfinite().all():
        if optimizer.stepped:
            raise Mistake("stepped-on-overflow", "The weights moved although the gradients were infinite.")
        return
    if len(optimizer.stepped) > 1:
        raise Mistake("stepped-twice", "The optimizer stepped twice: scaler.step(optimizer) calls optimizer.step() by itself.")
    if not optimizer.stepped:
        raise Mistake("wrong-gradient", "scaler.step skipped a batch whose true gradient is finite: yours was not.")
    [used] = optimizer.stepped
    if torch.allclose(used, clipped, rtol=1e-3, atol=1e-5):  # on whatever way: max_norm times the scale does it, too
        return
    first = seen.get("unscale_", seen["step"])
    if true.norm() > 1 and first.norm() < 1.001:
        name = "clipped-before-unscale" if "unscale_" in seen else "never-unscaled"
        raise Mistake(name, "The gradients that were clipped are still scaled: their norm is 1024 times too large.")
    if not torch.allclose(first, scale * true, rtol=1e-3, atol=1e-3):
        raise Mistake("not-zeroed", "The gradient at the step is not this batch's alone: the last one was not cleared.")
    if torch.allclose(used, true.clamp(-1, 1), rtol=1e-3):
        raise Mistake("clipped-by-value", "Each element was clipped by itself. Clip the norm of the whole gradient.")
    if torch.allclose(used, true, rtol=1e-3, atol=1e-5):
        left = optimizer.gradient()
        if left is not None and left.norm() < 1.001:
            raise Mistake("clipped-after-step", "The gradients were clipped, but after the step had used them.")
        raise Mistake("not-clipped", f"The step used a gradient with norm {true.norm():.2f}; max_norm is 1.")
    raise Mistake("wrong-gradient", f"The step used a gradient with norm {used.norm():.3g}; it should be {clipped.norm():.3g}.")


# ---- lost-updates -------------------------------------------------------------------------------------------------------

# (weight, update) by format: just below half the spacing, at it from even and odd weights, above it; small and large weights.
_CASES = [
    (form, weight, form.spacing(weight) * part)
    for form in (FP16, BF16)
    for weight in (1.0, 1 + form.eps, 1.875, 96.0, 2.0**-9, 2.0**-12 * (1 + form.eps))
    for part in (2.0**-6, 0.46875, 0.5, 0.53125, 0.9375, 1.0)
    if form.spacing(weight) * part in form.values()  # so that adding in the format gives the same answer
] + [(FP16, 2.0**-20, 2.0**-24), (FP16, 3 * 2.0**-24, 2.0**-24)]


def _lost(form: Any, weight: float, update: float) -> bool:
    return bool(is_lost(torch.tensor([weight]).double(), torch.tensor([update]).double(), form))


def _told(rule: Callable[[Any, float, float], bool]) -> list[bool]:
    return [bool(rule(form, weight, update)) for form, weight, update in _CASES]


@exercise("lost-updates", notebook=NOTEBOOK)
def judge_lost_updates(answer: Callable) -> None:
    """Whether weight + update is weight again in a 16-bit format, for weights and updates around the limit."""
    right = _told(_lost)
    got = [answer(weight, update, form.dtype) for form, weight, update in _CASES]
    if any(one is None for one in got):
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not all(isinstance(one, bool | np.bool_) or isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in got):
        raise Mistake("not-a-truth-value", "Return True or False.")
    got = [bool(one) for one in got]
    if got == right:
        return
    rules = {
        "eps-not-spacing": (lambda f, w, u: u < f.eps / 2, "eps is the spacing at 1 only. It doubles at each power of two."),
        "eps-and-half-forgotten": (lambda f, w, u: u < f.eps, "eps is the spacing at 1 only, and half of it is enough."),
        "half-forgotten": (lambda f, w, u: u < f.spacing(w), "Half the spacing is enough: rounding goes to the nearest."),
        "tie-always-kept": (lambda f, w, u: u < f.spacing(w) / 2, "Just half way goes to the even neighbour: 1 stays 1."),
        "tie-always-lost": (lambda f, w, u: u <= f.spacing(w) / 2, "Just half way goes to the even one: odd weights move."),
        "tiny-not-spacing": (lambda f, w, u: u < f.smallest_normal, "finfo.tiny is the smallest number, not a distance."),
        "relative-to-the-weight": (
            lambda f, w, u: u < f.eps * w / 2,
            "The spacing is the same from one power of two to the next.",
        ),
        "upside-down": (lambda f, w, u: not _lost(f, w, u), "True means lost: your answers are the other way round."),
    }
    for name, (rule, hint) in rules.items():
        if got == _told(rule):
            raise Mistake(name, hint)
    at = next(i for i, (a, b) in enumerate(zip(got, right, strict=True)) if a != b)
    form, weight, update = _CASES[at]
    raise Mistake(
        "wrong-value", f"{weight:g} + {update:g} in {form.name} is {'lost' if right[at] else 'not lost'}; yours says otherwise."
    )


# ---- master-weights -----------------------------------------------------------------------------------------------------

_START, _GOAL, _STEEP = torch.tensor([1.25, 2.0**-10]), torch.tensor([1.22, -(2.0**-10)]), torch.tensor([1.0, 2.0**-12])


def _walked(step: Callable) -> list[float]:
    """How far eight steps bring each weight of the master, about 1 where all is right."""
    master, seen = _START.clone(), []

    def gradient_of(short: torch.Tensor) -> torch.Tensor:
        seen.append(short.dtype)
        return (_STEEP * (short.float() - _GOAL)).half()

    for _ in range(8):
        got = step(master, gradient_of, 0.01)
        if got is None:
            raise Mistake("returns-nothing", "Your function returns None: end it with `return master, short`.")
        if not (isinstance(got, tuple | list) and len(got) == 2):
            raise Mistake("not-two-values", "Return two tensors: the fp32 master and its fp16 copy.")
        master, short = got
        if master.dtype != torch.float32:
            raise Mistake("master-in-fp16", f"The master that you return is {master.dtype}; it stays in float32.")
        if short.dtype != torch.float16:
            raise Mistake("copy-not-fp16", f"The copy that you return is {short.dtype}; the net's weights are float16.")
        if not torch.equal(short, master.half()):
            raise Mistake("stale-copy", "The copy that you return is not the new master's: make it after the update.")
    if torch.float32 in seen:
        raise Mistake("gradient-at-the-master", "The net computes with the fp16 copy: hand that to gradient_of.")
    return ((_START - master) / torch.tensor([2.35e-3, 3.73e-8])).tolist()


def _known_master(mistake: str) -> Callable:
    def step(master, gradient_of, lr):
        short = master.half()
        grad = gradient_of(short)
        if mistake == "updated-in-fp16":
            after = (short - lr * grad).float()
        elif mistake == "product-in-fp16":
            after = master - (lr * grad).float()
        elif mistake == "master-overwritten":
            after = short.float() - lr * grad.float()
        else:
            after = master + (1 if mistake == "uphill" else -1) * lr * grad.float()
        return after, after.half()

    return step


_MASTER_HINTS = {
    "updated-in-fp16": "The update is added in fp16, where it is lost. Add it to the master in fp32.",
    "product-in-fp16": "lr times the gradient is computed in fp16 and underflows. Turn the gradient into fp32 first.",
    "master-overwritten": "Each step starts from the fp16 copy, which has rounded off what the master had gained.",
    "uphill": "The weights move away from the minimum: subtract the update.",
}


@exercise("master-weights", notebook=NOTEBOOK)
def judge_master_weights(answer: Callable) -> None:
    """One step of descent with fp16 weights for the net and an fp32 master for the updates."""
    expect(
        _walked(answer),
        _walked(_known_master("")),
        case="eight steps on two weights (distances in parts of what is right)",
        mistakes={name: (_walked(_known_master(name)), hint) for name, hint in _MASTER_HINTS.items()},
        tolerance=0.02,
    )
