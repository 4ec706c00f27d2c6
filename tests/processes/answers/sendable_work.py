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


def partial_of_a_closure(factor):
    def scale(a, x):
        return a * x

    return functools.partial(scale, factor)


def in_the_notebook(a, x):
    return a * x


def partial_of_a_cells_function(factor):
    main = sys.modules["__main__"]
    in_the_notebook.__module__, main.in_the_notebook = "__main__", in_the_notebook  # as if a cell had defined it
    return functools.partial(in_the_notebook, factor)


class WithALock:
    def __init__(self, factor):
        self.factor, self.lock = factor, threading.Lock()

    def __call__(self, x):
        with self.lock:
            return self.factor * x


class PowerOf:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x**self.factor


class OneForAll:
    factor = None

    def __init__(self, factor):
        OneForAll.factor = factor

    def __call__(self, x):
        return self.factor * x


# The classes above as if they stood in a module that is installed; one of its own each time this file is read.
installed = types.ModuleType(f"hpml_lab_answers_installed_{id(OneForAll)}")
sys.modules[installed.__name__] = installed
for kind in (WithALock, PowerOf, OneForAll):
    kind.__module__ = installed.__name__
    setattr(installed, kind.__name__, kind)


def forgets(factor):
    return functools.partial(operator.mul, 1)


WRONG = [
    ("pickled-closure", closure),
    ("pickled-closure", partial_of_a_closure),
    ("pickled-lambda", lambda factor: lambda x: factor * x),
    ("pickled-lambda", lambda factor: functools.partial(lambda a, x: a * x, factor)),
    ("lives-in-the-notebook", partial_of_a_cells_function),
    ("holds-what-cannot-be-sent", WithALock),
    ("holds-what-cannot-be-sent", lambda factor: functools.partial(operator.mul, threading.Lock())),
    ("one-factor-for-all", OneForAll),
    ("not-a-function", lambda factor: factor * 7),
    ("factor-forgotten", forgets),
    ("adds", lambda factor: functools.partial(operator.add, factor)),
    ("power", PowerOf),
    ("returns-nothing", lambda factor: None),
]


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x


def multiply(a, x):
    return a * x


class Unset(Scaled):
    def __init__(self, factor):
        super().__init__(factor or 1)


class Holder(Scaled):
    def times(self, x):
        return self.factor * x


for kind in (Scaled, Unset, Holder, multiply):
    kind.__module__ = installed.__name__
    setattr(installed, kind.__name__, kind)

WRONG += [
    ("power", lambda factor: functools.partial(operator.pow, factor)),
    ("divides", lambda factor: functools.partial(operator.truediv, factor)),
    ("subtracts", lambda factor: functools.partial(operator.add, -factor)),
    ("integers-only", lambda factor: factor.__mul__ if isinstance(factor, int) else Scaled(factor)),
    ("zero-as-nothing", Unset),
    ("always-by-3", lambda factor: functools.partial(operator.mul, 3)),
    ("factor-forgotten", lambda factor: functools.partial(max, factor)),
    ("wrong-type", lambda factor: functools.partial(operator.mul, str(factor))),
    ("not-a-function", lambda factor: [factor]),
    ("raises", lambda factor: operator.mul(factor)),
    ("cannot-be-checked", lambda factor: functools.partial(operator.neg, factor)),
]
ALSO_RIGHT = [
    Scaled,
    lambda factor: Holder(factor).times,
    lambda factor: functools.partial(multiply, factor),
    lambda factor: (
        operator.methodcaller("__rmul__", factor) if isinstance(factor, int) else functools.partial(operator.mul, factor)
    ),
    lambda factor: functools.partial(np.multiply, factor),
    lambda factor: functools.partial(operator.mul, np.float64(factor)),
]


WRONG += [("factor-not-bound", lambda factor: operator.mul)]
ALSO_RIGHT += [functools.partial(functools.partial, operator.mul)]
