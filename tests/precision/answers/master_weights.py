"""Answers to `master-weights`: the gradient at the fp16 copy, the update on the fp32 master."""

import torch
from edited_source import wrong_answers


def solution(master, gradient_of, lr):
    gradient = gradient_of(master.half())
    master = master - lr * gradient.float()
    return master, master.half()


def difference_of_the_copies(master, gradient_of, lr):
    short = master.half()
    moved = short - lr * gradient_of(short)
    master = master + (moved - short).float()
    return master, master.half()


def copies_apart(master, gradient_of, lr):
    short = master.half()
    grad = gradient_of(short)
    return master - lr * grad.float(), short - lr * grad


def skips_below(limit):
    def step(master, gradient_of, lr):
        update = lr * gradient_of(master.half()).float()
        master = master - update.where(update.abs() >= limit, 0)
        return master, master.half()

    return step


def as_many_as_rows(master, gradient_of, lr):
    """Weight by weight, and `len` of a matrix counts its rows."""
    gradient, updated = gradient_of(master.half()).flatten(), master.flatten()
    for index in range(len(master)):
        updated[index] -= lr * gradient[index].float()
    return updated.view_as(master), updated.view_as(master).half()


ASKED, AFTER, BOTH = "gradient_of(master.half())", "master - lr * gradient.float()", "return master, master.half()"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("stale-copy", ("gradient = ", "short = master.half()\n    gradient = "), (BOTH, "return master, short")),
            ("gradient-at-the-master", (ASKED, "gradient_of(master)")),
            ("gradient-at-the-master", (ASKED, "gradient_of(master.half().float())")),
            ("never-moves", (AFTER, "master")),
            ("rounded-once-more", (AFTER, "master - lr * gradient.bfloat16().float()")),
            ("rounded-once-more", (AFTER, "master - torch.tensor(lr).half() * gradient.float()")),
            ("wrong-dtype", (BOTH, "return master.half(), master")),
        ],
    ),
    ("never-moves", difference_of_the_copies),
    ("stale-copy", copies_apart),
    ("vectors-only", as_many_as_rows),
    *[("skips-small-updates", skips_below(limit)) for limit in (1e-8, 1e-6, 1e-4)],
]


def in_place_and_returned(master, gradient_of, lr):
    master.sub_(gradient_of(master.half()), alpha=lr)
    return master, master.half()


def added_with_alpha(master, gradient_of, lr):
    master = torch.add(master, gradient_of(master.to(torch.float16)), alpha=-lr)
    return [master, master.to(torch.float16)]


def through_float64(master, gradient_of, lr):
    exact = master.double() - lr * gradient_of(master.half()).double()
    return exact.float(), exact.float().half()


def as_parameter(master, gradient_of, lr):
    weight = torch.nn.Parameter(master)
    weight.grad = gradient_of(weight.detach().half()).float()
    torch.optim.SGD([weight], lr=lr).step()
    return weight, weight.half()


def rate_as_tensor(master, gradient_of, lr):
    rate = torch.tensor(lr)
    master = torch.addcmul(master, gradient_of(master.half()).float(), rate, value=-1)
    return master, master.type(torch.half)


ALSO_RIGHT = [in_place_and_returned, added_with_alpha, through_float64, as_parameter, rate_as_tensor]
