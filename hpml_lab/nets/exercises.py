"""The judges of notebook 03's exercises."""

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from hpml_lab.core.exercises import Mistake, exercise, expect
from hpml_lab.nets import xor
from hpml_lab.nets.networks import XorNet

NOTEBOOK = "03_nets"


# ---- parameter-count ---------------------------------------------------------------------------------------


@exercise("parameter-count", notebook=NOTEBOOK)
def judge_parameter_count(answer: Callable) -> None:
    sizes = [256, 120, 84, 10]
    layers = [(256, 120), (120, 84), (84, 10)]
    weights = sum(a * b for a, b in layers)
    expect(
        answer(list(sizes)),
        41_854,
        case="sizes = [256, 120, 84, 10]",
        mistakes={
            "no-biases": (weights, "You have all weights. Each output of a layer adds one more number, b in Wx + b."),
            "bias-per-input": (
                sum(a * (b + 1) for a, b in layers),
                "b in Wx + b is added to the layer's output: how long is it?",
            ),
            "one-bias-per-layer": (weights + len(layers), "b is a vector, not one number: one bias for each output."),
            "input-has-biases": (
                41_854 + 256,
                "The inputs are given, not computed: no layer ends there, so they have no biases.",
            ),
            "counts-units": (sum(sizes), "So many values flow through the net. Which numbers does training adjust?"),
            "last-layer-missing": (
                30_840 + 10_164,
                "Four sizes make three layers; one is missing. Does your loop stop too early?",
            ),
            "multiplies-layers": (math.prod(a * b for a, b in layers), "The layers stand side by side in memory: add them up."),
        },
    )
    fixed = {"one-net-only": (41_854, "That is the answer for 256-120-84-10; compute it from `sizes`.")}
    expect(answer([2, 4, 1]), 17, case="sizes = [2, 4, 1]", mistakes=fixed)
    expect(answer([784, 10]), 7850, case="sizes = [784, 10], a single layer", mistakes=fixed)


# ---- mend-the-broadcast ------------------------------------------------------------------------------------


@exercise("mend-the-broadcast", notebook=NOTEBOOK)
def judge_mend_the_broadcast(answer: Callable) -> None:
    output = torch.tensor([[1.0], [2.0], [4.0], [8.0]], requires_grad=True)
    target = torch.tensor([1.0, 3.0, 2.0, 7.0])
    off = output.detach()[:, 0] - target
    pairs = (output.detach() - target) ** 2
    got = answer(output, target.clone())
    expect(
        got,
        off.square().mean(),
        case="output (4, 1) and target (4,)",
        mistakes={
            "all-pairs": (
                pairs.mean(),
                "Still the mean over all 4 × 4 pairs. Print (output - target).shape: "
                "which of the two must get or lose an axis, and at which end?",
            ),
            "all-pairs-divided": (
                pairs.sum() / 4,
                "Dividing by N does not help: there are still N² squares. Look at the shapes.",
            ),
            "not-averaged": (off.square(), "These are the squares of the four samples; the loss is their mean."),
            "summed": (off.square().sum(), "This is the sum; the mean is asked for, as nn.MSELoss gives it."),
            "absolute": (off.abs().mean(), "That is the mean absolute error: square the differences."),
            "root": (off.square().mean().sqrt(), "That is the root of the mean square: leave the root away."),
            "means-compared": (
                off.mean().square(),
                "In yours, differences of opposite sign cancel: square each one first and take the mean last.",
            ),
        },
    )
    if not isinstance(got, torch.Tensor) or not got.requires_grad:
        raise Mistake("detached", "The number is right, but cut off from the graph: backward could not reach the net.")
    got.backward()
    if output.grad is None:
        raise Mistake("detached", "The number is right, but it hangs on a copy of the output: backward does not reach the net.")
    expect(output.grad[:, 0], 2 * off / 4, case="the gradient of the output")
    one = answer(torch.tensor([[3.0]]), torch.tensor([1.0]))
    expect(one, 4.0, case="a last batch of one sample, output (1, 1) and target (1,)")


# ---- sgd-step ----------------------------------------------------------------------------------------------


