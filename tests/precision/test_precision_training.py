"""The AMP loop and the five recipes: what they compute, and what the two experiments show."""

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.exercises import check
from hpml_lab.data import load
from hpml_lab.data.dataset import DataSet
from hpml_lab.precision import loops, recipes, underflow
from hpml_lab.precision.experiments_training import amp_training, loss_scaling
from hpml_lab.precision.scaling import doubled_in_time

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_amp_training_is_sound_and_shows_both_columns(sound):
    result = amp_training("quick", device="cpu")
    sound(result)
    assert [row["loop"] for row in result.rows] == ["fp32", "AMP, fp16 and scaler", "AMP, bf16, no scaler"]
    assert set(amp_training.lecture_says) <= set(result.quantities)
    assert result.rows[0]["ms a step"] > 0 and result.rows[1]["ms a step"] is None


def test_loss_scaling_is_sound_and_answers_the_lectures_table(sound):
    result = loss_scaling("quick", device="cpu")
    sound(result)
    assert [row["recipe"] for row in result.rows] == list(recipes.RECIPES)
    assert set(loss_scaling.lecture_says) <= set(result.quantities)
    assert "-3.23 (AlexNet)" in loss_scaling.lecture_says["fp16 minus mixed, points"]


def test_the_side_by_side_text_marks_the_four_amp_lines():
    lines = loops.side_by_side(loops.train_fp32, loops.train_amp).splitlines()
    marked = [line for line in lines if "  > " in line]
    assert len(marked) == 4 and all("autocast" in line or "scaler" in line for line in marked)
    slide = [b.strip() for a, b in loops.aligned(loops.train_fp32, loops.train_slide) if a.strip() != b.strip()]
    assert slide == ["optimizer.step()"]


def test_rounding_is_halfs_forward_and_backward():
    x = torch.tensor([1 + 2**-12, 2**-26, 70000.0, -3.14159], requires_grad=True)
    underflow.rounded(x).backward(torch.tensor([2**-30, 1.0, 1 / 3, 1e6]))
    assert torch.equal(underflow.rounded(x), x.half().float())
    assert x.grad.tolist() == [0.0, 1.0, torch.tensor(1 / 3).half().item(), float("inf")]


def test_the_histogram_puts_magnitudes_into_their_powers_of_two():
    shares = underflow.histogram(torch.tensor([0.0, 2.0**-24, -1.5 * 2.0**-24, 1.0]))
    assert shares[underflow.EDGES.index(-24)] == 0.5 and shares[underflow.EDGES.index(0)] == 0.25
    assert sum(shares) == 0.75  # the zero is in none


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_seeds_numbers_do_not_depend_on_those_beside_it(digits, name):
    together = recipes.Trainings(recipes.RECIPES[name], digits, (3, 5), 64, 0.1, 8).run()
    alone = recipes.Trainings(recipes.RECIPES[name], digits, (5,), 64, 0.1, 8).run()
    for a, b in zip(together.weights, alone.weights, strict=True):
        torch.testing.assert_close(a[1], b[0], rtol=0, atol=2e-3)  # a batched product may add in another order


