"""The ordinary training loop of one net, and the checks that the batched program ends where that loop ends."""

import torch
from torch.nn import functional as F

from hpml_lab.core.experiment.result import Result
from hpml_lab.optim.schedules import factor, torch_scheduler
from hpml_lab.race.program import CLASSES, NETS, FullyConnected, Program, Setting
from hpml_lab.race.records import LECTURE_LR

SCHEDULES = ("constant", "step", "cosine", "one-cycle")  # those of notebook 06


def ordinary_loop(
    net: FullyConnected,
    setting: Setting,
    seed: int,
    x: torch.Tensor,
    y: torch.Tensor,
    batch: int,
    steps: int,
    schedule: str = "constant",
) -> tuple[torch.Tensor, list[float]]:
    """Train one net as a student would write it: nn.Module, cross_entropy, backward, the optimizer's class, torch's scheduler.

    Returns all its parameters as one vector, and the learning rate of each step.
    """
    order_of = Program(net, [setting], [seed], x, y, batch)  # only for the order of the images
    model = net.start(x.shape[1], seed, x.dtype).to(x.device)
    optimizer = setting.build(model.parameters())
    scheduler, rates = torch_scheduler(schedule, optimizer, setting.lr, steps), []
    for step in range(steps):
        epoch, index = divmod(step, order_of.per_epoch)
        chosen = order_of.order(seed, epoch)[index * batch : (index + 1) * batch].to(x.device)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        scheduler.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), rates


def _noise(inputs: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """200 random images in float64 with random labels."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, inputs, generator=generator, dtype=torch.float64).to(device)
    return x, torch.randint(0, CLASSES, (200,), generator=generator).to(device)


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


def check_program(result: Result, device: torch.device, steps: int = 30) -> None:
    """Claim, in float64 on a small net 3, that each net of the batched program learns what it would learn alone."""
    x, y = _noise(20, device)
    net, seeds, batch = NETS["net 3"].scaled(0.1), (0, 1), 32
    settings = [Setting(name, lr=lr / 2) for name, lr in LECTURE_LR.items()]
    program = Program(net, settings, seeds, x, y, batch)
    start = program.parameters.clone()
    model = program.module(0, 1)
    chosen = program.order(seeds[1], 0)[:batch].to(device)
    F.cross_entropy(model(x[chosen]), y[chosen]).backward()
    by_autograd = torch.cat([p.grad.flatten() for p in model.parameters()])
    program.run(1)
    gradient = _gap(program.gradients[0, 1], by_autograd)
    program.run(steps - 1)
    alone, loop = 0.0, 0.0
    for k, setting in enumerate(settings):
        single = Program(net, [setting], [seeds[1]], x, y, batch)
        single.run(steps)
        alone = max(alone, _gap(single.parameters[0, 0], program.parameters[k, 1]))
        ordinary, _ = ordinary_loop(net, setting, seeds[1], x, y, batch, steps)
        loop = max(loop, _gap(ordinary, program.parameters[k, 1]))
    moved = (program.parameters - start).abs().amax((1, 2)).min().item()
    result.claim("The batched gradient, written by hand, equals autograd's to 1e-12", gradient <= 1e-12, f"{gradient:.0e}")
    result.claim(
        "A setting that trains alone ends where it ends among the others, to 1e-9: they do not influence each other",
        alone <= 1e-9 < moved,
        f"{alone:.0e}, while each setting moved by at least {moved:.0e}",
    )
    result.claim(
        "Each setting ends where an ordinary loop with nn.Module and the optimizer's class ends, to 1e-9",
        loop <= 1e-9,
        f"{loop:.0e}",
    )


def check_schedules(result: Result, device: torch.device, T: int = 60) -> None:
    """Claim that the schedules give the rates of torch's schedulers, and that a training under them is the ordinary one's."""
    peak, batch, seed = 0.2, 32, 3
    x, y = _noise(12, device)
    net, setting = NETS["net 2"].scaled(0.1), Setting("Momentum", lr=peak)
    program = Program(net, [setting] * len(SCHEDULES), [seed], x, y, batch)

    def before_step(t: int) -> None:
        for k, name in enumerate(SCHEDULES):
            program.set_lr(k, peak * factor(name, t, T))

    program.run(T, before_step)
    rate_gap, gap, curves = 0.0, 0.0, set()
    for k, name in enumerate(SCHEDULES):
        ordinary, rates = ordinary_loop(net, setting, seed, x, y, batch, T, name)
        curves.add(tuple(rates))
        rate_gap = max(rate_gap, max(abs(rate - peak * factor(name, t, T)) for t, rate in enumerate(rates)))
        gap = max(gap, _gap(ordinary, program.parameters[k, 0]))
    differ = min(_gap(program.parameters[0], other) for other in program.parameters[1:])
    result.claim(
        "Step, cosine and one-cycle give the rates of torch's MultiStepLR, CosineAnnealingLR and OneCycleLR, to 1e-12",
        rate_gap <= 1e-12 and len(curves) == len(SCHEDULES),
        f"{rate_gap:.0e}",
    )
    result.claim(
        "Under each schedule a net ends where an ordinary loop with torch's scheduler ends, to 1e-9",
        gap <= 1e-9 < differ,
        f"{gap:.0e}; two schedules end at least {differ:.0e} apart",
    )
