"""The judges of notebook 02's exercises."""

from collections.abc import Callable

import numpy as np
import torch

from hpml_lab.autograd.engine import Tensor, backward_steps, sum_, tanh, topological_order
from hpml_lab.core.exercises import Mistake, exercise, expect, same

NOTEBOOK = "02_autograd"


def _dictionary(answer: object, keys: tuple[str, ...], kind: type | tuple[type, ...], what: str) -> None:
    if not isinstance(answer, dict) or set(answer) != set(keys):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(keys)}.")
    if not all(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for value in answer.values()):
        raise Mistake("wrong-type", f"Each value is {what}.")


# ---- reverse-sweep -----------------------------------------------------------------------------------------


def _diamond() -> dict[str, Tensor]:
    """A graph in which x and a are used more than once: a = xy, b = tanh(a) + x, f = sum(ab)."""
    x, y = Tensor([0.5, -1.0], True, "x"), Tensor(0.8, True, "y")
    a = x * y
    b = tanh(a) + x
    f = sum_(a * b)
    a.name, b.name, f.name = "a", "b", "f"
    return {node.name: node for node in (x, y, a, b, f)}


def _sweep(root: Tensor, *, backward: bool = True, add: bool = True, chain: bool = True, seed: float = 1.0) -> dict:
    """The reverse sweep with one thing left out."""
    order = topological_order(root)
    found = {node: np.zeros(node.shape) for node in order} | {root: np.full(root.shape, seed)}
    for node in reversed(order) if backward else order:
        for parent, vjp in node.parents:
            part = vjp(found[node] if chain else np.ones(node.shape))
            found[parent] = found[parent] + part if add else part
    return found


def _passed_on_again(root: Tensor) -> dict:
    """A recursion that hands on the whole sum each time that something arrives."""
    found = {node: np.zeros(node.shape) for node in topological_order(root)} | {root: np.ones(root.shape)}

    def visit(node: Tensor) -> None:
        for parent, vjp in node.parents:
            found[parent] = found[parent] + vjp(found[node])
            visit(parent)

    visit(root)
    return found


@exercise("reverse-sweep", notebook=NOTEBOOK)
def judge_reverse_sweep(answer: Callable) -> None:
    """{node: ∂root/∂node} for every node that a gradient reaches."""
    nodes = _diamond()
    root = nodes["f"]
    try:
        got = answer(root)
    except KeyError as error:
        if error.args and error.args[0] in root.inputs:  # from the root one step back: the direction was right
            raise Mistake(
                "adds-to-nothing",
                "`+=` reads the old value first, and at a node's first contribution there is none yet: "
                "what is a sum before anything is added?",
            ) from error
        raise Mistake(
            "forward-order",
            "A node was asked for its gradient before any had arrived. Which node has its gradient from "
            "the start, and in which direction do you go from there?",
        ) from error
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(got, dict):
        raise Mistake("no-dictionary", "Return a dictionary from each node to its gradient.")
    if got and all(isinstance(key, str) for key in got):
        raise Mistake("names-as-keys", "The keys are the nodes themselves, not their names.")
    right = dict(backward_steps(root))
    missing = [name for name, node in nodes.items() if node not in got]
    if set(missing) == {"a", "b", "f"}:
        raise Mistake(
            "leaves-only", "The leaves are there; a, b and f are not. Their gradients were needed on the way: return them too."
        )
    if missing:
        raise Mistake("nodes-missing", f"No gradient for {', '.join(missing)}.")

    def listed(found: dict) -> list[np.ndarray]:
        return [np.asarray(found[node]) for node in nodes.values()]

    expect(
        listed(got),
        listed(right),
        case="a = x·y, b = tanh(a) + x, f = sum(a·b), in the order x, y, a, b, f",
        mistakes={
            "overwrites": (
                listed(_sweep(root, add=False)),
                "x and a are used twice, and the second contribution took the place of the first. "
                "The multivariate chain rule adds them.",
            ),
            "starts-at-zero": (
                listed(_sweep(root, seed=0.0)),
                "Every gradient is 0. With which number does the pass begin: what is ∂f/∂f?",
            ),
            "no-chain-factor": (
                listed(_sweep(root, chain=False)),
                "Each vjp was given ones. It must be given the gradient that has arrived at its own node: that is the chain.",
            ),
            "forward-order": (
                listed(_sweep(root, backward=False)),
                "Gradients reached only the last operation's inputs: you went from the "
                "leaves to the result, and the other way is meant.",
            ),
            "passes-on-twice": (
                listed(_passed_on_again(root)),
                "a is visited twice, and the second visit hands on all that has arrived, "
                "including what went before. Visit each node once, when its sum is complete.",
            ),
        },
    )
    if any(node.grad is not None for node in nodes.values()):
        raise Mistake("sets-grad", "The gradients are right, but `.grad` of some node was changed: only return them.")
    line = Tensor(3.0, True)
    expect(np.asarray(answer(line * line)[line]), 6.0, case="f = x · x at x = 3")


