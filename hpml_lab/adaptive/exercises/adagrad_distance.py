"""Exercise `adagrad-distance`: how many steps Adagrad takes to move a parameter by 1 under gradients of size 1."""

import math

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same

MISTAKES = {
    "rate-does-not-shrink": (
        100,
        "With a constant step of α = 0.01 it would be 100 steps. Which step does Adagrad take at t = 100?",
    ),
    "last-step-for-all": (
        10_000,
        "You took all steps as long as the last one, α/√T. The earlier ones are longer: add them up.",
    ),
    "sum-as-root": (5000, "A factor of 2 is missing: the sum of 1/√t up to T is about 2√T; solve 2α√T = 1 for T."),
    "root-not-squared": (7.07, "√T = 50 gives T = 50²: you took a root once more."),
    "another-rate": (250_000, "That many it would be with α = 0.001; here α is 0.01."),
    "way-not-squared": (50, "2√T = 100 is right; now solve for T."),
    "root-not-inverted": (
        0.02,
        "You solved for the wrong quantity: 2α = 0.02 is the distance after one step of the rule of thumb.",
    ),
    "half": (1250, "Solve 2α√T = 1 for T once more: √T = 50."),
    "rate-forgotten": (0.25, "Solving 2√T = 1 leaves out α: the steps are α/√t."),
    "square-of-the-steps": (6_250_000, "You squared twice: √T = 50, so T = 50²."),
    "square-forgotten": (200, "The distance grows with √T: going twice as far takes four times as many steps."),
}


@exercise("adagrad-distance", notebook="05_adaptive", returns=float)
def judge_adagrad_distance(answer: float) -> None:
    """(1 / 2α)² = 2500; the sum itself reaches 1 at step 2574."""
    steps = float(answer)
    if steps < 0:
        raise Mistake("signed", "The gradient's sign says where the parameter moves; a number of steps has no sign.")
    if 2450 <= steps <= 2650:
        return
    for name, (value, hint) in MISTAKES.items():
        if same(steps / value, 1.0, tolerance=0.02):
            raise Mistake(name, hint)
    if steps > 1e6 or steps == math.inf:
        raise Mistake(
            "never-arrives",
            "The steps shrink, but as 1/√t: their sum has no limit, and it arrives. (Steps of 1/t would take e¹⁰⁰ of them.)",
        )
    raise Mistake("wrong-value", f"Not {steps:g}. With gradients of size 1, G after step t is t: add up α/√t until it is 1.")
