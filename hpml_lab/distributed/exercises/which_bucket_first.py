"""which-bucket-first: which parameters share a bucket, and in which order the buckets leave."""

from collections.abc import Callable
from itertools import accumulate

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, shown

CASES = {
    "sizes 4, 1, 4, 1, 4, 1 and a cap of 5": ([4, 1, 4, 1, 4, 1], 5),
    "sizes 3, 3, 3 and a cap of 3": ([3, 3, 3], 3),
    "sizes 1, 2, 3, 4, 5, 6 and a cap of 7": ([1, 2, 3, 4, 5, 6], 7),
    "sizes 10, 1, 1, 1 and a cap of 2": ([10, 1, 1, 1], 2),
    "sizes 2, 9, 2, 2 and a cap of 5": ([2, 9, 2, 2], 5),
    "sizes 6, 5, 4, 3, 2 and a cap of 100": ([6, 5, 4, 3, 2], 100),
    "one parameter of size 7 and a cap of 3": ([7], 3),
    "sizes 5, 3, 8, 2, 6, 1, 4 and a cap of 8": ([5, 3, 8, 2, 6, 1, 4], 8),
    "12 parameters of size 2 and a cap of 9": ([2] * 12, 9),
}
Buckets = list[list[int]]


def right(sizes: list[int], cap: float) -> Buckets:
    found: Buckets = [[]]
    for number in reversed(range(len(sizes))):
        found[-1].append(number)
        if sum(sizes[i] for i in found[-1]) >= cap:
            found.append([])
    return [bucket for bucket in found if bucket]


def forward(sizes: list[int], cap: float) -> Buckets:
    """The buckets filled from the first parameter to the last."""
    last = len(sizes) - 1
    return [[last - number for number in bucket] for bucket in right(sizes[::-1], cap)]


def never_above(sizes: list[int], cap: float) -> Buckets:
    """A bucket is closed before the parameter with which it would exceed the cap."""
    found: Buckets = [[]]
    for number in reversed(range(len(sizes))):
        if found[-1] and sum(sizes[i] for i in found[-1]) + sizes[number] > cap:
            found.append([])
        found[-1].append(number)
    return found


def rest_joins_the_last(sizes: list[int], cap: float) -> Buckets:
    *full, last = right(sizes, cap)
    return [*full[:-1], full[-1] + last] if full and sum(sizes[i] for i in last) < cap else [*full, last]


RUBRIC = Rubric(
    right,
    """
sum(sizes[i] for i in found[-1]) >= cap
    exceeds-instead-of-reaches :: sum(sizes[i] for i in found[-1]) > cap :: A bucket that holds exactly the cap is closed: at
        least means >=, not >.
    one-bucket-per-parameter :: True :: Each parameter has its own bucket. Small ones share one until it holds the cap.
    one-bucket-for-all :: False :: All parameters are in one bucket: it cannot leave before the last gradient is ready.
found[-1].append(number)
    large-ones-alone :: found += [[]] * (sizes[number] >= cap); found[-1].append(number) :: A parameter that is as large as the
        cap has no bucket of its own. It joins those that are waiting, and closes their bucket.
[bucket for bucket in found if bucket]
    sorted-inside :: [sorted(bucket) for bucket in found if bucket] :: The buckets are right. Inside a bucket, too, list the
        parameter first whose gradient is ready first.
whole answer
    filled-forward-then-reversed :: lambda sizes, cap: forward(sizes, cap)[::-1] :: $FORWARD
    filled-forward-then-reversed :: lambda sizes, cap: [bucket[::-1] for bucket in forward(sizes, cap)[::-1]] :: $FORWARD
    never-above-the-cap :: never_above :: You close a bucket before it would exceed the cap. By the rule it is closed as soon
        as it holds at least the cap.
    rest-joins-the-last :: rest_joins_the_last :: What is left at the end goes into a bucket that is closed in yours, and may
        have left. It makes a bucket of its own.
""",
    FORWARD="The last bucket leaves first, but you filled the buckets from the first parameter on. Fill them in the order in "
    "which gradients become ready.",
)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that names the first rule that the buckets break."""
    for case, (sizes, cap), found, _ in judged:
        numbers = [number for bucket in found for number in bucket]
        every = list(reversed(range(len(sizes))))
        if strange := [number for number in numbers if number not in every]:
            hint = f"For {case} the parameters are numbered from 0 to {len(sizes) - 1}; you list {shown(strange[0])}."
            raise Mistake("no-such-parameter", hint)
        if missing := [number for number in every if number not in numbers]:
            raise Mistake("parameters-missing", f"For {case}, parameter {missing[0]} is in no bucket: {shown(found)}.")
        if len(numbers) > len(every):
            raise Mistake("listed-twice", f"For {case} a parameter is in two buckets: {shown(found)}.")
        if numbers != every:
            hint = f"For {case} the gradients become ready in the order {shown(every)}; you list {shown(numbers)}."
            raise Mistake("wrong-order", hint)
        for place, bucket in enumerate(found):
            held = list(accumulate(sizes[number] for number in bucket))
            if held[-1] < cap and place < len(found) - 1:
                hint = f"For {case} you close bucket {bucket} although it holds {held[-1]}. Is the sum 0 for each new one?"
                raise Mistake("closed-too-early", hint)
            if any(sum_ >= cap for sum_ in held[:-1]):
                full = next(i for i, sum_ in enumerate(held) if sum_ >= cap)
                hint = f"For {case}, bucket {bucket} holds {held[full]} after {bucket[full]} and is closed there"
                raise Mistake("closed-too-late", f"{hint}; you fill it further.")


@exercise("which-bucket-first", notebook="13_distributed", takes="sizes, cap", returns=[{int}])
def judge_which_bucket_first(answer: Callable) -> None:
    """From the last parameter to the first, closed as soon as a bucket holds at least the cap."""

    def given(sizes: list[int], cap: float) -> Buckets:
        found = [[plain(number) for number in bucket] for bucket in answer(sizes, cap)]
        if [] in found:
            raise Mistake(
                "empty-bucket",
                f"Your list has an empty bucket, for sizes {shown(sizes)} and a cap of {cap}. (A list that is cleared "
                "after it was appended is empty in the result, too.)",
            )
        return found

    RUBRIC.expect(given, CASES, explain=_explain)
