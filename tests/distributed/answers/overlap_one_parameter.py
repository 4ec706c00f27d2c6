"""Answers to `overlap-one-parameter`: the sum starts in the backward pass and is waited for after it."""

import torch
from edited_source import wrong_answers


def solution(parameter, all_reduce, ranks):
    handles = []

    def start(parameter):
        handles.append(all_reduce(parameter.grad))

    def finish():
        handles.pop().wait()
        parameter.grad.div_(ranks)

    parameter.register_post_accumulate_grad_hook(start)
    return finish


def all_in_finish(parameter, all_reduce, ranks):
    def finish():
        all_reduce(parameter.grad).wait()
        parameter.grad /= ranks

    return finish


def starts_in_finish_and_never_waits(parameter, all_reduce, ranks):
    def finish():
        all_reduce(parameter.grad.div_(ranks))

    return finish


def taken_at_once(parameter, all_reduce, ranks):
    grad = parameter.grad
    handles = []
    parameter.register_post_accumulate_grad_hook(lambda _: handles.append(all_reduce(grad)))

    def finish():
        handles.pop().wait()
        parameter.grad = grad / ranks

    return finish


def started_at_once(parameter, all_reduce, ranks):
    handle = all_reduce(parameter.grad)
    return handle.wait


def tensor_hook(parameter, all_reduce, ranks):
    handles = []
    parameter.register_hook(lambda grad: handles.append(all_reduce(grad)))

    def finish():
        handles.pop().wait()
        parameter.grad.div_(ranks)

    return finish


def tensor_hook_looks_up(parameter, all_reduce, ranks):
    handles = []
    parameter.register_hook(lambda _: handles.append(all_reduce(parameter.grad)))

    def finish():
        handles.pop().wait()
        parameter.grad.div_(ranks)

    return finish


def one_shot(parameter, all_reduce, ranks):
    handles = []

    def start(parameter):
        handles.append(all_reduce(parameter.grad))
        hook.remove()

    def finish():
        handles[-1].wait()
        parameter.grad.div_(ranks)

    hook = parameter.register_post_accumulate_grad_hook(start)
    return finish


def registers_again(parameter, all_reduce, ranks):
    handles = []

    def start(parameter):
        handles.append(all_reduce(parameter.grad))

    def finish():
        for handle in handles:
            handle.wait()
        handles.clear()
        parameter.grad.div_(ranks)
        parameter.register_post_accumulate_grad_hook(start)

    parameter.register_post_accumulate_grad_hook(start)
    return finish


SHARED = {}


def shared_handle(parameter, all_reduce, ranks):
    def start(parameter):
        SHARED["last"] = all_reduce(parameter.grad)

    def finish():
        SHARED["last"].wait()
        parameter.grad.div_(ranks)

    parameter.register_post_accumulate_grad_hook(start)
    return finish


def never_summed(parameter, all_reduce, ranks):
    return lambda: parameter.grad.div_(ranks)


def hands_back_the_handle(parameter, all_reduce, ranks):
    handles = []
    parameter.register_post_accumulate_grad_hook(lambda p: handles.append(all_reduce(p.grad)))
    return handles


def clears(parameter, all_reduce, ranks):
    finish = solution(parameter, all_reduce, ranks)

    def finish_and_clear():
        finish()
        parameter.grad = None

    return finish_and_clear


def registers_in_finish(parameter, all_reduce, ranks):
    handles = []

    def finish():
        parameter.register_post_accumulate_grad_hook(lambda p: handles.append(all_reduce(p.grad)))
        while handles:
            handles.pop().wait()
        parameter.grad /= ranks

    return finish


def takes_the_step(parameter, all_reduce, ranks):
    finish = solution(parameter, all_reduce, ranks)

    def finish_and_step():
        finish()
        parameter.data -= 0.1 * parameter.grad

    return finish_and_step


def sent_in(dtype, decimals=None):
    """The sum starts with a copy of the gradient in another type, or its mean is rounded."""

    def overlap(parameter, all_reduce, ranks):
        started = []

        def send(parameter):
            copy = parameter.grad.to(dtype, copy=True)
            started.append((all_reduce(copy), copy))

        parameter.register_post_accumulate_grad_hook(send)

        def finish():
            handle, copy = started.pop()
            handle.wait()
            mean = (copy / ranks).to(parameter.dtype)
            parameter.grad = mean if decimals is None else mean.round(decimals=decimals)

        return finish

    return overlap


def small_ones_left(parameter, all_reduce, ranks):
    """Elements of the sum below 0.1 are not divided."""
    started = []
    parameter.register_post_accumulate_grad_hook(lambda parameter: started.append(all_reduce(parameter.grad)))

    def finish():
        started.pop().wait()
        parameter.grad = torch.where(parameter.grad.abs() < 0.1, parameter.grad, parameter.grad / ranks)

    return finish


