"""latency-from-due-time: a client that waits for its answers, measured from the moment sent and from the moment due."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, same, shown

Times = tuple[list, list]  # sent, done
Percentile = Callable[[list, float], float]  # (latencies, share in %)


def right(due: Sequence[float], service: Sequence[float], share: float) -> Any:
    sent, done = waits(due, service)
    first = [end - moment for moment, end in zip(sent, done, strict=True)]
    second = [end - moment for moment, end in zip(due, done, strict=True)]
    return percentile(first, share), percentile(second, share)


def waits(due: Sequence[float], service: Sequence[float]) -> Times:
    """Each request is sent when it is due, or when the answer before it has arrived."""
    sent, done, free = [], [], -math.inf
    for moment, seconds in zip(due, service, strict=True):
        sent.append(max(moment, free))
        done.append(free := sent[-1] + seconds)
    return sent, done


def never_idle(due: Sequence[float], service: Sequence[float]) -> Times:
    """The next request at once, even before it is due."""
    sent, free = [], due[0]
    for seconds in service:
        sent.append(free)
        free += seconds
    return sent, [moment + seconds for moment, seconds in zip(sent, service, strict=True)]


def the_earlier(due: Sequence[float], service: Sequence[float]) -> Times:
    """min for max."""
    sent, done = [], []
    for moment, seconds in zip(due, service, strict=True):
        sent.append(min(moment, *done[-1:], moment))
        done.append(sent[-1] + seconds)
    return sent, done


def gap_after_answer(due: Sequence[float], service: Sequence[float]) -> Times:
    """The gap between two moments due begins with the answer."""
    sent, done = [], []
    for i, seconds in enumerate(service):
        sent.append(due[0] if i == 0 else done[-1] + due[i] - due[i - 1])
        done.append(sent[-1] + seconds)
    return sent, done


def schedule_shifts(due: Sequence[float], service: Sequence[float]) -> Times:
    """What is late moves all later requests."""
    sent, done = [], []
    for i, seconds in enumerate(service):
        sent.append(due[0] if i == 0 else max(done[-1], sent[-1] + due[i] - due[i - 1]))
        done.append(sent[-1] + seconds)
    return sent, done


def waits_one_back(due: Sequence[float], service: Sequence[float]) -> Times:
    """max(due, done before) where `done` counts from the moment due: waiting does not add up."""
    sent = [moment if i == 0 else max(moment, due[i - 1] + service[i - 1]) for i, moment in enumerate(due)]
    return sent, [moment + seconds for moment, seconds in zip(sent, service, strict=True)]


def percentile(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    return ordered[max(math.ceil(share * len(ordered) / 100), 1) - 1]


def interpolated(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    position = share / 100 * (len(ordered) - 1)
    low = math.floor(position)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (position - low)


def at(rank: Callable[[float], float]) -> Percentile:
    """The sorted latency at an index, from the share of their number; kept inside the list."""
    return lambda latencies, share: sorted(latencies)[min(max(int(rank(share * len(latencies) / 100)), 0), len(latencies) - 1)]


def past_the_end(rank: Callable[[float], float]) -> Percentile:
    """The same, but an index below 0 counts from the end, and one past the end raises."""
    return lambda latencies, share: sorted(latencies)[int(rank(share * len(latencies) / 100))]


def between(way: Callable[[float], int]) -> Percentile:
    """NumPy's methods lower, higher and nearest: the index is share % of n − 1."""
    return lambda latencies, share: sorted(latencies)[way(share / 100 * (len(latencies) - 1))]


def exceed(latencies: list, share: float) -> float:
    """The smallest latency with at least `share` % strictly below it."""
    ordered = sorted(latencies)
    return next((x for x in ordered if 100 * sum(y < x for y in ordered) >= share * len(ordered)), ordered[-1])


def unsorted(latencies: list, share: float) -> float:
    return latencies[max(math.ceil(share * len(latencies) / 100), 1) - 1]


def from_the_top(latencies: list, share: float) -> float:
    return sorted(latencies, reverse=True)[max(math.ceil(share * len(latencies) / 100), 1) - 1]


