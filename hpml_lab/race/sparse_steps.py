"""SparseAdam compared with dense Adam: what a step costs, and which rows it changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.noise import SpeedUp, speed_up
from hpml_lab.core.measure.timing import interleaved
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.optim import Adam, SparseAdam
from hpml_lab.optim.colors import optimizer_style
from hpml_lab.race.words import WordVectors, gradient_bytes, zipf_words

BETAS = (0.9, 0.999)
MOMENTS = ("exp_avg", "exp_avg_sq")


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


@dataclass(frozen=True)
class AfterStep:
    """Weights, gradient and moments of the word vectors after one step; all are dense here."""

    theta: torch.Tensor
    grad: torch.Tensor
    moments: tuple[torch.Tensor, ...]


class RowTrial:
    """A few float64 steps on a vocabulary of 50 words: a first batch, then one without most of its words."""

    vocabulary, dim = 50, 4

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.labels = torch.tensor([1.0, 0.0, 1.0], device=device)
        self.first = torch.tensor([[1, 2, 3], [3, 4, 5], [1, 7, 8]], device=device)
        self.second = torch.tensor([[20, 21, 2], [22, 23, 24], [25, 26, 3]], device=device)
        self.gone = torch.tensor(
            sorted(set(self.first.flatten().tolist()) - set(self.second.flatten().tolist())), device=device
        )
        self.dense, self.sparse = (self.trained(kind, [self.first, self.second]) for kind in (False, True))

    def vectors(self, sparse: bool) -> WordVectors:
        return WordVectors(self.vocabulary, self.dim, sparse, self.device, torch.float64)

    def trained(self, sparse: bool, batches: list[torch.Tensor], eps: float = 1e-8) -> list[AfterStep]:
        """Adam or SparseAdam on these batches of words."""
        vectors = self.vectors(sparse)
        optimizer = (SparseAdam if sparse else Adam)([vectors.weight], lr=0.1, betas=BETAS, eps=eps)
        steps = []
        for words in batches:
            vectors.backward(words, self.labels)
            optimizer.step()
            state = optimizer.state[vectors.weight]
            moments = tuple(state[name].clone() for name in MOMENTS)
            steps.append(AfterStep(vectors.weight.detach().clone(), vectors.weight.grad.to_dense(), moments))
        return steps

    def moved(self, steps: list[AfterStep]) -> torch.Tensor:
        """The rows that the second step changed."""
        return (steps[1].theta != steps[0].theta).any(1).nonzero()[:, 0]

    def same_gradient(self) -> bool:
        """True if the sparse gradient has the dense one's values, zero for absent words and not zero for present ones."""
        dense, sparse = self.dense[0].grad, self.sparse[0].grad
        absent = torch.ones(self.vocabulary, dtype=torch.bool, device=self.device)
        absent[torch.cat([self.first.flatten(), self.second.flatten()])] = False
        in_batch = bool(sparse[self.first.unique()].all())
        return torch.allclose(dense, sparse, rtol=0, atol=1e-15) and not sparse[absent].any() and in_batch

    def fading(self) -> float:
        """How far dense Adam's moments of the absent words are from shrinking by exactly β₁ and β₂."""
        before, after = self.dense
        factors = [b[self.gone] / a[self.gone] for a, b in zip(before.moments, after.moments, strict=True)]
        return max((factor - beta).abs().max().item() for factor, beta in zip(factors, BETAS, strict=True))

    def moments_rest(self) -> bool:
        """True if SparseAdam leaves the moments of the absent words alone."""
        before, after = self.sparse
        return all(torch.equal(a[self.gone], b[self.gone]) for a, b in zip(before.moments, after.moments, strict=True))

    def with_all_words(self, steps: int = 20) -> tuple[float, float]:
        """Distance of the two optimizers where every batch has every word and ε is almost zero, and the distance traveled."""
        words = torch.arange(self.vocabulary + 1, device=self.device).clamp_(max=self.vocabulary - 1).view(3, 17)
        dense, sparse = (self.trained(kind, [words] * steps, eps=1e-30)[-1].theta for kind in (False, True))
        start = self.vectors(False).weight.detach()
        return (dense - sparse).abs().max().item(), (dense - start).abs().min().item()


def judge_sparse_adam(result: Result, device: torch.device) -> None:
    """Claim what SparseAdam does with the rows of words that are not in the batch."""
    trial = RowTrial(device)
    moved, moved_dense, present = trial.moved(trial.sparse), trial.moved(trial.dense), trial.second.unique()
    coasting = (trial.dense[1].theta[trial.gone] - trial.dense[0].theta[trial.gone]).abs().min().item()
    fading = trial.fading()
    gap, traveled = trial.with_all_words()
    result.claim("The sparse gradient holds the dense gradient's values, and zero everywhere else", trial.same_gradient())
    result.claim(
        "A step of SparseAdam moves the rows of the words in the batch and no others",
        torch.equal(moved, present),
        f"{len(moved)} of {trial.vocabulary} rows",
    )
    result.claim(
        "Dense Adam also moves rows that are not in the batch, by the momentum of earlier batches",
        coasting > 0 and set(moved_dense.tolist()) == set(present.tolist()) | set(trial.gone.tolist()),
        f"{len(moved_dense)} of {trial.vocabulary} rows, absent ones by at least {coasting:.1e}",
    )
    result.claim(
        "While a word is absent, its moments shrink by β₁ and β₂ per step in dense Adam and stay as they are in SparseAdam",
        trial.moments_rest() and fading <= 1e-12,
        f"dense: β to {fading:.0e}; sparse: bitwise identical",
    )
    result.claim(
        "If every batch has every word and ε is almost zero, SparseAdam takes Adam's steps, to 1e-12",
        gap <= 1e-12 < traveled,
        f"{gap:.0e} after 20 steps",
    )
