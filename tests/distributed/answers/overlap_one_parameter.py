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


def never_summed(parameter, all_reduce, ranks):
    return lambda: parameter.grad.div_(ranks)


def registers_in_finish(parameter, all_reduce, ranks):
    handles = []

    def finish():
        parameter.register_post_accumulate_grad_hook(lambda p: handles.append(all_reduce(p.grad)))
        while handles:
            handles.pop().wait()
        parameter.grad /= ranks

    return finish


def sent_in_half(parameter, all_reduce, ranks):
    started = []

    def send(parameter):
        copy = parameter.grad.half()
        started.append((all_reduce(copy), copy))

    parameter.register_post_accumulate_grad_hook(send)

    def finish():
        handle, copy = started.pop()
        handle.wait()
        parameter.grad = (copy / ranks).to(parameter.dtype)

    return finish


SUM, WAIT, DIVIDE = "all_reduce(parameter.grad)", "handles.pop().wait()", "parameter.grad.div_(ranks)"
HOOK, REGISTER = "register_post_accumulate_grad_hook", "    parameter.register_post_accumulate_grad_hook(start)\n"
WRONG = [
    ("other-type", sent_in_half),
    ("never-summed", never_summed),
    *wrong_answers(
        solution,
        [
            ("waits-in-backward", (f"handles.append({SUM})", f"{SUM}.wait()")),
            ("never-waits", (WAIT, "handles.pop()")),
            ("not-averaged", (f"        {DIVIDE}\n", "")),
            ("averaged-twice", (SUM, "all_reduce(parameter.grad.div_(ranks))")),
            ("changed-in-flight", (f"{WAIT}\n        {DIVIDE}", f"{DIVIDE}\n        {WAIT}")),
            ("sum-lost", (SUM, "all_reduce(parameter.grad.clone())"), (".div_(ranks)", "")),
            ("sum-lost", (SUM, "all_reduce(parameter.grad.clone())")),
            ("sums-the-weights", (SUM, "all_reduce(parameter)")),
            ("sums-the-weights", (SUM, "all_reduce(parameter.data)")),
            ("wrong-gradient-sent", (SUM, "all_reduce(parameter.grad.sign())")),
            ("wrong-factor", ("div_(ranks)", "div_(ranks + 1)")),
            ("two-ranks", ("div_(ranks)", "div_(2)")),
            (
                "shared-between-parameters",
                ("handles = []", "solution.handles = handles = getattr(solution, 'handles', [])"),
                ("handles.pop()", "handles.pop(0)"),
            ),
            ("hook-returns", (f"handles.append({SUM})", f"return {SUM}")),
            ("raises", (SUM, "all_reduce(parameter.grad, True)")),
            ("sums-twice", (REGISTER, REGISTER * 2)),
            ("not-a-tensor", (SUM, "all_reduce([parameter.grad])")),
            ("not-overlapped", (WAIT, f"{SUM}.wait()"), (REGISTER, "")),
            ("not-overlapped", (WAIT, "all_reduce(parameter.grad.div_(ranks))"), (f"        {DIVIDE}\n", ""), (REGISTER, "")),
            ("gradient-not-there", (HOOK, "register_hook")),
            (
                "only-the-first-step",
                (REGISTER, f"    hook ={REGISTER[3:]}"),
                (f"{SUM})", f"{SUM})\n        hook.remove()"),
                (WAIT, "handles[-1].wait()"),
            ),
            ("gradient-lost", (DIVIDE, f"{DIVIDE}\n        parameter.grad = None")),
            ("changes-the-parameter", (DIVIDE, f"{DIVIDE}\n        parameter.data -= 0.1 * parameter.grad")),
            ("rounded", (DIVIDE, "parameter.grad = (parameter.grad / ranks).round(decimals=8)")),
            ("wrong-value", (DIVIDE, "parameter.grad.div_(1 + (ranks - 1) * (parameter.grad.abs() >= 0.1))")),
        ],
    ),
    ("registered-too-late", registers_in_finish),
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


ALSO_RIGHT = [scaled_before, in_a_buffer, Overlap, flattened, keeps_all_handles]
