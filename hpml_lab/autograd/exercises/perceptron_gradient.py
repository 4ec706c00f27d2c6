"""Exercise perceptron-gradient: the gradient of the mean binary cross-entropy over a batch."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function, expect_no_autograd
from hpml_lab.core.judge.same import difference, same

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
    "doubled": (lambda w, X, y: 2 * right(w, X, y), "Twice the gradient: the factor 2 belongs to a squared error."),
    "means-multiplied": (
        lambda w, X, y: (torch.sigmoid(X @ w) - y).mean() * X.mean(0),
        "You average p - y and x before you multiply them. Each sample's p - y meets its own x: multiply first.",
    ),
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
    "labels-as-signs": (
        with_slope_of(lambda p, y, z: -y * torch.sigmoid(-y * z)),
        "That is the gradient of log(1 + e^(-yz)), for labels -1 and 1; these are 0 and 1.",
    ),
    "slope-twice": (
        with_slope_of(lambda p, y, z: (p - y) * p * (1 - p)),
        "p(1-p) is already in p - y: it canceled against ∂L/∂p.",
    ),
    "slope-missing": (
        with_slope_of(lambda p, y, z: -(y / p - (1 - y) / (1 - p))),
        "That is ∂L/∂p · x. Between p and z stands the sigmoid: its slope is missing.",
    ),
    "divided-by-inputs": (
        lambda w, X, y: right(w, X, y) * len(y) / X.shape[1],
        "You divided by the number of inputs n. L is the mean over the N samples.",
    ),
    "slope-twice, summed": (
        lambda w, X, y: with_slope_of(lambda p, y, z: (p - y) * p * (1 - p))(w, X, y) * len(y),
        "p(1-p) is already in p - y: it canceled against ∂L/∂p. And L is a mean over the samples.",
    ),
    "sigmoid-reversed": (
        with_slope_of(lambda p, y, z: 1 - p - y),
        "Your p falls when z grows: is it e^z or e^-z in the sigmoid?",
    ),
    "labels-flipped": (with_slope_of(lambda p, y, z: p - (1 - y)), "You compare p with 1 - y: the labels are swapped."),
    "label-missing": (with_slope_of(lambda p, y, z: p), "p alone cannot be right: where does the label enter?"),
    "decided": (
        with_slope_of(lambda p, y, z: p.round() - y),
        "You rounded p to a decision. The gradient needs the probability itself.",
    ),
    "loss-itself": (
        lambda w, X, y: torch.nn.functional.binary_cross_entropy_with_logits(X @ w, y),
        "That is the loss L. Its gradient has one number for each weight.",
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
        errors={
            "size mismatch": ("shapes", SHAPES_HINT),
            "must match": ("shapes", SHAPES_HINT),
            "shapes cannot": ("shapes", SHAPES_HINT),
        },
        tolerance=1e-5,
    )
    for z, label in ((400.0, 0.0), (-400.0, 1.0), (400.0, 1.0), (-400.0, 0.0), (12.0, 0.0), (-12.0, 1.0), (-12.0, 0.0)):
        given = torch.tensor([z, 0.0]), torch.tensor([[1.0, 0.5]]), torch.tensor([label])
        case = f"one sample with z = {z:g} and label {label:g}"
        got = answer(*(tensor.clone() for tensor in given))
        if not torch.isfinite(torch.as_tensor(got)).all():
            raise Mistake(
                "breaks-at-saturation",
                f"Right for moderate logits, but for {case} you get {torch.as_tensor(got).tolist()}: e^400 is inf in "
                "float32, and p is rounded to 0 or 1, so that a step on the way becomes inf / inf, 0 / 0 or 0 · inf. "
                "Simplify ∂L/∂p · ∂p/∂z on paper first.",
            )
        if not same(got, right(*given), 1e-3):
            raise Mistake(
                "clamped",
                f"Right for moderate logits, but for {case} the gradient {difference(got, right(*given))}. Are p or z cut "
                "off, or is something added to a denominator? Simplify ∂L/∂p · ∂p/∂z on paper: nothing has to be cut off.",
            )
    expect_no_autograd(answer, w, X, y)
