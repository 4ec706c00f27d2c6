"""gradcheck finds wrong gradients: what it says about seven functions, and what it costs for inputs of several sizes."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd.gradcheck import GradcheckError

from hpml_lab.autograd.lessons.custom_functions import Cube, CutBackward, WrongFactor, WrongWhereNegative
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.timing.clock import PLACEBO, Timing, interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of

QUICK = dict(sizes=(1, 10, 100))
FULL = dict(sizes=(1, 10, 100, 1000))
PASSES, MISMATCH = "passes", "finds a mismatch"


@dataclass
class CheckedFunction(Row):
    """What the two checks say about one function."""

    function: str = column("function")
    first: str = column("gradcheck")
    second: str = column("gradgradcheck")


@dataclass
class CheckCost(Row):
    """Calls and time of gradcheck for an input of one size; a plain pass is one forward and one backward pass."""

    elements: int = column("elements")
    calls: int = column("calls of the function")
    fast_calls: int = column("calls in fast mode")
    cost: float = column("time", "plain passes")
    interval: str = column("interval")
    fast_cost: float = column("time in fast mode", "plain passes")
    fast_interval: str = column("interval in fast mode")


# ---- drawing -----------------------------------------------------------------------------------------------


def draw(result: Result):
    """How many times longer a check takes than one forward and backward pass, against the number of elements in the input; both
    axes are logarithmic. Compare how the two checks grow."""
    rows = result.rows(CheckCost)
    figure = style.new_figure(7, 4)
    axes = figure.subplots()
    elements = [row.elements for row in rows]
    axes.plot(elements, [row.cost for row in rows], "o-", color=style.BLUE, label="gradcheck")
    axes.plot(elements, [row.fast_cost for row in rows], "s--", color=style.ORANGE, label="gradcheck(fast_mode=True)")
    axes.axhline(1, color=style.GREY, linestyle=":", linewidth=1.5, label="one forward and backward pass")
    axes.set(xscale="log", yscale="log", xlabel="elements of the input", ylabel="time / time of a plain pass")
    axes.set_title("What a check costs")
    axes.legend(fontsize=9)
    return figure


# ---- measuring ---------------------------------------------------------------------------------------------


@experiment("gradcheck", lecture="L4", notebook="02_autograd", draw=draw, quick=QUICK, full=FULL)
def gradcheck(params: Params) -> Result:
    """gradcheck finds wrong gradients, at a price."""
    device = params.device.torch
    right, factor, positive_only, both_signs, cut, rough, kink = checked = checked_functions(device)
    measured = [cost_of_check(elements, device) for elements in progress(params.sizes, "gradcheck")]
    costs = [row for row, _ in measured]
    at_100 = next(plain for row, plain in measured if row.elements == 100)

    result = Result([Table("What the checks say", checked), Table("What a check of the sum of x³ costs", costs)])
    result.key_figure(
        "gradcheck of 100 elements over a plain pass", at_100.ratio, "times", lecture="relatively expensive: for debugging only"
    )
    result.claim(
        "gradcheck passes the right backward and finds the wrong factor",
        (right.first, right.second, factor.first) == (PASSES, PASSES, MISMATCH),
    )
    result.claim(
        "gradcheck checks only the points that it is given: it misses a mistake at x < 0 if all points are positive",
        (positive_only.first, both_signs.first) == (PASSES, MISMATCH),
    )
    result.claim(
        "gradgradcheck finds the detach that gradcheck misses, and misses the wrong factor that gradcheck finds",
        (cut.first, cut.second, factor.second) == (PASSES, MISMATCH, PASSES),
    )
    result.claim(
        "There are false alarms: float32, in which differences are too rough, and a kink", rough.first == kink.first == MISMATCH
    )
    result.claim(
        "gradcheck calls the function twice per element of the input and 2 more times; fast mode calls it 4 times in all",
        all(row.calls == 2 * row.elements + 2 and row.fast_calls == 4 for row in costs),
    )
    result.measured(
        "A plain pass is more than ten times as fast as gradcheck of 100 elements",
        at_100.faster and at_100.low > 10,
        str(at_100),
    )
    return result


def checked_functions(device: torch.device) -> list[CheckedFunction]:
    """What gradcheck and gradgradcheck say about right and wrong backward functions."""

    def at(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device, requires_grad=True)

    def outcome(check: Callable, function: Callable, x: torch.Tensor) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for float32 it warns before it fails
            try:
                check(function, (x,))
            except GradcheckError:
                return MISMATCH
        return PASSES

    positive, mixed = (0.5, 1.0, 2.0), (-1.5, 1.0, 2.0)
    cases = [
        ("x³, right", Cube.apply, at(*mixed)),
        ("x³ with backward 2x²", WrongFactor.apply, at(*mixed)),
        ("x³ with backward 3x|x|, only at x > 0", WrongWhereNegative.apply, at(*positive)),
        ("x³ with backward 3x|x|, at both signs", WrongWhereNegative.apply, at(*mixed)),
        ("x³ with a detach in its backward", CutBackward.apply, at(*mixed)),
        ("x³, right, but in float32", Cube.apply, at(*mixed, dtype=torch.float32)),
        ("relu, right, at its kink x = 0", torch.relu, at(0.0, 0.0)),
    ]
    checks = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    return [CheckedFunction(name, *(outcome(check, function, x) for check in checks)) for name, function, x in cases]


def cost_of_check(elements: int, device: torch.device) -> tuple[CheckCost, SpeedUp]:
    """Calls and time of gradcheck, full and fast, for the sum of x³; and how many times as fast a plain pass is."""
    x = torch.linspace(-2, 2, elements, dtype=torch.float64, device=device).requires_grad_()
    calls = 0

    def loss(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return Cube.apply(x).sum()

    def plain_pass() -> None:
        x.grad = None
        loss(x).backward()

    def check(fast: bool) -> Callable[[], bool]:
        return lambda: torch.autograd.gradcheck(loss, (x,), fast_mode=fast)

    counts = []
    for fast in (False, True):
        calls = 0
        check(fast)()
        counts.append(calls)
    times = interleaved({"plain": plain_pass, "full": check(False), "fast": check(True)}, placebo="plain")
    full, fast = (plain_passes(times, name) for name in ("full", "fast"))
    return CheckCost(elements, *counts, full.ratio, full.interval, fast.ratio, fast.interval), full


def plain_passes(times: dict[str, Timing], name: str) -> SpeedUp:
    """How many times as fast a plain pass is as the check `name`, with the noise of the plain pass."""
    plain, again = times["plain"].samples, times[PLACEBO].samples
    twice = [check * other / one for check, other, one in zip(times[name].samples, again, plain, strict=True)]
    return speed_up_of(times[name].samples, plain, twice)
