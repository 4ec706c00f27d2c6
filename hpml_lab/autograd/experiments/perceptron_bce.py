"""A perceptron with binary cross-entropy: its gradient three ways, and why the loss should start from the logit."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from hpml_lab.autograd.lessons import perceptron
from hpml_lab.autograd.lessons.perceptron import PerceptronPass, three_losses
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style

QUICK = dict(samples=50, updates=200)
FULL = dict(samples=1000, updates=2000)
WEIGHTS, INPUTS, LABEL, LR = np.array([0.8, 0.3]), np.array([0.5, -1.2]), 1.0, 0.1
SATURATED = ((1.0, -200.0), (0.0, 20.0))  # (label, logit): in float32 σ(z) is rounded to 0, and to 1


@dataclass
class PassQuantity(Row):
    """One quantity of the forward or backward pass for one sample, computed in three ways."""

    quantity: str = column("quantity")
    formula: str = column("formula")
    by_hand: float = column("by hand")
    by_engine: float = column("by the engine")
    by_torch: float = column("by torch")


@dataclass
class SaturatedLoss(Row):
    """Loss and gradient where the sigmoid is rounded to 0 or 1."""

    label: float = column("label y")
    logit: float = column("logit z")
    name: str = column("loss function")
    loss: float = column("loss", "nats")
    gradient: float = column("∂L/∂z")


# ---- drawing -----------------------------------------------------------------------------------------------


def draw(result: Result):
    """Loss (left) and gradient ∂L/∂z (right) of one sample with label y = 0 against its logit z, in float32; the larger z is,
    the more wrong is the prediction. Look at what each loss does as soon as σ(z) is rounded to 1."""
    figure = style.new_figure(9, 3.8)
    panels = figure.subplots(1, 2)
    z = np.array(result.arrays["z"])
    looks = zip((style.GREY, style.RED, style.BLUE), ("o", None, None), (":", "--", "-"), strict=True)
    for (name, curves), (color, marker, line) in zip(result.arrays["curves"].items(), looks, strict=True):
        look = {"color": color, "linestyle": line, "marker": marker, "markersize": 4, "markevery": 8, "label": name}
        for axes, values in zip(panels, (curves["loss"], curves["gradient"]), strict=True):
            values = np.array(values, dtype=float)
            axes.plot(z, np.where(np.isfinite(values), values, np.nan), **look)
    panels[0].set(xlabel="logit z", ylabel="loss (nats)", title="Loss for y = 0")
    panels[1].set(xlabel="logit z", ylabel="∂L/∂z", title="Gradient for y = 0: it should be σ(z)")
    panels[0].legend(fontsize=9)
    return figure


# ---- measuring ---------------------------------------------------------------------------------------------


@experiment("perceptron-bce", lecture="L2", notebook="02_autograd", draw=draw, quick=QUICK, full=FULL, same_picture=True)
def perceptron_bce(params: Params) -> Result:
    """A perceptron with binary cross-entropy, and why its loss should start from the logit."""
    device = params.device.torch
    largest, from_rule = compare_on_samples(params.samples, device)
    losses = losses_of_updates(params.updates)
    saturated = saturated_losses(device)
    by_case = {(row.label, row.name): row for row in saturated}
    z = torch.linspace(-10, 40, 201, device=device)

    result = Result(
        [
            Table("One sample: x = (0.5, -1.2), y = 1, w = (0.8, 0.3)", pass_steps(device)),
            Table("Where σ(z) is rounded to 0 or 1 (float32)", saturated),
        ]
    )
    result.arrays["z"] = z.tolist()
    result.arrays["curves"] = {
        name: {"loss": loss.tolist(), "gradient": gradient.tolist()} for name, (loss, gradient) in three_losses(z, 0.0).items()
    }
    for name in ("BCELoss", "BCEWithLogitsLoss"):
        result.key_figure(f"∂L/∂z of {name} at z = 20, y = 0", by_case[0.0, name].gradient)
    result.claim(
        "By hand, by the engine and by torch, all values and gradients agree to 1e-12 in float64",
        largest < 1e-12,
        f"largest difference {largest:.1e} over {params.samples} samples",
    )
    result.claim("∂L/∂p · ∂p/∂z equals p - y", from_rule < 1e-12, f"largest difference {from_rule:.1e}")
    result.claim(
        "Each weight update lowers the loss",
        all(after < before for before, after in pairwise(losses)),
        f"{losses[0]:.3f} → {losses[-1]:.3f} in {params.updates} updates",
    )
    result.claim(
        "The formula gives an infinite loss and no gradient if σ(z) is rounded to the wrong label",
        all(np.isinf(row.loss) and np.isnan(row.gradient) for row in saturated if row.name == "formula"),
    )
    result.claim(
        "BCELoss gives 100 there for every z, and the gradient 0: a net that is certain and wrong learns nothing",
        all(near(row, 100.0, 0.0) for row in saturated if row.name == "BCELoss"),
    )
    result.claim(
        "BCEWithLogitsLoss gives the right loss |z| and the right gradient p - y",
        near(by_case[1.0, "BCEWithLogitsLoss"], 200.0, -1.0) and near(by_case[0.0, "BCEWithLogitsLoss"], 20.0, 1.0),
    )
    return result


def pass_steps(device: torch.device) -> list[PassQuantity]:
    """Forward pass, backward pass and weight update of one sample."""
    sample = WEIGHTS, INPUTS, LABEL
    passes = [
        perceptron.perceptron_by_hand(*sample),
        perceptron.perceptron_by_engine(*sample),
        perceptron.perceptron_by_torch(*sample, device),
    ]

    def row(quantity: str, formula: str, value: Callable[[PerceptronPass], float]) -> PassQuantity:
        return PassQuantity(quantity, formula, *(float(value(record)) for record in passes))

    rows = [
        row("z", "w·x", lambda r: r.z),
        row("p", "σ(z)", lambda r: r.p),
        row("L", "-(y log p + (1-y) log(1-p))", lambda r: r.loss),
        row("∂L/∂p", "-(y/p - (1-y)/(1-p))", lambda r: r.dL_dp),
        row("∂p/∂z", "p(1-p)", lambda r: r.dp_dz),
        row("∂L/∂z", "∂L/∂p · ∂p/∂z = p - y", lambda r: r.dL_dz),
    ]
    for i in range(2):
        rows.append(row(f"∂L/∂w{i + 1}", f"∂L/∂z · x{i + 1}", lambda r, i=i: r.dL_dw[i]))
        rows.append(row(f"w{i + 1}, new", f"w{i + 1} - {LR} ∂L/∂w{i + 1}", lambda r, i=i: WEIGHTS[i] - LR * r.dL_dw[i]))
    return rows


def compare_on_samples(samples: int, device: torch.device) -> tuple[float, float]:
    """The largest difference between the three ways, and between ∂L/∂z and p - y, over random samples."""
    rng = np.random.default_rng(0)
    largest = from_rule = 0.0
    for _ in range(samples):
        w, x, y = rng.normal(size=2), rng.normal(size=2), float(rng.integers(2))
        first = perceptron.perceptron_by_hand(w, x, y)
        for other in (perceptron.perceptron_by_engine(w, x, y), perceptron.perceptron_by_torch(w, x, y, device)):
            differences = [np.abs(getattr(other, name) - value).max() for name, value in vars(first).items()]
            largest = max(largest, *differences)
        from_rule = max(from_rule, abs(first.dL_dz - (first.p - y)))
    return float(largest), from_rule


def losses_of_updates(updates: int) -> list[float]:
    """The loss before each of `updates` steps w ← w - lr ∂L/∂w."""
    losses, w = [], WEIGHTS
    for _ in range(updates):
        record = perceptron.perceptron_by_hand(w, INPUTS, LABEL)
        losses.append(record.loss)
        w = w - LR * record.dL_dw
    return losses


def saturated_losses(device: torch.device) -> list[SaturatedLoss]:
    """Each loss function at a very wrong logit for each label, in float32."""
    return [
        SaturatedLoss(label, logit, name, loss.item(), gradient.item())
        for label, logit in SATURATED
        for name, (loss, gradient) in three_losses(torch.tensor([logit], device=device), label).items()
    ]


def near(row: SaturatedLoss, loss: float, gradient: float) -> bool:
    """True if the row has this loss and this gradient, to the precision of float32."""
    return abs(row.loss - loss) < 1e-4 and abs(row.gradient - gradient) < 1e-6
