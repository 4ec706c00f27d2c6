"""Exercise: one SGD step over a list of parameters, in place, with the gradients cleared."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.asked import given_last
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.variations import VARIATIONS, refuses_a_view, strided


@exercise("sgd-step", notebook="03_nets", takes="parameters, lr", returns=None, changes="parameters")
def judge_sgd_step(answer: Callable) -> None:
    start = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5]), torch.tensor([[0.5, 2.0], [-1.0, 0.0]])]
    slopes = [torch.tensor([4.0, 0.5, -2.0]), torch.tensor([3.0]), torch.tensor([[1.0, 0.0], [0.3, -7.0]])]
    _judge(answer, start, slopes, 0.3)
    _judge(answer, start[:2], slopes[:2], 0.02)
    _judge(answer, start[:1], [torch.tensor([0.0, 0.0, 1e-3])], 2.0)
    _judge(answer, start[:1], [torch.tensor([4e3, 2e4, -500.0])], 1e-4)  # nothing is clipped
    _judge(answer, start[:1], [torch.tensor([1.0, -1.5, 0.5])], 0.5)  # a gradient whose elements add up to 0
    try:
        _judge(answer, start, slopes, 0.3, apart=True)
    except Mistake as mistake:
        raise Mistake("one-layout", VARIATIONS["layout"].text, given_last(())) from mistake
    except RuntimeError as error:
        if not refuses_a_view(error):
            raise


def _judge(answer: Callable, start: list[torch.Tensor], slopes: list[torch.Tensor], lr: float, apart: bool = False) -> None:
    """Raise the Mistake of an answer; `apart`: numbers of parameters do not lie next to each other."""
    parameters = [strided(value) if apart else value.clone() for value in start]
    for parameter in parameters:
        parameter.requires_grad_()
    for parameter, slope in zip(parameters, slopes, strict=True):
        (parameter * slope).sum().backward()
    try:
        got = answer(list(parameters), lr)  # a list of its own: putting new tensors into it changes nothing in the net
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        raise Mistake(
            "records-the-update",
            "autograd would record the update as part of a loss, and raises an error: tell it not to record these lines.",
        ) from error
    if not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        raise Mistake(
            "leaves-autograd-off",
            "After your function autograd is off for the rest of the program. || `with torch.no_grad():` switches it on "
            "again at its end.",
        )
    if isinstance(got, torch.Tensor | list | tuple) and all(
        torch.equal(p.detach(), old) for p, old in zip(parameters, start, strict=True)
    ):
        raise Mistake(
            "returns-new-ones",
            "You return new tensors, and the parameters are as they were. || The net holds the tensors of the list: change "
            "them in place.",
        )
    triples = list(zip(parameters, start, slopes, strict=True))
    cleared = all(p.grad is None or not p.grad.any() for p in parameters)

    def moved_by(change: Callable) -> bool:
        """True if every parameter is its old value plus change(old value, gradient)."""
        return all(torch.allclose(p.detach(), old + change(old, g)) for p, old, g in triples)

    if moved_by(lambda old, g: 0 * g):
        if cleared:
            raise Mistake(
                "zeroed-too-soon",
                "The weights have not changed and the gradients are gone. || Use the gradients before they are cleared, and "
                "change each tensor in place: `p = …` gives a new tensor the name p.",
            )
        if not all(p.grad is not None and torch.equal(p.grad, g) for p, _, g in triples):
            raise Mistake(
                "steps-the-gradient",
                "The gradients have changed, the weights have not. || Which of the two should take the step?",
            )
        raise Mistake(
            "rebinds",
            "Weights and gradients are as they were. || `p = …` only gives a new tensor the name p; change the old one.",
        )
    for name, change, hint in (
        ("ascends", lambda old, g: lr * g, "The weights moved up the slope: the loss grows. Check the sign."),
        ("no-learning-rate", lambda old, g: -g, "The step is as long as the gradient itself: where is lr?"),
        ("shrinks-the-weight", lambda old, g: -lr * old, "That is lr times the weight: where is .grad?"),
        ("steps-twice", lambda old, g: -2 * lr * g, "The step is twice as long: is it taken two times?"),
        ("sign-only", lambda old, g: -lr * g.sign(), "Only the gradient's sign counts in yours: multiply by the gradient."),
        ("decays-too", lambda old, g: -lr * (g + old), "You also shrink the weights. A step is -lr times the gradient."),
        ("divides-by-lr", lambda old, g: -g / lr, "A smaller lr must make a smaller step; yours grows."),
    ):
        if not moved_by(lambda old, g: -lr * g) and moved_by(change):
            raise Mistake(name, hint)
    moved = [not torch.equal(p.detach(), old) for p, old in zip(parameters, start, strict=True)]
    if moved[0] and not any(moved[1:]) and len(moved) > 1:
        raise Mistake(
            "first-only",
            "Only the first parameter moved. || Each of them takes the step: nothing may leave the loop too early.",
        )
    if not all(moved):
        raise Mistake(
            "some-left-out", f"Parameter {moved.index(False)} of {len(moved)} has not moved: every one takes the step."
        )
    for p, old, g in triples:
        case = f"weight {old.tolist()}, gradient {g.tolist()}, lr {lr}"
        expect(p, old - lr * g, case=case, given=given_last(()))
    if not all(p.requires_grad for p in parameters):
        raise Mistake(
            "stops-tracking",
            "The step is right, but the weights no longer require gradients. || Weights must require gradients after the step, "
            "too, or the next backward fails.",
        )
    kept = [p.grad is not None and bool(p.grad.any()) for p in parameters]
    if any(kept) and not all(kept):
        raise Mistake("keeps-some-gradients", f"The step is right, but {sum(kept)} of {len(kept)} gradients are still there.")
    if not cleared:
        raise Mistake(
            "keeps-the-gradient",
            "The step is right, but the gradient is still there. || The next backward adds to it: clear it after the step.",
        )
    for parameter, slope in zip(parameters, slopes, strict=True):
        (parameter * slope).sum().backward()
    answer(list(parameters), lr)
    for p, old, g in triples:
        case = f"a second step on the same tensors, with the gradient {g.tolist()} again,"
        expect(p, old - 2 * lr * g, case=case, given=given_last(()))
