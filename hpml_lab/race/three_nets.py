"""The lecture's comparison of optimizers on three nets: what is run, and what its curves say.

Settings. The rates of the lecture's PyTorch slides (SGD 0.1, momentum and Nesterov 0.1 with γ 0.9, Adagrad 0.01, Adadelta 1.0
with ρ 0.9, Adam 0.001) and rates around them. The slides give none for RMSprop; torch's default 0.01 stands for it. The study
that the lecture's plots come from (int8.io, 2016) printed most of its rates only in tables that cannot be read any more; the
two in its code's README, momentum at 0.05 and Adam at 0.002, are in the full sweep.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from hpml_lab.core.result import Claim
from hpml_lab.race.program import CLASSES, NETS, OPTIMIZERS, Net, Program, Setting, seconds_alone

LECTURE_LR = {"SGD": 0.1, "Momentum": 0.1, "Nesterov": 0.1, "Adagrad": 0.01, "Adadelta": 1.0, "Adam": 0.001, "RMSprop": 0.01}
STUDY_LR = {"Momentum": (0.05,), "Adam": (0.002,)}  # the README of github.com/int8/NeuralNetworks
STUDIED = ("SGD", "Momentum", "Adagrad", "Adadelta", "Adam")  # what the study compared
PLATEAU = math.log(CLASSES) - 0.05  # a net that gives each class 1/10 has the loss ln 10 = 2.303


def sweep(factors: Sequence[float], study: bool) -> list[Setting]:
    """The settings of one net: every optimizer at the lecture's rate times each of `factors`, and the study's own rates."""
    settings = []
    for name, lr in LECTURE_LR.items():
        rates = {float(f"{lr * factor:.3g}") for factor in (1.0, *factors)} | set(STUDY_LR.get(name, ()) if study else ())
        settings += [Setting(name, lr=rate) for rate in sorted(rates)]
    return settings


# ---- what the curves say -----------------------------------------------------------------------------------------------


def diverged(curve: Sequence[float]) -> bool:
    """A loss curve that ends as no number, or above where it started."""
    return not math.isfinite(curve[-1]) or curve[-1] > curve[0]


def leaves_plateau(curve: Sequence[float], points: Sequence[int]) -> float:
    """The first of `points` from which on the loss lies below ln 10 - 0.05 for good; inf where it does not."""
    above = [place for place, loss in enumerate(curve) if not loss < PLATEAU]  # `not <` holds for nan too
    last = above[-1] if above else -1
    return math.inf if last == len(curve) - 1 else float(points[last + 1])


def summarise(settings: Sequence[Setting], curves: dict[str, Any], points: Sequence[int]) -> list[dict[str, Any]]:
    """One record per setting: rate, curves by seed, final loss and accuracy by seed, diverged seeds, exit of the plateau."""
    loss, accuracy = torch.tensor(curves["loss"]), torch.tensor(curves["accuracy"])  # (points, K, R)
    final = curves["final_accuracy"]
    records = []
    for k, setting in enumerate(settings):
        by_seed = loss[:, k].T.tolist()
        ends = [math.inf if diverged(curve) else curve[-1] for curve in by_seed]
        records.append(
            {
                "optimizer": setting.optimizer,
                "lr": setting.lr,
                "loss": by_seed,
                "accuracy": accuracy[:, k].T.tolist(),
                "end": ends,
                "final": final[k],
                "diverged": sum(map(math.isinf, ends)),
                "exit": [leaves_plateau(curve, points) for curve in by_seed],
            }
        )
    return records


def at_lecture(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each optimizer's record at the lecture's rate."""
    return {one["optimizer"]: one for one in records if one["lr"] == LECTURE_LR[one["optimizer"]]}