def of_one_request(which: int) -> Callable[..., tuple[float, float]]:
    """Both latencies of the request that is at the percentile from sent (0) or from due (1)."""

    def answer(due: Sequence[float], service: Sequence[float], share: float) -> tuple[float, float]:
        both = service, [end - moment for moment, end in zip(due, waits(due, service)[1], strict=True)]
        at = sorted(range(len(due)), key=both[which].__getitem__)[max(math.ceil(share * len(due) / 100), 1) - 1]
        return both[0][at], both[1][at]

    return answer


RANK = "The percentile asked for is the smallest latency that at least `share` % of the requests do not exceed."
_WAITS = (
    "The client sends a request only when it has the answer to the one before, and not before it is due: the later of both."
)
_PERCENTILES = """
interpolated | interpolated | You interpolate between two latencies. || $RANK
rank-too-high | at(math.floor) | Where share % of the requests is a whole number k, the k-th smallest latency is meant. $RANK
rank-too-low | at(lambda k: math.floor(k) - 1) | Your rank is rounded down, so that fewer than share % do not exceed it. $RANK
rank-rounded | at(lambda k: round(k) - 1) | Your rank is rounded to the nearest number. $RANK
rank-rounded | at(lambda k: math.floor(k + 0.5) - 1) | Your rank is rounded to the nearest number. $RANK
rank-of-n-minus-1 | between(math.floor) | $LESS
rank-of-n-minus-1 | between(math.ceil) | $LESS
rank-of-n-minus-1 | between(round) | $LESS
rank-too-high | exceed | You count the latencies below one; those that are equal do not exceed it either. $RANK
rank-too-high | past_the_end(math.floor) | The k-th smallest of n has the index k − 1, and the largest n − 1. $RANK
rank-too-low | past_the_end(lambda k: math.floor(k) - 1) | Your rank is rounded down, and below 1 it counts from the end. $RANK
rank-rounded | past_the_end(lambda k: round(k) - 1) | Your rank is rounded, and below 1 it counts from the end. $RANK
rank-0 | past_the_end(lambda k: math.ceil(k) - 1) | For a share of 0 your index is −1, which counts from the end. Begin at 0.
share-in-percent | at(lambda k: math.ceil(100 * k) - 1) | $PERCENT
share-in-percent | past_the_end(lambda k: math.ceil(100 * k) - 1) | $PERCENT
share-in-percent | past_the_end(lambda k: math.floor(100 * k)) | $PERCENT
from-the-top | from_the_top | You sort with the largest first: p99 is near the largest one, the last of those sorted upward.
not-sorted | unsorted | Your latencies are in the order in which they came: sort them first. $RANK
from-the-top | (lambda values, p: percentile(values, 100 - p)) | Your percentile counts from the largest latency. $RANK
mean | (lambda values, p: sum(values) / len(values)) | That is the mean. $RANK
largest | (lambda values, p: max(values)) | That is the largest latency, whatever the share. $RANK
median | (lambda values, p: interpolated(values, 50)) | That is the median, whatever the share. $RANK
median | (lambda values, p: percentile(values, 50)) | That is the median, whatever the share. $RANK
"""


def _table() -> str:
    """Rows of wrong percentiles: of both latencies, and of the second alone."""
    rows = [row.split(" | ", 2) for row in _PERCENTILES.strip().splitlines()]
    both = [f"    {name} :: {way}(first, share), {way}(second, share) :: {hint}" for name, way, hint in rows]
    second = [f"    {name} :: {way}(second, share) :: Your first number is right. || {hint}" for name, way, hint in rows]
    return "\n".join(["percentile(first, share), percentile(second, share)", *both, "percentile(second, share)", *second])