# ---- which-track -------------------------------------------------------------------------------------------

WHICH_TRACK = ("x + y", "x + z", "(x + z)[0]", "z.detach()", "z.clone()", "torch.zeros_like(z)", "z > 0", "no_grad: z * 2")


def _tracked() -> dict[str, bool]:
    x, y, z = torch.ones(3), torch.ones(3), torch.ones(3, requires_grad=True)
    with torch.no_grad():
        hidden = (z * 2).requires_grad
    names = {"x": x, "y": y, "z": z, "torch": torch}
    return {text: eval(text, names).requires_grad for text in WHICH_TRACK[:-1]} | {WHICH_TRACK[-1]: hidden}


@exercise("which-track", notebook=NOTEBOOK)
def judge_which_track(answer: dict[str, bool]) -> None:
    """True for each expression whose result requires a gradient."""
    _dictionary(answer, WHICH_TRACK, bool, "True (it is tracked) or False")
    truth = _tracked()
    wrong = {text for text in truth if answer[text] != truth[text]}
    known = {
        "constants-tracked": ("x + y", "Neither x nor y asked for a gradient. Who would?"),
        "all-operands-needed": ("x + z", "One tracked operand is enough: the result depends on it."),
        "slices-cut": (
            "(x + z)[0]",
            "Picking an element is an operation like any other: its gradient goes back to that place.",
        ),
        "detach-tracks": ("z.detach()", "detach gives the same numbers without their history. That is its only purpose."),
        "clone-cuts": ("z.clone()", "clone copies the numbers and is recorded as an operation. Which call cuts the history?"),
        "like-inherits": (
            "torch.zeros_like(z)",
            "zeros_like takes over shape, dtype and device. The zeros do not depend on z's values.",
        ),
        "comparison-tracks": ("z > 0", "True and False do not move when z moves a little: there is nothing to differentiate."),
        "no-grad-ignored": ("no_grad: z * 2", "Inside the block nothing is recorded, whatever the operands are."),
    }
    for name, (text, hint) in known.items():
        if wrong == {text}:
            raise Mistake(name, hint)
    if wrong:
        raise Mistake(
            "several-wrong",
            f"{len(wrong)} of {len(truth)} are wrong. Print .requires_grad of each; one of them is {sorted(wrong)[0]}.",
        )


# ---- gradients-after ---------------------------------------------------------------------------------------

GRADIENTS_AFTER = ("A", "B", "C", "D", "E")


def _gradients_after() -> dict[str, float]:
    """What x.grad is at the places A to E of the notebook's listing."""
    x, after = torch.tensor(3.0, requires_grad=True), {}
    (x * x).backward()
    after["A"] = x.grad.item()
    (x * x).backward()
    after["B"] = x.grad.item()
    x.grad = None
    (x.detach() * x).backward()
    after["C"] = x.grad.item()
    x.grad = None
    (x * x).backward(torch.tensor(2.0))
    after["D"] = x.grad.item()
    with torch.no_grad():
        x -= 0.5 * x.grad
    (x * x).backward()
    after["E"] = x.grad.item()
    return after


