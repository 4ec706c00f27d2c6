"""Sparse data: whether adaptive methods win, whether they need tuning, and what a sparse gradient saves."""

from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hpml_lab.core.show.numbers import number
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.optim.formulas.colors import optimizer_style
from hpml_lab.race.views.curves import legend_below
from hpml_lab.race.tools.program import Setting
from hpml_lab.race.lessons.seed_by_seed import ahead, median_and_range, percent
from hpml_lab.race.experiments.sparse_data.sparse_steps import SparseStepCost, judge_sparse_adam, step_costs
from hpml_lab.race.tools.bags_of_words import Learned, corpus, learn

QUICK = dict(
    vocabulary=1000,
    texts=2000,
    held_out=1000,
    epochs=2,
    batch=32,
    seeds=8,
    vocabularies=(1_000, 10_000, 100_000),  # of the step with a sparse gradient
    samples=SAMPLES,
)
FULL = dict(
    vocabulary=10_000,
    texts=20_000,
    held_out=4000,
    epochs=2,
    batch=32,
    seeds=16,
    vocabularies=(1_000, 10_000, 100_000, 1_000_000),
    samples=SAMPLES,
)
CORPORA = {"Rare words weigh more": 0.5, "All words weigh alike": 0.0}  # how a word's weight grows with its rank
WEIGHTED = "Rare words weigh more"
ADAPTIVE = ("Adagrad", "Adadelta", "Adam", "RMSprop")
OTHERS = ("SGD", "Momentum", "Nesterov")
# The rates of each sweep. The adaptive ones begin with the rate of the lecture's PyTorch slide; for RMSprop, which has none
# there, with torch's default.
RATES: dict[str, tuple[float, ...]] = {
    "SGD": (0.1, 0.3, 1, 3, 10, 30),
    "Momentum": (0.01, 0.03, 0.1, 0.3, 1, 3),
    "Nesterov": (0.01, 0.03, 0.1, 0.3, 1, 3),
    "Adagrad": (0.01, 0.1, 0.3, 1, 3, 10),
    "Adadelta": (1, 3, 10, 30, 100, 300),
    "Adam": (0.001, 0.01, 0.03, 0.1, 0.3, 1),
    "RMSprop": (0.01, 0.03, 0.1, 0.3, 1, 3),
}
SETTINGS = [Setting(name, lr=float(rate)) for name, rates in RATES.items() for rate in rates]


@dataclass
class WordScore(Row):
    """One optimizer on one kind of corpus, at the rate with the best median accuracy on the validation texts."""

    corpus: str = column("corpus")
    optimizer: str = column("optimizer")
    lr: float = column("best rate")
    accuracy: str = column("test accuracy, median (range)", "%")
    on_rare: str = column("texts that rare words decide, median (range)", "%")
    at_first_rate: float = column("test accuracy at the first rate of the sweep", "%")
    at_edge: bool = column("best rate at the edge of the sweep")
    test: list[float] = field(default_factory=list)  # from here on accuracy by seed: on all test texts
    rare: list[float] = field(default_factory=list)  # on those that the rare words decide
    first: list[float] = field(default_factory=list)  # on all, at the first rate of the sweep
    valid: list[list[float]] = field(default_factory=list)  # on the validation texts, by rate and seed


def word_scores(corpus: str, learned: Learned) -> dict[str, WordScore]:
    """Each optimizer at its best rate, with its whole sweep."""
    scores = {}
    for name, rates in RATES.items():
        settings = [k for k, setting in enumerate(SETTINGS) if setting.optimizer == name]
        valid = learned.valid[settings].tolist()
        best = max(range(len(settings)), key=lambda i: median(valid[i]))
        test, rare = learned.test[settings[best]].tolist(), learned.test_rare[settings[best]].tolist()
        first = learned.test[settings[0]].tolist()
        scores[name] = WordScore(
            corpus=corpus,
            optimizer=name,
            lr=float(rates[best]),
            accuracy=median_and_range(percent(test)),
            on_rare=median_and_range(percent(rare)),
            at_first_rate=100 * median(first),
            at_edge=best in (0, len(settings) - 1),
            test=test,
            rare=rare,
            first=first,
            valid=valid,
        )
    return scores


def leaders(scores: dict[str, WordScore]) -> tuple[str, str]:
    """The best adaptive optimizer and the best of the others, by the validation texts."""

    def score(name: str) -> float:
        return max(median(values) for values in scores[name].valid)

    return max(ADAPTIVE, key=score), max(OTHERS, key=score)


def lead_on_rare(scores: dict[str, WordScore]) -> float:
    """Points of accuracy by which the best adaptive optimizer leads the best other on texts that rare words decide."""
    adaptive, other = leaders(scores)
    return 100 * (median(scores[adaptive].rare) - median(scores[other].rare))


# ---- claims ----------------------------------------------------------------------------------------------------------


def judge_corpus(result: Result, scores: dict[str, WordScore], corpus: str) -> None:
    """Add whether adaptive methods win on this corpus, seed by seed, each optimizer at its best rate."""
    adaptive, other = leaders(scores)
    a, b = scores[adaptive], scores[other]
    everywhere, on_all = ahead(a.test, b.test)
    on_rare, rare = ahead(a.rare, b.rare)
    result.measured(
        f"{corpus}: the best adaptive method beats the best other one, on all test texts and on those that rare words decide",
        everywhere and on_rare,
        f"{adaptive} compared with {other}: {on_all}; on rare words {rare}",
        depends_on="the data and the seeds",
    )


