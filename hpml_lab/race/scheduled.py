"""What the experiment `schedules-vs-adaptive` runs, and what its curves say."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim
from hpml_lab.optim.schedules import SCHEDULES, factor, torch_scheduler
from hpml_lab.race.checkpoints import FOLDER, Checkpoint, digest, key_of
from hpml_lab.race.program import CLASSES, NETS, Net, Program, Setting
from hpml_lab.race.sparse_data import needed

# The peak rates of each optimizer's sweep: the lecture's and its neighbours.
PEAKS = {
    "SGD": (0.1, 0.3, 1.0, 3.0, 10.0),
    "Momentum": (0.01, 0.03, 0.1, 0.3, 1.0),
    "Adagrad": (0.01, 0.03, 0.1, 0.3),
    "RMSprop": (0.0003, 0.001, 0.003, 0.01),
    "Adam": (0.001, 0.003, 0.01, 0.03),
}
ENTRANTS = (
    ("SGD", "constant"), ("SGD", "step"), ("SGD", "cosine"),
    ("Momentum", "constant"), ("Momentum", "step"), ("Momentum", "cosine"), ("Momentum", "one-cycle"),
    ("Adagrad", "constant"), ("RMSprop", "constant"),
    ("Adam", "constant"), ("Adam", "step"), ("Adam", "cosine"), ("Adam", "one-cycle"),
)  # fmt: skip
PLACES = [(optimizer, schedule, peak) for optimizer, schedule in ENTRANTS for peak in PEAKS[optimizer]]


@dataclass(frozen=True)
class Curves:
    """Accuracies (looks, K, R) on validation and test images and validation loss, at `iterations`."""

    iterations: list[int]
    valid: torch.Tensor
    loss: torch.Tensor
    test: torch.Tensor


def run(
    net: Net,
    seeds: Sequence[int],
    train: tuple[torch.Tensor, torch.Tensor],
    valid: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    iterations: int,
    batch: int,
    looks: int,
    folder: Path = FOLDER,
) -> Curves:
    """Train every entrant at every peak rate and seed as one program, and look at all nets `looks` times, evenly spaced.

    A run of minutes leaves a checkpoint in `folder` once a minute, and goes on from it when it was killed.
    """
    settings = [Setting(optimizer, lr=peak) for optimizer, _, peak in PLACES]
    program = Program(net, settings, seeds, *train, batch)
    moving = [(k, schedule, peak) for k, (_, schedule, peak) in enumerate(PLACES) if schedule != "constant"]

    def before_step(t: int) -> None:
        for k, schedule, peak in moving:
            program.set_lr(k, peak * factor(schedule, t, iterations))

    at = sorted({round(iterations * i / looks) for i in range(looks + 1)})
    where = dict(device=str(train[0].device), dtype=str(train[0].dtype), threads=torch.get_num_threads())
    plan = dict(net=net, places=PLACES, seeds=list(seeds), iterations=iterations, batch=batch, looks=looks)
    checkpoint = Checkpoint(key_of(race="schedules", data=digest(*train, *valid, *test), **plan, **where), folder)
    found: list[tuple[torch.Tensor, ...]] = []
    if saved := checkpoint.load():
        found = saved["found"]
        program.load_state_dict(saved["program"])
    for stop in progress(at[len(found) :], "schedules"):
        program.run(stop - program.iteration, before_step)
        loss, accuracy = program.evaluate(*valid)
        found.append(tuple(one.double().cpu() for one in (accuracy, loss, program.evaluate(*test)[1])))
        if checkpoint.due():
            checkpoint.save({"found": found, "program": program.state_dict()})
    checkpoint.remove()
    seen, losses, right = (torch.stack(one) for one in zip(*found, strict=True))
    return Curves(at, seen, losses, right)


def with_wrong_labels(y: torch.Tensor, part: float, seed: int = 0) -> torch.Tensor:
    """A copy of the labels in which `part` of them were drawn anew, at random."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(len(y), generator=generator) < part
    return torch.where(drawn, torch.randint(CLASSES, (len(y),), generator=generator), y.cpu()).to(y.device)


def summarise(curves: Curves, threshold: float) -> dict[tuple[str, str], dict[str, Any]]:
    """Each entrant at its best peak rate: the highest median validation accuracy at the end (of equals, the lower loss)."""
    found = {}
    for entrant in ENTRANTS:
        places = [k for k, place in enumerate(PLACES) if place[:2] == entrant]
        scores = [(curves.valid[-1, k].median().item(), -_finite(curves.loss[-1, k].median().item())) for k in places]
        best = max(range(len(places)), key=lambda i: scores[i])
        k = places[best]
        found[entrant] = {
            "lr": PLACES[k][2],
            "edge": best in (0, len(places) - 1),
            "valid": scores[best],
            "final": curves.test[-1, k].tolist(),
            "reached": [_first(curves.iterations, one, threshold) for one in curves.valid[:, k].T.tolist()],
            "curve": curves.test[:, k].T.tolist(),
        }
    return found


def _finite(value: float) -> float:
    return value if isfinite(value) else inf