@exercise("gradients-after", notebook=NOTEBOOK)
def judge_gradients_after(answer: dict[str, float]) -> None:
    """x.grad at five places of a listing."""
    _dictionary(answer, GRADIENTS_AFTER, (int, float), "a number")
    truth = _gradients_after()
    known = {
        ("A", 9.0): ("value-not-slope", "9 is the value of x². .grad holds its derivative."),
        ("A", 3.0): ("factor-lost", "x stands twice in x * x: both contribute."),
        ("B", 6.0): ("overwrites", "backward does not replace .grad. Look at A again: what happens to what is there already?"),
        ("C", 6.0): ("detach-ignored", "x.detach() is a constant to autograd: only the other x is differentiated."),
        ("C", 9.0): ("value-not-slope", "9 is the value of the product. What is the slope of 3 · x?"),
        ("C", 0.0): (
            "all-detached",
            "Only one of the two factors was detached. The product still depends on x through the other.",
        ),
        ("C", 15.0): ("reset-ignored", "x.grad was set to None between B and C."),
        ("D", 6.0): ("vector-ignored", "backward(v) computes v · ∂y/∂x. Here v is 2."),
        ("D", 36.0): ("vector-squared", "v enters once: v · 2x."),
        ("E", -6.0): ("overwrites", "The slope at the new x is right. But nobody cleared x.grad after D."),
        ("E", 18.0): ("update-ignored", "You added the slope at x = 3. The line before E has moved x: to which value?"),
        ("E", 12.0): ("second-pass-ignored", "That is D's value. One more backward has run since."),
        ("E", 9.0): ("value-not-slope", "9 is the value of x² at the new x."),
    }
    for place in GRADIENTS_AFTER:
        if not same(answer[place], truth[place]):
            name, hint = known.get(
                (place, float(answer[place])),
                ("wrong-value", f"{answer[place]} is not what x.grad is at {place}. Run the listing up to there and print it."),
            )
            raise Mistake(name, f"{place}: {hint}")


# ---- jacobian-by-rows --------------------------------------------------------------------------------------


