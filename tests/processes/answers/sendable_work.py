"""Answers to `sendable-work`: a partial of a function that any process can import."""

import functools
import operator
import sys
import threading
import types

import numpy as np


def solution(factor):
    import functools
    import operator

    return functools.partial(operator.mul, factor)


def closure(factor):
    def scale(x):
        return factor * x

    return scale


def in_the_notebook(a, x):
    return a * x


def partial_of_a_cells_function(factor):
    main = sys.modules["__main__"]
    in_the_notebook.__module__, main.in_the_notebook = "__main__", in_the_notebook  # as if a cell had defined it
    return functools.partial(in_the_notebook, factor)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x

    def times(self, x):
        return self.factor * x


class WithALock(Scaled):
    def __init__(self, factor):
        super().__init__(factor)
        self.lock = threading.Lock()


class PowerOf(Scaled):
    def __call__(self, x):
        return x**self.factor


class OneForAll(Scaled):
    def __init__(self, factor):
        OneForAll.factor = factor


class Unset(Scaled):
    def __init__(self, factor):
        super().__init__(factor or 1)


def multiply(a, x):
    return a * x


# As if they stood in a module that is installed; one of its own each time this file is read.
installed = types.ModuleType(f"hpml_lab_answers_installed_{id(OneForAll)}")
sys.modules[installed.__name__] = installed
for kind in (Scaled, WithALock, PowerOf, OneForAll, Unset, multiply):
    kind.__module__ = installed.__name__
    setattr(installed, kind.__name__, kind)

WRONG = [
    ("pickled-closure", closure),
    ("pickled-lambda", lambda factor: lambda x: factor * x),
    ("pickled-lambda", lambda factor: functools.partial(lambda a, x: a * x, factor)),
    ("lives-in-the-notebook", partial_of_a_cells_function),
    ("lives-in-the-notebook", lambda factor: type("Cell", (Scaled,), {"__module__": "__main__"})(factor).times),
    ("holds-what-cannot-be-sent", WithALock),
    ("one-factor-for-all", OneForAll),
    ("factor-forgotten", lambda factor: functools.partial(operator.mul, 1)),
    ("factor-forgotten", lambda factor: functools.partial(max, factor)),
    ("adds", lambda factor: functools.partial(operator.add, factor)),
    ("power", PowerOf),
    ("power", lambda factor: functools.partial(operator.pow, factor)),
    ("divides", lambda factor: functools.partial(operator.truediv, factor)),
    ("subtracts", lambda factor: functools.partial(operator.add, -factor)),
    ("integers-only", lambda factor: factor.__mul__ if isinstance(factor, int) else Scaled(factor)),
    ("zero-as-nothing", Unset),
    ("always-by-3", lambda factor: functools.partial(operator.mul, 3)),
    ("factor-not-bound", lambda factor: operator.mul),
    ("wrong-type", lambda factor: functools.partial(operator.mul, str(factor))),
    ("raises", lambda factor: operator.mul(factor)),
    ("cannot-be-checked", lambda factor: functools.partial(operator.neg, factor)),
]
ALSO_RIGHT = [
    Scaled,
    lambda factor: Scaled(factor).times,
    lambda factor: functools.partial(multiply, factor),
    lambda factor: (
        operator.methodcaller("__rmul__", factor) if isinstance(factor, int) else functools.partial(operator.mul, factor)
    ),
    lambda factor: functools.partial(np.multiply, factor),
    functools.partial(functools.partial, operator.mul),
]
