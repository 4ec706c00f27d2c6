"""One step of gradient descent with fp16 weights for the network and an fp32 master copy for the updates."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same

# The first weight's updates are lost at the spacing of fp16, the second's underflow in fp16, and the third starts at 0, so that
# nearly all digits of its updates are kept. The first two starts are no numbers of fp16.
START, TARGET = torch.tensor([1.25 + 2.0**-13, 2.0**-10 + 2.0**-24, 0.0]), torch.tensor([1.22, -(2.0**-10), -1.0137])
STEEPNESS, STEPS, RATES = torch.tensor([1.0, 2.0**-12, 1.0]), 8, (0.01, 0.004)
Step = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def distances(step: Step, lr: float) -> torch.Tensor:
    """How far eight steps move each weight of the master copy."""
    master, seen = START.clone(), []

    def gradient_of(short: torch.Tensor) -> torch.Tensor:
        seen.append(short.dtype)
        return (STEEPNESS * (short.float() - TARGET)).half()

    for _ in range(STEPS):
        master, short = step(master, gradient_of, lr)
        if not torch.allclose(short, master.half(), rtol=0, atol=0, equal_nan=True):
            raise Mistake("stale-copy", "The copy that is returned is that of the new master: make it after the update.")
    if set(seen) - {torch.float16}:
        raise Mistake("gradient-at-the-master", "The network computes with the fp16 copy: pass that to gradient_of.")
    return START - master.detach()


def right(master: torch.Tensor, gradient_of: Callable, lr: float) -> tuple[torch.Tensor, torch.Tensor]:
    short = master.half()
    grad = gradient_of(short)
    master = master - lr * grad.float()
    return master, master.half()


RUBRIC = Rubric(
    right,
    """
master - lr * grad.float()
    master-overwritten :: short.float() - lr * grad.float() :: Each step starts from the fp16 copy, which has rounded away what
        the master had gained.
lr * grad.float()
    product-in-fp16 :: (lr * grad).float() :: lr times the gradient is computed in fp16 and underflows. || Convert the gradient
        to fp32 before it is multiplied by lr.
whole answer
    two-steps :: lambda master, gradient_of, lr: right(right(master, gradient_of, lr)[0], gradient_of, lr) ::
        Each call takes two steps. Take one.
""",
    wrap=lambda step: lambda lr: (distances(step, lr) / distances(right, lr)).tolist(),
)


@exercise(
    "master-weights",
    notebook="12_precision",
    takes="master, gradient_of, lr",
    returns=(tensor(torch.float32), tensor(torch.float16)),
    changes="master",
)
def judge_master_weights(answer: Step) -> None:
    """One step of gradient descent with fp16 weights for the network and an fp32 master copy for the updates."""
    for lr in RATES:
        moved, given = distances(right, lr), distances(answer, lr)
        if not given[:2].any():
            hint = "After eight steps weights with small updates are what they were. Are these subtracted, or lost in fp16?"
            raise Mistake("never-moves", hint)
        if not given[1] and same(given[[0, 2]], moved[[0, 2]]):
            hint = (
                f"The second weight's updates, about {abs(moved[1].item()) / STEPS:.0e}, never arrive, the others do, to all "
                "digits. Do you leave small updates out? In the fp32 master none is too small."
            )
            raise Mistake("skips-small-updates", hint)
    words = "eight steps on three weights, distances relative to the right ones"
    RUBRIC.expect(answer, {f"lr {lr:g} and {words}": (lr,) for lr in RATES}, tolerance=0.02)
    for lr in RATES:
        if not same(distances(answer, lr)[2], distances(right, lr)[2], 1e-4):
            hint = "Only three digits of the updates are right: lr or the gradient was rounded to 16 bits once more."
            raise Mistake("rounded-once-more", hint)
    matrix = torch.linspace(-1, 1, 6).reshape(2, 3)
    own, wanted = (step(matrix.clone(), lambda short: 0.5 * short, 0.1)[0] for step in (answer, right))
    if not same(own, wanted, 1e-4):
        raise Mistake("vectors-only", "Right for a vector of weights, and not for a matrix of them.")
