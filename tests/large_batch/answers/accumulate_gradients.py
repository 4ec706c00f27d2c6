"""Answers to `accumulate-gradients`: the step of a large batch from several small ones."""

import itertools

import numpy as np
import torch
from torch.nn import functional as F


def solution(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        samples = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = torch.nn.functional.cross_entropy(net(x), y) * len(y) / samples
            loss.backward()
        optimizer.step()


def in_groups(weight):
    """A training whose loss has another weight."""

    def train(net, optimizer, batches, k):
        for start in range(0, len(batches), k):
            group = batches[start : start + k]
            optimizer.zero_grad()
            for x, y in group:
                (F.cross_entropy(net(x), y) * weight(y, group, k)).backward()
            optimizer.step()

    return train


def counting(is_last, weight=lambda y, k: 1 / k, rest=False, clear=True):
    """The loop that is seen most: enumerate, and a step where the count says so."""

    def train(net, optimizer, batches, k):
        optimizer.zero_grad()
        for i, (x, y) in enumerate(batches):
            (F.cross_entropy(net(x), y) * weight(y, k)).backward()
            if is_last(i, k) or (rest and i == len(batches) - 1):
                optimizer.step()
                if clear:
                    optimizer.zero_grad()

    return train


def every_kth(i, k):
    return (i + 1) % k == 0


def clears_each_batch(net, optimizer, batches, k):
    for i, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        (F.cross_entropy(net(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            optimizer.step()


def clears_too_late(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        for x, y in group:
            (F.cross_entropy(net(x), y) * len(y) / sum(len(y) for _, y in group)).backward()
        optimizer.zero_grad()
        optimizer.step()


def never_steps(net, optimizer, batches, k):
    for x, y in batches:
        (F.cross_entropy(net(x), y) / k).backward()


def by_hand(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        loss = sum(F.cross_entropy(net(x), y, reduction="sum") for x, y in group) / sum(len(y) for _, y in group)
        with torch.no_grad():
            for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
                p -= 0.5 * g


def all_at_once(net, optimizer, batches, k):
    optimizer.zero_grad()
    samples = sum(len(y) for _, y in batches)
    for x, y in batches:
        (F.cross_entropy(net(x), y, reduction="sum") / samples).backward()
    optimizer.step()


def rest_singly(net, optimizer, batches, k):
    full = len(batches) // k * k
    solution(net, optimizer, batches[:full], k)
    solution(net, optimizer, batches[full:], 1)


def rest_with_the_last(net, optimizer, batches, k):
    full = max(1, len(batches) // k)
    groups = [batches[i * k : (i + 1) * k] for i in range(full - 1)] + [batches[(full - 1) * k :]]
    for group in groups:
        solution(net, optimizer, group, len(group))


def no_backward(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        optimizer.zero_grad()
        sum(F.cross_entropy(net(x), y) for x, y in batches[start : start + k])
        optimizer.step()


def empties_the_list(net, optimizer, batches, k):
    while batches:
        group = [batches.pop(0) for _ in range(min(k, len(batches)))]
        solution(net, optimizer, group, k)


def half_weights(net, optimizer, batches, k):
    in_groups(lambda y, group, k: 0.5 * len(y) / sum(len(y) for _, y in group))(net, optimizer, batches, k)


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


def cleared_after_the_step(net, optimizer, batches, k):
    """As most tutorials do it: right if nothing was left by somebody else."""
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        for x, y in group:
            (F.cross_entropy(net(x), y, reduction="sum") / sum(len(y) for _, y in group)).backward()
        optimizer.step()
        optimizer.zero_grad()


def one_step_more(net, optimizer, batches, k):
    solution(net, optimizer, batches, k)
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()


def strided(net, optimizer, batches, k):
    count = -(-len(batches) // k)
    for i in range(count):
        solution(net, optimizer, batches[i::count], len(batches))


def another_loss(net, optimizer, batches, k):
    """Without the softmax."""
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        optimizer.zero_grad()
        for x, y in group:
            (F.nll_loss(net(x), y, reduction="sum") / sum(len(y) for _, y in group)).backward()
        optimizer.step()


def in_evaluation_mode(net, optimizer, batches, k):
    net.eval()
    solution(net, optimizer, batches, k)


def over_all_samples(net, optimizer, batches, k):
    samples = sum(len(y) for _, y in batches)
    in_groups(lambda y, group, k: len(y) / samples)(net, optimizer, batches, k)


def by_the_first_batch(net, optimizer, batches, k):
    in_groups(lambda y, group, k: len(y) / (k * len(batches[0][1])))(net, optimizer, batches, k)


def count_goes_on(net, optimizer, batches, k):
    samples = 0
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        samples += sum(len(y) for _, y in group)
        in_groups(lambda y, group, k, samples=samples: len(y) / samples)(net, optimizer, group, k)


def k_groups(net, optimizer, batches, k):
    solution(net, optimizer, batches, max(1, len(batches) // k))


def smaller_rate(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        optimizer.zero_grad()
        for x, y in group:
            F.cross_entropy(net(x), y).backward()
        optimizer.param_groups[0]["lr"] /= len(group)
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= len(group)


WRONG = [
    (
        "other-weights",
        lambda net, optimizer, batches, k: solution(net, optimizer, sorted(batches, key=lambda b: -len(b[1])), k),
    ),
    ("last-group-dropped", counting(every_kth)),  # the loop of most tutorials
    ("last-group-dropped", counting(every_kth, weight=lambda y, k: 1.0)),
    ("last-group-divided-by-k", counting(every_kth, rest=True)),
    ("not-divided", counting(every_kth, weight=lambda y, k: 1.0, rest=True)),
    ("batches-count-the-same", in_groups(lambda y, group, k: 1 / len(group))),
    ("sum-over-samples", in_groups(lambda y, group, k: len(y))),
    ("divided-by-batch-and-group", in_groups(lambda y, group, k: 1 / sum(len(y) for _, y in group))),
    ("divided-by-full-groups-samples", in_groups(lambda y, group, k: len(y) / (k * len(group[0][1])))),
    ("one-batch-early", counting(lambda i, k: i % k == 0)),
    ("one-batch-early", counting(lambda i, k: i % k == 0, rest=True)),
    ("never-cleared", counting(every_kth, rest=True, clear=False)),
    ("never-cleared", counting(every_kth, clear=False)),
    ("cleared-for-each-batch", clears_each_batch),
    ("steps-without-gradient", clears_too_late),
    ("never-steps", never_steps),
    ("another-optimizer", by_hand),
    ("a-step-for-each-batch", counting(lambda i, k: True)),
    ("a-step-for-each-batch", counting(lambda i, k: True, weight=lambda y, k: 1.0)),
    ("one-step-for-all", all_at_once),
    ("rest-one-by-one", rest_singly),
    ("rest-joined-to-the-last-group", rest_with_the_last),
    ("steps-without-gradient", no_backward),
    ("inputs-changed", empties_the_list),
    ("other-weights", half_weights),
    ("other-weights", in_groups(lambda y, group, k: len(y) / sum(len(y) for _, y in group) / k)),
    ("every-so-many", strided),
    ("other-number-of-steps", one_step_more),
    ("not-cleared-at-first", cleared_after_the_step),
    ("large-batch-at-once", concatenated),
    ("all-graphs-at-once", one_loss),
    ("wrong-value", another_loss),
    ("evaluation-mode", in_evaluation_mode),
    ("divided-by-all-samples", over_all_samples),
    ("divided-by-full-groups-samples", by_the_first_batch),
    ("count-not-cleared", count_goes_on),
    ("k-groups", k_groups),
    ("changes-the-rate", smaller_rate),
    ("weight-upside-down", in_groups(lambda y, group, k: sum(len(y) for _, y in group) / len(y))),
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


def from_an_iterator(net, optimizer, batches, k):
    remaining = iter(batches)
    while group := list(itertools.islice(remaining, k)):
        net.zero_grad()
        samples = np.sum([y.numel() for _, y in group])
        for x, y in group:
            (F.cross_entropy(net(x), y, reduction="none").sum() / samples).backward()
        optimizer.step()


def counting_samples(net, optimizer, batches, k):
    """The gradients are multiplied once, when the group's samples are known."""
    optimizer.zero_grad()
    samples = 0
    for i, (x, y) in enumerate(batches, start=1):
        F.nll_loss(net(x).log_softmax(-1), y, reduction="sum").backward()
        samples += y.shape[0]
        if i % k == 0 or i == len(batches):
            torch._foreach_div_([p.grad for p in net.parameters()], float(samples))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            samples = 0


ALSO_RIGHT = [clears_and_divides, with_closure, with_autograd_grad, log_probabilities, from_an_iterator, counting_samples]


def clips(net, optimizer, batches, k):
    for start in range(0, len(batches), k):
        group = batches[start : start + k]
        samples = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            (F.cross_entropy(net(x), y) * len(y) / samples).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


WRONG += [("other-weights", clips)]
