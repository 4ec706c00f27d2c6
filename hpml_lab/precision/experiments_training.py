"""The experiments of notebook 11 on training: fp32 and AMP loops side by side, loss scaling and its five recipes."""

from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.data import load
from hpml_lab.precision import loops, recipes, underflow
from hpml_lab.precision.comparison import LOOPS, gradient_of, memory_of, seeded, slip, switched_off, timed, trained
from hpml_lab.precision.figures_training import draw_amp_training, draw_loss_scaling
from hpml_lab.precision.scaling import FACTOR, doubled_in_time, gone, same_scales, unchanged, underflowing

NOTEBOOK = "11_precision"
CLOSE_LOSS, CLOSE_DIRECTION = 0.01, 0.99


# ---- amp-training ----------------------------------------------------------------------------------------------------


@experiment(
    "amp-training",
    lecture="L1 L2",
    notebook=NOTEBOOK,
    draw=draw_amp_training,
    quick=dict(data="digits", seeds=3, epochs=3, batch=64, rate=0.1, channels=32, blocks=3, images=16, side=16, samples=5),
    full=dict(data="mnist", seeds=3, epochs=3, batch=128, rate=0.1, channels=128, blocks=6, images=128, side=32, samples=7),
    lecture_says={"AMP over fp32, times faster": "2.3 to 4.9, seven workloads, five with a larger batch"},
    uses=("cuda",),
)
def amp_training(size: Size) -> Result:
    """Automatic mixed precision: the fp32 loop and the AMP loop side by side."""
    device = size.device.torch
    data = load(size.data, device)
    seconds = timed(size)
    rows, curves, states, skipped_off = [], {}, [], switched_off(data, size.rate)
    for name, dtype in LOOPS.items():
        runs = [trained(data, dtype, seed, size.batch, size.epochs, size.rate) for seed in range(size.seeds)]
        states += [one for _, _, model in runs for p in model.parameters() for one in (p, p.grad)]
        curves[name] = [losses for losses, _, _ in runs]
        rows.append(
            {
                "loop": name,
                "test accuracy %, median (band)": _band([right for _, right, _ in runs]),
                "last loss, median": median(losses[-1] for losses, _, _ in runs),
                **memory_of(size, dtype),
                "ms a step": 1e3 * seconds[name] if name in seconds else None,
                "times faster": seconds["fp32"] / seconds[name] if name in seconds else None,
            }
        )
    first = {name: median(losses[0] for losses in some) for name, some in curves.items()}
    model = seeded(lambda: recipes.net(data.train_x.shape[-1]), 0).to(device)
    x, y = data.train_x[:128], data.train_y[:128]
    exact = gradient_of(model, x, y, device, None)
    directions = [F.cosine_similarity(exact, gradient_of(model, x, y, device, d), dim=0).item() for d in LOOPS.values() if d]
    small = gradient_of(model, x, y, device, None, FACTOR)
    vanished = {d: gone(small, gradient_of(model, x, y, device, d, FACTOR)) for d in LOOPS.values() if d}
    scaled = gone(small, gradient_of(model, x, y, device, torch.float16, FACTOR * 2.0**16))
    low = size.device.dtype if size.device.dtype != torch.float32 else torch.bfloat16
    table = loops.autocast_table(device, low)
    old = loops.then_and_now()
    pairs = loops.aligned(loops.train_fp32, loops.train_amp)
    changed = [right for left, right in pairs if left.strip() != right.strip()]
    apart, twice = slip(data, size.rate)
    fp32, fp16, bf16 = rows
    claims = [
        Claim(
            "The AMP loop differs from the fp32 loop in the lines with autocast or scaler alone",
            len(changed) == 4 and all("autocast" in line or "scaler" in line for line in changed),
        ),
        Claim("With both switched off it gives the losses and weights of the fp32 loop, bit for bit", skipped_off),
        Claim(
            "Weights and their gradients are float32 in every loop: the weights are master weights",
            all(one.dtype == torch.float32 for one in states),
        ),
        Claim(
            "Under autocast each operator of the table gave the dtype that the device's list says",
            all(row["result"] == row["by the list"] for row in table),
        ),
        Claim(
            f"The first losses of all loops agree to {100 * CLOSE_LOSS:g} %",
            max(abs(loss / first["fp32"] - 1) for loss in first.values()) <= CLOSE_LOSS,
            ", ".join(f"{loss:.5f}" for loss in first.values()),
        ),
        Claim(
            f"The first gradients point the same way: their cosine is at least {CLOSE_DIRECTION}",
            min(directions) >= CLOSE_DIRECTION,
            f"{min(directions):.5f}",
        ),
        Claim(
            "Autograd keeps at most 0.6 of the bytes for the backward pass with either 16-bit dtype",
            max(fp16["kept for backward, MB"], bf16["kept for backward, MB"]) <= 0.6 * fp32["kept for backward, MB"],
            f"{fp16['kept for backward, MB'] / fp32['kept for backward, MB']:.3f}",
        ),
        Claim(
            "With the loss times 2e-5, fp16 without a scaler turns more than half of the gradients into zeros; fp16 with a "
            "scale of 65536, and bf16 without any, fewer than a tenth",
            vanished[torch.float16] > 0.5 and max(scaled, vanished[torch.bfloat16]) < 0.1,
            f"{vanished[torch.float16]:.0%}; {scaled:.1%} and {vanished[torch.bfloat16]:.1%}",
        ),
        Claim(
            "With the slide's second optimizer.step() plain SGD goes as with twice the rate (to 0.1 %), not as with one step",
            twice <= 1e-3 < 0.1 < apart,
            f"{twice:.0e} from twice the rate, {apart:.0%} from one step",
        ),
        Claim(
            "The lecture's spellings of GradScaler and autocast still run, and warn that they are deprecated",
            all("FutureWarning" in row["today"] and "deprecated" in row["today"] for row in old[:2]),
        ),
        Claim(
            "All loops reach the same test accuracy, to 1 point of the medians",
            _spread(rows) <= 1.0,
            f"{_spread(rows):.2f} points apart",
            exact=False,
        ),
    ]
    amps = [seconds["fp32"] / seconds[name] for name, dtype in LOOPS.items() if dtype and name in seconds]
    quantities: dict[str, Any] = {
        "AMP over fp32, times faster": round(max(amps), 2) if amps else "not measured: no fast 16-bit dtype here",
        "kept for backward, AMP over fp32": round(fp16["kept for backward, MB"] / fp32["kept for backward, MB"], 3),
        "peak of a step, AMP over fp32": round(fp16["peak of a step, MB"] / fp32["peak of a step, MB"], 3),
    }
    notes = []
    if amps:
        claims.append(Claim("AMP is faster than fp32", max(amps) > 1, f"{max(amps):.2f}×", exact=False))
    else:
        notes.append(f"No AMP loop was timed: {size.device.dtype_reason}; its results are right all the same, only slow.")
    if "fp32, TF32 allowed" in seconds:
        quantities["fp32 with TF32 over fp32, times faster"] = round(seconds["fp32"] / seconds["fp32, TF32 allowed"], 2)
        notes.append("fp32 was timed without TF32. torch lets cuDNN's convolutions use TF32 unless told otherwise.")
    if not size.device.is_cuda:
        notes.append(
            "No CUDA GPU here: the fp16 loop is not timed, because most CPUs have no fp16 arithmetic; run `hpml-lab run "
            "amp-training --size full` on a machine with one."
        )
    arrays = {"losses": curves, "operators": table, "then and now": old}
    return Result(rows=rows, claims=claims, quantities=quantities, notes=notes, arrays=arrays)


