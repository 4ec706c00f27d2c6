"""accumulate-gradients: one step of a large batch from several small ones that fit into memory."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.large_batch.exercises.watched_training import RATE, Batch, Train, WatchedTraining, small_batches, small_net

Batches = Sequence[Batch]
Groups = list[Batches]


def right(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, k: int) -> None:
    for group in in_groups(batches, k):
        samples = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = F.cross_entropy(net(x), y) * (len(y) / samples)
            loss.backward()
        optimizer.step()


# ---- Groups: the right ones and others -------------------------------------------------------------------------------


def in_groups(batches: Batches, k: int) -> Groups:
    return [batches[start : start + k] for start in range(0, len(batches), k)]


def full_groups(batches: Batches, k: int) -> Groups:
    return [group for group in in_groups(batches, k) if len(group) == k]


def one_early(batches: Batches, k: int) -> Groups:
    """A step where the number of the batch, from 0, is a multiple of k; what follows the last of them is lost."""
    return [batches[:1], *full_groups(batches[1:], k)]


def one_early_to_the_end(batches: Batches, k: int) -> Groups:
    return [batches[:1], *in_groups(batches[1:], k)]


def rest_with_the_last(batches: Batches, k: int) -> Groups:
    start_of_the_last = max(0, len(batches) // k - 1) * k
    return [*in_groups(batches[:start_of_the_last], k), batches[start_of_the_last:]]


def rest_one_by_one(batches: Batches, k: int) -> Groups:
    full = full_groups(batches, k)
    return full + in_groups(batches[len(full) * k :], 1)


def strided(batches: Batches, k: int) -> Groups:
    count = -(-len(batches) // k)
    return [batches[start::count] for start in range(count)]


OF_TUTORIALS = (  # most drop the last group and divide by k
    ("in_groups(batches, k)", "full_groups(batches, k)"),
    ("(len(y) / samples)", "(1 / k)"),
)
RUBRIC = Rubric(
    right,
    """