@exercise("sgd-step", notebook=NOTEBOOK)
def judge_sgd_step(answer: Callable) -> None:
    lr = 0.1
    start = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5])]
    slopes = [torch.tensor([4.0, 1.0, -2.0]), torch.tensor([3.0])]
    parameters = [value.clone().requires_grad_() for value in start]
    for parameter, slope in zip(parameters, slopes, strict=True):
        (parameter * slope).sum().backward()
    try:
        answer(list(parameters), lr)  # a list of its own: putting new tensors into it moves nothing in the net
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        raise Mistake(
            "records-the-update",
            "autograd wants to record the update as part of a loss, and refuses: tell it not to watch these lines.",
        ) from error
    triples = list(zip(parameters, start, slopes, strict=True))
    cleared = all(p.grad is None or not p.grad.any() for p in parameters)

    def moved_by(change: Callable) -> bool:
        return all(torch.allclose(p.detach(), old + change(old, g)) for p, old, g in triples)

    if moved_by(lambda old, g: 0 * g):
        if cleared:
            raise Mistake(
                "zeroed-too-soon",
                "The weights did not move and the gradients are gone: were they cleared before they were used?",
            )
        if not all(torch.equal(p.grad, g) for p, _, g in triples):
            raise Mistake(
                "steps-the-gradient", "The gradients changed and the weights did not: which of the two is to take the step?"
            )
        raise Mistake(
            "rebinds",
            "The weights did not move. `p = …` only gives a new tensor the name p; "
            "the tensor in the net stays as it was. Change it in place.",
        )
    for name, change, hint in (
        ("ascends", lambda old, g: lr * g, "The weights moved up the slope: the loss grows. Mind the sign."),
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


# ---- training-loop -----------------------------------------------------------------------------------------

STEPS = 6
TOLD_BY_TORCH = {  # part of the message: (mistake, hint)
    "second time": ("one-forward", "One graph serves one backward. Compute output and loss in every step."),
    "inplace operation": (
        "step-before-backward",
        "The weights changed between a forward pass and its backward: the step comes last.",
    ),
    "elements of target": ("arguments-swapped", "The loss takes the prediction first, the target second."),
}


def _net_and_optimizer() -> tuple[XorNet, torch.optim.Optimizer]:
    """A net with the weights of seed 1, and its SGD."""
    net = XorNet()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), xor.stack_of_nets([1]), strict=True):
            parameter.copy_(value[0])
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def _weights(net: XorNet) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def _trained(
    clear: bool = True, steps: int = STEPS, loss_of: Callable = F.binary_cross_entropy
) -> tuple[torch.Tensor, list[float]]:
    """Weights and losses of the right loop, or of one without zero_grad, with other steps or another loss."""
    net, optimizer = _net_and_optimizer()
    losses = []
    for _ in range(steps):
        loss = loss_of(net(xor.INPUTS), xor.TARGETS)
        losses.append(loss.item())
        if clear:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _weights(net), losses


@exercise("training-loop", notebook=NOTEBOOK)
def judge_training_loop(answer: Callable) -> None:
    net, optimizer = _net_and_optimizer()
    before = _weights(net)
    try:
        losses = answer(net, optimizer, xor.INPUTS.clone(), xor.TARGETS.clone(), STEPS)
    except RuntimeError as error:
        for part, mistake in TOLD_BY_TORCH.items():
            if part in str(error):
                raise Mistake(*mistake) from error
        raise
    after, (right, right_losses) = _weights(net), _trained()
    if torch.equal(after, before):
        if all(parameter.grad is None for parameter in net.parameters()):
            raise Mistake(
                "zeroed-before-step",
                "The net has not changed: the gradients were cleared after backward, before step could use them.",
            )
        raise Mistake("never-steps", "The net has not changed, though it has gradients: no step ever used one.")
    expect(
        after,
        right,
        case=f"the weights after {STEPS} steps",
        tolerance=1e-5,
        mistakes={
            "accumulates": (_trained(clear=False)[0], "Each backward adds its gradient to those of the steps before."),
            "wrong-loss": (_trained(loss_of=F.mse_loss)[0], "That is the mean squared error; take binary cross-entropy."),
            "one-step-short": (_trained(steps=STEPS - 1)[0], f"The weights have taken {STEPS - 1} steps instead of {STEPS}."),
        },
    )
    if losses is None:
        raise Mistake("returns-nothing", "The net is trained as it should be. Return the losses, too.")
    if isinstance(losses, list | tuple) and any(getattr(loss, "requires_grad", False) for loss in losses):
        raise Mistake("keeps-graphs", "Each tensor in your list keeps its graph in memory: take the number out of it.")
    if not isinstance(losses, list | tuple) or len(losses) != STEPS:
        raise Mistake("one-loss", f"Return a list with the loss of each of the {STEPS} steps.")
    # On XOR's plateau a step lowers the loss by 1e-5 only: the tolerance must be finer, to tell before from after.
    expect(
        list(losses),
        right_losses,
        case="the losses",
        tolerance=1e-6,
        mistakes={
            "loss-after-step": (
                _trained(steps=STEPS + 1)[1][1:],
                "These are the losses after each step; keep the one that the step's backward began from.",
            )
        },
    )


# ---- loss-of-logits ----------------------------------------------------------------------------------------


