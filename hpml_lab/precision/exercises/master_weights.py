"""One step of gradient descent with fp16 weights for the network and an fp32 master copy for the updates."""

from collections.abc import Callable

import torch

from hpml_lab.core.exercises import Mistake, exercise, expect

START, TARGET, STEEPNESS = torch.tensor([1.25, 2.0**-10]), torch.tensor([1.22, -(2.0**-10)]), torch.tensor([1.0, 2.0**-12])
RIGHT_DISTANCE = torch.tensor([2.35e-3, 3.73e-8])  # after eight steps
Step = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def master_distances(step: Step) -> list[float]:
    """How far eight steps move each weight of the master copy, relative to the right distance."""
    master, seen = START.clone(), []

    def gradient_of(short: torch.Tensor) -> torch.Tensor:
        seen.append(short.dtype)
        return (STEEPNESS * (short.float() - TARGET)).half()

    for _ in range(8):
        given = step(master, gradient_of, 0.01)
        if given is None:
            raise Mistake("returns-nothing", "Your function returns None: end it with `return master, short`.")
        if not (isinstance(given, tuple | list) and len(given) == 2):
            raise Mistake("not-two-values", "Return two tensors: the fp32 master and its fp16 copy.")
        master, short = given
        if master.dtype != torch.float32:
            raise Mistake("master-in-fp16", f"The master that you return is {master.dtype}; it stays in float32.")
        if short.dtype != torch.float16:
            raise Mistake("copy-not-fp16", f"The copy that you return is {short.dtype}; the network's weights are float16.")
        if not torch.equal(short, master.half()):
            raise Mistake("stale-copy", "The copy that you return is not that of the new master: make it after the update.")
    if torch.float32 in seen:
        raise Mistake("gradient-at-the-master", "The network computes with the fp16 copy: pass that to gradient_of.")
    return ((START - master) / RIGHT_DISTANCE).tolist()


def step_with(update: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]) -> Step:
    """The right step with its line for the new master replaced by update(master, short, grad, lr)."""

    def step(master: torch.Tensor, gradient_of: Callable, lr: float) -> tuple[torch.Tensor, torch.Tensor]:
        short = master.half()
        master = update(master, short, gradient_of(short), lr)
        return master, master.half()

    return step


right = step_with(lambda master, short, grad, lr: master - lr * grad.float())
MISTAKES = {
    "updated-in-fp16": (
        step_with(lambda master, short, grad, lr: (short - lr * grad).float()),
        "The update is added in fp16, where it is lost. Add it to the master in fp32.",
    ),
    "product-in-fp16": (
        step_with(lambda master, short, grad, lr: master - (lr * grad).float()),
        "lr times the gradient is computed in fp16 and underflows. Convert the gradient to fp32 first.",
    ),
    "master-overwritten": (
        step_with(lambda master, short, grad, lr: short.float() - lr * grad.float()),
        "Each step starts from the fp16 copy, which has rounded away what the master had gained.",
    ),
    "uphill": (
        step_with(lambda master, short, grad, lr: master + lr * grad.float()),
        "The weights move away from the minimum: subtract the update.",
    ),
}


@exercise("master-weights", notebook="11_precision")
def judge_master_weights(answer: Step) -> None:
    """One step of gradient descent with fp16 weights for the network and an fp32 master copy for the updates."""
    expect(
        master_distances(answer),
        master_distances(right),
        case="eight steps on two weights (distances relative to the right ones)",
        mistakes={name: (master_distances(step), hint) for name, (step, hint) in MISTAKES.items()},
        tolerance=0.02,
    )
