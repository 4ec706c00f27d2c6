"""Answers to `training-loop`: forward, loss, zero_grad, backward, step, and the loss as a plain number."""

import numpy as np
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
FORWARD = f"        loss = {LOSS}\n"

WRONG = wrong_answers(
    solution,
    [
        ("accumulates", (ZERO, "")),
        ("accumulates", (ZERO, ""), (FORWARD, FORWARD + "        loss.grad = None\n")),
        ("accumulates", (ZERO, ""), ("    losses = []\n", "    losses = []\n    optimizer.zero_grad()\n")),
        ("zeroed-before-step", (ZERO, ""), (BACKWARD, BACKWARD + ZERO)),
        ("zeroed-before-step", (ZERO, ""), (BACKWARD, BACKWARD + "        net.zero_grad()\n")),
        ("step-before-backward", (BACKWARD, ""), (STEP, STEP + ZERO + BACKWARD), (FORWARD + ZERO, FORWARD)),
        ("never-steps", (STEP, "")),
        ("never-steps", (STEP, "        optimizer.step\n")),
        ("never-steps", (BACKWARD, ""), (STEP, STEP + BACKWARD)),
        ("no-backward", (BACKWARD, "")),
        ("no-backward", (BACKWARD + STEP, STEP)),
        ("no-graph", (FORWARD, f"        with torch.no_grad():\n            loss = {LOSS}\n")),
        ("no-graph", (LOSS, "F.binary_cross_entropy(net(x).detach(), y)")),
        ("one-forward", ("    for _", f"    loss = {LOSS}\n    for _"), (f"        loss = {LOSS}\n", "")),
        ("arguments-swapped", (LOSS, "F.binary_cross_entropy(y, net(x))")),
        ("wrong-loss", (LOSS, "F.mse_loss(net(x), y)")),
        ("wrong-loss", (LOSS, "F.binary_cross_entropy_with_logits(net(x), y)")),
        ("wrong-loss", (LOSS, 'F.binary_cross_entropy(net(x), y, reduction="sum")')),
        ("one-step-short", ("range(steps)", "range(1, steps)")),
        ("wrong-number-of-steps", ("range(steps)", "range(steps + 1)")),
        ("wrong-number-of-steps", ("range(steps)", "range(6)")),
        (
            "another-optimizer",
            ("    losses = []\n", "    losses = []\n    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)\n"),
        ),
        (
            "another-optimizer",
            (
                STEP,
                "        with torch.no_grad():\n            for p in net.parameters():\n                p -= 0.3 * p.grad\n",
            ),
        ),
        ("no-backward", ("    losses = []\n", "    losses = []\n    net = type(net)()\n")),
        ("keeps-graphs", ("loss.item()", "loss")),
        ("keeps-graphs", ("loss.item()", "loss"), ("return losses", "return tuple(losses)")),
        ("tensors-in-the-list", ("loss.item()", "loss.detach()")),
        ("one-loss", (RETURN, "    return loss.item()")),
        ("one-loss", (RETURN, "    return loss.detach()")),
        ("returns-nothing", (RETURN, "")),
        ("one-loss", (RETURN, "    return sum(losses) / steps")),
        ("wrong-number-of-steps", (RETURN, "        return losses")),
        ("wrong-count", (RETURN, "    return losses[-1:]")),
        ("wrong-count", ("    losses = []\n", "    losses = [0.0]\n")),
        ("loss-after-step", ("loss.item()", f"{LOSS}.item()")),
        ("losses-reversed", (KEEP, "        losses.insert(0, loss.item())\n")),
        ("losses-added-up", ("loss.item()", "loss.item() + (losses[-1] if losses else 0)")),
        ("losses-rounded", ("loss.item()", "round(loss.item(), 4)")),
        ("last-loss-only", (RETURN, "    return [loss.item()] * steps")),
        ("wrong-value", ("loss.item()", "loss.backward and None")),
        ("wrong-value", (LOSS, "F.binary_cross_entropy(net(x[:2]), y[:2])")),
    ],
)


def clears_at_the_end(net, optimizer, x, y, steps):
    losses = torch.empty(steps)
    for i in range(steps):
        loss = torch.nn.BCELoss()(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses[i] = loss.item()
    return losses.tolist()


ALSO_RIGHT = [
    lambda *given: list(np.array(solution(*given), dtype=np.float32)),
    lambda *given: np.array(solution(*given)),
    clears_at_the_end,
    edited(solution, (ZERO, ""), (f"        loss = {LOSS}\n", f"        optimizer.zero_grad()\n        loss = {LOSS}\n")),
    edited(solution, (LOSS, "-(y * net(x).log() + (1 - y) * (1 - net(x)).log()).mean()")),
    edited(solution, ("optimizer.zero_grad()", "net.zero_grad()"), ("loss.item()", "float(loss)"), ("[]", "list()")),
    edited(solution, (RETURN, "    return tuple(losses)")),
]


def one_forward_for_all(net, optimizer, x, y, steps):
    losses, output = [], net(x)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(output, y)
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_closure(net, optimizer, x, y, steps):
    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy(net(x), y)
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(steps)]


WRONG += [("one-forward", one_forward_for_all)]
ALSO_RIGHT += [by_closure]


STOP = "        if losses and loss.item() > losses[-1]:\n            break\n"
WRONG += wrong_answers(solution, [("wrong-number-of-steps", (FORWARD, FORWARD + STOP))])

NORM = "        torch.nn.utils.clip_grad_norm_(net.parameters(), {})\n"
WRONG += wrong_answers(solution, [("clipped-gradients", (BACKWARD, BACKWARD + NORM.format(norm))) for norm in (1.0, 5.0)])
WRONG += wrong_answers(
    solution, [("clipped-gradients", (BACKWARD, BACKWARD + "        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)\n"))]
)
WRONG += wrong_answers(solution, [("wrong-loss", (LOSS, "F.binary_cross_entropy(torch.sigmoid(net(x)), y)"))])
