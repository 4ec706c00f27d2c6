"""The conclusions of the study that the lecture's plots come from (int8.io, 2016), judged by the seeds of this run."""

import math
from statistics import median

from hpml_lab.core.experiment import Result
from hpml_lab.race.experiments.mnist_three_nets.setting_records import Group, against_best_other

STUDIED = ("SGD", "Momentum", "Adagrad", "Adadelta", "Adam")  # what the study compared


def below_all(name: str, group: Group) -> bool:
    """True if every seed of `name` ends with a lower loss than every seed of every other optimizer in the study."""
    return all(max(group[name].end) < min(group[other].end) for other in STUDIED if other != name)


def above_all(name: str, group: Group) -> bool:
    """True if every seed of `name` ends with a higher loss than every seed of every other optimizer in the study."""
    return all(min(group[name].end) > max(group[other].end) for other in STUDIED if other != name)


def fails_badly(name: str, group: Group) -> bool:
    """True if `name` is last with every seed, or if a seed diverged or never left the plateau."""
    return above_all(name, group) or group[name].diverged > 0 or math.inf in group[name].exit


def conclusions(nets: dict[str, Group]) -> dict[str, tuple[bool, str]]:
    """{each of the study's four conclusions: whether it holds on these nets, and the figures}."""
    shallow, deep = nets["net 1"], nets["net 3"]
    leads = [net for net, group in nets.items() if below_all("Adadelta", group)]
    fails = [net for net, group in nets.items() if fails_badly("Adadelta", group)]
    behind = {
        name: max(max(median(group[other].final) for other in STUDIED) - median(group[name].final) for group in nets.values())
        for name in ("SGD", "Momentum")
    }
    most_accurate = max(STUDIED, key=lambda name: median(deep[name].final))
    accuracy = {name: 100 * median(deep[name].final) for name in ("Adam", most_accurate)}
    return {
        "Adagrad is best on net 1: each of its seeds ends below every seed of the study's others": (
            below_all("Adagrad", shallow),
            against_best_other("Adagrad", STUDIED, shallow),
        ),
        "Adadelta never leads and never fails badly (last with every seed, diverged or stuck)": (
            not leads and not fails,
            f"leads on {', '.join(leads) or 'none'}; fails on {', '.join(fails) or 'none'}",
        ),
        "SGD and momentum suit any problem: at most 2 points of accuracy behind the study's best on every net": (
            max(behind.values()) <= 0.02,
            ", ".join(f"{name} at most {100 * gap:.1f} points behind" for name, gap in behind.items()),
        ),
        "Adam has the smallest loss on net 3, but not the best accuracy": (
            below_all("Adam", deep) and most_accurate != "Adam",
            f"{against_best_other('Adam', STUDIED, deep)}; accuracy "
            + ", ".join(f"{name} {value:.1f} %" for name, value in accuracy.items()),
        ),
    }


def judge_study(result: Result, lecture: dict[str, Group], best: dict[str, Group]) -> None:
    """Add the study's four conclusions at the best rates, and whether they hold at the lecture's."""
    at_lecture = conclusions(lecture)
    for text, (holds, figures) in conclusions(best).items():
        there, other = at_lecture[text]
        result.measured(
            f"At the best rates, {text}",
            holds,
            f"{figures}; at the lecture's rates it {'holds' if there else 'does not hold'}: {other}",
            depends_on="the data and the seeds",
        )
