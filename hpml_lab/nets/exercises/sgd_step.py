"""Exercise: one SGD step over a list of parameters, in place, with the gradients cleared."""

from collections.abc import Callable

import torch

from hpml_lab.core.exercises import Mistake, exercise, expect

NOTEBOOK = "03_nets"


@exercise("sgd-step", notebook=NOTEBOOK)
def judge_sgd_step(answer: Callable) -> None:
    lr = 0.1
    start = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5])]
    slopes = [torch.tensor([4.0, 1.0, -2.0]), torch.tensor([3.0])]
    parameters = [value.clone().requires_grad_() for value in start]
    for parameter, slope in zip(parameters, slopes, strict=True):
        (parameter * slope).sum().backward()
    try:
        answer(list(parameters), lr)  # a list of its own: putting new tensors into it changes nothing in the net
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        raise Mistake(
            "records-the-update",
            "autograd tries to record the update as part of a loss and raises an error: tell it not to record these lines.",
        ) from error
    triples = list(zip(parameters, start, slopes, strict=True))
    cleared = all(p.grad is None or not p.grad.any() for p in parameters)

    def moved_by(change: Callable) -> bool:
        """True if every parameter is its old value plus change(old value, gradient)."""
        return all(torch.allclose(p.detach(), old + change(old, g)) for p, old, g in triples)

    if moved_by(lambda old, g: 0 * g):
        if cleared:
            raise Mistake(
                "zeroed-too-soon",
                "The weights have not changed and the gradients are gone: were they cleared before they were used?",
            )
        if not all(torch.equal(p.grad, g) for p, _, g in triples):
            raise Mistake(
                "steps-the-gradient", "The gradients have changed, the weights have not: which of the two should take the step?"
            )
        raise Mistake(
            "rebinds",
            "The weights have not changed. `p = …` only gives a new tensor the name p; "
            "the tensor in the net stays as it was. Change it in place.",
        )
    for name, change, hint in (
        ("ascends", lambda old, g: lr * g, "The weights moved up the slope: the loss grows. Check the sign."),
        ("no-learning-rate", lambda old, g: -g, "The step is as long as the gradient itself: where is lr?"),
        ("shrinks-the-weight", lambda old, g: -lr * old, "That is lr times the weight: where is .grad?"),
        ("divides-by-lr", lambda old, g: -g / lr, "A smaller lr must make a smaller step; yours grows."),
    ):
        if moved_by(change):
            raise Mistake(name, hint)
    if torch.equal(parameters[1].detach(), start[1]):
        raise Mistake("first-only", "Only the first parameter moved: does something leave the loop too early?")
    for p, old, g in triples:
        expect(p, old - lr * g, case=f"weight {old.tolist()}, gradient {g.tolist()}, lr {lr}")
    if not all(p.requires_grad for p in parameters):
        raise Mistake(
            "stops-tracking", "The step is right, but the weights no longer require gradients: the next backward fails."
        )
    if not cleared:
        raise Mistake("keeps-the-gradient", "The step is right, but the gradient is still there: the next backward adds to it.")
