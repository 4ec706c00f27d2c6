"""What the ranks do in the experiment `load-balance`: a rank that is late, and epochs of sentences in different orders.

Each step is computed, then the gradients are all-reduced in one call, so that it is known when a rank begins to wait.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.system.placement import device_of_rank, wait_for
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.distributed.lessons.sentence_batches import Plan

WORDS, CLASSES = 1000, 4
Moments = tuple[float, float, float]  # when a rank began a step, entered the all-reduce, and left it


def on_rank(
    device: str,
    delays: tuple[float, ...],
    base: float,
    late_steps: int,
    runs: dict[str, Plan],
    lengths: list[int],
    width: int,
    rounds: int,
) -> dict[str, dict]:
    """{"late": {delay: the moments of each step}, "runs": {name: for each round the moments of each step}} of this rank."""
    return {
        "late": {delay: late_rank(delay, base, late_steps) for delay in delays},
        "runs": train(device_of_rank(device, dist.get_rank()), runs, lengths, width, rounds),
    }


def late_rank(delay: float, base: float, steps: int) -> list[Moments]:
    """Steps that sleep for `base` seconds, and on the last rank `delay` seconds longer: sleeping needs no processor."""
    seconds = base + delay * (dist.get_rank() == dist.get_world_size() - 1)
    return [_step(lambda: time.sleep(seconds), torch.zeros(1000)) for _ in range(steps)]


def train(
    device: torch.device, runs: dict[str, Plan], lengths: list[int], width: int, rounds: int
) -> dict[str, list[list[Moments]]]:
    """Train on the plans in turns, after a round for warming up."""
    torch.manual_seed(0)
    net = SentenceClassifier(width).to(device)
    gradient = torch.zeros(sum(parameter.numel() for parameter in net.parameters()), device=device)
    start = 0
    for parameter in net.parameters():  # the gradients are parts of one tensor: one all-reduce sends them all
        parameter.grad = gradient[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    rank = dist.get_rank()
    batches = {
        name: [[part.to(device) for part in padded_batch(ranks[rank], lengths)] for ranks in plan]
        for name, plan in runs.items()
    }

    def compute(words: torch.Tensor, sizes: torch.Tensor, classes: torch.Tensor) -> None:
        gradient.zero_()
        F.cross_entropy(net(words, sizes), classes).backward()

    found: dict[str, list[list[Moments]]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, own in batches.items():
            moments = [_step(lambda batch=batch: compute(*batch), gradient) for batch in own]
            if turn:
                found[name].append(moments)
    return found


def _step(compute: Callable[[], object], gradient: torch.Tensor) -> Moments:
    start = CLOCK()
    compute()
    wait_for(gradient.device)
    enter = CLOCK()
    dist.all_reduce(gradient)
    wait_for(gradient.device)
    return start, enter, CLOCK()


# ---- a network that reads sentences ----------------------------------------------------------------------------------------


class SentenceClassifier(nn.Module):
    """A GRU over the words of a sentence and a linear layer on its state after the last word: padding does not count."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.classes = nn.Linear(width, CLASSES)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.words(words))
        return self.classes(states[torch.arange(len(words), device=words.device), lengths - 1])


def padded_batch(
    indices: Sequence[int], lengths: Sequence[int], longest: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Words (batch, longest), lengths and classes of some sentences, filled up with zeros to the longest, or to `longest`."""
    sizes = torch.tensor([lengths[i] for i in indices])
    words = torch.zeros(len(indices), max(longest, int(sizes.max())), dtype=torch.long)
    for row, index in enumerate(indices):
        generator = torch.Generator().manual_seed(index)
        words[row, : sizes[row]] = torch.randint(1, WORDS, (int(sizes[row]),), generator=generator)
    return words, sizes, torch.tensor(indices) % CLASSES
