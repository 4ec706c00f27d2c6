"""SparseAdam compared with dense Adam: what a step costs, and which rows it changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.optim import Adam, SparseAdam
from hpml_lab.optim.formulas.colors import optimizer_style
from hpml_lab.race.lessons.word_vectors import WordVectors, gradient_bytes, zipf_words


@dataclass
class SparseStepCost(Row):
    """One training step (forward, backward, optimizer) with a dense and with a sparse gradient, for one vocabulary."""

    vocabulary: int = column("vocabulary", "words")
    rows: int = column("rows in the batch")
    dense_bytes: int = column("dense gradient", "bytes")
    sparse_bytes: int = column("sparse gradient", "bytes")
    adam_us: float = column("step of Adam", "µs")
    sparse_adam_us: float = column("step of SparseAdam", "µs")
    gain: float = column("SparseAdam compared with Adam", "speed-up")
    interval: str = column("90 % interval")
    verdict: str = column("SparseAdam is")


def step_costs(
    vocabularies: Sequence[int], dim: int, texts: int, length: int, device: torch.device, samples: int
) -> tuple[list[SparseStepCost], SpeedUp]:
    """Measure a step for each size of vocabulary; the batch always has `texts` texts of `length` words.

    Also returns SparseAdam's speed-up with the last of `vocabularies`.
    """
    rows = []
    labels = (torch.arange(texts, device=device) % 2).float()
    for vocabulary in vocabularies:
        words = zipf_words(vocabulary, texts, length, 0, device)
        steps, sizes = {}, []
        for sparse, kind in ((False, Adam), (True, SparseAdam)):
            vectors = WordVectors(vocabulary, dim, sparse, device)
            optimizer = kind([vectors.weight], lr=0.01)

            def step(vectors=vectors, optimizer=optimizer, words=words) -> None:
                vectors.backward(words, labels)
                optimizer.step()

            step()
            steps[kind.__name__] = step
            sizes.append(gradient_bytes(vectors.weight.grad))
        times = interleaved(steps, samples=samples, placebo="Adam")
        gain = speed_up(times, "Adam", "SparseAdam")
        us = (times[name].seconds * 1e6 for name in steps)
        unique = words.unique().numel()
        rows.append(SparseStepCost(vocabulary, unique, *sizes, *us, gain.ratio, gain.interval, gain.verdict))
    return rows, gain


@picture
def sparse_step_costs(result: Result):
    """Time of a training step over the size of the vocabulary, for the same batch: with a dense gradient a step costs what the
    vocabulary costs, with a sparse one what the batch costs. Look for the vocabulary at which the lines cross."""
    rows = result.rows(SparseStepCost)
    figure = style.new_figure(6.0, 3.4)
    axes = figure.subplots()
    for name, times in (("Adam", [row.adam_us for row in rows]), ("SparseAdam", [row.sparse_adam_us for row in rows])):
        look = optimizer_style(name, marker=True)
        axes.plot([row.vocabulary for row in rows], [time / 1000 for time in times], label=name, **look)
    axes.set(xscale="log", yscale="log", xlabel="words in the vocabulary", ylabel="time of a step (ms)")
    style.label_log_axis(axes.yaxis)
    axes.legend()
    return figure


# ---- which rows a step changes ---------------------------------------------------------------------------------------


class RowTrial:
    """A few float64 steps on a vocabulary of 50 words: a first batch, then one without most of its words."""

    vocabulary, dim = 50, 4

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.labels = torch.tensor([1.0, 0.0, 1.0], device=device)
        self.first = torch.tensor([[1, 2, 3], [3, 4, 5], [1, 7, 8]], device=device)
        self.second = torch.tensor([[20, 21, 2], [22, 23, 24], [25, 26, 3]], device=device)

    def vectors(self, sparse: bool) -> WordVectors:
        return WordVectors(self.vocabulary, self.dim, sparse, self.device, torch.float64)

    def trained(self, sparse: bool, batches: list[torch.Tensor], eps: float = 1e-8) -> list[torch.Tensor]:
        """The weights after each step of Adam or SparseAdam on these batches of words."""
        vectors = self.vectors(sparse)
        optimizer = (SparseAdam if sparse else Adam)([vectors.weight], lr=0.1, eps=eps)
        weights = []
        for words in batches:
            vectors.backward(words, self.labels)
            optimizer.step()
            weights.append(vectors.weight.detach().clone())
        return weights

    def moved(self, sparse: bool) -> set[int]:
        """The rows that the second step changed."""
        before, after = self.trained(sparse, [self.first, self.second])
        return set((after != before).any(1).nonzero()[:, 0].tolist())

    def with_all_words(self, steps: int = 20) -> tuple[float, float]:
        """Distance of the two optimizers where every batch has every word and ε is almost zero, and the distance traveled."""
        words = torch.arange(self.vocabulary + 1, device=self.device).clamp_(max=self.vocabulary - 1).view(3, 17)
        dense, sparse = (self.trained(kind, [words] * steps, eps=1e-30)[-1] for kind in (False, True))
        start = self.vectors(False).weight.detach()
        return (dense - sparse).abs().max().item(), (dense - start).abs().min().item()


def judge_sparse_adam(result: Result, device: torch.device) -> None:
    """Claim what SparseAdam does with the rows of words that are not in the batch."""
    trial = RowTrial(device)
    sparse, dense = trial.moved(True), trial.moved(False)
    present, earlier = (set(words.flatten().tolist()) for words in (trial.second, trial.first))
    gap, traveled = trial.with_all_words()
    result.claim(
        "A step of SparseAdam moves the rows of the words in the batch and no others; dense Adam also moves those of earlier "
        "batches",
        sparse == present and dense == present | earlier,
        f"{len(sparse)} and {len(dense)} of {trial.vocabulary} rows",
    )
    result.claim(
        "If every batch has every word and ε is almost zero, SparseAdam takes Adam's steps, to 1e-12",
        gap <= 1e-12 < traveled,
        f"{gap:.0e} after 20 steps",
    )
