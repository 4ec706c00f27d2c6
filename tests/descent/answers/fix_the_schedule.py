"""Answers to `fix-the-schedule`: α for N steps, α / 10 for M more, α / 100 from then on."""


def solution(t, lr, first, then):
    if t <= first:
        return lr
    return lr / 10 if t <= first + then else lr / 100


def drops_in_every_step(t, lr, first, then):
    for step in range(1, t + 1):
        if step > first:
            lr = lr / 10
        if step > first + then:
            lr = lr / 10
    return lr


def from_zero(t, lr, first, then):
    return lr * 0.1 ** ((t > first) + (t > then))


def early(t, lr, first, then):
    return lr * 0.1 ** ((t >= first) + (t >= first + then))


def late(t, lr, first, then):
    return lr * 0.1 ** ((t > first + 1) + (t > first + then + 1))


def once(t, lr, first, then):
    return lr if t <= first else lr / 10


def back_again(t, lr, first, then):
    return lr / 10 if first < t <= first + then else lr


def added(t, lr, first, then):
    return lr / max(1, 10 * ((t > first) + (t > first + then)))


def like_step_lr(t, lr, first, then):
    return lr * 0.1 ** ((t - 1) // first)


def forgets_the_rest(t, lr, first, then):
    if t <= first:
        return lr
    if t <= first + then:
        return lr / 10


WRONG = [
    ("drops-in-every-step", drops_in_every_step),
    ("second-drop-counted-from-zero", from_zero),
    ("one-step-early", early),
    ("one-step-late", late),
    ("second-drop-missing", once),
    ("rate-rises-again", back_again),
    ("drops-add", added),
    ("drops-for-ever", like_step_lr),
    ("returns-nothing", forgets_the_rest),
    ("wrong-value", lambda t, lr, first, then: lr / t),
]
