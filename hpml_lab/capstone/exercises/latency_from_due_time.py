"""latency-from-due-time: a client that waits for its answers, measured from the moment sent and from the moment due."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, expect_function
from hpml_lab.core.mistakes import combined
from hpml_lab.core.same import same

Times = tuple[list, list]  # sent, done


def _waits(due: Sequence[float], service: Sequence[float]) -> Times:
    """Each request is sent when it is due, or when the answer before it has arrived."""
    sent, done, free = [], [], -math.inf
    for moment, seconds in zip(due, service, strict=True):
        sent.append(max(moment, free))
        done.append(free := sent[-1] + seconds)
    return sent, done


def _never_idle(due: Sequence[float], service: Sequence[float]) -> Times:
    """The next request at once, even before it is due."""
    sent, free = [], due[0]
    for seconds in service:
        sent.append(free)
        free += seconds
    return sent, [moment + seconds for moment, seconds in zip(sent, service, strict=True)]


def _gap_after_answer(due: Sequence[float], service: Sequence[float]) -> Times:
    """The gap between two moments due begins with the answer."""
    sent, done = [], []
    for i, seconds in enumerate(service):
        sent.append(due[0] if i == 0 else done[-1] + due[i] - due[i - 1])
        done.append(sent[-1] + seconds)
    return sent, done


def _schedule_shifts(due: Sequence[float], service: Sequence[float]) -> Times:
    """What is late moves all later requests."""
    sent, done = [], []
    for i, seconds in enumerate(service):
        sent.append(due[0] if i == 0 else max(done[-1], sent[-1] + due[i] - due[i - 1]))
        done.append(sent[-1] + seconds)
    return sent, done


def _waits_one_back(due: Sequence[float], service: Sequence[float]) -> Times:
    """max(due, done before) where `done` counts from the moment due: waiting does not add up."""
    sent = [moment if i == 0 else max(moment, due[i - 1] + service[i - 1]) for i, moment in enumerate(due)]
    return sent, [moment + seconds for moment, seconds in zip(sent, service, strict=True)]


def _nearest_rank(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    return ordered[max(math.ceil(share * len(ordered) / 100), 1) - 1]


def _interpolated(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    position = share / 100 * (len(ordered) - 1)
    low = math.floor(position)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (position - low)


def _at(rank: Callable[[float], float]) -> Callable[[list, float], float]:
    """The sorted latency at an index, from the share of their number; kept inside the list."""
    return lambda latencies, share: sorted(latencies)[min(max(int(rank(share * len(latencies) / 100)), 0), len(latencies) - 1)]


def _unsorted(latencies: list, share: float) -> float:
    return latencies[max(math.ceil(share * len(latencies) / 100), 1) - 1]


def _build(
    client: Callable[[Sequence, Sequence], Times] = _waits,
    first: Callable[[float, float, float], float] = lambda due, sent, done: done - sent,
    second: Callable[[float, float, float], float] = lambda due, sent, done: done - due,
    percentile: Callable[[list, float], float] = _nearest_rank,
    end: Callable[[float, float], Any] = lambda first, second: (first, second),
) -> Callable[..., Any]:
    def answer(due: Sequence[float], service: Sequence[float], share: float) -> Any:
        records = list(zip(due, *client(due, service), strict=True))
        return end(
            percentile([first(*record) for record in records], share),
            percentile([second(*record) for record in records], share),
        )

    return answer


right = _build()
_RANK = "The percentile asked for is the smallest latency that at least `share` % of the requests do not exceed."
_WAITS = (
    "The client sends a request only when it has the answer to the one before, and not before it is due: the later of both."
)
MISTAKES = combined(
    _build,
    {
        "client": {
            "sends-too-early": (_never_idle, f"Your client sends the next request at once, also before it is due. {_WAITS}"),
            "gap-after-the-answer": (
                _gap_after_answer,
                "Your client pauses after each answer as if the gap began there. The moments due are fixed.",
            ),
            "schedule-shifts": (
                _schedule_shifts,
                "In your code a late request moves all later ones. The moments due are fixed, whatever the client does.",
            ),
            "waiting-does-not-add-up": (
                _waits_one_back,
                "Your client has its answer at due + service. A request that was sent late is answered late, and so on.",
            ),
        },
        "first": {
            "both-from-due": (
                lambda due, sent, done: done - due,
                "Your first latency counts from the moment due as well; it counts from the moment sent.",
            ),
            "waiting-instead-of-latency, first": (
                lambda due, sent, done: sent - due,
                "sent − due is how late the client was. Its own latency is from sent to done.",
            ),
        },
        "second": {
            "no-waiting": (
                lambda due, sent, done: done - sent,
                "Your second number has no waiting in it. Either it counts from the moment sent too, or your client sends each "
                f"request when it is due. {_WAITS}",
            ),
            "waiting-instead-of-latency": (
                lambda due, sent, done: sent - due,
                "sent − due is only the waiting before a request is sent; the answer arrives at done.",
            ),
            "twice-the-waiting": (
                lambda due, sent, done: (done - due) + (sent - due),
                "You add the waiting to a latency that already has it: from due to done is done − due.",
            ),
        },
        "percentile": {
            "interpolated": (_interpolated, f"You interpolate between two latencies. {_RANK}"),
            "rank-too-high": (
                _at(math.floor),
                f"Where share % of the requests is a whole number k, the k-th smallest latency is meant. {_RANK}",
            ),
            "rank-too-low": (
                _at(lambda k: math.floor(k) - 1),
                f"Your rank is rounded down, so that fewer than share % do not exceed it. {_RANK}",
            ),
            "rank-rounded": (_at(lambda k: math.floor(k + 0.5) - 1), f"Your rank is rounded to the nearest number. {_RANK}"),
            "not-sorted": (_unsorted, f"Your latencies are in the order in which they came: sort them first. {_RANK}"),
            "from-the-top": (
                lambda latencies, share: _nearest_rank(latencies, 100 - share),
                "Your percentile counts from the largest latency: p99 is near the largest one.",
            ),
            "mean": (lambda latencies, share: sum(latencies) / len(latencies), f"That is the mean. {_RANK}"),
            "largest": (lambda latencies, share: max(latencies), f"That is the largest latency, whatever the share. {_RANK}"),
            "median": (
                lambda latencies, share: _nearest_rank(latencies, 50),
                f"That is the median, whatever the share. {_RANK}",
            ),
        },
        "end": {
            "swapped": (
                lambda first, second: (second, first),
                "Return the percentile from the moment sent first, then that from the moment due.",
            ),
            "one-number": (lambda first, second: second, "Return both: from the moment sent, and from the moment due."),
            "one-number, from sent": (
                lambda first, second: first,
                "Return both: from the moment sent, and from the moment due.",
            ),
            "difference": (lambda first, second: second - first, "Return both percentiles, not their difference."),
        },
    },
)
_SHARE = "`share` is in percent, 0 to 100: numpy.percentile takes that, numpy.quantile a share from 0 to 1."
ERRORS = {"Quantiles must be in": ("share-in-percent", _SHARE), "quantile() q must be in": ("share-in-percent", _SHARE)}
_SPACED = [10.0 * i for i in range(20)]
_STALL = [1.0] * 5 + [100.0] + [1.0] * 14


@exercise("latency-from-due-time", notebook="16_capstone")
def judge_latency_from_due_time(answer: Callable) -> None:
    """Nearest-rank percentiles of done − sent and done − due, with sent = max(due, done before)."""
    uneven = [0.0, 1.0, 2.0, 9.0, 10.0, 30.0, 31.0], [4.0, 2.0, 6.0, 1.0, 3.0, 5.0, 2.0]
    cases = {
        "20 requests, one stall of 100, p50": (_SPACED, _STALL, 50),
        "20 requests, one stall of 100, p95": (_SPACED, _STALL, 95),
        "20 requests, one stall of 100, p99": (_SPACED, _STALL, 99),
        "7 uneven requests, p50": (*uneven, 50),
        "7 uneven requests, p75": (*uneven, 75),
        "7 uneven requests, p10": (*uneven, 10),
        "7 uneven requests, p100": (*uneven, 100),
        "8 requests, always behind, p25": ([float(i) for i in range(8)], [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], 25),
        "8 requests, never behind, p75": ([5.0 + 10 * i for i in range(8)], [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], 75),
        "4 requests due at once, p50": ([2.0] * 4, [7.0, 1.0, 3.0, 2.0], 50),
        "one request, p99": ([3.0], [2.0], 99),
    }
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES, errors=ERRORS)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape", "wrong-type"):
            _explain(answer, cases)
        raise


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake that says which of the two numbers is wrong, in the first case that shows it."""
    pairs = {
        case: (answer(list(due), list(service), share), right(due, service, share))
        for case, (due, service, share) in cases.items()
    }
    for case, (got, _) in pairs.items():
        if isinstance(got, dict) or not hasattr(got, "__len__") or len(got) != 2:
            hint = f"For {case} your function returns {got!r}. Return a pair: the percentile from sent, and that from due."
            raise Mistake("not-a-pair", hint)
    for case, (got, wanted) in pairs.items():
        if not same(got[0], wanted[0]):
            known = sorted(cases[case][1])
            text = f"From the moment sent the latencies are the services, sorted {known}; your percentile of them is {got[0]}."
            raise Mistake("other-percentile-from-sent", f"For {case}: {text} {_RANK}")
    for case, (got, wanted) in pairs.items():
        if not same(got[1], wanted[1]):
            due, service, _ = cases[case]
            known = sorted(done - moment for moment, done in zip(due, _waits(due, service)[1], strict=True))
            text = (
                f"From the moment due, the smallest latency is {known[0]:g} and the largest {known[-1]:g}; yours is {got[1]}."
            )
            raise Mistake("other-percentile-from-due", f"For {case} your first number is right. {text} {_WAITS}")
