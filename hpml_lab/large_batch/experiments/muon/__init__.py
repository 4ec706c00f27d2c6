"""Muon: an update whose singular values are all near 1; what that does to a descent, what it gains, and what it costs.

In four parts: the polynomial on singular values (singular_values.py), a matrix problem (matrix_problem.py), the hidden layers
of a small net against AdamW (hidden_layers.py), and FLOPs and times (step_costs.py).
"""

import torch

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.large_batch.experiments.accuracy_gains import SEEDS, gain
from hpml_lab.large_batch.experiments.batched_trainings import images
from hpml_lab.large_batch.experiments.muon.figure import draw
from hpml_lab.large_batch.experiments.muon.hidden_layers import ADAMW, MUON, LossRatio, chosen, loss_ratio, train_hidden_layers
from hpml_lab.large_batch.experiments.muon.matrix_problem import OPTIMIZERS, MatrixDescent, descend, matrix_problems, rounded
from hpml_lab.large_batch.experiments.muon.singular_values import (
    BAND,
    MOST,
    SMALLEST,
    band_of_steps,
    in_bfloat16,
    judge_singular_values,
)
from hpml_lab.large_batch.experiments.muon.step_costs import LAYERS, FlopShare, flop_share, step_time
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.large_batch.lessons.orthogonalization import newton_schulz_flops

SHOWN = (1, 2, 3, 4, 5, 6, 16, 17, MOST)  # steps in the table

QUICK = dict(
    matrix_size=32,
    condition=30.0,
    descent_steps=200,
    problems=3,
    images=2048,
    side=14,
    seen=4096,
    batches=(64, 256),
    rates=(0.004, 0.008, 0.016, 0.032, 0.064),
    seeds=5,
    widths=(256,),
    step_batches=(64, 1024),
    samples=SAMPLES,
)
FULL = dict(
    matrix_size=64,
    condition=30.0,
    descent_steps=400,
    problems=9,
    images=16_384,
    side=28,
    seen=32_768,
    batches=(64, 256, 1024),
    rates=(0.002, 0.004, 0.008, 0.016, 0.032, 0.064),
    seeds=9,
    widths=(256, 1024),
    step_batches=(64, 8192),
    samples=SAMPLES,
)


def judge_flops(result: Result, rows: list[FlopShare]) -> None:
    """Add the FLOPs of the steps, as torch counts them."""
    right = [row.steps == newton_schulz_flops(row.rows, row.columns) for row in rows]
    products = [row.training == 6 * row.rows * row.columns * row.batch for row in rows]
    result.claim(
        "Five steps cost 5 (4 m² n + 2 m³) FLOP and training the layer 6 m n B: a share of 5 m / B at most, with equality for "
        "square matrices",
        all(right)
        and all(products)
        and all(abs(row.share - row.bound) < 1e-9 if row.rows == row.columns else row.share < row.bound for row in rows),
        "; ".join(f"{row.layer} {row.share:.3g} %" for row in rows),
    )


def judge_descents(result: Result, rows: list[MatrixDescent]) -> None:
    """Add where the three optimizers end on the matrix problems, each at its best rate."""
    momentum, adamw, muon = rows
    times = [min(a, b) / c for a, b, c in zip(momentum.by_problem, adamw.by_problem, muon.by_problem, strict=True)]
    result.measured(
        "On every matrix problem Muon ends with less than a tenth of the loss of momentum and of AdamW, and its first update "
        "has at least three times the stable rank of theirs",
        min(times) > 10 and muon.first_rank > 3 * max(momentum.first_rank, adamw.first_rank),
        f"{min(times):,.0f} to {max(times):,.0f} times less than the better of the two; stable ranks "
        f"{muon.first_rank:.1f}, {momentum.first_rank:.1f}, {adamw.first_rank:.1f}",
        depends_on="the problems",
    )
    for row, whose in zip(rows, ("momentum", "AdamW", "Muon"), strict=True):
        result.key_figure(f"stable rank of {whose}'s first update, median", row.first_rank)
    result.key_figure("the better loss of momentum and AdamW / Muon's, at least", min(times))


def judge_hidden_layers(result: Result, ratios: dict[int, LossRatio]) -> None:
    """Add what Muon on the hidden layers gains over AdamW for all, seed by seed."""
    (small, at_small), *_, (large, at_large) = ratios.items()
    result.measured(
        f"At batch {large:,} the test loss is lower with Muon on the hidden layers than with AdamW for all, each at the rate "
        "that its validation loss chooses",
        at_large.certain,
        f"AdamW's loss is {at_large} times Muon's",
        depends_on=SEEDS,
    )
    more = at_large / at_small
    result.measured(
        f"Muon gains more at batch {large:,} than at batch {small:,}, which has {large // small} times the steps",
        more.certain,
        f"{at_large} times and {at_small}; seed by seed {more} times as much",
        depends_on=SEEDS,
    )


@experiment("muon", lecture="own", notebook="15_large_batch", draw=draw, quick=QUICK, full=FULL, uses=("mnist",))
def muon(params: Params) -> Result:
    """Muon: singular values near 1, on a matrix problem and in hidden layers, and what it costs."""
    data = images(params.images, params.device.torch, side=params.side)
    bands = [band_of_steps(k) for k in range(1, MOST + 1)]
    s, after, error = in_bfloat16()
    problems = matrix_problems(params.matrix_size, params.condition, params.problems)
    descents = {name: descend(problems, name, params.descent_steps) for name in OPTIMIZERS}
    trained = train_hidden_layers(data, params)
    shares = [flop_share(*layer) for layer in LAYERS]
    times = [step_time(params, width, batch) for width in params.widths for batch in params.step_batches]

    descent_rows = [row for row, _ in descents.values()]
    arrays = {"data": data.name, "band": BAND, "bfloat16": [s, after]}
    arrays |= {"solution": rounded(torch.linalg.svdvals(problems.solution[0]))}
    n, steps = params.matrix_size, params.descent_steps
    result = Result(
        [
            Table(f"Singular values from {SMALLEST} to 1", [bands[k - 1] for k in SHOWN]),
            Table(f"‖AWB − C‖²: {params.problems} problems of {n} × {n}, {steps} steps", descent_rows),
            Table(f"{data.name}: {params.seen:,} images seen, {params.seeds} seeds", trained),
            Table("FLOPs of the five steps for a layer", shares),
            Table("A training step, three hidden layers", times),
        ],
        notes=data.notes,
        arrays=arrays | {name: path for name, (_, path) in descents.items()},
    )
    judge_singular_values(result, bands)
    result.key_figure("largest error of bfloat16 on them", round(error, 3))
    judge_flops(result, shares)
    judge_descents(result, descent_rows)
    ratios = {batch: loss_ratio(trained, batch) for batch in params.batches}
    judge_hidden_layers(result, ratios)
    for batch, ratio in ratios.items():
        adamw, own = (chosen(trained, batch, name) for name in (ADAMW, MUON))
        result.key_figure(f"batch {batch:,}: AdamW's test loss / Muon's, median (interval)", str(ratio))
        gained = gain(own.right_by_seed, adamw.right_by_seed)
        result.key_figure(f"batch {batch:,}: what Muon gains in accuracy", str(gained), "points")
    for row in times:
        result.key_figure(f"a step with Muon, width {row.width:,}, batch {row.batch:,}", row.text)
    return result
