"""Answers to `accumulate-gradients`: the step of a large batch from several small ones."""

import torch
from edited_source import wrong_answers
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint_sequential


def solution(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        samples = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = torch.nn.functional.cross_entropy(net(x), y) * len(y) / samples
            loss.backward()
        optimizer.step()


def of_most_tutorials(net, optimizer, batches, k):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(net(x), y) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def concatenated(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        x, y = (torch.cat(parts) for parts in zip(*batches[start : start + k], strict=True))
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def one_loss(net, optimizer, batches, k):
    groups = [batches[start : start + k] for start in range(0, len(batches), k)]
    for group in groups:
        losses = torch.cat([F.cross_entropy(net(x), y, reduction="none") for x, y in group])
        net.zero_grad()
        losses.mean().backward()
        optimizer.step()


WEIGHT = " * len(y) / samples"
CLEAR, STEP, RATE = "        optimizer.zero_grad()\n", "        optimizer.step()\n", 'optimizer.param_groups[0]["lr"]'
WRONG = [
    *wrong_answers(
        solution,
        [
            ("other-weights", (WEIGHT, f"{WEIGHT} / 2")),
            ("wrong-loss", ("cross_entropy", "nll_loss")),  # without the softmax
            ("not-cleared-at-first", (CLEAR, ""), (STEP, STEP + CLEAR)),
            ("changes-the-rate", (WEIGHT, ""), (STEP, f"        {RATE} /= len(group)\n{STEP}        {RATE} *= len(group)\n")),
        ],
    ),
    ("large-batch-at-once", concatenated),
    ("all-graphs-at-once", one_loss),
    (
        "other-weights",
        lambda net, optimizer, batches, k: solution(net, optimizer, sorted(batches, key=lambda b: -len(b[1])), k),
    ),
]


def clears_and_divides(net, optimizer, batches, k):
    samples = 0
    net.zero_grad()
    for i, (x, y) in enumerate(batches, start=1):
        F.cross_entropy(net(x), y, reduction="sum").backward()
        samples += len(y)
        if i % k == 0 or i == len(batches):
            for parameter in net.parameters():
                parameter.grad /= samples
            optimizer.step()
            optimizer.zero_grad()
            samples = 0


def with_closure(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]

        def closure(group=group):
            optimizer.zero_grad()
            for x, y in group:
                (len(y) * F.cross_entropy(net(x), y) / sum(len(y) for _, y in group)).backward()

        optimizer.step(closure)


def with_autograd_grad(net, optimizer, batches, k):
    parameters, rest = list(net.parameters()), list(batches)
    while rest:
        group, rest = rest[:k], rest[k:]
        total = [torch.zeros_like(p) for p in parameters]
        for x, y in group:
            gradients = torch.autograd.grad(F.cross_entropy(net(x), y, reduction="sum"), parameters)
            total = [a + g for a, g in zip(total, gradients, strict=True)]
        for p, g in zip(parameters, total, strict=True):
            p.grad = g / sum(len(y) for _, y in group)
        optimizer.step()


def log_probabilities(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        weights = torch.tensor([len(y) for _, y in group]) / sum(len(y) for _, y in group)
        for parameter in net.parameters():
            parameter.grad = None
        for weight, (x, y) in zip(weights.double().tolist(), group, strict=True):
            (weight * F.nll_loss(net(x).log_softmax(1), y)).backward()
        optimizer.step()


def with_checkpoints_and_a_scheduler(net, optimizer, batches, k):
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        optimizer.zero_grad()
        for x, y in group:
            loss = F.cross_entropy(checkpoint_sequential(net, 2, x, use_reentrant=False), y)
            loss.backward(torch.tensor(len(y) / sum(len(y) for _, y in group)).double())
        optimizer.step()
        scheduler.step()


def as_a_function(net, optimizer, batches, k):
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def total(parameters, x, y):
        return F.cross_entropy(torch.func.functional_call(net, parameters, (x,)), y, reduction="sum")

    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        found = [torch.func.grad(total)(parameters, x, y) for x, y in group]
        for name, parameter in net.named_parameters():
            parameter.grad = sum(each[name] for each in found) / sum(len(y) for _, y in group)
        optimizer.step()


ALSO_RIGHT = [
    clears_and_divides,
    with_closure,
    with_autograd_grad,
    log_probabilities,
    with_checkpoints_and_a_scheduler,
    as_a_function,
]
