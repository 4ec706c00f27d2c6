"""Exercise perceptron-gradient: the gradient of the mean binary cross-entropy over a batch."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_no_autograd
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import difference, same


def bce_gradient(w: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p = torch.sigmoid(X @ w)
    dz = p - y
    return X.T @ dz / len(y)


RUBRIC = Rubric(
    bce_gradient,
    """
dz = p - y
    slope-twice :: dz = (p - y) * p * (1 - p) :: p(1-p) is already in p - y: it canceled against ∂L/∂p.
torch.sigmoid(X @ w)
    sigmoid-reversed :: torch.sigmoid(-(X @ w)) :: p grows with z: is it e^z or e^-z in the sigmoid?
X.T @ dz / len(y)
    divided-by-inputs :: X.T @ dz / X.shape[1] :: You divided by the number of inputs n. L is the mean over the N samples.
    loss-itself :: torch.nn.functional.binary_cross_entropy_with_logits(X @ w, y) :: That is the loss L. Its gradient has one
        number for each weight.
error
    shapes :: size mismatch :: $SHAPES
    shapes :: must match :: $SHAPES
    shapes :: shapes cannot :: $SHAPES
""",
    SHAPES="The shapes do not fit. X is (N, n), w is (n,) and y is (N,): the result is (n,).",
)


@exercise("perceptron-gradient", notebook="02_autograd", takes="w, X, y", returns=like("w"))
def judge_perceptron_gradient(answer: Callable) -> None:
    """∂L/∂w (n,) of the mean binary cross-entropy over a batch."""
    X = torch.tensor([[1.0, 2.0], [-0.5, 1.5], [2.0, -1.0], [0.5, 0.3], [-1.0, -2.0]])
    w, y = torch.tensor([0.4, -0.7]), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    wide = torch.tensor([0.1, 0.2, -0.3]), torch.tensor([[1.0, -1.0, 2.0], [0.5, 2.0, 1.0]]), torch.tensor([0.0, 1.0])
    narrow = torch.tensor([0.6]), X[:, :1].clone(), y
    cases = {"5 samples with 2 inputs": (w, X, y), "2 samples with 3 inputs": wide, "5 samples with 1 input": narrow}
    RUBRIC.expect(answer, cases, tolerance=1e-5)
    for z, label in ((400.0, 0.0), (-400.0, 1.0), (400.0, 1.0), (-400.0, 0.0), (12.0, 0.0), (-12.0, 1.0), (-12.0, 0.0)):
        given = torch.tensor([z, 0.0]), torch.tensor([[1.0, 0.5]]), torch.tensor([label])
        case = f"one sample with z = {z:g} and label {label:g}"
        got, wanted = answer(*(tensor.clone() for tensor in given)), bce_gradient(*given)
        if not torch.isfinite(torch.as_tensor(got)).all():
            raise Mistake(
                "breaks-at-saturation",
                f"Right for moderate logits, but for {case} you get {torch.as_tensor(got).tolist()}: e^400 is inf in "
                "float32, and p is rounded to 0 or 1, so that a step on the way becomes inf / inf, 0 / 0 or 0 · inf. "
                "Simplify ∂L/∂p · ∂p/∂z on paper first.",
            )
        if not same(got, wanted, 1e-3):
            raise Mistake(
                "clamped",
                f"Right for moderate logits, but for {case} the gradient {difference(got, wanted)}. Are p or z cut "
                "off, or is something added to a denominator? Simplify ∂L/∂p · ∂p/∂z on paper: nothing has to be cut off.",
            )
    expect_no_autograd(answer, w, X, y)
