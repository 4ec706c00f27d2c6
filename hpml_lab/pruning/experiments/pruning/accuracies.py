"""Accuracy against sparsity: which weights are pruned, at once or step by step, and what fine-tuning gets back."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.pruning.lessons.masks import Rule, Tensor, apply_masks, global_masks, l1_mask, random_mask, weights_of
from hpml_lab.quantization import LabeledImages, LeNet, accuracy, train, trained

SEEDS = "the data and the seeds"  # what an accuracy depends on
DENSE, RANDOM, LAYER, GLOBAL = "dense", "random", "L1 in each layer", "L1 over all layers"
ITERATIVE, LONGER = "L1 over all layers, iterative", "L1 over all layers, as many steps"
ONE_SHOT = (RANDOM, LAYER, GLOBAL)
LOOK = {
    RANDOM: (style.RED, "o", "-"),
    LAYER: (style.ORANGE, "s", "--"),
    GLOBAL: (style.BLUE, "^", "-"),
    ITERATIVE: (style.GREEN, "D", "-."),
    LONGER: (style.BLUE, "P", ""),
}


@dataclass
class SparseAccuracy(Row):
    """One way to prune at one sparsity, over all seeds."""

    way: str = column("pruned by")
    sparsity: float = column("pruned", "%")
    before: str = column("test accuracy, not tuned", "%")
    steps: int = column("steps of tuning")
    after: str = column("test accuracy, tuned", "%")
    before_by_seed: list[float] = field(default_factory=list)
    after_by_seed: list[float] = field(default_factory=list)


def median_range(values: Sequence[float]) -> str:
    """Median and range; one value alone where there is only one."""
    middle = f"{median(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f}–{max(values):.1f})"


def masks_of(net: LeNet, way: str, sparsity: float) -> dict[str, Tensor]:
    """The masks of one way to prune, from the weights that the net has now."""
    weights = weights_of(net)
    if way == LAYER:
        return {name: l1_mask(weight, sparsity) for name, weight in weights.items()}
    rule: Rule = random_mask if way == RANDOM else l1_mask
    return global_masks(weights, sparsity, rule)


@dataclass(frozen=True)
class Tuning:
    """How the nets are made and tuned: the same for every way to prune."""

    data: LabeledImages
    sparsities: Sequence[float]
    steps: int
    batch: int

    def pruned(self, net: LeNet, way: str, sparsity: float, steps: int, seed: int) -> tuple[LeNet, float, float]:
        """A pruned copy of the net that was tuned for `steps`, and its accuracy before and after that."""
        net = copy.deepcopy(net)
        masks = masks_of(net, way, sparsity) if sparsity else {}
        apply_masks(net, masks)
        before = accuracy(net, self.data)
        train(net, self.data, steps, batch=self.batch, seed=seed, after_step=lambda: apply_masks(net, masks))
        return net, before, accuracy(net, self.data)

    def trials(self, dense: LeNet, seed: int) -> Iterator[tuple[str, float, int, float, float]]:
        """(way, sparsity, steps of tuning, accuracy before, after) of everything that is made from one dense net."""
        for way, sparsity in [(DENSE, 0.0), *((way, sparsity) for way in ONE_SHOT for sparsity in self.sparsities)]:
            yield way, sparsity, self.steps, *self.pruned(dense, way, sparsity, self.steps, seed)[1:]
        net = dense
        for number, sparsity in enumerate(self.sparsities, start=1):  # what is 0 stays smallest, so it stays pruned
            net, before, after = self.pruned(net, GLOBAL, sparsity, self.steps, seed + 100 * number)
            yield ITERATIVE, sparsity, number * self.steps, before, after
        steps = len(self.sparsities) * self.steps  # iterative pruning was tuned longer: so must be what it is compared with
        yield LONGER, self.sparsities[-1], steps, *self.pruned(dense, GLOBAL, self.sparsities[-1], steps, seed)[1:]


def sparse_accuracies(tuning: Tuning, nets: Sequence[LeNet]) -> list[SparseAccuracy]:
    """All trials, each over the nets of all seeds."""
    found: dict[tuple[str, float, int], list[tuple[float, float]]] = {}
    for seed, net in enumerate(progress(nets, "seeds") if len(nets) > 1 else nets):
        for way, sparsity, steps, before, after in tuning.trials(net, seed):
            found.setdefault((way, sparsity, steps), []).append((before, after))
    rows = []
    for (way, sparsity, steps), pairs in found.items():
        before, after = ([pair[i] for pair in pairs] for i in (0, 1))
        rows.append(
            SparseAccuracy(way, round(100 * sparsity, 6), median_range(before), steps, median_range(after), before, after)
        )
    return rows


def dense_nets(images: int, steps: int, seeds: int, device) -> tuple[list[LeNet], LabeledImages]:
    """One trained net for each seed, and their images."""
    found = [trained(images, steps, seed, device=device) for seed in range(seeds)]
    return [net for net, _ in found], found[0][1]


def compare_accuracies(result: Result) -> None:
    """What each way keeps of the accuracy, seed by seed."""
    rows = result.rows(SparseAccuracy)
    found = {(row.way, row.sparsity): row for row in rows}
    sparsities = sorted({row.sparsity for row in rows if row.sparsity})
    most = sparsities[-1]
    ahead = [min(_points(found[GLOBAL, s], found[RANDOM, s], when)) for when in ("before", "after") for s in sparsities]
    result.measured(
        "L1 over all layers is ahead of random pruning at every sparsity, tuned or not, in every seed",
        min(ahead) > 0,
        f"{min(ahead):.1f} points at least",
        depends_on=SEEDS,
    )
    lost = _points(found[DENSE, 0], found[GLOBAL, 80], "after")
    result.measured(
        "Tuned, 80 % of the weights cost less than 2 points, compared with the dense net after the same tuning",
        max(lost) < 2,
        f"{max(lost):.1f} points at most",
        depends_on=SEEDS,
    )
    more, fewer = (min(_points(found[way, most], found[ITERATIVE, most], "after")) for way in (LONGER, GLOBAL))
    result.measured(
        f"At {most:g} %, pruned at once and tuned for as many steps, a net gets at least as far as step by step, in every seed",
        more >= 0,
        f"{more:+.1f} points at least; with the steps of one round {fewer:+.1f}",
        depends_on=SEEDS,
    )
    for way in (DENSE, RANDOM, LAYER, GLOBAL, ITERATIVE, LONGER):
        row = found[way, 0 if way == DENSE else most]
        result.key_figure(f"accuracy, {way}" + ("" if way == DENSE else f", {most:g} % pruned") + ", tuned", row.after, "%")


def _points(ahead: SparseAccuracy, behind: SparseAccuracy, when: str) -> list[float]:
    name = f"{when}_by_seed"
    return [a - b for a, b in zip(getattr(ahead, name), getattr(behind, name), strict=True)]


@picture
def accuracy_by_sparsity(result: Result):
    """Test accuracy by the share of weights that is pruned: left as pruned, right after the same number of steps of tuning
    (iterative pruning tunes at each point, and the cross has as many steps as it has in all). Lines are medians over the
    seeds, with bands from the lowest to the highest where there are several; the dotted line is the dense net, on the right
    with the same tuning. Look for the sparsity at which each way falls, and for how far tuning moves that."""
    figure = style.new_figure(9.5, 4.4)
    panels = figure.subplots(1, 2, sharey=True)
    rows = result.rows(SparseAccuracy)
    sparsities = sorted({row.sparsity for row in rows if row.sparsity})
    for axes, when in zip(panels, ("before", "after"), strict=True):
        for way in (DENSE, *LOOK):
            found = [row for row in rows if row.way == way]
            values = np.array([getattr(row, f"{when}_by_seed") for row in found])
            if way == DENSE:
                axes.axhline(np.median(values), color=style.GREY, linestyle=":", label="dense")
                continue
            if when == "before" and way in (ITERATIVE, LONGER):
                continue
            color, marker, line = LOOK[way]
            x = np.searchsorted(sparsities, [row.sparsity for row in found])
            axes.plot(x, np.median(values, 1), color=color, marker=marker, linestyle=line, label=way, markersize=6)
            axes.fill_between(x, values.min(1), values.max(1), color=color, alpha=0.15, linewidth=0)
        axes.set_xticks(range(len(sparsities)), [f"{sparsity:g}" for sparsity in sparsities])
        axes.set(xlabel="pruned (%)", ylim=(0, 103), title="Pruned" if when == "before" else "Pruned and tuned")
    panels[0].set_ylabel("test accuracy (%)")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure
