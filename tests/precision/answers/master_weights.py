"""Answers to `master-weights`: the gradient at the fp16 copy, the update on the fp32 master."""


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
    ("wrong-value", no_rate),
    ("returns-nothing", in_place),
    ("not-two-values", only_the_master),
]
