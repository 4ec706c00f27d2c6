"""Answers to `master-weights`: the gradient at the fp16 copy, the update on the fp32 master."""

import numpy as np
import torch


def solution(master, gradient_of, lr):
    gradient = gradient_of(master.half())
    master = master - lr * gradient.float()
    return master, master.half()


def all_in_fp16(master, gradient_of, lr):
    short = master.half()
    short = short - lr * gradient_of(short)
    return short.float(), short


def product_in_fp16(master, gradient_of, lr):
    update = lr * gradient_of(master.half())
    master = master - update.float()
    return master, master.half()


def from_the_copy(master, gradient_of, lr):
    short = master.half()
    master = short.float() - lr * gradient_of(short).float()
    return master, master.half()


def uphill(master, gradient_of, lr):
    master = master + lr * gradient_of(master.half()).float()
    return master, master.half()


def stale(master, gradient_of, lr):
    short = master.half()
    return master - lr * gradient_of(short).float(), short


def at_the_master(master, gradient_of, lr):
    master = master - lr * gradient_of(master).float()
    return master, master.half()


def short_master(master, gradient_of, lr):
    short = master.half() - lr * gradient_of(master.half())
    return short, short


def long_copy(master, gradient_of, lr):
    master = master - lr * gradient_of(master.half()).float()
    return master, master


def no_rate(master, gradient_of, lr):
    master = master - gradient_of(master.half()).float()
    return master, master.half()


def in_place(master, gradient_of, lr):
    master -= lr * gradient_of(master.half()).float()


def only_the_master(master, gradient_of, lr):
    return master - lr * gradient_of(master.half()).float()


WRONG = [
    ("updated-in-fp16", all_in_fp16),
    ("product-in-fp16", product_in_fp16),
    ("master-overwritten", from_the_copy),
    ("uphill", uphill),
    ("stale-copy", stale),
    ("gradient-at-the-master", at_the_master),
    ("master-in-fp16", short_master),
    ("copy-not-fp16", long_copy),
    ("rate-ignored", no_rate),
    ("returns-nothing", in_place),
    ("not-two-values", only_the_master),
]


# ---- more wrong answers, and right ones that compute in another way --------------------------------------------------------


def step_of(master, gradient_of, update):
    master = master - update(gradient_of(master.half()).float())
    return master, master.half()


def rate_of_its_own(master, gradient_of, lr):
    return step_of(master, gradient_of, lambda grad: 0.01 * grad)


def divided(master, gradient_of, lr):
    return step_of(master, gradient_of, lambda grad: grad / lr)


def signs_only(master, gradient_of, lr):
    return step_of(master, gradient_of, lambda grad: lr * grad.sign())


def mean_gradient(master, gradient_of, lr):
    return step_of(master, gradient_of, lambda grad: lr * grad.mean())


def twice(master, gradient_of, lr):
    master, _ = solution(master, gradient_of, lr)
    return solution(master, gradient_of, lr)


def swapped(master, gradient_of, lr):
    master, short = solution(master, gradient_of, lr)
    return short, master


def in_float64(master, gradient_of, lr):
    master = master.double() - lr * gradient_of(master.half()).double()
    return master, master.half()


def rounded_back(master, gradient_of, lr):
    return step_of(master.half().float(), gradient_of, lambda grad: lr * grad)


def rounded_at_the_end(master, gradient_of, lr):
    short = (master - lr * gradient_of(master.half()).float()).half()
    return short.float(), short


def difference_of_the_copies(master, gradient_of, lr):
    short = master.half()
    moved = short - lr * gradient_of(short)
    master = master + (moved - short).float()
    return master, master.half()


def copies_apart(master, gradient_of, lr):
    short = master.half()
    grad = gradient_of(short)
    return master - lr * grad.float(), short - lr * grad


def copy_in_bf16(master, gradient_of, lr):
    master = master - lr * gradient_of(master.half()).float()
    return master, master.bfloat16()


def gradient_at_float_copy(master, gradient_of, lr):
    master = master - lr * gradient_of(master.half().float()).float()
    return master, master.half()


def forgets_the_step(master, gradient_of, lr):
    gradient_of(master.half())
    return master, master.half()


def numbers_not_tensors(master, gradient_of, lr):
    master, _ = solution(master, gradient_of, lr)
    return master.sum().item(), 0.0


WRONG += [
    ("rate-ignored", rate_of_its_own),
    ("rate-ignored", lambda master, gradient_of, lr: step_of(master, gradient_of, lambda grad: grad)),
    ("divided-by-the-rate", divided),
    ("signs-only", signs_only),
    ("gradient-averaged", mean_gradient),
    ("two-steps", twice),
    ("swapped", swapped),
    ("master-not-fp32", in_float64),
    ("master-overwritten", rounded_back),
    ("updated-in-fp16", rounded_at_the_end),
    ("never-moves", difference_of_the_copies),
    ("stale-copy", copies_apart),
    ("copy-not-fp16", copy_in_bf16),
    ("gradient-at-the-master", gradient_at_float_copy),
    ("never-moves", forgets_the_step),
    ("not-two-tensors", numbers_not_tensors),
]


def in_place_and_returned(master, gradient_of, lr):
    master.sub_(gradient_of(master.half()), alpha=lr)
    return master, master.half()


def added_with_alpha(master, gradient_of, lr):
    master = torch.add(master, gradient_of(master.to(torch.float16)), alpha=-lr)
    return [master, master.to(torch.float16)]


def through_numpy(master, gradient_of, lr):
    kept = master.numpy()
    gradient = gradient_of(torch.from_numpy(kept.astype(np.float16))).numpy().astype(np.float32)
    kept = kept - np.float32(lr) * gradient
    return kept, kept.astype(np.float16)


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


ALSO_RIGHT = [in_place_and_returned, added_with_alpha, through_numpy, through_float64, as_parameter, rate_as_tensor]

WRONG += [
    (
        "rounded-once-more",
        lambda master, gradient_of, lr: step_of(master, gradient_of, lambda grad: grad.bfloat16().float() * lr),
    ),
    (
        "rounded-once-more",
        lambda master, gradient_of, lr: step_of(master, gradient_of, lambda grad: torch.tensor(lr).half() * grad),
    ),
]


def skips_below(limit):
    def step(master, gradient_of, lr):
        update = lr * gradient_of(master.half()).float()
        master = master - update.where(update.abs() >= limit, 0)
        return master, master.half()

    return step


WRONG += [("skips-small-updates", skips_below(limit)) for limit in (1e-8, 1e-6, 1e-4)]
