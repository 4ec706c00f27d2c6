"""The conclusions of the study that the lecture's plots come from (int8.io, 2016), judged by the seeds of this run."""

import math
from collections.abc import Sequence
from statistics import median

from hpml_lab.core.result import Result
from hpml_lab.race.records import Group, Record, against_best_other

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


def judge_study(result: Result, nets: dict[str, Group], rates: str) -> None:
    """Add the study's four conclusions to `result`; `rates` says in words which learning rates the groups were trained at."""
    shallow, deep = nets["net 1"], nets["net 3"]
    leads = [net for net, group in nets.items() if below_all("Adadelta", group)]
    fails = [net for net, group in nets.items() if fails_badly("Adadelta", group)]
    behind = {
        name: max(max(median(group[other].final) for other in STUDIED) - median(group[name].final) for group in nets.values())
        for name in ("SGD", "Momentum")
    }
    most_accurate = max(STUDIED, key=lambda name: median(deep[name].final))
    accuracy = {name: 100 * median(deep[name].final) for name in ("Adam", most_accurate)}
    result.measured(
        f"At {rates}, Adagrad is best on net 1: each of its seeds ends below every seed of every other optimizer",
        below_all("Adagrad", shallow),
        against_best_other("Adagrad", STUDIED, shallow),
        depends_on="the data and the seeds",
    )
    result.measured(
        f"At {rates}, Adadelta never leads and never fails badly (last with every seed, diverged or stuck)",
        not leads and not fails,
        f"leads on {', '.join(leads) or 'none'}; fails on {', '.join(fails) or 'none'}",
        depends_on="the data and the seeds",
    )
    result.measured(
        f"At {rates}, SGD and momentum suit any problem: at most 2 points of accuracy behind the best on every net",
        max(behind.values()) <= 0.02,
        ", ".join(f"{name} at most {100 * gap:.1f} points behind" for name, gap in behind.items()),
        depends_on="the data and the seeds",
    )
    result.measured(
        f"At {rates}, Adam has the smallest loss on net 3, but not the best accuracy",
        below_all("Adam", deep) and most_accurate != "Adam",
        f"{against_best_other('Adam', STUDIED, deep)}; accuracy "
        + ", ".join(f"{name} {value:.1f} %" for name, value in accuracy.items()),
        depends_on="the data and the seeds",
    )


def judge_plateau(result: Result, records: Sequence[Record], iterations: int) -> None:
    """Add how many trainings of net 3 are still on the plateau, and how far apart the seeds of one setting leave it."""
    sound = [record for record in records if not record.diverged]
    stuck = sum(math.isinf(exit) for record in sound for exit in record.exit)
    left = [record for record in sound if math.inf not in record.exit]
    widest = max(left, key=lambda record: max(record.exit) / max(1.0, min(record.exit)), default=None)
    seen = "no setting left it with all seeds"
    if widest:
        low, high = min(widest.exit), max(widest.exit)
        seen = f"{widest.optimizer} at {widest.lr:g}: after {low:.0f} to {high:.0f} iterations"
    total = sum(len(record.exit) for record in sound)
    mixed = any(math.inf in record.exit and min(record.exit) < math.inf for record in sound)
    differ = widest is not None and max(widest.exit) >= 1.5 * max(1.0, min(widest.exit))
    result.measured(
        "On net 3 the seed decides when the loss leaves the plateau at ln 10: 1.5 times as late as another, or never",
        mixed or differ,
        f"{seen}; {stuck} of {total} trainings are still on it after {iterations}",
        depends_on="the data and the seeds",
    )
