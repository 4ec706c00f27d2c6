"""Exercise perceptron-gradient: the gradient of the mean binary cross-entropy over a batch."""

from collections.abc import Callable

import torch

from hpml_lab.core.exercises import Mistake, exercise, expect, expect_function

SHAPES_HINT = "The shapes do not fit. X is (N, n), w is (n,) and y is (N,): the result is (n,)."


def right(w: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The right answer, finite for all logits."""
    return X.T @ (torch.sigmoid(X @ w) - y) / len(y)


def samples(w: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradients (N, n) of the single samples."""
    return X * (torch.sigmoid(X @ w) - y)[:, None]


def with_slope_of(dL_dz: Callable) -> Callable:
    """The right answer with another ∂L/∂z, a function of p, y and z."""
    return lambda w, X, y: X.T @ dL_dz(torch.sigmoid(X @ w), y, X @ w) / len(y)


MISTAKES = {
    "flipped": (
        with_slope_of(lambda p, y, z: y - p),
        "The right size with the wrong sign: this would increase the loss. Is it y - p or p - y?",
    ),
    "summed": (lambda w, X, y: right(w, X, y) * len(y), "That is the sum over the samples. L is their mean: where is 1/N?"),
    "divided-twice": (lambda w, X, y: right(w, X, y) / len(y), "You divided by N twice."),
    "not-reduced": (samples, "These are the gradients of the samples, (N, n). L is one number: average over the samples."),
    "wrong-axis": (
        lambda w, X, y: samples(w, X, y).mean(1),
        "You averaged over the inputs and kept the samples. Each weight needs a number of its own.",
    ),
    "all-averaged": (
        lambda w, X, y: samples(w, X, y).mean(),
        "You averaged over samples and inputs alike. Each weight needs a number of its own.",
    ),
    "input-missing": (lambda w, X, y: (torch.sigmoid(X @ w) - y).mean(), "That is ∂L/∂z. z = w·x: what does ∂z/∂w contribute?"),
    "slope-twice": (
        with_slope_of(lambda p, y, z: (p - y) * p * (1 - p)),
        "p(1-p) is already in p - y: it cancelled against ∂L/∂p.",
    ),
    "slope-missing": (
        with_slope_of(lambda p, y, z: -(y / p - (1 - y) / (1 - p))),
        "That is ∂L/∂p · x. Between p and z stands the sigmoid: its slope is missing.",
    ),
    "logit-for-probability": (with_slope_of(lambda p, y, z: z - y), "You used z where p = σ(z) belongs."),
}


@exercise("perceptron-gradient", notebook="02_autograd")
def judge_perceptron_gradient(answer: Callable) -> None:
    """∂L/∂w (n,) of the mean binary cross-entropy over a batch."""
    X = torch.tensor([[1.0, 2.0], [-0.5, 1.5], [2.0, -1.0], [0.5, 0.3], [-1.0, -2.0]])
    w, y = torch.tensor([0.4, -0.7]), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    wide = torch.tensor([0.1, 0.2, -0.3]), torch.tensor([[1.0, -1.0, 2.0], [0.5, 2.0, 1.0]]), torch.tensor([0.0, 1.0])
    expect_function(
        answer,
        right,
        {"5 samples with 2 inputs": (w, X, y), "2 samples with 3 inputs": wide},
        mistakes=MISTAKES,
        errors={"size": ("shapes", SHAPES_HINT), "shape": ("shapes", SHAPES_HINT)},
        tolerance=1e-5,
    )
    saturated = torch.tensor([400.0, 0.0]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0.0, 1.0])
    got = answer(*(tensor.clone() for tensor in saturated))
    if not torch.isfinite(torch.as_tensor(got)).all():
        raise Mistake(
            "breaks-at-saturation",
            "Right for moderate logits. At z = 400 your p is rounded to 1 and you divide by 1 - p = 0. "
            "Simplify ∂L/∂p · ∂p/∂z on paper first.",
        )
    expect(got, right(*saturated), case="two very wrong samples (z = 400 with y = 0, z = -400 with y = 1)")