def _band(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _spread(rows: list[dict[str, Any]]) -> float:
    middles = [float(row["test accuracy %, median (band)"].split()[0]) for row in rows]
    return max(middles) - min(middles)


# ---- loss-scaling ----------------------------------------------------------------------------------------------------

MIXED, MASTER, SCALED = "mixed", "fp16, scale 1000, fp32 master", "fp16, scale 1000"
# Of the lecture's table, top-1 in %: one figure each, without a spread. ResNet had master weights with a scale of 1.
ALEXNET = {"mixed": 58.12, "fp16": 54.89, SCALED: 57.76, MASTER: 58.56}
RESNET = {"fp32": 71.75, "mixed": 71.17, "fp16": 71.17, MASTER: 70.53}
INCEPTION = {"mixed": 73.6, MASTER: 73.52}


def _lecture() -> dict[str, str]:
    says: dict[str, list[str]] = {}
    for net, table in (("AlexNet", ALEXNET), ("ResNet", RESNET), ("Inception", INCEPTION)):
        for name, value in table.items():
            if name != MIXED:
                where = f"{net}, scale 1" if (net, name) == ("ResNet", MASTER) else net
                says.setdefault(f"{name} minus mixed, points", []).append(f"{value - table[MIXED]:+.2f} ({where})")
    return {name: ", ".join(some) for name, some in says.items()}


@experiment(
    "loss-scaling",
    lecture="L1",
    notebook=NOTEBOOK,
    draw=draw_loss_scaling,
    quick=dict(data="digits", seeds=3, steps=80, batch=128, rate=0.1, trace=80),
    full=dict(data="mnist", seeds=5, steps=2340, batch=128, rate=0.1, trace=400),
    lecture_says=_lecture(),
    uses=("cuda",),
)
def loss_scaling(size: Size) -> Result:
    """Loss scaling: what underflows in fp16, and the lecture's five recipes."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        return _loss_scaling(size)


def _loss_scaling(size: Size) -> Result:
    device = size.device.torch
    data = load(size.data, device)
    seeds, first_scale, interval = range(size.seeds), 2.0**16, 8
    small = size.rate / 100
    cases = [(name, 1.0, size.rate) for name in recipes.RECIPES] + [(name, FACTOR, size.rate) for name in recipes.RECIPES]
    cases += [(name, 1.0, small) for name in ("fp32", SCALED, MASTER)]
    found: dict[tuple[str, float, float], dict[str, Any]] = {}
    for name, factor, rate in progress(cases, "recipes"):
        one = recipes.Trainings(recipes.RECIPES[name], data, seeds, size.batch, rate, size.steps, factor)
        start = one.mean_loss(data.train_x[:2000], data.train_y[:2000])
        one.run()
        found[name, factor, rate] = {
            "accuracy": [100 * right for right in one.accuracy(data.test_x, data.test_y)],
            "fallen": [a - b for a, b in zip(start, one.mean_loss(data.train_x[:2000], data.train_y[:2000]), strict=True)],
            "lost": float(one.lost),
            "zeros": float(one.zeros),
            "skipped": int(one.skipped.sum()),
        }
    gradients, shares = underflowing(data, size.batch, size.rate)
    x, y = data.train_x[:32].flatten(1), data.train_y[:32]
    trace = underflow.scale_trace(device, x, y, steps=size.trace, start=first_scale, interval=interval)
    layers = underflow.torchs_own()
    plain, hard, still = (
        {name: found.get((name, *case)) for name in recipes.RECIPES}
        for case in ((1.0, size.rate), (FACTOR, size.rate), (1.0, small))
    )
    rows = [
        {
            "recipe": name,
            "accuracy %, median (band)": _band(plain[name]["accuracy"]),
            "with loss × 2e-5": _band(hard[name]["accuracy"]),
            "zero gradients %, × 1": 100 * plain[name]["zeros"],
            "zero gradients %, × 2e-5": 100 * hard[name]["zeros"],
            "updates lost %": 100 * plain[name]["lost"],
            "updates lost %, rate ÷ 100": 100 * still[name]["lost"] if still[name] else None,
            "loss fell by, rate ÷ 100": median(still[name]["fallen"]) if still[name] else None,
            "skipped steps": plain[name]["skipped"] + hard[name]["skipped"],
        }
        for name in recipes.RECIPES
    ]
    middle = {name: median(one["accuracy"]) for name, one in hard.items()}
    level = {name: median(one["accuracy"]) for name, one in plain.items()}
    fell = {name: median(one["fallen"]) for name, one in still.items() if one}
    overflows = [row for row in trace if row["overflow"]]
    exact, random = ([row["apart, spacings"] for row in layers if row["inputs"] == i] for i in ("sixteenths", "random"))
    claims = [
        Claim(
            "Where sums are exact, float32 with rounding is torch's own fp16 bit for bit: linear layer, convolution, ReLU, "
            "forward and backward; elsewhere it lies within one fp16 spacing of the largest element",
            max(exact) == 0 and max(random) <= 1,
            f"{max(exact):g} and {max(random):.2g} spacings",
        ),
        Claim(
            "The loss times a power of two, with the rate divided by it, leaves every weight of fp32 training bit for bit",
            unchanged(data, size.rate),
        ),
        Claim(
            "With the loss times 2e-5 more than half of the gradients become zero in fp16; a scale of 1000, or of 65536, "
            "brings that below one in ten",
            shares["fp16"] > 0.5 and max(shares[MIXED], shares[SCALED], shares[MASTER]) < 0.1,
            ", ".join(f"{name}: {share:.1%}" for name, share in shares.items()),
        ),
        Claim(
            "A step whose gradients overflow changes no weight and halves the scale; every other step changes weights",
            bool(overflows)
            and all(row["changed"] != row["overflow"] for row in trace)
            and all(row["next"] == row["scale"] / 2 for row in overflows),
            f"{len(overflows)} of {len(trace)} steps skipped",
        ),
        Claim(
            f"The scale doubles after every {interval} good steps in a row, and at no other time",
            doubled_in_time(trace, interval),
        ),
        Claim(
            "The recipes' batched scaler takes the same scales as torch's GradScaler", same_scales(trace, first_scale, interval)
        ),
        Claim(
            "fp32 master weights lose fewer updates than fp16 weights do, at either rate",
            plain[MASTER]["lost"] < plain[SCALED]["lost"] and still[MASTER]["lost"] < still[SCALED]["lost"],
            f"{plain[MASTER]['lost']:.0%} v {plain[SCALED]['lost']:.0%}; "
            f"rate ÷ 100: {still[MASTER]['lost']:.0%} v {still[SCALED]['lost']:.0%}",
        ),
        Claim(
            "With the loss times 2e-5 fp16 alone is worst: every seed below every seed of the four others",
            max(hard["fp16"]["accuracy"]) < min(min(one["accuracy"]) for name, one in hard.items() if name != "fp16"),
            ", ".join(f"{name}: {value:.1f} %" for name, value in middle.items()),
            exact=False,
        ),
        Claim(
            "The scale mends it: the medians of the four others lie within 1 point",
            max(v for n, v in middle.items() if n != "fp16") - min(v for n, v in middle.items() if n != "fp16") <= 1,
            exact=False,
        ),
        Claim(
            "Master weights mend further where the rate is small: in every seed the loss falls more with them than without",
            all(a > b for a, b in zip(still[MASTER]["fallen"], still[SCALED]["fallen"], strict=True)),
            ", ".join(f"{name}: {value:.4f}" for name, value in fell.items()),
            exact=False,
        ),
        Claim(
            "Without the factor this small net needs none of it: all five medians lie within 1 point",
            max(level.values()) - min(level.values()) <= 1,
            ", ".join(f"{name}: {value:.1f} %" for name, value in level.items()),
            exact=False,
        ),
    ]
    quantities: dict[str, Any] = {
        f"{name} minus mixed, points": f"{level[name] - level[MIXED]:+.2f}, and "
        f"{middle[name] - middle[MIXED]:+.2f} with the loss × 2e-5"
        for name in recipes.RECIPES
        if name != MIXED
    }
    quantities["gradients that vanish in fp16, loss × 2e-5, %"] = round(100 * shares["fp16"], 1)
    quantities["the same with a scale of 1000, %"] = round(100 * shares[SCALED], 1)
    quantities["steps the scaler skipped, %"] = round(100 * len(overflows) / len(trace), 1)
    notes = [
        "The factor 2e-5 is planted: a net this small does not underflow by itself. The rate is divided by it, so that fp32 "
        "training stays the same. Rate, batch and steps were chosen so that the loss of gradients shows in the accuracy; with "
        "batches of 32 at half the rate fp16 alone did as well as fp32."
    ]
    if size.data == "digits":
        notes.append(
            "quick: scikit-learn's digits. On MNIST: `hpml-lab data fetch mnist`, then `hpml-lab run loss-scaling --size full`."
        )
    arrays = {
        "edges": list(underflow.EDGES),
        "gradients": gradients,
        "trace": trace,
        "plain": {name: one["accuracy"] for name, one in plain.items()},
        "hard": {name: one["accuracy"] for name, one in hard.items()},
        "lecture": {"AlexNet": ALEXNET, "ResNet": RESNET, "Inception": INCEPTION},
        "layers": layers,
    }
    return Result(rows=rows, claims=claims, quantities=quantities, notes=notes, arrays=arrays)
