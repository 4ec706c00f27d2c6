"""Answers to `training-loop`: forward, loss, zero_grad, backward, step, and the loss as a plain number."""

import torch
import torch.nn.functional as F
from edited_source import edited, wrong_answers


def solution(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


LOSS, ZERO, BACKWARD = "F.binary_cross_entropy(net(x), y)", "        optimizer.zero_grad()\n", "        loss.backward()\n"
STEP, KEEP, RETURN = "        optimizer.step()\n", "        losses.append(loss.item())\n", "    return losses"
FORWARD, START = f"        loss = {LOSS}\n", "    losses = []\n"
STOP = "        if losses and loss.item() > losses[-1]:\n            break\n"
CLIP = "        torch.nn.utils.clip_grad_{}_(net.parameters(), 1.0)\n"
# The weights of all cases but the drawn one.
SEEDED = "    torch.manual_seed(1)\n    net.load_state_dict(type(net)().state_dict())\n"
BY_HAND = "        with torch.no_grad():\n            for p in net.parameters():\n                p -= 0.3 * p.grad\n"


def one_forward_for_all(net, optimizer, x, y, steps):
    losses, output = [], net(x)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(output, y)
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
    return losses


WRONG = wrong_answers(
    solution,
    [
        ("accumulates", (ZERO, ""), (START, f"{START}    optimizer.zero_grad()\n")),
        ("zeroed-before-step", (ZERO, ""), (BACKWARD, BACKWARD + ZERO)),
        ("zeroed-before-step", (ZERO, ""), (BACKWARD, BACKWARD + "        net.zero_grad(set_to_none=False)\n")),
        ("changed-before-backward", (BACKWARD, ""), (STEP, STEP + ZERO + BACKWARD), (FORWARD + ZERO, FORWARD)),
        ("step-before-backward", (BACKWARD, ""), (STEP, STEP + BACKWARD)),
        ("never-steps", (STEP, "")),
        ("no-backward", (BACKWARD, "")),
        ("no-backward", (START, f"{START}    net = type(net)()\n")),
        ("no-graph", (LOSS, "F.binary_cross_entropy(net(x).detach(), y)")),
        ("one-forward", ("    for _", f"    loss = {LOSS}\n    for _"), (FORWARD, "")),
        ("arguments-swapped", (LOSS, "F.binary_cross_entropy(y, net(x))")),
        ("wrong-loss", (LOSS, "F.binary_cross_entropy(torch.sigmoid(net(x)), y)")),
        ("wrong-loss", (LOSS, "F.binary_cross_entropy(net(x[:2]), y[:2])")),
        ("zero-gradients", (LOSS, "F.cross_entropy(net(x), y)")),
        ("other-number-of-steps", ("range(steps)", "range(1, steps)")),
        ("other-number-of-steps", ("range(steps)", "range(6)")),
        ("other-number-of-steps", (RETURN, "        return losses")),
        ("other-number-of-steps", (FORWARD, FORWARD + STOP)),
        ("another-optimizer", (START, f"{START}    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)\n")),
        ("another-optimizer", (STEP, BY_HAND)),
        ("other-weights", (STEP, f"{STEP}        for p in net.parameters():\n            p.data.clamp_(-0.1, 0.1)\n")),
        ("keeps-graphs", ("loss.item()", "loss")),
        ("tensors-in-the-list", ("loss.item()", "loss.detach()")),
        ("wrong-count", (RETURN, "    return losses[-1:]")),
        ("wrong-value", ("loss.item()", "loss.item() + (losses[-1] if losses else 0)")),
        ("clipped-gradients", (BACKWARD, BACKWARD + CLIP.format("norm"))),
        ("clipped-gradients", (BACKWARD, BACKWARD + CLIP.format("value"))),
        ("made-for-the-cases", (START, START + SEEDED)),
    ],
)
WRONG += [("changed-before-backward", one_forward_for_all)]


def clears_at_the_end(net, optimizer, x, y, steps):
    losses = torch.empty(steps)
    for i in range(steps):
        loss = torch.nn.BCELoss()(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses[i] = loss.item()
    return losses.tolist()


def by_closure(net, optimizer, x, y, steps):
    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(net(x), y)
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(steps)]


def with_a_scheduler_and_functional_calls(net, optimizer, x, y, steps):
    scheduler, losses = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100), []
    parameters = dict(net.named_parameters())
    for _ in range(steps):
        loss = F.binary_cross_entropy(torch.func.functional_call(net, parameters, (x,)), y)
        for parameter, gradient in zip(parameters.values(), torch.autograd.grad(loss, parameters.values()), strict=True):
            parameter.grad = gradient
        optimizer.step()
        scheduler.step()
        losses += [float(loss.detach())]
    return losses


ALSO_RIGHT = [
    clears_at_the_end,
    by_closure,
    with_a_scheduler_and_functional_calls,
    edited(solution, (ZERO, ""), (f"        loss = {LOSS}\n", f"        optimizer.zero_grad()\n        loss = {LOSS}\n")),
    edited(solution, (LOSS, "-(y * net(x).log() + (1 - y) * (1 - net(x)).log()).mean()")),
    edited(solution, ("optimizer.zero_grad()", "net.zero_grad()"), ("loss.item()", "float(loss)"), ("[]", "list()")),
    edited(solution, (RETURN, "    return tuple(losses)")),
]