def test_the_fp32_recipe_is_torchs_own_training(digits):
    ours = recipes.Trainings(recipes.RECIPES["fp32"], digits, (0,), 64, 0.1, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = recipes.net(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        x, y = ours.batch_of(step)
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 5)
        loops.train_fp32(model, optimizer, [(x[0], y[0])])
        ours.step()
    for a, b in zip(ours.weights, model.parameters(), strict=True):
        torch.testing.assert_close(a[0], b.detach(), rtol=1e-4, atol=1e-6)


def _apart_from_half(weights, x, y, device):
    """How far the gradients of the fp16 recipe lie from those of torch's own half modules, each as a share of its length."""
    recipe = recipes.RECIPES["fp16, scale 1000"]
    scale = torch.full((1,), 1000.0, device=device)
    emulated, _ = recipes.loss_gradients(weights, x[None], y[None], recipe, scale, 1.0)
    model = recipes.net(x.shape[-1]).to(device)
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        parameter.data.copy_(weight[0])
    model.half()
    true = torch.autograd.grad(F.cross_entropy(model(x.half()), y) * 1000, list(model.parameters()))
    return [((a[0] - b.float()).norm() / a[0].norm()).item() for a, b in zip(emulated, true, strict=True)]


def test_the_fp16_recipes_gradients_are_those_of_a_half_model(digits):
    weights = [underflow.rounded(w) for w in recipes.starts(8, (0,), CPU)]
    assert max(_apart_from_half(weights, digits.train_x[:16], digits.train_y[:16], CPU)) < 0.01


def test_mixed_skips_an_overflowing_seed_and_trains_the_other(digits):
    trainings = recipes.Trainings(recipes.RECIPES["mixed"], digits, (0, 1), 64, 0.1, 4)
    trainings.scaler.scale[0] = 2.0**40
    before = [w.clone() for w in trainings.weights]
    trainings.step()
    assert all(torch.equal(a[0], b[0]) for a, b in zip(trainings.weights, before, strict=True))
    assert any(not torch.equal(a[1], b[1]) for a, b in zip(trainings.weights, before, strict=True))
    assert trainings.scale.tolist() == [2.0**39, 2.0**16] and trainings.skipped.tolist() == [1, 0]


def test_the_batched_scaler_follows_torchs_rule():
    ours, parameter = recipes.Scaler(1, CPU, 8.0, 3), torch.nn.Parameter(torch.ones(1))
    torchs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    seen = []
    for bad in (False, False, False, True, False, True, True, False, False, False, False):
        torchs.scale(torch.zeros(1))  # the first call of scale makes the scaler's tensors
        parameter.grad = torch.tensor([float("inf") if bad else 1.0])
        torchs.step(optimizer)
        torchs.update()
        ours.update(torch.tensor([bad]))
        seen.append(ours.scale.item())
        assert ours.scale.item() == torchs.get_scale()
    assert seen == [8, 8, 16, 8, 8, 4, 2, 2, 2, 4, 4]


def test_growth_out_of_turn_is_noticed():
    def row(scale, after, overflow=False):
        return {"scale": scale, "next": after, "overflow": overflow}

    assert doubled_in_time([row(1, 1), row(1, 2)], 2)
    assert not doubled_in_time([row(1, 2), row(2, 2)], 2)
    assert not doubled_in_time([row(1, 1), row(1, 0.5, True), row(0.5, 1)], 2)


def test_master_weights_keep_updates_that_fp16_weights_lose():
    x, y = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10
    data = DataSet("noise", x, y, x, y)
    names = ("fp16, scale 1000", "mixed")
    half, master = (recipes.Trainings(recipes.RECIPES[name], data, (0,), 32, 1e-3, 10).run().lost for name in names)
    assert half > 0.5 > 0.1 > master


@pytest.mark.cuda
def test_cudas_autocast_list_is_as_the_table_says():
    for dtype in (torch.float16, torch.bfloat16):
        rows = loops.autocast_table(torch.device("cuda"), dtype)
        assert [row for row in rows if row["result"] != row["by the list"]] == []


@pytest.mark.cuda
def test_the_emulation_is_close_to_the_gpus_own_fp16():
    device = torch.device("cuda")
    data = load("digits", device)
    weights = [underflow.rounded(w) for w in recipes.starts(8, (0,), device)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert max(_apart_from_half(weights, data.train_x[:128], data.train_y[:128], device)) < 0.01


@pytest.mark.cuda
@pytest.mark.parametrize("row", (amp_training, loss_scaling), ids=lambda row: row.slug)
def test_the_rows_are_sound_on_a_gpu(row, sound):
    sound(row("quick", device="cuda"))


def test_clipping_the_scaled_gradient_to_the_scaled_norm_is_right_too():
    def clipped(model, optimizer, scaler, x, y, max_norm):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()

    assert check("clip-with-scaler", clipped)
