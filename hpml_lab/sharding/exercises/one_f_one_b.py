"""one-f-one-b: the order of a stage's tasks in the 1F1B schedule."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import plain, shown
from hpml_lab.core.system.errors import LabError
from hpml_lab.sharding.lessons.pipeline import Task, most_kept, timetable

CASES = {
    f"stage {stage} of {stages}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}": (stage, stages, micro_batches)
    for stages, micro_batches in ((4, 8), (3, 5), (1, 3), (4, 4), (4, 2), (2, 1))
    for stage in range(stages)
}


def right(stage: int, stages: int, micro_batches: int) -> list[Task]:
    ahead = min(stages - 1 - stage, micro_batches)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(micro_batches):
        if i + ahead < micro_batches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks


RUBRIC = Rubric(
    right,
    """
min(stages - 1 - stage, micro_batches)
    more-ahead-than-there-are :: stages - 1 - stage :: There may be fewer micro-batches than stages: no stage runs the forward
        pass of one that does not exist.
    one-too-many-ahead :: min(stages - stage, micro_batches) :: Your stage starts one forward pass too many before its first
        backward pass: it keeps the activations of one micro-batch more than it must.
    counted-from-the-wrong-end :: min(stage, micro_batches) :: You have the stages in reverse. The first one runs ahead the
        most: its first gradient has the longest way back.
    not-ahead :: 0 :: The backward pass of micro-batch 0 needs a gradient from the next stage, which has not begun: run ahead.
whole answer
    gpipe :: lambda stage, stages, m: right(0, m + 1, m) :: This is GPipe: all forward passes first. 1F1B starts
        a backward pass as soon as its gradient is there.
    backward-first :: lambda stage, stages, m: sorted(right(stage, stages, m)) :: A backward pass needs the forward pass of the
        same micro-batch first.
""",
)


@exercise("one-f-one-b", notebook="14_sharding", takes="stage, stages, micro_batches", returns=[(str, int)])
def judge_one_f_one_b(answer: Callable[[int, int, int], Any]) -> None:
    """As many forward passes as stages follow, then forward and backward in turns, then the backward passes that are left."""

    def tasks(stage: int, stages: int, micro_batches: int) -> list[Task]:
        return [tuple(map(plain, task)) for task in answer(stage, stages, micro_batches)]

    RUBRIC.expect(tasks, CASES, but=("mixed",), explain=_explain)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what is wrong: tasks that are missing, a wait without end, or too many activations."""
    for case, _, got, wanted in judged:
        if isinstance(got, list) and sorted(map(str, got)) != sorted(map(str, wanted)):
            hint = f"Each micro-batch goes forward once and backward once. For {case} yours does {shown(got)}."
            raise Mistake("not-each-once", hint)
    try:
        timetable(answer, 4, 8)
    except LabError as error:
        raise Mistake("waits-forever", f"On 4 stages with 8 micro-batches: {error.problem}") from error
    for case, _, got, wanted in judged:
        if got != wanted and most_kept(got) > most_kept(wanted):
            hint = (
                f"For {case} you keep the activations of {most_kept(got)} micro-batches at once; {most_kept(wanted)} suffice."
            )
            raise Mistake("keeps-too-many", hint)
