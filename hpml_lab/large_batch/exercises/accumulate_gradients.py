"""accumulate-gradients: one step of a large batch from several small ones that fit into memory."""

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.same import same
from hpml_lab.large_batch.exercises.watched_training import RATE, Batch, Train, WatchedTraining, small_batches, small_net

Batches = Sequence[Batch]
Steps = Callable[[list[Batch], int], list[torch.Tensor]]  # (batches, k) -> the parameters after each step


def _path(train: Train) -> Steps:
    """The parameters after each step of the optimizer that the training is given."""
    return lambda batches, k: WatchedTraining(train, batches, k).points


# ---- the answer, with parts that can be replaced ---------------------------------------------------------------------

Groups = Callable[[Batches, int], Iterator[Batches]]
Weight = Callable[[int, Batches, int, Batches], float]  # (samples of this batch, its group, k, all batches) -> its factor


def _groups(batches: Batches, k: int) -> Iterator[Batches]:
    for start in range(0, len(batches), k):
        yield batches[start : start + k]


def _full_groups(batches: Batches, k: int) -> Iterator[Batches]:
    yield from (group for group in _groups(batches, k) if len(group) == k)


def _one_early(batches: Batches, k: int) -> Iterator[Batches]:
    """A step where the number of the batch, from 0, is a multiple of k; what follows the last of them is lost."""
    start = 0
    for i in range(0, len(batches), k):
        yield batches[start : i + 1]
        start = i + 1