def at_best(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each optimizer's record at its best rate: the lowest median over the seeds of the final training loss."""
    best: dict[str, dict[str, Any]] = {}
    for one in records:
        if one["optimizer"] not in best or median(one["end"]) < median(best[one["optimizer"]]["end"]):
            best[one["optimizer"]] = one
    return best


def ranking(group: dict[str, dict[str, Any]]) -> str:
    """The optimizers by the median over the seeds of the final training loss, the lowest first."""
    return ", ".join(sorted(group, key=lambda name: median(group[name]["end"])))


def band(values: Sequence[float]) -> str:
    """Median (smallest–largest), short; ∞ for a diverged seed."""
    texts = ["∞" if math.isinf(value) else f"{value:.3g}" for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


# ---- the cited study's conclusions ---------------------------------------------------------------------------------------


def below_all(name: str, group: dict[str, dict[str, Any]]) -> bool:
    """Does every seed of `name` end with a lower loss than every seed of every other in the study?"""
    return all(max(group[name]["end"]) < min(group[other]["end"]) for other in STUDIED if other != name)


def above_all(name: str, group: dict[str, dict[str, Any]]) -> bool:
    """Does every seed of `name` end with a higher loss than every seed of every other in the study?"""
    return all(min(group[name]["end"]) > max(group[other]["end"]) for other in STUDIED if other != name)


def _against(name: str, group: dict[str, dict[str, Any]]) -> str:
    rival = min((other for other in STUDIED if other != name), key=lambda other: median(group[other]["end"]))
    return f"{name} {band(group[name]['end'])}, best other {rival} {band(group[rival]['end'])}"


def study_claims(nets: dict[str, dict[str, dict[str, Any]]], where: str) -> list[Claim]:
    """The study's four conclusions, judged by the bands of this run; `nets` has a record per net and optimizer."""
    first, third = nets["net 1"], nets["net 3"]
    leads = [net for net, group in nets.items() if below_all("Adadelta", group)]
    fails = [
        net
        for net, group in nets.items()
        if above_all("Adadelta", group) or group["Adadelta"]["diverged"] or math.inf in group["Adadelta"]["exit"]
    ]
    gaps = {
        name: max(
            max(median(group[other]["final"]) for other in STUDIED) - median(group[name]["final"]) for group in nets.values()
        )
        for name in ("SGD", "Momentum")
    }
    best_accuracy = max(STUDIED, key=lambda name: median(third[name]["final"]))
    accuracy = {name: 100 * median(third[name]["final"]) for name in ("Adam", best_accuracy)}
    return [
        Claim(
            f"Study, {where}: Adagrad is best on net 1 (every seed's loss below every other optimizer's)",
            below_all("Adagrad", first),
            _against("Adagrad", first),
            exact=False,
        ),
        Claim(
            f"Study, {where}: Adadelta never leads and never fails badly (last, diverged or stuck in every case)",
            not leads and not fails,
            f"leads on {', '.join(leads) or 'none'}; fails on {', '.join(fails) or 'none'}",
            exact=False,
        ),
        Claim(
            f"Study, {where}: SGD and momentum fit any problem (at most 2 points of accuracy behind the best on every net)",
            max(gaps.values()) <= 0.02,
            ", ".join(f"{name} at most {100 * gap:.1f} points behind" for name, gap in gaps.items()),
            exact=False,
        ),
        Claim(
            f"Study, {where}: Adam has the smallest loss on net 3, but not the best accuracy",
            below_all("Adam", third) and best_accuracy != "Adam",
            f"{_against('Adam', third)}; accuracy " + ", ".join(f"{name} {value:.1f} %" for name, value in accuracy.items()),
            exact=False,
        ),
    ]


def plateau_claim(records: Sequence[dict[str, Any]], iterations: int) -> Claim:
    """How many trainings of net 3 still sit on the plateau, and how far the seeds of one setting are apart in leaving it."""
    healthy = [one for one in records if not one["diverged"]]
    stuck = sum(math.isinf(exit) for one in healthy for exit in one["exit"])
    left = [one for one in healthy if math.inf not in one["exit"]]
    apart = max(left, key=lambda one: max(one["exit"]) / max(1.0, min(one["exit"])), default=None)
    seen = "no setting left it with all seeds"
    if apart:
        low, high = min(apart["exit"]), max(apart["exit"])
        seen = f"{apart['optimizer']} at {apart['lr']:g}: after {low:.0f} to {high:.0f} iterations"
    total = sum(len(one["exit"]) for one in healthy)
    mixed = any(math.inf in one["exit"] and min(one["exit"]) < math.inf for one in healthy)
    holds = mixed or (apart is not None and max(apart["exit"]) >= 1.5 * max(1.0, min(apart["exit"])))
    return Claim(
        "On net 3 it depends on the seed when the loss leaves the plateau at ln 10 (1.5 times as late, or not at all)",
        holds,
        f"{seen}; {stuck} of {total} trainings still on it after {iterations}",
        exact=False,
    )


# ---- checks of the program itself ---------------------------------------------------------------------------------------


def ordinary_loop(net: Net, setting: Setting, seed: int, x: torch.Tensor, y: torch.Tensor, batch: int, steps: int):
    """The same training as a student writes it: nn.Module, cross_entropy, backward, the optimizer's class, one net alone."""
    alone = Program(net, [setting], [seed], x, y, batch)  # only for its order of the images
    model = net.start(x.shape[1], seed, x.dtype).to(x.device)
    optimizer = setting.build(model.parameters())
    for step in range(steps):
        epoch, place = divmod(step, alone.per_epoch)
        chosen = alone.order(seed, epoch)[place * batch : (place + 1) * batch].to(x.device)
        optimizer.zero_grad()
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return model


def flattened(model: torch.nn.Module) -> torch.Tensor:
    """All parameters of a model as one vector (n,)."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def program_claims(device: torch.device, steps: int = 30) -> list[Claim]:
    """Checks in float64 on a small net 3: gradients against autograd, a setting alone against in company, and against an
    ordinary loop."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 20, generator=generator, dtype=torch.float64).to(device)
    y = torch.randint(0, CLASSES, (200,), generator=generator).to(device)
    net, seeds, batch = NETS["net 3"].scaled(0.1), (0, 1), 32
    settings = [Setting(name, lr=lr / 2) for name, lr in LECTURE_LR.items()]
    program = Program(net, settings, seeds, x, y, batch)
    model = program.module(0, 1)
    chosen = program.order(seeds[1], 0)[:batch].to(device)
    F.cross_entropy(model(x[chosen]), y[chosen]).backward()
    by_autograd = torch.cat([p.grad.flatten() for p in model.parameters()])
    program.run(1)
    gradient = (program.gradients[0, 1] - by_autograd).abs().max().item()
    program.run(steps - 1)
    alone, loop = 0.0, 0.0
    for k, setting in enumerate(settings):
        single = Program(net, [setting], [seeds[1]], x, y, batch)
        single.run(steps)
        alone = max(alone, (single.parameters[0, 0] - program.parameters[k, 1]).abs().max().item())
        model = ordinary_loop(net, setting, seeds[1], x, y, batch, steps)
        loop = max(loop, (flattened(model) - program.parameters[k, 1]).abs().max().item())
    moved = (program.parameters - Program(net, settings, seeds, x, y, batch).parameters).abs().amax((1, 2)).min().item()
    return [
        Claim("The hand-written batched gradient equals autograd's to 1e-12 (float64)", gradient <= 1e-12, f"{gradient:.0e}"),
        Claim(
            "A setting trained alone ends where it ends among the others, to 1e-9 (float64): they do not influence each other",
            alone <= 1e-9 < moved,
            f"{alone:.0e}, while each setting moved by at least {moved:.0e}",
        ),
        Claim(
            "Each setting ends where an ordinary loop with nn.Module and the optimizer's class ends, to 1e-9 (float64)",
            loop <= 1e-9,
            f"{loop:.0e}",
        ),
    ]


# ---- seconds -------------------------------------------------------------------------------------------------------------


def seconds_on_each(
    nets: dict[str, Net], x: torch.Tensor, y: torch.Tensor, batch: int, samples: int
) -> dict[str, dict[str, float]]:
    """Seconds that one iteration of each optimizer takes when it trains each net alone, on one CPU thread or the GPU.

    In the batched program an iteration has no seconds of its own; this is what the axis of seconds is made from.
    """
    settings = [Setting(optimizer, lr=LECTURE_LR[optimizer]) for optimizer in OPTIMIZERS]
    return {name: seconds_alone(net, settings, x, y, batch, samples) for name, net in nets.items()}