def _first(iterations: Sequence[int], accuracy: Sequence[float], threshold: float) -> float:
    """The first of `iterations` whose accuracy is at least `threshold`; inf where none is."""
    return next((float(t) for t, value in zip(iterations, accuracy, strict=True) if value >= threshold), inf)


def best_schedule(found: dict[tuple[str, str], dict[str, Any]], optimizer: str) -> tuple[str, str]:
    """The entrant of `optimizer` with the best schedule other than constant, by the validation images."""
    return max((one for one in found if one[0] == optimizer and one[1] != "constant"), key=lambda one: found[one]["valid"])


def named(entrant: tuple[str, str]) -> str:
    return f"{entrant[0]}, {entrant[1]}"


def contest_claims(found: dict[tuple[str, str], dict[str, Any]], threshold: float) -> list[Claim]:
    """Who ends better and who is there first, in pairs of seeds: all seeds share start and batches."""
    momentum, adam, sgd = (best_schedule(found, name) for name in ("Momentum", "Adam", "SGD"))
    constant = ("Adam", "constant")

    def better(a: tuple[str, str], b: tuple[str, str], text: str) -> Claim:
        pairs = list(zip(found[a]["final"], found[b]["final"], strict=True))
        wins, ties, enough = sum(x > y for x, y in pairs), sum(x == y for x, y in pairs), needed(len(pairs))
        ends = [100 * median(found[one]["final"]) for one in (a, b)]
        told = f"{named(a)} against {named(b)}: ahead in {wins}, even in {ties} of {len(pairs)} seeds ({enough} needed), "
        return Claim(text, wins >= enough, told + f"medians {ends[0]:.2f} and {ends[1]:.2f} %", exact=False)

    def sooner(a: tuple[str, str], b: tuple[str, str], times: float, text: str) -> Claim:
        pairs = list(zip(found[a]["reached"], found[b]["reached"], strict=True))
        wins, enough = sum(x * times <= y and x < y for x, y in pairs), needed(len(pairs))
        ends = [median(found[one]["reached"]) for one in (a, b)]
        told = f"{named(a)} against {named(b)}: in {wins} of {len(pairs)} seeds ({enough} needed), "
        return Claim(text, wins >= enough, told + f"medians after {ends[0]:g} and {ends[1]:g} iterations", exact=False)

    percent = f"{100 * threshold:g} %"
    return [
        better(momentum, ("Momentum", "constant"), "SGD with momentum ends better with a schedule than at a constant rate"),
        better(momentum, constant, "SGD with momentum and a schedule ends better than Adam at a constant rate"),
        better(momentum, adam, "SGD with momentum and a schedule ends better than Adam with a schedule"),
        better(adam, constant, "Adam, too, ends better with a schedule than at a constant rate"),
        sooner(constant, momentum, 1.0, f"Adam at a constant rate reaches {percent} before SGD with momentum and a schedule"),
        sooner(constant, sgd, 2.0, f"SGD without momentum, with a schedule, takes twice as long as Adam to reach {percent}"),
    ]


# ---- exact checks ----------------------------------------------------------------------------------------------------


def schedule_claims(device: torch.device, T: int = 60) -> list[Claim]:
    """The schedules are torch's, and so is a training under them."""
    peak, worst, rates = 0.2, 0.0, {}
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 12, generator=generator, dtype=torch.float64).to(device)
    y = torch.randint(0, CLASSES, (200,), generator=generator).to(device)
    net, batch, seed = NETS["net 2"].scaled(0.1), 32, 3
    program = Program(net, [Setting("Momentum", lr=peak) for _ in SCHEDULES], [seed], x, y, batch)

    def before_step(t: int) -> None:
        for k, name in enumerate(SCHEDULES):
            program.set_lr(k, peak * factor(name, t, T))

    program.run(T, before_step)
    apart = 0.0
    for k, name in enumerate(SCHEDULES):
        model = net.start(12, seed, torch.float64).to(device)
        optimizer = Setting("Momentum", lr=peak).build(model.parameters())
        scheduler, rates[name] = torch_scheduler(name, optimizer, peak, T), []
        for t in range(T):
            epoch, place = divmod(t, program.per_epoch)
            chosen = program.order(seed, epoch)[place * batch : (place + 1) * batch].to(device)
            rates[name].append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
            scheduler.step()
        worst = max(worst, max(abs(rate - peak * factor(name, t, T)) for t, rate in enumerate(rates[name])))
        ours = torch.cat([p.detach().flatten() for p in program.module(k, 0).parameters()])
        theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
        apart = max(apart, (ours - theirs).abs().max().item())
    differ = min((program.parameters[0] - other).abs().max().item() for other in program.parameters[1:])
    return [
        Claim(
            "Step, cosine and one-cycle give the rates of torch's MultiStepLR, CosineAnnealingLR and OneCycleLR, to 1e-12",
            worst <= 1e-12 and len({tuple(one) for one in rates.values()}) == len(SCHEDULES),
            f"{worst:.0e}",
        ),
        Claim(
            "Under each schedule a net ends where an ordinary loop with torch's scheduler ends, to 1e-9 (float64)",
            apart <= 1e-9 < differ,
            f"{apart:.0e}; two schedules end at least {differ:.0e} apart",
        ),
    ]
