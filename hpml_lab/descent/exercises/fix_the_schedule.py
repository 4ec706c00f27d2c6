"""Exercise `fix-the-schedule`: α up to step N, α / 10 up to step N + M, α / 100 from then on."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def rate_at(t: int, lr: float, first: int, then: int) -> float:
    drops = (t > first) + (t > first + then)
    return lr / 10**drops


RUBRIC = Rubric(
    rate_at,
    """
(t > first) + (t > first + then)
    drops-in-every-step :: max(0, t - first) + max(0, t - first - then) :: In the code that is given, the rate falls by 10 in
        every step after the first drop. How often should it drop in all?
    drops-in-every-step :: (t > first) + max(0, t - first - then) :: The first drop is right, but after the second one the rate
        falls in every step.
    drops-in-every-step :: max(0, t - first) + (t > first + then) :: The second drop happens once, but after the first one the
        rate falls in every step.
    second-drop-late :: (t > first) + (t > first + then + 1) :: The first drop is right, the second comes one step late.
    second-drop-early :: (t > first) + (t >= first + then) :: The first drop is right, the second comes one step early.
    first-drop-late :: (t > first + 1) + (t > first + then) :: The second drop is right, the first comes one step late.
    first-drop-early :: (t >= first) + (t > first + then) :: The second drop is right, the first comes one step early.
    one-step-early :: (t >= first) + (t >= first + then) :: Right but for one step: after 5 steps means that step 5 still has
        the old rate.
    one-step-late :: (t > first + 1) + (t > first + then + 1) :: Right but for one step: after 5 steps means that step 6 has the
        new rate.
    second-drop-counted-from-zero :: (t > first) + (t > then) :: $FROM_ZERO
    second-drop-counted-from-zero :: (t > first) * (1 + (t > then)) :: $FROM_ZERO
    back-after-one-step :: (t == first + 1) + 2 * (t == first + then + 1) :: Your rate drops for one step, then it is `lr`
        again: a drop holds for all steps after it.
    rate-rises-again :: (t > first) - (t > first + then) :: After the second drop your rate is the first one again.
    second-drop-missing :: (t > first) :: The first drop is right. The lecture drops again, to a hundredth.
    never-drops :: 0 :: Your rate never drops.
    drops-for-ever :: max(0, 1 + (t - first - 1) // then) :: The rate goes on dropping every `then` steps. There are two drops:
        to a tenth, and to a hundredth from then on.
    drops-for-ever :: (t - 1) // first :: You drop every `first` steps for ever, as StepLR does. Here there are two drops, each
        at a step of its own.
lr / 10**drops
    lr-hard-coded :: 0.1 / 10**drops :: Your rates are those of lr = 0.1, whatever `lr` is.
    drops-to-zero :: lr // 10 if drops else lr :: // drops the fraction, so that the rate becomes 0: divide by /.
    second-drop-by-hundred :: lr / [1, 10, 1000][drops] :: The second drop is by 10, too: to a hundredth of `lr`, not to a
        thousandth.
    drops-add :: lr / max(1, 10 * drops) :: Two drops by 10 give a hundredth: they multiply.
    drops-subtract :: lr - lr / 10 * drops :: You take a tenth away: nine tenths remain. To a tenth means divided by 10.
    multiplied :: lr * 10**drops :: Your rate rises: divide by 10.
""",
    FROM_ZERO="The second drop comes `then` steps after the first one, not `then` steps after the start.",
)


@exercise("fix-the-schedule", notebook="04_descent", takes="t, lr, first, then", returns=float)
def judge_fix_the_schedule(answer: Callable) -> None:
    """α up to step N, α / 10 up to step N + M, α / 100 from then on."""
    settings = ((0.1, 5, 3), (0.4, 4, 9), (0.0237, 2, 2))
    cases = {
        f"step {t} with lr = {lr:g}, first = {first} and then = {then}": (t, lr, first, then)
        for lr, first, then in settings
        for t in (1, first, first + 1, first + then, first + then + 1, *range(first + then + 7, 1, -1))  # in no order
    }
    RUBRIC.expect(answer, cases)