@exercise("loss-of-logits", notebook=NOTEBOOK)
def judge_loss_of_logits(answer: Callable) -> None:
    z, y = torch.tensor([0.5, -1.0, 2.0, -3.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    each = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    try:
        got = answer(z.clone(), y.clone())
    except RuntimeError as error:
        if "between 0 and 1" not in str(error):
            raise
        raise Mistake("not-probabilities", "BCELoss takes probabilities; z is a logit, any number from -∞ to ∞.") from error
    expect(
        got,
        each.mean(),
        case="z = [0.5, -1, 2, -3], y = [1, 0, 0, 1]",
        mistakes={
            "double-sigmoid": (
                F.binary_cross_entropy_with_logits(torch.sigmoid(z), y),
                "The sigmoid is taken twice: the function with logits in its name takes it by itself.",
            ),
            "summed": (each.sum(), "That is the sum over the samples; the mean is asked for."),
            "not-averaged": (each, "These are the losses of the samples; return their mean."),
            "sign": (-each.mean(), "Right but for the sign: a loss is -log of a probability, so never negative."),
            "targets-flipped": (
                F.binary_cross_entropy_with_logits(z, 1 - y),
                "The answers y = 0 and y = 1 have changed places.",
            ),
            "half-of-it": (
                (-y * F.logsigmoid(z)).mean(),
                "Samples with y = 0 cost nothing in yours: half of the formula is missing.",
            ),
        },
    )
    for value in (200.0, -200.0):
        logit = torch.tensor([value], requires_grad=True)
        wrong = torch.tensor([0.0 if value > 0 else 1.0])
        case = f"z = {value:g} with y = {wrong.item():g}, surely wrong"
        loss = torch.as_tensor(answer(logit, wrong))
        if not torch.isfinite(loss).all():
            raise Mistake(
                "overflows",
                f"For {case} the loss is {loss.item()} instead of 200: a number became too "
                "large, or σ(z) was rounded to 0 or 1, before the logarithm was taken.",
            )
        hint = "BCELoss cuts the logarithm off at -100: σ(z) is already rounded to 0 or 1. Start from z."
        expect(loss, 200.0, case=case, mistakes={"clamped": (100.0, hint)})
        if not loss.requires_grad:
            raise Mistake("detached", "The number is right, but cut off from the graph: nothing learns from it.")
        loss.backward()
        if logit.grad is None:
            raise Mistake("detached", "The number is right, but it hangs on a copy of z: backward does not reach z itself.")
        expect(logit.grad, torch.sigmoid(logit.detach()) - wrong, case=f"the gradient for {case}")


# ---- many-nets ---------------------------------------------------------------------------------------------


class _Counting(TorchFunctionMode):
    """Counts the calls of torch functions."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


@exercise("many-nets", notebook=NOTEBOOK)
def judge_many_nets(answer: Callable) -> None:
    x = xor.INPUTS
    # Four nets and four samples: a bias added along the wrong axis fits, so only its values can give it away.
    W1, b1, W2, b2 = nets = xor.stack_of_nets(range(4))
    a, z = xor.forward(nets, x)
    hidden, bias = torch.einsum("nd,shd->snh", x, W1), b1[:, None, :]

    def out(a: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((a * W2).sum(-1) + b2)

    expect(
        answer(x.clone(), *(part.clone() for part in nets)),
        torch.sigmoid(z),
        tolerance=1e-5,
        case="4 nets and the 4 points of XOR",
        mistakes={
            "samples-first": (torch.sigmoid(z).T, "All numbers are there, but one row must be one net: (S, N)."),
            "first-net-only": (
                torch.sigmoid(z[:1]).expand(4, 4),
                "Every row is the first net's: W1 and W2 have an axis for the nets.",
            ),
            "mixes-nets": (
                out(torch.sigmoid(hidden.sum(0) + bias)),
                "A sum runs over the nets: s must stand in the result, too.",
            ),
            "bias-along-samples": (
                out(torch.sigmoid(hidden + b1)),
                "With 4 nets and 4 samples the shapes fit by chance: b1 (S, H) "
                "was added along the samples. It needs an axis of 1 for them.",
            ),
            "no-hidden-sigmoid": (out(hidden + bias), "The hidden layer has no activation: two linear layers are one."),
            "no-output-sigmoid": (z, "These are the logits z; the net answers p = σ(z)."),
            "no-hidden-bias": (out(torch.sigmoid(hidden)), "The hidden layer's bias b1 is missing."),
            "no-output-bias": (torch.sigmoid((a * W2).sum(-1)), "The output's bias b2 is missing."),
        },
    )
    calls = []
    for seeds in (3, 12):
        many = xor.stack_of_nets(range(seeds))
        with _Counting() as counting:
            p = answer(x, *many)
        expect(p, torch.sigmoid(xor.forward(many, x)[1]), case=f"{seeds} nets", tolerance=1e-5)
        calls.append(counting.calls)
    if calls[1] > calls[0]:
        raise Mistake(
            "loops-over-nets",
            f"The answer is right, but 3 nets take {calls[0]} calls of "
            f"torch and 12 nets {calls[1]}: let one call work on all nets.",
        )