def _one_early_to_the_end(batches: Batches, k: int) -> Iterator[Batches]:
    yield from _one_early(batches, k)
    if rest := batches[(len(batches) - 1) // k * k + 1 :]:
        yield rest


def _rest_with_the_last(batches: Batches, k: int) -> Iterator[Batches]:
    *first, last, rest = [[], [], *_groups(batches, k)]
    groups = [group for group in first if group] + ([last, rest] if len(rest) == k else [[*last, *rest]])
    yield from (group for group in groups if group)


def _rest_one_by_one(batches: Batches, k: int) -> Iterator[Batches]:
    for group in _groups(batches, k):
        yield from [group] if len(group) == k else ([batch] for batch in group)


def _singly(batches: Batches, k: int) -> Iterator[Batches]:
    yield from ([batch] for batch in batches)


def _at_once(batches: Batches, k: int) -> Iterator[Batches]:
    yield batches


def _k_groups(batches: Batches, k: int) -> Iterator[Batches]:
    yield from _groups(batches, max(1, len(batches) // k))


def _k_groups_rounded_up(batches: Batches, k: int) -> Iterator[Batches]:
    yield from _groups(batches, -(-len(batches) // k))


def _strided(batches: Batches, k: int) -> Iterator[Batches]:
    count = -(-len(batches) // k)
    yield from (batches[start::count] for start in range(count))


def _by_samples(n: int, group: Batches, k: int, batches: Batches) -> float:
    return n / sum(len(y) for _, y in group)


def _by_batches(n: int, group: Batches, k: int, batches: Batches) -> float:
    return 1 / len(group)


def _by_k(n: int, group: Batches, k: int, batches: Batches) -> float:
    return 1 / k


def _count_goes_on(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, k: int) -> None:
    """The mean over all samples since the start, of the gradients of this group."""
    samples = 0
    for group in _groups(batches, k):
        samples += sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            (F.cross_entropy(net(x), y, reduction="sum") / samples).backward()
        optimizer.step()


def _train(groups: Groups = _groups, weight: Weight = _by_samples, clear: str = "groups") -> Train:
    """clear: gradients are cleared before all "groups", before all "batches", "once", or also "before the step"."""

    def train(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, k: int) -> None:
        for group in groups(batches, k):
            if clear == "groups":
                optimizer.zero_grad()
            for x, y in group:
                if clear == "batches":
                    optimizer.zero_grad()
                (weight(len(y), group, k, batches) * F.cross_entropy(net(x), y)).backward()
            if clear == "before the step":
                optimizer.zero_grad()
            optimizer.step()

    return train


WEIGHTS: dict[str, tuple[Weight, str]] = {
    "batches-count-the-same": (
        _by_batches,
        "You take the mean of the batches' means. A sample in a small batch then counts more than one in a large batch.",
    ),
    "last-group-divided-by-k": (
        _by_k,
        "You divide by k in every group, but the last group may have fewer batches: its step is too short.",
    ),
    "not-divided": (
        lambda n, group, k, batches: 1.0,
        "backward adds the gradients up: those of k batches are about k times as long as one large batch's.",
    ),
    "sum-over-samples": (
        lambda n, group, k, batches: float(n),
        "Your gradient is that of the sum over the samples; the mean is asked for, over all samples of the group.",
    ),
    "divided-by-batch-and-group": (
        lambda n, group, k, batches: 1 / sum(len(y) for _, y in group),
        "cross_entropy has divided by the samples of the batch already, and you divide by those of the group as well.",
    ),
    "weight-upside-down": (
        lambda n, group, k, batches: sum(len(y) for _, y in group) / n,
        "Your weight is upside down: a batch with more samples has to count more, not less.",
    ),
    "divided-by-all-samples": (
        lambda n, group, k, batches: n / sum(len(y) for _, y in batches),
        "You divide by the samples of all batches together; a step's gradient is the mean over its own group.",
    ),
    "divided-by-all-batches": (
        lambda n, group, k, batches: 1 / len(batches),
        "You divide by the number of all batches; a step's gradient is the mean over its own group.",
    ),
    "divided-by-full-groups-samples, of the group's first batch": (
        lambda n, group, k, batches: n / (k * len(group[0][1])),
        "You divide by the samples that k batches like the first would have; count those that the group has.",
    ),
    "divided-by-full-groups-samples": (
        lambda n, group, k, batches: n / (k * len(batches[0][1])),
        "You divide by the samples that k batches like the first would have; count those that the group has.",
    ),
}
K_GROUPS = "You make k groups of the batches. k is the number of batches in a group."
GROUPS: dict[str, tuple[Groups, str]] = {
    "last-group-dropped": (_full_groups, "The last group has fewer than k batches, and you take no step for it."),
    "one-batch-early": (
        _one_early,
        "Your first step comes after one batch: counted from 0, batch k − 1 is the last of the first group.",
    ),
    "one-batch-early, to the end": (
        _one_early_to_the_end,
        "Your first step comes after one batch: counted from 0, batch k − 1 is the last of the first group.",
    ),
    "rest-joined-to-the-last-group": (_rest_with_the_last, "The batches that are left over are a group of their own."),
    "rest-one-by-one": (_rest_one_by_one, "The batches that are left over make one step together, not one each."),
    "a-step-for-each-batch": (_singly, "You take a step after every batch: nothing is accumulated over k of them."),
    "k-groups": (_k_groups, K_GROUPS),
    "k-groups, rounded up": (_k_groups_rounded_up, K_GROUPS),
    "every-so-many": (
        _strided,
        "Your groups take one batch from here and one from there. Batches that follow each other form a group.",
    ),
    "one-step-for-all": (_at_once, "You take one step for all batches; k of them make a group."),
}
CLEARED = {
    "never-cleared": ("once", "The gradients of the groups before are still in yours: who clears them?"),
    "cleared-for-each-batch": (
        "batches",
        "Only the last batch of a group is in your step: are the gradients cleared before every batch, or the losses lost?",
    ),
}
ALL_WEIGHTS = [_by_samples, *(weight for weight, _ in WEIGHTS.values())]


@functools.cache
def _known() -> dict[str, tuple[Steps, str]]:
    """One mistake in each part; then a wrong grouping or clearing with a wrong weight, named by the first."""
    known = {name: (_train(weight=weight), hint) for name, (weight, hint) in WEIGHTS.items()}
    for number, weight in enumerate(ALL_WEIGHTS):
        for name, (groups, hint) in GROUPS.items():
            known[f"{name}, weight {number}"] = (_train(groups, weight), hint)
        for name, (clear, hint) in CLEARED.items():
            known[f"{name}, weight {number}"] = (_train(weight=weight, clear=clear), hint)
            known[f"{name}, weight {number}, full groups"] = (_train(_full_groups, weight, clear), hint)
    known["count-not-cleared"] = (
        _count_goes_on,
        "The number of samples by which you divide goes on from group to group: it has to begin anew with each.",
    )
    known["steps-without-gradient"] = (
        _train(clear="before the step"),
        "Your steps change nothing. Is there a backward before each that reaches the net, and does anything clear the "
        "gradients in between?",
    )
    known["never-steps"] = (lambda *_: None, "The net has not changed: no step was taken. Where is optimizer.step()?")
    return {name: (_remembered(_path(train)), hint) for name, (train, hint) in known.items()}


def _remembered(steps: Steps) -> Steps:
    """The same, trained once for each case: the batches of a case are always the same."""
    found: dict[tuple, list[torch.Tensor]] = {}

    def recalled(batches: list[Batch], k: int) -> list[torch.Tensor]:
        case = (*(len(y) for _, y in batches), k)
        if case not in found:
            found[case] = steps(batches, k)
        return found[case]

    return recalled


right = _train()
_SIZES = {
    "6 batches of 4 samples, k = 3": ((4, 4, 4, 4, 4, 4), 3),
    "5 batches of 4 samples, k = 2": ((4, 4, 4, 4, 4), 2),
    "batches of 5, 3, 4 and 1 samples, k = 3": ((5, 3, 4, 1), 3),
    "batches of 4, 4, 4, 4, 4, 4, 4 and 2 samples, k = 3": ((4, 4, 4, 4, 4, 4, 4, 2), 3),
    "batches of 2, 4, 1 and 3 samples, k = 2": ((2, 4, 1, 3), 2),
    "3 batches, k = 1": ((4, 4, 2), 1),
    "2 batches, k = 4": ((4, 2), 4),
}


@exercise("accumulate-gradients", notebook="15_large_batch")
def judge_accumulate_gradients(answer: Train) -> None:
    cases = {words: (small_batches(sizes), k) for words, (sizes, k) in _SIZES.items()}
    try:
        expect_function(_path(answer), _path(right), cases, mistakes=_known())
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-type", "wrong-shape"):
            for words, (batches, k) in cases.items():
                _explain(answer, batches, k, words)
        raise
    batches, k = cases["batches of 5, 3, 4 and 1 samples, k = 3"]
    watched = WatchedTraining(answer, batches, k)
    if watched.most > max(len(y) for _, y in batches):
        hint = f"Your net gets {watched.most} samples at once, more than a batch has: that is what does not fit into memory."
        raise Mistake("large-batch-at-once", hint)
    if watched.at_once:
        hint = (
            "The steps are right, but you keep the graphs of several batches until backward, with all activations in them: "
            "that is what does not fit into memory. backward frees a batch's graph, and adds to the gradients that are there."
        )
        raise Mistake("all-graphs-at-once", hint)
    if not watched.mode:
        raise Mistake(
            "evaluation-mode", "In evaluation mode dropout and batch norm would not train: leave the net's mode as it is."
        )
    if not same(WatchedTraining(answer, batches, k, left=True).points, watched.points):
        hint = (
            "Right if the parameters have no gradient at first. Here one was left by somebody else: it is in your first step."
        )
        raise Mistake("not-cleared-at-first", hint)


def _explain(answer: Train, batches: list[Batch], k: int, words: str) -> None:
    """Raise the Mistake that says how much each batch counts in the first wrong step, if its gradient is made of theirs."""
    got, wanted, groups = (
        WatchedTraining(answer, list(batches), k),
        WatchedTraining(right, batches, k),
        list(_groups(batches, k)),
    )
    if any(rate != RATE for rate in got.rates):
        hint = "You change the optimizer's rate. With momentum that is not the same as another gradient: scale the losses."
        raise Mistake("changes-the-rate", hint)
    step = next((i for i, pair in enumerate(zip(got.points, wanted.points, strict=False)) if not same(*pair)), None)
    if step is None:
        if len(got.points) == len(wanted.points):
            return
        hint = f"For {words} there are {len(groups)} groups, and a step for each; you take {len(got.points)}."
        raise Mistake("other-number-of-steps", hint)
    net = small_net()
    if step:
        nn.utils.vector_to_parameters(wanted.points[step - 1], net.parameters())
    each = torch.stack([_gradient(net, batch) for batch in batches], dim=1)
    if got.gradients[step].shape != each[:, 0].shape:
        return
    weights = torch.linalg.lstsq(each, got.gradients[step][:, None]).solution[:, 0]
    if not same(each @ weights, got.gradients[step]):
        return
    samples, first = sum(len(y) for _, y in groups[step]), step * k
    right_weights = [len(batches[i][1]) / samples if first <= i < first + k else 0.0 for i in range(len(batches))]
    pairs = [
        f"batch {i} counts {round(own, 6) + 0.0:.3g} instead of {other:.3g}"
        for i, (own, other) in enumerate(zip(weights.tolist(), right_weights, strict=True))
        if abs(own - other) > 1e-6
    ]
    if not pairs:
        return
    factor = sum(weights.tolist())  # the right weights add up to 1
    whole = factor > 0 and same(weights.tolist(), [factor * weight for weight in right_weights], 1e-5)
    more = f" The whole gradient is {factor:.3g} times the right one: is it clipped or scaled?" if whole else ""
    raise Mistake("other-weights", f"For {words}, in your step {step} the mean loss of {', of '.join(pairs[:4])}.{more}")


def _gradient(net: nn.Module, batch: Batch) -> torch.Tensor:
    found = torch.autograd.grad(F.cross_entropy(net(batch[0]), batch[1]), list(net.parameters()))
    return torch.cat([gradient.flatten() for gradient in found])