def judge_tuning(result: Result, scores: dict[str, WordScore], corpus: str) -> None:
    """Add the lecture's sentence on adaptive methods: "you will not need to tune the learning rate"."""
    behind = {name: median(scores[name].test) - median(scores[name].first) for name in ADAPTIVE}
    result.measured(
        f'{corpus}: "you will not need to tune the learning rate", says the lecture: at the rates of its PyTorch slides '
        "(RMSprop: torch's default) each adaptive method is at most 2 points behind its best",
        max(behind.values()) <= 0.02,
        ", ".join(f"{name} {100 * points:.0f} points behind" for name, points in behind.items()),
        depends_on="the data and the seeds",
    )


def judge_growth(result: Result, costs: list[SparseStepCost], gain: SpeedUp) -> None:
    """Add that with a large vocabulary a sparse step is the faster one, and how both grow with the vocabulary."""
    first, last = costs[0], costs[-1]
    dense, sparse = last.adam_us / first.adam_us, last.sparse_adam_us / first.sparse_adam_us
    result.measured(
        f"With {last.vocabulary} words a step of SparseAdam is faster than one of Adam",
        gain.faster,
        f"{gain}; vocabulary ×{number(last.vocabulary / first.vocabulary, 3)}: Adam ×{number(dense, 3)},"
        f" SparseAdam ×{number(sparse, 3)}",
    )


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: accuracy on the validation texts over the learning rate, where rare words weigh more; every curve has a peak, and
    the first point of each adaptive curve is the rate of the PyTorch slide. Right: accuracy on the test texts that rare words
    decide, at the best rates, one dot per seed: filled where rare words weigh more, hollow where all words weigh alike. Below
    50 % the frequent words still outvote the rare ones."""
    figure = style.new_figure(9.0, 4.2)
    sweep, rare = figure.subplots(1, 2)
    rows = result.rows(WordScore)
    for row in rows:
        if row.corpus == WEIGHTED:
            look, rates = optimizer_style(row.optimizer, marker=True), RATES[row.optimizer]
            valid = 100 * np.array(row.valid)
            sweep.plot(rates, np.median(valid, 1), markersize=4, linewidth=1.6, label=row.optimizer, **look)
            sweep.fill_between(rates, valid.min(1), valid.max(1), color=look["color"], alpha=0.12, linewidth=0)
        hollow = row.corpus != WEIGHTED
        center = list(RATES).index(row.optimizer) + (0.17 if hollow else -0.17)
        color = optimizer_style(row.optimizer)["color"]
        values = percent(row.rare)
        face = "none" if hollow else color
        rare.plot([center] * len(values), values, "o", markersize=4, color=color, markerfacecolor=face)
        rare.plot([center - 0.14, center + 0.14], [median(values)] * 2, color=style.INK, linewidth=1.4)
    sweep.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy (%)", title="Sweep")
    for name in CORPORA:
        rare.plot([], [], "o", color=style.INK, markerfacecolor=style.INK if name == WEIGHTED else "none", label=name.lower())
    rare.set_xticks(range(len(RATES)), list(RATES), rotation=30, ha="right")
    rare.set(xlabel="optimizer", ylabel="accuracy (%)", title="Texts that rare words decide")
    rare.legend(fontsize=8, loc="upper left")
    rare.set_ylim(top=rare.get_ylim()[1] + 8)  # room for the legend
    legend_below(figure, sweep)
    return figure


@experiment("sparse-data", lecture="L0", notebook="06_race", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def sparse_data(params: Params) -> Result:
    """Sparse data: do adaptive methods win, and what does a sparse gradient save."""
    device = params.device.torch
    corpora = {}
    for name, power in progress(CORPORA.items(), "corpora"):
        texts = corpus(range(params.seeds), params.vocabulary, params.texts, params.held_out, power)
        corpora[name] = word_scores(name, learn(SETTINGS, texts, params.epochs, params.batch, device))
    costs, gain = step_costs(params.vocabularies, 16, 64, 20, device, params.samples)
    weighted, largest = corpora[WEIGHTED], costs[-1]

    result = Result(
        [
            Table("Optimizers on sparse data", [row for scores in corpora.values() for row in scores.values()]),
            Table("One training step with a dense and with a sparse gradient", costs),
        ]
    )
    result.key_figure("leads on sparse data", leaders(weighted)[0], lecture="one of the adaptive methods")
    result.key_figure("its lead on texts that rare words decide", round(lead_on_rare(weighted), 1), unit="points")
    result.key_figure("SparseAdam compared with Adam, largest vocabulary", str(gain))
    ratio = round(largest.dense_bytes / largest.sparse_bytes, 1)
    result.key_figure("dense compared with sparse gradient, largest vocabulary", ratio, unit="times the bytes")
    judge_sparse_adam(result, device)
    for name, scores in corpora.items():
        judge_corpus(result, scores, name)
    judge_tuning(result, weighted, WEIGHTED)
    judge_growth(result, costs, gain)
    if device.type != "cuda":
        slug = "hpml-lab run sparse-data --size full"
        result.notes.append(
            f"No CUDA GPU here: the times are those of a CPU. To see a GPU's, run `{slug}` on a machine with one."
        )
    return result
