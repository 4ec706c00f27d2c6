"""The dot product of two vectors, Σ a[i] · b[i], as the labs ask for it: a loop in Python, three in C, and the libraries'."""

import ctypes
import functools
from collections.abc import Callable
from operator import mul

import numpy as np

from hpml_lab.core.system.c_code import loaded

CODE = r"""
float one_sum(long n, const float *a, const float *b) {
    float sum = 0;                             /* each addition waits for the one before it */
    for (long i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

float four_sums(long n, const float *a, const float *b) {
    float sum[4] = {0};                        /* unrolled: four additions are under way at once */
    long i = 0;
    for (; i + 4 <= n; i += 4) {
        sum[0] += a[i] * b[i];         sum[1] += a[i + 1] * b[i + 1];
        sum[2] += a[i + 2] * b[i + 2]; sum[3] += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

float simd(long n, const float *a, const float *b) {
    float sum = 0;                             /* the compiler may add in any order */
    #pragma omp simd reduction(+:sum)
    for (long i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
"""
OPTIONS = ("-O3", "-fopenmp-simd")
IN_C = {"C, one sum": "one_sum", "C, four sums": "four_sums", "C, any order": "simd"}


def in_python(a: list[float], b: list[float]) -> float:
    """Each product and each sum is an object of Python."""
    return sum(map(mul, a, b))


@functools.cache
def library() -> ctypes.CDLL | None:
    """The three loops, compiled once in a process; None where no C compiler is."""
    return loaded(CODE, *OPTIONS)


def in_c(a: np.ndarray, b: np.ndarray) -> dict[str, Callable[[], float]]:
    """{way: its call on two float32 vectors of one length}; {} without a compiler. ValueError for other arrays."""
    if not (a.dtype == b.dtype == np.float32 and a.shape == b.shape == (a.size,) and a.strides == b.strides == (4,)):
        raise ValueError("two float32 vectors of one length, without gaps")
    if library() is None:
        return {}
    pointers = [array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for array in (a, b)]  # each holds its array
    calls = {}
    for way, name in IN_C.items():
        function = library()[name]
        function.restype, function.argtypes = ctypes.c_float, (ctypes.c_long, *map(type, pointers))
        calls[way] = functools.partial(function, len(a), *pointers)
    return calls
