"""latency-from-due-time: a client that waits for its answers, measured from the moment sent and from the moment due."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import plain, same, shown
from hpml_lab.serving.exercises.wrong_percentiles import RANK, WRONG, nearest_rank

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


def _the_earlier(due: Sequence[float], service: Sequence[float]) -> Times:
    """min for max."""
    sent, done = [], []
    for moment, seconds in zip(due, service, strict=True):
        sent.append(min(moment, *done[-1:], moment))
        done.append(sent[-1] + seconds)
    return sent, done


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


def _build(
    client: Callable[[Sequence, Sequence], Times] = _waits,
    first: Callable[[float, float, float], float] = lambda due, sent, done: done - sent,
    second: Callable[[float, float, float], float] = lambda due, sent, done: done - due,
    percentile: Callable[[list, float], float] = nearest_rank,
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
            "sends-too-early, the earlier": (_the_earlier, f"Your client takes the earlier of the two moments. {_WAITS}"),
            "services-sorted": (
                lambda due, service: _waits(due, sorted(service)),
                "You sort the services before the requests are sent, whose order is fixed. Sort latencies, at the end.",
            ),
            "clock-from-0": (
                lambda due, service: _never_idle([0.0, *due[1:]], service),
                f"In your code the first request is sent at 0, and each other at once. {_WAITS}",
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
            "moment-instead-of-latency": (
                lambda due, sent, done: done,
                "Your second number is a moment, when an answer arrives. A latency is how long after the moment due that is.",
            ),
            "twice-the-waiting": (
                lambda due, sent, done: (done - due) + (sent - due),
                "You add the waiting to a latency that already has it: from due to done is done − due.",
            ),
        },
        "percentile": WRONG,
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
            "difference, second": (
                lambda first, second: (first, second - first),
                "Your second number is the difference of the two. Return both percentiles.",
            ),
        },
    },
)


def _of_one_request(which: int) -> Callable[..., tuple[float, float]]:
    """Both latencies of the request that is at the percentile from sent (0) or from due (1)."""

    def answer(due: Sequence[float], service: Sequence[float], share: float) -> tuple[float, float]:
        sent, done = _waits(due, service)
        both = service, [end - moment for moment, end in zip(due, done, strict=True)]
        at = sorted(range(len(due)), key=both[which].__getitem__)[max(math.ceil(share * len(due) / 100), 1) - 1]
        return both[0][at], both[1][at]

    return answer


def _from_the_start(due: Sequence[float], service: Sequence[float], share: float) -> tuple[float, float]:
    sent, done = _waits(due, service)
    return right(due, service, share)[0], nearest_rank([end - due[0] for end in done], share)


def _other_second(percentile: Callable[[list, float], Any]) -> Callable[..., tuple[float, Any]]:
    """The right percentile of the latencies from sent, and another one of those from due."""
    only = _build(percentile=percentile)
    return lambda *given: (right(*given)[0], only(*given)[1])


MISTAKES |= {
    f"{name}, second": (_other_second(way), f"Your first number is right. {hint}") for name, (way, hint) in WRONG.items()
}
MISTAKES |= {
    "same-request": (
        _of_one_request(0),
        "You find the request at the first percentile and give its second latency. Each percentile is one of its own "
        "latencies.",
    ),
    "same-request, the other": (
        _of_one_request(1),
        "You find the request at the second percentile and give its first latency. Each percentile is one of its own "
        "latencies.",
    ),
    "moment-instead-of-latency, from the first": (
        _from_the_start,
        "You count all answers from the first moment due. A latency counts from the moment at which its own request was due.",
    ),
}
_SHARE = "`share` is in percent, 0 to 100: numpy.percentile takes that, numpy.quantile a share from 0 to 1."
ERRORS = {"Quantiles must be in": ("share-in-percent", _SHARE), "quantile() q must be in": ("share-in-percent", _SHARE)}
_SPACED = [10.0 * i for i in range(20)]
_STALL = [1.0] * 5 + [100.0] + [1.0] * 14


@exercise("latency-from-due-time", notebook="20_serving")
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
        "8 requests, always behind, p30": ([float(i) for i in range(8)], [3.0, 2.0, 4.0, 2.5, 5.0, 9.0, 1.5, 6.0], 30),
        "8 requests, never behind, p75": ([5.0 + 10 * i for i in range(8)], [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], 75),
        "8 requests, always behind, p0": ([float(i) for i in range(8)], [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], 0),
        "4 requests due at once, p50": ([2.0] * 4, [7.0, 1.0, 3.0, 2.0], 50),
        "one request, p99": ([3.0], [2.0], 99),
        "150 requests, always behind, p100": ([0.5 * i for i in range(150)], [1.0 + i % 149 for i in range(150)], 100),
        "2 requests, p51": ([0.1, 0.2], [0.3, 0.7], 51),
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
        first, second = map(plain, got)
        if not all(isinstance(value, Real | Decimal) for value in (first, second)):
            continue
        if min(first, second) < 0:
            hint = f"For {case} a latency of yours is {min(first, second):g}: an answer before its request is due or sent."
            raise Mistake("negative-latency", hint)
        if not any(same(first, service, 1e-6) for service in cases[case][1]):
            hint = f"For {case} your first number is {first:g}, which is no latency of a request. {RANK}"
            raise Mistake("not-one-of-the-latencies", hint)
        if same(first, wanted[0]) and second < (1 - 1e-6) * first:
            hint = f"For {case} your percentile from the moment due is below that from sent, {second:g} and {first:g}."
            raise Mistake("due-below-sent", f"{hint} No request is sent before it is due, so no latency from due is smaller.")
    for case, (got, wanted) in pairs.items():
        if not same(got[0], wanted[0]):
            known = shown(sorted(cases[case][1]))
            text = f"From the moment sent the latencies are the services, sorted {known}; your percentile of them is "
            text += f"{plain(got[0]):g}."
            raise Mistake("other-percentile-from-sent", f"For {case}: {text} {RANK}")
    for case, (got, wanted) in pairs.items():
        if not same(got[1], wanted[1]):
            due, service, _ = cases[case]
            known = sorted(done - moment for moment, done in zip(due, _waits(due, service)[1], strict=True))
            text = f"From the moment due, the smallest latency is {known[0]:g} and the largest {known[-1]:g}; yours is "
            text += f"{plain(got[1]):g}."
            raise Mistake("other-percentile-from-due", f"For {case} your first number is right. {text} {_WAITS}")
