"""accumulate-gradients: one step of a large batch from several small ones that fit into memory."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.core.judge.steps import Batch, Memory, Steps, flat, small_batches, small_net

Batches = Sequence[Batch]
Groups = list[Batches]
Train = Callable[[nn.Module, torch.optim.Optimizer, list[Batch], int], None]

SIZES = (3, 4, 3)  # of the net's layers
MANY = 32  # batches in a group, when memory is watched
TOLERANCE = 1e-5  # a batch's part of a group may have been rounded to float32, and a few steps add that up
TIMES = MANY / 4  # as much memory as one batch needs is too much: between a few samples more and all batches


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


def rest_with_the_last(batches: Batches, k: int) -> Groups:
    start_of_the_last = max(0, len(batches) // k - 1) * k
    return [*in_groups(batches[:start_of_the_last], k), batches[start_of_the_last:]]


def rest_one_by_one(batches: Batches, k: int) -> Groups:
    full = full_groups(batches, k)
    return full + in_groups(batches[len(full) * k :], 1)


def _steps(train: Train, batches: list[Batch], k: int, left: bool = False) -> Steps:
    """The steps of a training; `left`: with a gradient of something else in the parameters at first."""
    net = small_net(*SIZES)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
    steps = Steps(net, optimizer)
    for parameter in net.parameters() if left else ():
        parameter.grad = torch.ones_like(parameter)
    train(net, optimizer, batches, k)
    return steps


RUBRIC = Rubric(
    right,
    """
in_groups(batches, k)
    last-group-dropped :: full_groups(batches, k) :: The last group has fewer than k batches, and you take no step for it. || A
        last group of fewer batches is a step, too.
    one-batch-early :: one_early(batches, k) :: $EARLY
    one-batch-early :: [batches[:1], *in_groups(batches[1:], k)] :: $EARLY
    rest-joined-to-the-last-group :: rest_with_the_last(batches, k) :: The batches that are left over are a group of their own.
    rest-one-by-one :: rest_one_by_one(batches, k) :: The batches that are left over make one step together, not one each.
    a-step-for-each-batch :: in_groups(batches, 1) :: You take a step after every batch: nothing is accumulated over k of them.
loss.backward()
    cleared-for-each-batch :: optimizer.zero_grad(); loss.backward() :: Only the last batch of a group is in your step: are the
        gradients cleared before every batch, or the losses lost? || backward adds to the gradients that are there.
(len(y) / samples)
    batches-count-the-same :: (1 / len(group)) :: You take the mean of the batches' means. || Each sample of a group counts the
        same, whether its batch is small or large.
    last-group-divided-by-k :: (1 / k) :: You divide by k in every group, but the last group may have fewer batches: its step is
        too short.
    not-divided :: 1 :: backward adds the gradients up: those of k batches are about k times as long as one large batch's.
""",
    wrap=lambda train: lambda batches, k: _steps(train, batches, k).points,
    EARLY="Your first step comes after one batch: counted from 0, batch k − 1 is the last of the first group.",
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
    cases = {words: (small_batches(sizes, SIZES[0]), k) for words, (sizes, k) in CASES.items()}
    draw = drawn()
    sizes, k = [draw.randint(1, 6) for _ in range(draw.randint(3, 9))], draw.randint(2, 4)
    words = f"batches of {', '.join(map(str, sizes))} samples, k = {k}, drawn for this check"
    cases[words] = small_batches(sizes, SIZES[0], seed=draw.randint(10, 99)), k
    RUBRIC.expect(answer, cases, tolerance=TOLERANCE, explain=lambda _, judged: _explain(answer, judged))
    needed, own = _memory(right), _memory(answer)
    if own.largest > TIMES * needed.largest:
        hint = "A tensor of yours holds all batches of a group at once: that is what does not fit into memory."
        raise Mistake("large-batch-at-once", hint)
    if own.most > TIMES * needed.most:
        raise Mistake(
            "all-graphs-at-once",
            f"The steps are right, and with {MANY} batches in a group you keep {own.most / needed.most:.0f} times the memory "
            "of one. || backward frees a batch's graph, with its activations, and adds to the gradients that are there.",
        )
    batches, k = cases["batches of 5, 3, 4 and 1 samples, k = 3"]
    if not same(_steps(answer, batches, k, left=True).points, _steps(right, batches, k).points, TOLERANCE):
        raise Mistake(
            "not-cleared-at-first",
            "Right if the parameters have no gradient at first. Here one was left by somebody else: it is in your first step.",
        )


def _memory(train: Train) -> Memory:
    net, batches = small_net(*SIZES), small_batches([32] * MANY, SIZES[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    with Memory() as memory:
        train(net, optimizer, batches, MANY)
    return memory


def _explain(answer: Train, judged: list[Judged]) -> None:
    """Raise the Mistake that says how much each batch counts in the first wrong step, if its gradient is made of theirs."""
    for words, (batches, k), *_ in judged:
        got, wanted = (_steps(train, list(batches), k) for train in (answer, right))
        got.explain(wanted)
        step = got.first_difference(wanted)
        if step is None:
            continue
        members = range(step * k, min(step * k + k, len(batches)))
        samples = sum(len(batches[i][1]) for i in members)
        due = [len(y) / samples if i in members else 0.0 for i, (_, y) in enumerate(batches)]
        weights = _weights(got.gradients[step], [got.start, *got.points][step], batches)
        if weights is None:
            hint = f"For {words}, the gradient of your step {step} (from 0) is not made of those of F.cross_entropy(net(x), y)"
            raise Mistake("wrong-loss", f"{hint} for the batches. Is it another loss, or clipped?")
        pairs = [
            f"batch {i} counts {round(own, 6) + 0.0:.3g} instead of {other:.3g}"
            for i, (own, other) in enumerate(zip(weights, due, strict=True))
            if abs(own - other) > 1e-6
        ]
        whole = f" The whole gradient is {factor} the right one." if (factor := got.factor(step, wanted)) != "not" else ""
        hint = f"For {words}, in your step {step} (from 0) the mean loss of {', of '.join(pairs[:4])}.{whole}"
        raise Mistake("other-weights", hint)


def _weights(gradient: torch.Tensor, point: torch.Tensor, batches: Batches) -> list[float] | None:
    """How much the gradient of each batch at a point counts in a gradient; None if that is not made of theirs."""
    net = small_net(*SIZES)
    nn.utils.vector_to_parameters(point, net.parameters())
    losses = (F.cross_entropy(net(x), y) for x, y in batches)
    each = torch.stack([flat(torch.autograd.grad(loss, list(net.parameters()))) for loss in losses], dim=1)
    weights = torch.linalg.lstsq(each, gradient[:, None]).solution[:, 0]
    return weights.tolist() if same(each @ weights, gradient) else None