RUBRIC = Rubric(
    right,
    """
waits(due, service)
    sends-too-early :: never_idle(due, service) :: Your client sends the next request at once, also before it is due. || $WAITS
    gap-after-the-answer :: gap_after_answer(due, service) :: Your client pauses after each answer as if the gap began there.
        The moments due are fixed.
    schedule-shifts :: schedule_shifts(due, service) :: In your code a late request moves all later ones. The moments due are
        fixed, whatever the client does.
    sends-too-early :: the_earlier(due, service) :: Your client takes the earlier of the two moments. $WAITS
    services-sorted :: waits(due, sorted(service)) :: You sort the services before the requests are sent, whose order is fixed.
        Sort latencies, at the end.
    clock-from-0 :: never_idle([0.0, *due[1:]], service) :: In your code the first request is sent at 0, and each other at once.
        $WAITS
    waiting-does-not-add-up :: waits_one_back(due, service) :: Your client has its answer at due + service. A request that was
        sent late is answered late, and so on.
first = [end - moment for moment, end in zip(sent, done, strict=True)]
    both-from-due :: first = [end - moment for moment, end in zip(due, done, strict=True)] :: The first latency counts from the
        moment sent, not from the moment due.
    waiting-instead-of-latency :: first = [end - moment for moment, end in zip(due, sent, strict=True)] :: sent − due is how
        late the client was. Its own latency is from sent to done.
zip(due, done, strict=True)
    no-waiting :: zip(sent, done, strict=True) :: Your second number has no waiting in it. Either it counts from the moment sent
        too, or your client sends each request when it is due. || $WAITS
    waiting-instead-of-latency :: zip(due, sent, strict=True) :: sent − due is only the waiting before a request is sent; the
        answer arrives at done.
    moment-instead-of-latency :: zip([0.0] * len(due), done, strict=True) :: Your second number is a moment, when an answer
        arrives. A latency is how long after the moment due that is.
    moment-instead-of-latency :: zip([due[0]] * len(due), done, strict=True) :: You count all answers from the first moment due.
        A latency counts from the moment at which its own request was due.
    twice-the-waiting :: ((2 * moment - begin, end) for moment, begin, end in zip(due, sent, done, strict=True)) :: You add the
        waiting to a latency that already has it: from due to done is done − due.
"""
    + _table()
    + """
return percentile(first, share), percentile(second, share)
    swapped :: return percentile(second, share), percentile(first, share) :: Return the percentile from the moment sent first,
        then that from the moment due.
    difference :: return percentile(first, share), percentile(second, share) - percentile(first, share) :: Your second number is
        the difference of the two. Return both percentiles.
whole answer
    same-request :: of_one_request(0) :: You find the request at the first percentile and give its second latency. Each
        percentile is one of its own latencies.
    same-request :: of_one_request(1) :: You find the request at the second percentile and give its first latency. Each
        percentile is one of its own latencies.
error
    share-in-percent :: Quantiles must be in :: $SHARE
    share-in-percent :: quantile() q must be in :: $SHARE
""",
    RANK=RANK,
    WAITS=_WAITS,
    LESS=f"You take share % of n − 1, as for an interpolation, and round it. {RANK}",
    PERCENT="`share` is in percent, 0 to 100; you use it as a share from 0 to 1.",
    SHARE="`share` is in percent, 0 to 100: numpy.percentile takes that, numpy.quantile a share from 0 to 1.",
)
_SPACED = [10.0 * i for i in range(20)]
_STALL = [1.0] * 5 + [100.0] + [1.0] * 14


@exercise("latency-from-due-time", notebook="20_serving", takes="due, service, share", returns=(float, float))
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
    RUBRIC.expect(answer, cases, explain=_explain)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which of the two numbers is wrong, in the first case that shows it."""
    cases, pairs = {row.case: row.given for row in judged}, {row.case: (row.got, row.wanted) for row in judged}
    for case, (got, wanted) in pairs.items():
        first, second = map(plain, got)
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
            known = sorted(done - moment for moment, done in zip(due, waits(due, service)[1], strict=True))
            text = f"From the moment due, the smallest latency is {known[0]:g} and the largest {known[-1]:g}; yours is "
            text += f"{plain(got[1]):g}."
            if any(same(got[1], latency) for latency in known):
                hint = (
                    f"For {case} your first number is right. Your second, {plain(got[1]):g}, is the latency of another request."
                )
                raise Mistake("another-rank-from-due", f"{hint} {RANK}")
            raise Mistake("other-percentile-from-due", f"For {case} your first number is right. {text} {_WAITS}")