WRONG = [
    ("wrong-value", small_ones_left),
    ("other-type", sent_in(torch.float16)),
    ("other-type", sent_in(torch.float32)),
    ("wrong-value", sent_in(torch.float64, decimals=3)),
    ("rounded", sent_in(torch.float64, decimals=8)),
    ("not-overlapped", all_in_finish),
    ("not-overlapped", starts_in_finish_and_never_waits),
    ("gradient-not-there", taken_at_once),
    ("gradient-not-there", started_at_once),
    ("gradient-not-there", tensor_hook_looks_up),
    ("sum-lost", tensor_hook),
    ("only-the-first-step", one_shot),
    ("sums-twice", registers_again),
    ("never-waits", shared_handle),
    ("never-summed", never_summed),
    ("no-finish", hands_back_the_handle),
    ("gradient-lost", clears),
    *wrong_answers(
        solution,
        [
            ("waits-in-backward", ("handles.append(all_reduce(parameter.grad))", "all_reduce(parameter.grad).wait()")),
            ("never-waits", ("handles.pop().wait()", "handles.pop()")),
            ("not-averaged", ("        parameter.grad.div_(ranks)\n", "")),
            ("averaged-twice", ("all_reduce(parameter.grad)", "all_reduce(parameter.grad.div_(ranks))")),
            (
                "changed-in-flight",
                (
                    "handles.pop().wait()\n        parameter.grad.div_(ranks)",
                    "parameter.grad.div_(ranks)\n        handles.pop().wait()",
                ),
            ),
            (
                "changed-in-flight",
                ("parameter.grad))", "parameter.grad))\n        parameter.grad.div_(ranks)"),
                ("        parameter.grad.div_(ranks)\n\n    parameter", "\n    parameter"),
            ),
            ("sum-lost", ("all_reduce(parameter.grad)", "all_reduce(parameter.grad.clone())"), (".div_(ranks)", "")),
            ("sum-lost", ("all_reduce(parameter.grad)", "all_reduce(parameter.grad.clone())")),
            ("sums-the-weights", ("all_reduce(parameter.grad)", "all_reduce(parameter)")),
            ("sums-the-weights", ("all_reduce(parameter.grad)", "all_reduce(parameter.data)")),
            ("returns-nothing", ("    return finish\n", "")),
            (
                "no-finish",
                ("return finish", "return finish()"),
                ("handles.pop().wait()\n        parameter.grad.div_(ranks)", "return 0"),
            ),
            ("wrong-gradient-sent", ("all_reduce(parameter.grad)", "all_reduce(parameter.grad.sign())")),
            ("wrong-factor", ("div_(ranks)", "div_(ranks + 1)")),
            ("two-ranks", ("div_(ranks)", "div_(2)")),
            ("wrong-factor", ("div_(ranks)", "mul_(ranks)")),
            (
                "hook-returns",
                ("        handles.append(all_reduce(parameter.grad))", "        return all_reduce(parameter.grad)"),
            ),
            (
                "sums-twice",
                ("    return finish\n", "    parameter.register_post_accumulate_grad_hook(start)\n    return finish\n"),
            ),
            ("raises", ("all_reduce(parameter.grad)", "torch.distributed.all_reduce(parameter.grad, async_op=True)")),
            ("not-a-tensor", ("all_reduce(parameter.grad)", "all_reduce([parameter.grad])")),
        ],
    ),
    ("registered-too-late", registers_in_finish),
    ("changes-the-parameter", takes_the_step),
]


def scaled_before(parameter, all_reduce, ranks):
    under_way = {}

    @parameter.register_post_accumulate_grad_hook
    def start(parameter):
        under_way["sum"] = all_reduce(parameter.grad.mul_(1 / ranks))

    return lambda: under_way["sum"].wait()


def in_a_buffer(parameter, all_reduce, ranks):
    buffer, handles = torch.empty_like(parameter, requires_grad=False), []

    def start(parameter):
        buffer.copy_(parameter.grad)
        parameter.grad = buffer
        handles.append(all_reduce(buffer))

    def finish():
        handles.pop().wait()
        parameter.grad = buffer / ranks

    parameter.register_post_accumulate_grad_hook(start)
    return finish


class Overlap:
    def __init__(self, parameter, all_reduce, ranks):
        self.parameter, self.all_reduce, self.ranks = parameter, all_reduce, ranks
        parameter.register_post_accumulate_grad_hook(self.start)

    def start(self, parameter):
        self.handle = self.all_reduce(parameter.grad.detach())

    def __call__(self):
        self.handle.wait()
        self.parameter.grad = self.parameter.grad / self.ranks


def bound_method(parameter, all_reduce, ranks):
    return Overlap(parameter, all_reduce, ranks).__call__


def flattened(parameter, all_reduce, ranks):
    handle = None

    def start(parameter):
        nonlocal handle
        handle = all_reduce(parameter.grad.view(-1))

    def finish():
        handle.wait()
        with torch.no_grad():
            parameter.grad.mul_(1 / ranks)

    parameter.register_post_accumulate_grad_hook(start)
    return finish


def keeps_all_handles(parameter, all_reduce, ranks):
    handles = []
    parameter.register_post_accumulate_grad_hook(lambda p: handles.append(all_reduce(p.grad)))

    def finish():
        [handle.wait() for handle in handles]
        parameter.grad.div_(ranks)

    return finish


ALSO_RIGHT = [scaled_before, in_a_buffer, Overlap, bound_method, flattened, keeps_all_handles]
