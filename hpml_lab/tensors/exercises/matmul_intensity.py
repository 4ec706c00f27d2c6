"""matmul-intensity: the FLOPs of all n · m numbers of C over the bytes of A (n, k), B (k, m) and C (n, m)."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def right(n: int, m: int, k: int, width: int) -> float:
    return 2 * n * m * k / ((n * k + k * m + n * m) * width)


RUBRIC = Rubric(
    right,
    """
2 * n * m * k
    first-addition-left-out :: n * m * (2 * k - 1) :: k products need only k - 1 additions, that is true; but by convention a
        product of matrices counts k multiply-adds of two FLOPs for each entry.
    k-missing :: 2 * n * m :: You count one multiply-add for each entry of C. Each of them is a sum over k products.
((n * k + k * m + n * m) * width)
    result-not-counted :: ((n * k + k * m) * width) :: The operands are read, and the result has to be written as well.
    result-read-too :: ((n * k + k * m + 2 * n * m) * width) :: You count C twice. It has to be written once; nothing of it must
        be read.
    width-ignored :: ((n * k + k * m + n * m) * 4) :: You take 4 bytes per number, whatever `width` is.
    bits :: ((n * k + k * m + n * m) * width * 8) :: `width` is in bytes already: no factor 8.
    nothing-reused :: (width * (2 * n * m * k + n * m)) :: You read both operands anew for each multiply-add. At least, each
        number is read once and then reused.
2 * n * m * k / ((n * k + k * m + n * m) * width)
    rounded-down :: 2 * n * m * k // ((n * k + k * m + n * m) * width) :: Your division drops the fraction: // or int().
    rounded :: round(2 * n * m * k / ((n * k + k * m + n * m) * width)) :: Right but rounded: return the number as it is.
    flops-alone :: 2 * n * m * k :: These are the FLOPs. Intensity is FLOPs per byte.
    square-only :: 2 * n / (3 * width) :: Right only for square matrices: count the elements of A, B and C by n, m and k.
""",
)


@exercise("matmul-intensity", notebook="01_tensors", takes="n, m, k, width", returns=float)
def judge_matmul_intensity(answer: Callable) -> None:
    """2 n m k / (width · (n k + k m + n m))."""
    cases = {
        "(64, 128) @ (128, 48) in float32": (64, 48, 128, 4),
        "1024 × 1024 matrices in float16": (1024, 1024, 1024, 2),
        "(3, 7) @ (7, 5) in float64": (3, 5, 7, 8),
        "(200, 1) @ (1, 30) in int8": (200, 30, 1, 1),
    }
    RUBRIC.expect(answer, cases)
