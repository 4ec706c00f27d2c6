"""Exercise gradients-after: at each point, which passes have added to x.grad since it was None, and what was x in each?"""

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_keys
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same

KNOWN = {  # (point, answer): (name, hint)
    ("A", 9.0): ("value-not-slope", "9 is the value of x². .grad holds its derivative."),
    ("A", 3.0): ("factor-lost", "x appears twice in x * x: both contribute."),
    ("B", 6.0): ("overwrites", "backward does not replace .grad. Look at A again: what happens to what is there already?"),
    ("C", 6.0): ("detach-ignored", "x.detach() is a constant to autograd: only the other x is differentiated."),
    ("C", 9.0): ("value-not-slope", "9 is the value of the product. What is the slope of 3 · x?"),
    ("C", 0.0): ("all-detached", "Only one of the two factors was detached. The product still depends on x through the other."),
    ("C", 15.0): ("reset-ignored", "x.grad was set to None between B and C."),
    ("C", 18.0): ("reset-ignored", "x.grad was set to None between B and C, and x.detach() is a constant."),
    ("D", 6.0): ("vector-ignored", "backward(v) computes v · ∂y/∂x. Here v is 2."),
    ("D", 2.0): ("vector-alone", "2 is v, the gradient that arrives at y. The slope of x² multiplies it."),
    ("D", 36.0): ("vector-squared", "v enters once: v · 2x."),
    ("D", 9.0): ("value-not-slope", "9 is the value of x². Its slope, times v, is wanted."),
    ("D", 18.0): ("value-not-slope", "18 is v · x². The slope of x², times v, is wanted."),
    ("D", 15.0): ("reset-ignored", "x.grad was set to None between C and D."),
    ("D", 24.0): ("accumulates-after-reset", "x.grad was set to None before D: nothing is there to add to."),
    ("E", -18.0): ("overwrites", "The slope at the new x is right. But x.grad was not cleared after D."),
    ("E", 6.0): ("overwrites", "backward adds to what D left in x.grad; and the line before E has moved x."),
    ("E", 18.0): ("update-ignored", "You added the slope at x = 3. The line before E has moved x: to which value?"),
    ("E", 24.0): ("vector-remembered", "v = 2 belonged to D's backward only; and the line before E has moved x."),
    ("E", -24.0): ("vector-remembered", "v = 2 belonged to D's backward only: here the slope counts once."),
    ("E", 12.0): ("second-pass-ignored", "That is D's value. One more backward has run since."),
    ("E", 42.0): ("update-uphill", "x -= x.grad makes x smaller: 3 - 12."),
    ("E", 30.0): ("sign-of-x-lost", "The new x is negative: which sign has the slope of x² there?"),
    ("E", 81.0): ("value-not-slope", "81 is the value of x² at the new x."),
    ("E", 93.0): ("value-not-slope", "81 is the value of x² at the new x; its slope is what is added."),
}


def run_listing() -> dict[str, float]:
    """x.grad at the points A to E of the notebook's listing."""
    x, grads = torch.tensor(3.0, requires_grad=True), {}
    (x * x).backward()
    grads["A"] = x.grad.item()
    (x * x).backward()
    grads["B"] = x.grad.item()
    x.grad = None
    (x.detach() * x).backward()
    grads["C"] = x.grad.item()
    x.grad = None
    (x * x).backward(torch.tensor(2.0))
    grads["D"] = x.grad.item()
    with torch.no_grad():
        x -= x.grad
    (x * x).backward()
    grads["E"] = x.grad.item()
    return grads


@exercise("gradients-after", notebook="02_autograd", returns={str: float})
def judge_gradients_after(answer: dict[str, float]) -> None:
    """x.grad at five points of a listing."""
    right = run_listing()
    answer = expect_keys(answer, right)
    for point, grad in right.items():
        if not same(answer[point], grad):
            name, hint = KNOWN.get(
                (point, float(answer[point])),
                ("wrong-value", f"x.grad is not {answer[point]} there. Run the listing up to there and print it."),
            )
            raise Mistake(name, f"{point}: {hint}")
