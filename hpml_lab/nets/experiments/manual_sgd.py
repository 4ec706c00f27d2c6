"""Three ways to write the SGD step by hand, compared with torch.optim.SGD bit by bit; and which changes autograd notices."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F
from torch.optim import SGD

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.attempt import attempt
from hpml_lab.nets.lessons.networks import ThreeLayerNet
from hpml_lab.nets.lessons.sgd_by_hand import (
    ALPHA,
    BY_HAND,
    NO_GRAD,
    SLIDE,
    all_gradients,
    all_weights,
    gradient_after,
    halve_through_data,
    halve_under_no_grad,
)

NOTEBOOK = "03_nets"
QUICK = dict(batch=32, steps=200, lr=0.01)
FULL = dict(batch=32, steps=2000, lr=0.01)
DEFAULT, FOREACH = "torch.optim.SGD, default", "torch.optim.SGD, foreach=True"
BY_TORCH = {DEFAULT: {}, FOREACH: {"foreach": True}}


@dataclass
class UpdateRow(Row):
    """One way to write the update, next to torch.optim.SGD(foreach=False)."""

    update: str = column("update")
    identical: bool = column("bitwise identical")
    largest_difference: float = column("largest difference of a weight")
    first_loss: float = column("first loss")
    last_loss: float = column("last loss")


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the loss falls in the same way for every form of the update; the curves coincide. Right: the largest difference
    of any weight from torch.optim.SGD in a plain loop, step by step. Where a line lies on zero, all weights are bitwise
    identical."""
    figure = style.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    for index, (name, losses) in enumerate(result.arrays["losses"].items()):
        # Curves that coincide: each later one is thinner, so that all can be seen.
        look = {"color": style.CYCLE[index], "linestyle": style.LINES[index], "linewidth": 4 - 0.6 * index}
        differences = np.array(result.arrays["differences"][name]) * 1e7
        left.plot(losses, **look)
        right.plot(range(1, len(differences) + 1), differences, label=name, **look)
    left.set(xlabel="step", ylabel="MSE loss", title="Loss", yscale="log")
    right.set(xlabel="step", ylabel="largest difference of a weight (10⁻⁷)")
    right.set_title("Difference from torch.optim.SGD")
    right.set_ylim(top=1.8 * right.dataLim.ymax + 0.1)  # room for the legend
    right.legend(fontsize=8, loc="upper left")
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("manual-sgd", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL)
def manual_sgd(params: Params) -> Result:
    """SGD by hand, bitwise identical to torch.optim.SGD, and why .data is out of date."""
    device, lr = params.device.torch, params.lr
    start = ThreeLayerNet().to(device)
    x, y = torch.randn(params.batch, 256).to(device), torch.arange(1.0, 11.0).repeat(params.batch, 1).to(device)
    plain = copy.deepcopy(start)
    plain_sgd = SGD(plain.parameters(), lr=lr, foreach=False)  # a plain loop over the parameters
    nets = {name: copy.deepcopy(start) for name in [*BY_HAND, *BY_TORCH]}
    steps: dict[str, Callable[[], object]] = {
        name: lambda name=name, update=update: update(nets[name], lr) for name, update in BY_HAND.items()
    }
    steps |= {name: SGD(nets[name].parameters(), lr=lr, **options).step for name, options in BY_TORCH.items()}

    losses: dict[str, list[float]] = {name: [] for name in nets}
    differences: dict[str, list[float]] = {name: [] for name in nets}
    slide_is_no_grad, first_difference_is_rounding, in_last_places = True, False, 0.0
    for step in progress(range(params.steps), "steps by hand and by torch"):
        plain.zero_grad()
        F.mse_loss(plain(x), y).backward()
        before, moved = all_weights(plain), lr * all_gradients(plain)
        plain_sgd.step()
        for name, net in nets.items():
            net.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            steps[name]()
            losses[name].append(loss.item())
            differences[name].append((all_weights(net) - all_weights(plain)).abs().max().item())
        slide_is_no_grad &= torch.equal(all_weights(nets[SLIDE]), all_weights(nets[NO_GRAD]))
        if step == 0:  # from the same weights: two roundings and one rounding
            bound = 2 * torch.finfo(torch.float32).eps * (before.abs() + moved.abs())
            difference = (all_weights(nets[NO_GRAD]) - all_weights(plain)).abs()
            first_difference_is_rounding = bool((difference <= bound).all())
            size = all_weights(plain).abs()
            in_last_places = (difference / (torch.nextafter(size, torch.full_like(size, torch.inf)) - size)).max().item()
    largest = {name: max(values) for name, values in differences.items()}
    rows = [UpdateRow(name, largest[name] == 0, largest[name], losses[name][0], losses[name][-1]) for name in nets]
    result = Result([Table(f"{params.steps} steps, compared with torch.optim.SGD(foreach=False)", rows)])

    # What autograd notices when the weights change between forward and backward.
    true = gradient_after(lambda net: None, start, x, y)
    unnoticed = gradient_after(halve_through_data, start, x, y)
    error = ((unnoticed - true).norm() / true.norm()).item()
    refused = attempt(lambda: gradient_after(halve_under_no_grad, start, x, y))

    result.key_figure("loss before the first step", losses[NO_GRAD][0])
    result.key_figure("loss before the last step", losses[NO_GRAD][-1])
    result.key_figure("steps", params.steps)
    result.key_figure(f"{NO_GRAD}: largest difference after one step, in last places of the weight", in_last_places)
    result.claim(
        "weight.sub_(weight.grad, alpha=lr) is bitwise identical to torch.optim.SGD(foreach=False) after every step",
        largest[ALPHA] == 0,
        f"{params.steps} steps",
    )
    result.claim(
        "The slide's f.data.sub_(f.grad.data * lr) is bitwise identical to weight -= lr * weight.grad after every step",
        slide_is_no_grad,
        f"{params.steps} steps",
    )
    result.claim(
        "After the first step these two differ from torch.optim.SGD by rounding only: at most 2ε(|w| + |lr·g|)",
        first_difference_is_rounding,
        f"largest {differences[NO_GRAD][0]:.1e}",
    )
    result.measured(
        "weight -= lr * weight.grad, which rounds lr·g first, is not bitwise identical to torch.optim.SGD",
        largest[NO_GRAD] > 0,
        f"differences up to {largest[NO_GRAD]:.1e}",
        depends_on="whether the processor multiplies and adds with one rounding",
    )
    by_torch = {name: largest[name] for name in BY_TORCH}
    result.measured(
        "torch.optim.SGD by default, and its loop over lists (foreach=True), are bitwise identical to foreach=False, too",
        not any(by_torch.values()),
        "; ".join(f"{name}: largest difference {difference:.0e}" for name, difference in by_torch.items()),
    )
    result.claim(
        "Halving the weights between forward and backward gives a wrong gradient and no error through .data, and makes "
        "backward raise RuntimeError under no_grad",
        error > 0.1 and refused.startswith("RuntimeError"),
        f"off by {error:.0%} of its length; {refused}",
    )
    result.arrays = {"losses": losses, "differences": differences}
    return result
