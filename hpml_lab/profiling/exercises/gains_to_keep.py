"""Exercise: read a report of changes, of which some gain nothing, train something else, or never pay."""

import random
from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

Report = list[dict[str, Any]]
# (change, low, gain, high, noise, the training, more seconds of the first step)
KINDS = [
    ("debugging-off", 1.31, 1.4, 1.49, 0.03, "bitwise", 0.0),
    ("fused", 1.03, 1.1, 1.16, 0.05, "rounding", 0.0),
    ("gradients-to-none", 1.02, 1.06, 1.15, 0.12, "bitwise", 0.0),  # within noise
    ("pinned-memory", 0.98, 1.03, 1.06, 0.1, "bitwise", 0.0),  # the same, and the whole interval
    ("foreach", 0.97, 1.09, 1.2, 0.04, "bitwise", 0.0),  # an interval with 1 in it
    ("threads-1", 0.8, 0.86, 0.92, 0.04, "bitwise", 0.0),
    ("half-batch", 1.7, 1.8, 1.9, 0.05, "not the same", 0.0),
    ("workers-2", 1.5, 1.6, 1.7, 0.05, "reordered", 1.5),
    ("autocast-bf16", 1.4, 1.5, 1.6, 0.04, "precision", 0.1),
    ("compiled", 1.2, 1.3, 1.4, 0.04, "rounding", 30.0),
    ("channels-last", 1.1, 1.2, 1.3, 0.04, "rounding", 0.0005),
]
STEPS = (100, 3_000, 100_000)


def tuneup_report(seed: int) -> Report:
    """What `hpml-lab tuneup --json` says of each change, in any order: ratios, and seconds of a step before and after.

    In each, some gains are within noise, some train something else, and some take longer to start than they save.
    """
    rng = random.Random(seed)
    before = rng.choice([0.004, 0.02, 0.06])
    rows = []
    for change, low, gain, high, noise, training, first in rng.sample(KINDS, len(KINDS)):
        gain = round(gain + rng.uniform(-0.009, 0.009), 3)
        row = {"change": change, "low": low, "gain": gain, "high": high, "noise": noise, "training": training}
        rows.append(row | {"first": first, "before": before, "after": before / gain})
    return rows


def gains_to_keep(report: Report, steps: int) -> set[str]:
    """The changes that are faster beyond noise, train the same to rounding, and save more than their first step costs."""
    kept = set()
    for row in report:
        beyond = row["low"] > 1 and row["gain"] > 1 + row["noise"]
        same = row["training"] in ("bitwise", "rounding")
        saved = steps * (row["before"] - row["after"])
        if beyond and same and saved > row["first"]:
            kept.add(row["change"])
    return kept


def names(answer: Callable) -> Callable:
    """The answer's names, in whatever collection they are."""
    return lambda report, steps: {*answer(report, steps)}


RUBRIC = Rubric(
    gains_to_keep,
    """
row["low"] > 1 and row["gain"] > 1 + row["noise"]
    any-gain :: row["gain"] > 1 :: $NOISE
    no-placebo :: row["low"] > 1 :: $PLACEBO
    no-interval :: row["gain"] > 1 + row["noise"] :: A gain whose interval holds 1 may be none: its lower end has to be above 1.
    noise-twice :: row["low"] > 1 + row["noise"] :: You ask the interval's end to be beyond noise. Above 1 is enough for it, and
        the gain itself has to be beyond noise.
    at-best :: row["high"] > 1 + row["noise"] :: The upper end is what it gains at best: look at the gain and the lower end.
row["training"] in ("bitwise", "rounding")
    another-training :: True :: $SAME
    not-refused :: row["training"] != "not the same" :: $SAME
    bitwise-only :: row["training"] == "bitwise" :: Another rounding is no other training: the last bits may differ.
    lower-precision :: row["training"] in ("bitwise", "rounding", "precision") :: $SAME
    other-samples :: row["training"] in ("bitwise", "rounding", "reordered") :: $SAME
steps * (row["before"] - row["after"])
    one-step :: row["before"] - row["after"] :: What is saved in one step is saved in each of them.
    all-of-it :: steps * row["before"] :: A step still takes `after` seconds: only the difference is saved.
    turned-around :: steps * (row["after"] - row["before"]) :: Saved is before − after.
saved > row["first"]
    start-for-free :: True :: The first step takes `first` seconds longer, for a compiler
        or for workers that start: do `steps` steps save as much?
    start-never-pays :: row["first"] == 0 :: A long first step pays if there are steps enough.
""",
    NOISE="A gain within noise is none: the script itself, run twice, differs as much.",
    PLACEBO="The script, run twice, differs from itself by `noise`. A smaller gain says nothing, however narrow its interval.",
    SAME="Keep what trains the same to the last bit or to rounding. The rest is another run, to be judged by its results.",
    wrap=names,
)


@exercise("gains-to-keep", notebook="10_profiling", takes="report, steps", returns={str})
def judge_gains_to_keep(answer: Callable) -> None:
    """The names of the changes worth keeping, in reports that are made from a seed."""
    cases = {f"report {seed}, {steps} steps": (tuneup_report(seed), steps) for seed in range(4) for steps in STEPS}
    even = {"change": "even", "low": 1.05, "gain": 1.0625, "high": 1.07, "noise": 0.0, "training": "bitwise"}
    even |= {"first": 64.0, "before": 1.0625, "after": 1.0}  # exact in binary
    cases |= {
        f"a change that saves 1/16 s a step, and costs 64 s, {steps} steps": ([even], steps) for steps in (61, 512, 1024, 1025)
    }
    cases |= {"an empty report": ([], 1000)}
    cases |= {"a report drawn for this check": (tuneup_report(drawn().randint(10, 9999)), STEPS[1])}
    RUBRIC.expect(answer, cases)