in_groups(batches, k)
    last-group-dropped :: full_groups(batches, k) :: $DROPPED
    one-batch-early :: one_early(batches, k) :: $EARLY
    one-batch-early :: one_early_to_the_end(batches, k) :: $EARLY
    rest-joined-to-the-last-group :: rest_with_the_last(batches, k) :: The batches that are left over are a group of their own.
    rest-one-by-one :: rest_one_by_one(batches, k) :: The batches that are left over make one step together, not one each.
    a-step-for-each-batch :: in_groups(batches, 1) :: You take a step after every batch: nothing is accumulated over k of them.
    k-groups :: in_groups(batches, max(1, len(batches) // k)) :: $K_GROUPS
    k-groups :: in_groups(batches, -(-len(batches) // k)) :: $K_GROUPS
    every-so-many :: strided(batches, k) :: Your groups take one batch from here and one from there. Batches that follow each
        other form a group.
    one-step-for-all :: [batches] :: You take one step for all batches; k of them make a group.
optimizer.zero_grad()
    never-cleared :: pass :: The gradients of the groups before are still in yours. || Each group begins without gradients: who
        clears them?
loss.backward()
    cleared-for-each-batch :: optimizer.zero_grad(); loss.backward() :: Only the last batch of a group is in your step: are the
        gradients cleared before every batch, or the losses lost? || backward adds to the gradients that are there.
(len(y) / samples)
    batches-count-the-same :: (1 / len(group)) :: You take the mean of the batches' means. || Each sample of a group counts the
        same, whether its batch is small or large.
    last-group-divided-by-k :: (1 / k) :: You divide by k in every group, but the last group may have fewer batches: its step is
        too short.
    not-divided :: 1 :: backward adds the gradients up: those of k batches are about k times as long as one large batch's.
    sum-over-samples :: len(y) :: Your gradient is that of the sum over the samples; the mean is asked for, over all samples of
        the group.
    divided-by-batch-and-group :: (1 / samples) :: cross_entropy has divided by the samples of the batch already, and you divide
        by those of the group as well.
    weight-upside-down :: (samples / len(y)) :: Your weight is upside down: a batch with more samples has to count more, not
        less.
    divided-by-all-samples :: (len(y) / sum(len(y) for _, y in batches)) :: You divide by the samples of all batches together; a
        step's gradient is the mean over its own group.
    divided-by-all-batches :: (1 / len(batches)) :: You divide by the number of all batches; a step's gradient is the mean over
        its own group.
    divided-by-full-groups-samples :: (len(y) / (k * len(group[0][1]))) :: $FULL
    divided-by-full-groups-samples :: (len(y) / (k * len(batches[0][1]))) :: $FULL
samples = sum(len(y) for _, y in group)
    count-not-cleared :: samples = net.samples = getattr(net, "samples", 0) + sum(len(y) for _, y in group) :: The number of
        samples by which you divide goes on from group to group. || The count of samples begins anew with each group.
optimizer.step()
    never-steps :: pass :: The net has not changed: no step was taken. || What changes the net is optimizer.step(): where is it?
    steps-without-gradient :: optimizer.zero_grad(); optimizer.step() :: $NO_GRADIENT
    steps-without-gradient :: net.zero_grad(set_to_none=False); optimizer.step() :: $NO_GRADIENT
whole answer
    never-cleared :: RUBRIC.edited(*OF_TUTORIALS, ("optimizer.zero_grad()", "pass")) :: The gradients of the groups before are
        still in yours: who clears them?
    cleared-for-each-batch :: RUBRIC.edited(*OF_TUTORIALS, ("loss.backward()", "optimizer.zero_grad(); loss.backward()")) ::
        Only the last batch of a group is in your step: are the gradients cleared before every batch, or the losses lost?
""",
    wrap=lambda train: lambda batches, k: WatchedTraining(train, batches, k).points,
    DROPPED="The last group has fewer than k batches, and you take no step for it. || A last group of fewer batches is a "
    "step, too.",
    EARLY="Your first step comes after one batch: counted from 0, batch k − 1 is the last of the first group.",
    K_GROUPS="You make k groups of the batches. k is the number of batches in a group.",
    FULL="You divide by the samples that k batches like the first would have; count those that the group has.",
    NO_GRADIENT="Your steps change nothing. Is there a backward before each that reaches the net, and does anything clear the "
    "gradients in between?",
)
CASES = {
    "6 batches of 4 samples, k = 3": ((4, 4, 4, 4, 4, 4), 3),
    "5 batches of 4 samples, k = 2": ((4, 4, 4, 4, 4), 2),
    "batches of 5, 3, 4 and 1 samples, k = 3": ((5, 3, 4, 1), 3),
    "batches of 4, 4, 4, 4, 4, 4, 4 and 2 samples, k = 3": ((4, 4, 4, 4, 4, 4, 4, 2), 3),
    "batches of 2, 4, 1 and 3 samples, k = 2": ((2, 4, 1, 3), 2),
    "3 batches, k = 1": ((4, 4, 2), 1),
    "2 batches, k = 4": ((4, 2), 4),
}


@exercise("accumulate-gradients", notebook="15_large_batch", takes="net, optimizer, batches, k", returns=None)
def judge_accumulate_gradients(answer: Train) -> None:
    cases = {words: (small_batches(sizes), k) for words, (sizes, k) in CASES.items()}
    RUBRIC.expect(answer, cases, explain=lambda _, judged: _explain(answer, judged))
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


def _explain(answer: Train, judged: list[Judged]) -> None:
    """Raise the Mistake that says how much each batch counts in the first wrong step, if its gradient is made of theirs."""
    for words, (batches, k), *_ in judged:
        got, wanted = (WatchedTraining(train, list(batches), k) for train in (answer, right))
        groups = in_groups(batches, k)
        if any(rate != RATE for rate in got.rates):
            hint = "You change the optimizer's rate. With momentum that is not the same as another gradient: scale the losses."
            raise Mistake("changes-the-rate", hint)
        step = next((i for i, pair in enumerate(zip(got.points, wanted.points, strict=False)) if not same(*pair)), None)
        if step is None and len(got.points) != len(wanted.points):
            hint = f"For {words} there are {len(groups)} groups, and a step for each; you take {len(got.points)}."
            raise Mistake("other-number-of-steps", hint)
        weights = None if step is None else _weights(got, wanted, step, batches)
        if weights is None:
            continue
        samples, members = sum(len(y) for _, y in groups[step]), range(step * k, step * k + k)
        right_weights = [len(y) / samples if i in members else 0.0 for i, (_, y) in enumerate(batches)]
        pairs = [
            f"batch {i} counts {round(own, 6) + 0.0:.3g} instead of {other:.3g}"
            for i, (own, other) in enumerate(zip(weights, right_weights, strict=True))
            if abs(own - other) > 1e-6
        ]
        factor = sum(weights)  # the right weights add up to 1
        whole = factor > 0 and same(weights, [factor * weight for weight in right_weights], 1e-5)
        more = f" The whole gradient is {factor:.3g} times the right one: is it clipped or scaled?" if whole else ""
        if pairs:
            raise Mistake(
                "other-weights", f"For {words}, in your step {step} the mean loss of {', of '.join(pairs[:4])}.{more}"
            )


def _weights(got: WatchedTraining, wanted: WatchedTraining, step: int, batches: Batches) -> list[float] | None:
    """How much the gradient of each batch counts in the gradient of a step; None if that is not made of theirs."""
    net = small_net()
    if step:
        nn.utils.vector_to_parameters(wanted.points[step - 1], net.parameters())
    losses = (F.cross_entropy(net(x), y) for x, y in batches)
    gradients = (torch.autograd.grad(loss, list(net.parameters())) for loss in losses)
    each = torch.stack([nn.utils.parameters_to_vector(gradient) for gradient in gradients], dim=1)
    if got.gradients[step].shape != each[:, 0].shape:
        return None
    weights = torch.linalg.lstsq(each, got.gradients[step][:, None]).solution[:, 0]
    return weights.tolist() if same(each @ weights, got.gradients[step]) else None