@exercise("jacobian-by-rows", notebook=NOTEBOOK)
def judge_jacobian_by_rows(answer: Callable) -> None:
    """J (m, n) of f at x, one backward pass for each row."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[0] * x[1], x[1] * x[2], x[0] ** 2, torch.sin(x[2])])

    x = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
    J = torch.autograd.functional.jacobian(f, x.detach())
    try:
        got = answer(f, x)
    except RuntimeError as error:
        for part, name, hint in (
            (
                "second time",
                "graph-freed",
                "The first backward gave the graph's memory free. Ask it to keep the graph, or call f again for each row.",
            ),
            ("implicitly created", "no-vector", "f(x) has several elements: backward needs a v that says which of them count."),
            ("Mismatch in shape", "vector-too-long", "v has one element for each output of f, not for each input."),
        ):
            if part in str(error):
                raise Mistake(name, hint) from error
        raise
    if isinstance(got, list | tuple) and len(got) == 4:
        raise Mistake("list-of-rows", "These are the rows; stack them into one tensor of shape (m, n).")
    total = J.sum(0)
    expect(
        got,
        J,
        case="an f from 3 numbers to 4",
        tolerance=1e-5,
        mistakes={
            "transposed": (J.T, "Row i belongs to output i: (m, n), outputs first."),
            "sum-of-rows": (total, "With v = ones you get the sum of all rows. Choose v so that it picks one."),
            "accumulates": (J.cumsum(0), "Each row contains all rows before it: x.grad was not cleared between the passes."),
            "one-tensor-for-all": (
                total.expand(4, 3),
                "All rows are the same: you stored x.grad itself each time, and backward went on adding to "
                "it. "
                "Clear it between the passes, or use torch.autograd.grad.",
            ),
            "first-row-only": (J[0], "That is the first row. The others need a v of their own."),
            "square-only": (J[:3], "One row is missing: f has more outputs than inputs. Count the rows by f(x)."),
        },
    )
    if getattr(got, "requires_grad", False):  # an array of NumPy is right, too
        raise Mistake("still-attached", "The numbers are right, but J still hangs on a graph: create_graph is not needed here.")
    again = torch.tensor([1.0, 3.0], requires_grad=True)
    expect(answer(lambda t: (t * t).sum().reshape(1), again), [[2.0, 6.0]], case="an f with one output", tolerance=1e-5)


# ---- perceptron-gradient -----------------------------------------------------------------------------------


@exercise("perceptron-gradient", notebook=NOTEBOOK)
def judge_perceptron_gradient(answer: Callable) -> None:
    """∂L/∂w (n,) of the mean binary cross-entropy over a batch."""
    X = torch.tensor([[1.0, 2.0], [-0.5, 1.5], [2.0, -1.0], [0.5, 0.3], [-1.0, -2.0]])
    w, y = torch.tensor([0.4, -0.7]), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    N = len(y)
    z = X @ w
    p = torch.sigmoid(z)
    right = X.T @ (p - y) / N
    try:
        got = answer(w.clone(), X.clone(), y.clone())
    except RuntimeError as error:
        if "size" in str(error) or "shape" in str(error):
            raise Mistake(
                "shapes",
                f"Shapes do not fit: {str(error).splitlines()[0][:80]}. X is (N, n), w (n,), y (N,): the result is (n,).",
            ) from error
        raise
    each = X * (p - y)[:, None]
    expect(
        got,
        right,
        case="5 samples with 2 inputs",
        tolerance=1e-5,
        mistakes={
            "flipped": (-right, "The right size with the wrong sign: this would climb the loss. Is it y - p or p - y?"),
            "summed": (right * N, "That is the sum over the samples. L is their mean: where is 1/N?"),
            "divided-twice": (right / N, "1/N stands there twice."),
            "not-reduced": (each, "These are the gradients of the samples, (N, n). L is one number: average over the samples."),
            "wrong-axis": (
                each.mean(1),
                "You averaged over the inputs and kept the samples. Each weight needs a number of its own.",
            ),
            "all-averaged": (each.mean(), "You averaged over samples and inputs alike. Each weight needs a number of its own."),
            "input-missing": ((p - y).mean(), "That is ∂L/∂z. z = w·x: what does ∂z/∂w bring in?"),
            "slope-twice": (X.T @ ((p - y) * p * (1 - p)) / N, "p(1-p) is already in p - y: it cancelled against ∂L/∂p."),
            "slope-missing": (
                X.T @ -(y / p - (1 - y) / (1 - p)) / N,
                "That is ∂L/∂p · x. Between p and z stands the sigmoid: its slope is missing.",
            ),
            "logit-for-probability": (X.T @ (z - y) / N, "You used z where p = σ(z) belongs."),
        },
    )
    far = torch.tensor([400.0, 0.0])
    saturated = answer(far, torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0.0, 1.0]))
    if not torch.isfinite(torch.as_tensor(saturated)).all():
        raise Mistake(
            "breaks-at-saturation",
            "Right for moderate logits. At z = 400 your p is rounded to 1 and you divide by 1 - p = 0. "
            "Simplify ∂L/∂p · ∂p/∂z on paper first.",
        )
    expect(
        saturated, torch.tensor([1.0, 0.0]), case="two samples that are surely wrong (z = 400 with y = 0, z = -400 with y = 1)"
    )


# ---- mend-the-backward -------------------------------------------------------------------------------------


@exercise("mend-the-backward", notebook=NOTEBOOK)
def judge_mend_the_backward(answer: Callable) -> None:
    """(∂L/∂a, ∂L/∂b) of y = a / b, a (N, F) and b (F,) broadcast."""
    a = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.5, 4.0]], dtype=torch.float64)
    b = torch.tensor([2.0, -4.0], dtype=torch.float64)
    g = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [3.0, -0.5]], dtype=torch.float64)
    got = answer(g.clone(), a.clone(), b.clone())
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Mistake("not-a-pair", "backward returns one gradient for each input of forward: the pair (for a, for b).")
    ga, whole = g / b, -g * a / b**2
    gb = whole.sum(0)
    if same(got[0], gb) and same(got[1], ga):
        raise Mistake("swapped", "Both gradients are right, in the wrong order: the first belongs to a.")
    if same(got[0], 1 / b) or same(got[0], (1 / b).expand(3, 2)):
        raise Mistake("upstream-missing", "1/b is the slope. The chain rule multiplies it by g, what comes in from above.")
    expect(
        got[0],
        ga,
        case="the gradient of a",
        mistakes={
            "multiplied": (g * b, "∂(a/b)/∂a is 1/b, not b."),
            "summed-where-not-repeated": (ga.sum(0), "a was not broadcast: every element of a has a gradient of its own."),
        },
    )
    expect(
        got[1],
        gb,
        case="the gradient of b",
        mistakes={
            "sign": (-gb, "The right size with the wrong sign: when b grows, a/b shrinks."),
            "not-summed": (
                whole,
                "b is (F,), and so is its gradient. Each element was used in all N rows: their contributions add up.",
            ),
            "averaged": (whole.mean(0), "Contributions of the rows are added, not averaged: the rule is a sum over all uses."),
            "summed-to-one-number": (whole.sum(), "You summed over everything. b was repeated along one axis only."),
            "square-missing": ((-g * a / b).sum(0), "b appears squared: ∂(1/b)/∂b = -1/b²."),
            "upstream-missing": ((-a / b**2).sum(0), "The slope is right, but g, what comes in from above, is missing."),
            "first-row-only": (whole[0], "Only the first row's use of b is counted: all N rows used it."),
        },
    )
