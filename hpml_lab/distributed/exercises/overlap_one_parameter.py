"""overlap-one-parameter: the sum of one parameter's gradient starts in the backward pass, and is waited for after it.

Several ranks are played in one process, one after the other: each has its own copy of the parameter and of the answer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import shown

EARLY = "(A hook of register_hook gets the gradient before it is stored in parameter.grad.)"
BACKWARD, FINISH = "backward", "finish"
CLEARED = ("None at first", "None again", "zeros")  # the gradient before each step


class PlayedSum:
    """What all_reduce returns: the sum arrives with wait()."""

    def __init__(self, played: "PlayedRanks", number: int, tensor: torch.Tensor) -> None:
        self.played, self.number, self.tensor, self.sent = played, number, tensor, tensor.detach().clone()
        self.phase, self.waited = played.phase, False

    def wait(self) -> None:
        if self.waited:
            return
        sums = [calls[self.number : self.number + 1] for calls in self.played.calls]
        if not all(sums):
            if self.played.phase == BACKWARD:
                raise Mistake(
                    "waits-in-backward",
                    "A wait for the sum inside the backward pass stops it until the sum has arrived: wait in finish().",
                )
            raise NOT_OVERLAPPED
        if not torch.equal(self.tensor.detach(), self.sent):
            raise Mistake(
                "changed-in-flight",
                "Between all_reduce and wait() the tensor is being sent and must not change: what the other ranks get is "
                "then a matter of chance.",
            )
        self.waited = True
        with torch.no_grad():
            self.tensor.copy_(sum(call.sent for (call,) in sums))


NOT_OVERLAPPED = Mistake(
    "not-overlapped",
    "A sum that starts only in finish(), when the backward pass is over, hides nothing. Start it in a hook of the parameter.",
)

SUMS_THE_WEIGHTS = Mistake("sums-the-weights", "all_reduce sums the gradient, parameter.grad, not the parameter itself.")


class PlayedRanks:
    """N ranks in one process: `calls[r]` are the sums that rank r has started."""

    def __init__(self, ranks: int) -> None:
        self.calls: list[list[PlayedSum]] = [[] for _ in range(ranks)]
        self.phase = ""

    def all_reduce(self, rank: int) -> Callable[[Any], PlayedSum]:
        def start(tensor: Any) -> PlayedSum:
            if tensor is None:
                raise Mistake(
                    "gradient-not-there",
                    "parameter.grad is None at first, and all_reduce has no use for None. The gradient is complete when the "
                    "hook that register_post_accumulate_grad_hook registers is called; look it up there, in each step.",
                )
            if not isinstance(tensor, torch.Tensor):
                raise Mistake("not-a-tensor", f"all_reduce takes a tensor; you pass {shown(tensor)}.")
            if isinstance(tensor, nn.Parameter):
                raise SUMS_THE_WEIGHTS
            handle = PlayedSum(self, len(self.calls[rank]), tensor)
            self.calls[rank].append(handle)
            return handle

        return start


@exercise("overlap-one-parameter", notebook="13_distributed", takes="parameter, all_reduce, ranks", returns=Callable)
def judge_overlap_one_parameter(answer: Callable) -> None:
    """Three steps on 2 ranks and on a drawn number, with the gradient cleared in two ways; then two parameters at once."""
    for ranks in (2, drawn().randint(3, 5)):
        play(answer, ranks, parameters=1)
    try:
        play(answer, 2, parameters=2)
    except Mistake as mistake:
        raise Mistake(
            "shared-between-parameters",
            f"For one parameter it works; for two at once something is shared ({mistake.name}): give each call its own handle.",
        ) from mistake


def play(answer: Callable, ranks: int, parameters: int) -> None:
    played = PlayedRanks(ranks)
    copies = [
        [nn.Parameter(torch.tensor([1e-3, 2.0, 3.0], dtype=torch.float64)) for _ in range(parameters)] for _ in range(ranks)
    ]
    finishes = [[answer(each, played.all_reduce(rank), ranks) for each in own] for rank, own in enumerate(copies)]
    for step, cleared in enumerate(CLEARED):
        case = f"in step {step} with {ranks} ranks, steps counted from 0 (gradient before it: {cleared})"
        for calls in played.calls:
            calls.clear()
        try:
            local = backward_on_all(played, copies, step)
        except TypeError as error:
            if "hook returned" not in str(error):
                raise
            hint = "A hook of register_post_accumulate_grad_hook returns None; yours returns what all_reduce did. Keep that."
            raise Mistake("hook-returns", hint) from error
        for own, calls in zip(copies, played.calls, strict=True):
            if any(torch.equal(call.sent.flatten(), each.detach().flatten()) for call in calls for each in own):
                raise SUMS_THE_WEIGHTS
        check_sent(played, local, ranks, case)
        played.phase = FINISH
        before = [[each.detach().clone() for each in own] for own in copies]
        for own in finishes:
            for finish in own[:: (-1) ** step]:
                finish()
        if any(not torch.equal(a, b) for own, kept in zip(copies, before, strict=True) for a, b in zip(own, kept, strict=True)):
            raise Mistake(
                "changes-the-parameter", "finish() does not change the parameter itself. That is the optimizer's task."
            )
        check_result(played, copies, local, case)


def backward_on_all(played: PlayedRanks, copies: list[list[nn.Parameter]], step: int) -> list[list[torch.Tensor]]:
    """Backward on each rank; returns the gradient of each rank and parameter. The parameter is used twice in the loss."""
    played.phase = BACKWARD
    slope_of_all = torch.tensor([1e-3 / 3, 10.0, -100.0], dtype=torch.float64) * drawn().uniform(0.5, 1.5)
    local = []
    for rank, own in enumerate(copies):
        slopes = [slope_of_all * (rank + 1 + step + 7 * i) for i in range(len(own))]
        for parameter in own:
            parameter.grad = torch.zeros_like(parameter) if CLEARED[step] == "zeros" else None
        sum((slope * parameter + parameter * parameter).sum() for slope, parameter in zip(slopes, own, strict=True)).backward()
        local.append([slope + 2 * each.detach() for slope, each in zip(slopes, own, strict=True)])
    return local


def check_sent(played: PlayedRanks, local: list[list[torch.Tensor]], ranks: int, case: str) -> None:
    """Every rank has started one sum per parameter, of its own gradient."""
    for rank, (calls, gradients) in enumerate(zip(played.calls, local, strict=True)):
        if not calls:
            if case.startswith("in step 0"):
                continue  # nothing was started: finish() will show why
            raise Mistake(
                "only-the-first-step", f"No sum starts {case}: your hook works once. It stays registered; what stops it?"
            )
        if len(calls) > len(gradients):
            raise Mistake("sums-twice", f"The same gradient is summed {len(calls)} times {case}.")
        for call in calls:
            if call.sent.dtype != gradients[0].dtype:
                sent, own = (str(each.dtype)[6:] for each in (call.sent, gradients[0]))
                raise Mistake("other-type", f"You send {sent} {case}, and the gradient is {own}: send it as it is.")
            if not any(torch.allclose(call.sent, scale * each) for each in gradients for scale in (1, 1 / ranks)):
                raise Mistake(
                    "wrong-gradient-sent",
                    f"What rank {rank} sends {case} is not its gradient: {shown(call.sent)} instead of {shown(gradients[0])}. "
                    "Is it that of this step, and complete, when you send it?",
                )


def check_result(played: PlayedRanks, copies: list[list[nn.Parameter]], local: list[list[torch.Tensor]], case: str) -> None:
    """Every sum was started in the backward pass and waited for, and the gradient is the mean over ranks."""
    ranks = len(copies)
    for calls in played.calls:
        if any(call.phase == FINISH for call in calls):
            raise NOT_OVERLAPPED
        if not calls:
            backward_on_all(played, copies, 1)
            if calls:
                raise Mistake(
                    "registered-too-late",
                    "No sum starts in the first backward pass, but one does in the second. || The first backward pass needs "
                    "the hook, too: register it before finish is returned, not in finish().",
                )
            raise Mistake("never-summed", "Without all_reduce each rank keeps its own gradient.")
        if not all(call.waited for call in calls):
            raise Mistake(
                "never-waits", f"A sum is not waited for {case}: the optimizer would use a gradient that is still under way."
            )
    for number in range(len(copies[0])):
        mean = sum(gradients[number] for gradients in local) / ranks
        for own, gradients in zip(copies, local, strict=True):
            compare(own[number].grad, mean, gradients[number], ranks, case)


def compare(grad: torch.Tensor | None, mean: torch.Tensor, own: torch.Tensor, ranks: int, case: str) -> None:
    if grad is None:
        raise Mistake("gradient-lost", f"parameter.grad is None {case}, after finish().")
    if grad.shape == mean.shape and torch.allclose(grad, mean):
        if torch.allclose(grad, mean, rtol=1e-12, atol=0):
            return
        hint = "The mean is right to some digits only: it was rounded, or computed in another type than the parameter's."
        raise Mistake("rounded", f"{hint} (Seen {case}.)")
    known = {
        "not-averaged": (ranks * mean, "parameter.grad is the sum over ranks; the mean was asked for."),
        "averaged-twice": (mean / ranks, "You divide by the number of ranks twice."),
        "sum-lost": (own, f"parameter.grad is still this rank's own gradient: the sum arrived in another tensor. {EARLY}"),
        "sum-lost, divided": (
            own / ranks,
            f"parameter.grad is this rank's own gradient, divided: the sum arrived elsewhere. {EARLY}",
        ),
    }
    for name, (value, hint) in known.items():
        if grad.shape == value.shape and torch.allclose(grad, value):
            raise Mistake(name.split(",")[0], f"{hint} (Seen {case}.)")
    factor = (grad / mean).flatten() if grad.shape == mean.shape else torch.tensor([torch.nan])
    if torch.allclose(factor, factor[:1]):
        hint = f"parameter.grad is {factor[0]:g} times the mean over the {ranks} ranks {case}. What do you divide the sum by?"
        if ranks > 2 and torch.allclose(factor[0], torch.tensor(ranks / 2).to(factor)):
            raise Mistake("two-ranks", "Right for two ranks. || There may be more than two: divide by `ranks`.")
        raise Mistake("wrong-factor", hint)
    raise Mistake("wrong-value", f"parameter.grad should be {shown(mean)} {case}; yours is {shown(grad)}.")
