"""The AMP loop and the five recipes: what they compute, and what the two experiments show."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from hpml_lab.core.experiment import Params
from hpml_lab.core.judge.same import same
from hpml_lab.core.system.device import Device
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.data import load
from hpml_lab.data.dataset import DataSet
from hpml_lab.precision import autocast_table, loss_scaling, side_by_side, then_and_now
from hpml_lab.precision.exercises import clip_with_scaler, loss_scaler
from hpml_lab.precision.experiments import amp_training, underflow
from hpml_lab.precision.experiments.amp_training import LoopRow, loop_measurements
from hpml_lab.precision.experiments.amp_training.loop_measurements import AMP_BF16, FP32, FP32_WITH_TF32, LOOPS, train_and_test
from hpml_lab.precision.experiments.loss_scaling import RecipeRow, ScalerStep, SlideRow, doubles_every_interval
from hpml_lab.precision.experiments.loss_scaling.emulation import emulated_layers
from hpml_lab.precision.experiments.loss_scaling.recipe_runs import underflowing
from hpml_lab.precision.experiments.underflow import LOSS_FACTOR, vanished_share
from hpml_lab.precision.lessons import loops, recipes
from hpml_lab.precision.tools.autocast import FLOAT32, PROBES, dtypes
from hpml_lab.precision.views.code_columns import aligned

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_amp_training_is_sound_and_shows_both_columns(sound, ran):
    result = ran("amp-training")
    sound(result)
    rows = result.rows(LoopRow)
    assert [row.loop for row in rows] == ["fp32", "AMP, fp16 and scaler", "AMP, bf16, no scaler"] == list(LOOPS)
    lecture = [figure.label for figure in result.key_figures if figure.lecture]
    assert lecture == ["AMP over fp32", "the lecture's loop, fp16 and scaler, over fp32"]
    [waits] = [claim for claim in result.claims if "waits for the device" in claim.text]
    assert waits.measured == "fp32: 0, AMP, fp16 and scaler: 5, AMP, bf16, no scaler: 0 in five steps"
    assert rows[0].step_ms > 0 and rows[1].step_ms is None


def test_with_known_times_the_amp_row_says_how_many_times_faster(monkeypatch):
    seconds = {FP32: 0.008, AMP_BF16: 0.002, PLACEBO: 0.008}
    times = {name: Timing((value, 2 * value, 0.5 * value), 1) for name, value in seconds.items()}
    monkeypatch.setattr(amp_training, "step_times", lambda _: times)
    small = dict(data="digits", seeds=1, epochs=1, batch=64, rate=0.1, channels=8, blocks=1, images=4, side=8, samples=2)
    result = replace(amp_training.amp_training, quick=small)("quick", device="cpu")
    assert [(row.step_ms, row.gain, row.interval) for row in result.rows(LoopRow)] == [
        (8, None, None),
        (None, None, None),
        (2, 4, "4 to 4"),
    ]
    default = result.here("AMP over torch's default, fp32 with TF32 in convolutions")
    assert result.here("AMP over fp32") == default == 4, "a CPU has no TF32"
    [claim] = [claim for claim in result.claims if claim.text == "AMP is faster than fp32"]
    assert claim.holds and "4× faster" in claim.measured


def test_on_a_gpu_all_loops_are_timed_between_events_and_fp32_with_and_without_tf32(monkeypatch):
    asked = {}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(loop_measurements, "interleaved", lambda works, **options: asked.update(works=list(works), **options))
    monkeypatch.setattr(loop_measurements, "speed_problem", lambda params: (torch.nn.Linear(2, 2), torch.ones(1, 2), None))
    device = Device(torch.device("cuda:0"), "", torch.bfloat16, "")
    loop_measurements.step_times(Params(device=device, samples=7))
    assert asked["works"] == [*LOOPS, FP32_WITH_TF32] and (asked["gpu"], asked["placebo"]) == (device.torch, FP32)


def test_accuracy_is_that_of_the_test_images(digits):
    _, accuracy, model = train_and_test(digits, None, 0, 64, 1, 0.1)
    with torch.no_grad():
        right = (model(digits.test_x).argmax(1) == digits.test_y).double().mean().item()
        assert right != (model(digits.train_x).argmax(1) == digits.train_y).double().mean().item(), "else nothing is shown"
    assert accuracy == pytest.approx(100 * right)


def test_loss_scaling_is_sound_and_answers_the_lectures_table(sound, ran):
    result = ran("loss-scaling")
    sound(result)
    assert [row.recipe for row in result.rows(RecipeRow)] == list(recipes.RECIPES)
    lecture = {figure.label: figure.lecture for figure in result.key_figures if figure.lecture}
    assert list(lecture) == [f"{name} minus mixed" for name in recipes.RECIPES if name != "mixed"]
    assert "-3.23 (AlexNet)" in lecture["fp16 minus mixed"]
    table = {row.recipe: row for row in result.rows(SlideRow)}
    assert (table["mixed"].alexnet, table["mixed"].inception) == ("58.12 / 80.71", "73.60 / 91.11")
    assert table["fp32"].alexnet is None and table["fp32"].resnet == "71.75 / 90.52"
    for row in result.rows(RecipeRow):
        top1, top5 = map(float, table[row.recipe].here.split(" / "))
        assert top1 == pytest.approx(row.accuracy, abs=0.006) and top1 <= top5 <= 100


def test_the_side_by_side_text_marks_the_four_amp_lines():
    lines = side_by_side(loops.train_fp32, loops.train_amp).splitlines()
    marked = [line for line in lines if "  > " in line]
    assert len(marked) == 4 and all("autocast" in line or "scaler" in line for line in marked)
    slide = [b.strip() for a, b in aligned(loops.train_fp32, loops.train_slide) if a.strip() != b.strip()]
    assert slide == ["optimizer.step()"]


def test_a_function_without_a_docstring_is_shown_from_its_first_line():
    def own(net, batches):
        losses = []
        return losses

    assert aligned(own, own) == [("losses = []",) * 2, ("return losses",) * 2]


def test_the_loops_start_alike_and_keep_their_weights_in_float32(digits):
    runs = {name: train_and_test(digits, dtype, 0, 64, 1, 0.1) for name, dtype in LOOPS.items()}
    for losses, _, model in runs.values():
        assert losses[0] == pytest.approx(runs[FP32][0][0], rel=0.01)
        assert {tensor.dtype for p in model.parameters() for tensor in (p, p.grad)} == {torch.float32}
    model, x, y = loop_measurements.seeded_net(digits), digits.train_x[:128], digits.train_y[:128]
    exact = loop_measurements.gradient_vector(model, x, y, None)
    for dtype in (torch.float16, torch.bfloat16):
        assert F.cosine_similarity(exact, loop_measurements.gradient_vector(model, x, y, dtype), dim=0) >= 0.99


def test_the_slides_second_step_is_twice_the_rate(digits):
    changes = []
    for loop, lr in ((loops.train_slide, 0.1), (loops.train_fp32, 0.1), (loops.train_fp32, 0.2)):
        model = loop_measurements.seeded_net(digits)
        start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        loop(model, torch.optim.SGD(model.parameters(), lr=lr), loop_measurements.five_batches(digits))
        changes.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach() - start)
    slide, right, twice = changes
    assert (slide - twice).norm() <= 1e-3 * twice.norm() and (slide - right).norm() > 0.1 * right.norm()


def test_the_cpus_autocast_list_is_that_of_the_table_and_the_old_spellings_warn():
    assert [row for row in autocast_table(CPU, torch.bfloat16) if row.result != row.expected] == []
    assert all("FutureWarning" in row.today and "deprecated" in row.today for row in then_and_now()[:2])


def test_emulated_layers_are_bitwise_torchs_own_where_sums_are_exact():
    exact, random = ([row.difference for row in emulated_layers() if row.inputs == kind] for kind in ("sixteenths", "random"))
    assert len(exact) == len(random) == 3 and max(exact) == 0 and max(random) <= 1


def test_a_power_of_two_in_the_loss_and_in_the_rate_changes_no_bit_of_fp32_training(digits):
    ends = [recipes.Trainings(recipes.RECIPES["fp32"], digits, (0, 1), 64, 0.1, 20, factor).run() for factor in (1.0, 2.0**-16)]
    assert all(torch.equal(a, b) for a, b in zip(*(end.weights for end in ends), strict=True))


def test_rounding_is_that_of_half_forward_and_backward():
    x = torch.tensor([1 + 2**-12, 2**-26, 70000.0, -3.14159], requires_grad=True)
    recipes.rounded(x).backward(torch.tensor([2**-30, 1.0, 1 / 3, 1e6]))
    assert torch.equal(recipes.rounded(x), x.half().float())
    assert x.grad.tolist() == [0.0, 1.0, torch.tensor(1 / 3).half().item(), float("inf")]


def test_the_histogram_puts_magnitudes_into_their_powers_of_two():
    shares = underflow.histogram(torch.tensor([0.0, 2.0**-24, -1.5 * 2.0**-24, 1.0]))
    assert shares[underflow.EDGES.index(-24)] == 0.5 and shares[underflow.EDGES.index(0)] == 0.25
    assert sum(shares) == 0.75  # the zero is in none


def test_what_vanished_is_a_share_of_what_was_not_zero():
    assert vanished_share(torch.tensor([0.0, 1.0, 2.0, 4.0]), torch.tensor([0.0, 0.0, 2.0, 4.0])) == pytest.approx(1 / 3)


def test_factor_and_scale_move_the_histogram_by_their_powers_of_two(digits):
    histograms, _ = underflowing(digits, 128, 0.1)
    middle = {
        name: sum(power * share for power, share in zip(underflow.EDGES, shares, strict=True)) / sum(shares)
        for name, shares in histograms.items()
    }
    assert middle["loss × 1"] - middle["loss × 2e-5"] == pytest.approx(-math.log2(LOSS_FACTOR), abs=0.1)
    assert middle["loss × 2e-5, scale 1000"] - middle["loss × 2e-5"] == pytest.approx(math.log2(1000), abs=0.1)


def test_an_epoch_has_each_image_once_and_the_next_has_another_order(digits):
    trainings = recipes.Trainings(recipes.RECIPES["fp32"], digits, (0,), 64, 0.1, 8)
    steps = len(digits.train_x) // 64
    first, second = ([trainings.batch_of(epoch * steps + step)[0][0] for step in range(steps)] for epoch in (0, 1))
    assert len({image.numpy().tobytes() for batch in first for image in batch}) >= 0.99 * 64 * steps, "a few images are alike"
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_accuracy_counts_all_images_also_those_of_a_smaller_last_part(digits):
    trainings = recipes.Trainings(recipes.RECIPES["fp32"], digits, (0, 1), 64, 0.1, 20).run()
    x, y = digits.train_x, digits.train_y
    assert len(x) > 1000 and len(x) % 1000
    logits, _ = recipes.forward(trainings.weights, x.expand(2, *x.shape), half=False)
    assert trainings.accuracy(x, y) == pytest.approx((logits.argmax(2) == y).double().mean(1).tolist())


def test_lost_updates_and_zero_gradients_are_the_mean_shares_of_every_tenth_step(digits):
    trainings = recipes.Trainings(recipes.RECIPES["fp16, scale 1000"], digits, (0,), 64, 0.1, 20)
    lost, zeros = [], []
    for step in range(20):
        gradients, _ = trainings.gradients(*trainings.batch_of(step))
        before = trainings.weights
        trainings.step()
        if step % 10 == 0:
            count = sum(w.numel() for w in before)
            changes = zip(before, trainings.weights, trainings.buffers, strict=True)
            lost.append(sum(((a == b) & (update != 0)).sum().item() for a, b, update in changes) / count)
            zeros.append(sum((g == 0).sum().item() for g in gradients) / count)
    assert float(trainings.lost) == pytest.approx(sum(lost) / 2)
    assert float(trainings.zeros) == pytest.approx(sum(zeros) / 2)
    assert 0 < sum(zeros) and 0 < sum(lost) < 1


def test_without_master_weights_a_step_goes_against_the_scaled_gradient_and_is_rounded(digits):
    trainings = recipes.Trainings(recipes.RECIPES["fp16, scale 1000"], digits, (0,), 64, 0.1, 20)
    before = trainings.weights
    trainings.step()
    for old, new, buffer in zip(before, trainings.weights, trainings.buffers, strict=True):
        assert torch.equal(new, recipes.rounded(old - 0.1 / 1000 * buffer))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_the_numbers_of_a_seed_do_not_depend_on_the_other_seeds(digits, name):
    together = recipes.Trainings(recipes.RECIPES[name], digits, (3, 5), 64, 0.1, 8).run()
    alone = recipes.Trainings(recipes.RECIPES[name], digits, (5,), 64, 0.1, 8).run()
    for a, b in zip(together.weights, alone.weights, strict=True):
        torch.testing.assert_close(a[1], b[0], rtol=0, atol=2e-3)  # a batched product may add in another order


def test_the_fp32_recipe_is_torchs_own_training(digits):
    ours = recipes.Trainings(recipes.RECIPES["fp32"], digits, (0,), 64, 0.1, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = recipes.small_net(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        x, y = ours.batch_of(step)
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 5)
        loops.train_fp32(model, optimizer, [(x[0], y[0])])
        ours.step()
    for a, b in zip(ours.weights, model.parameters(), strict=True):
        torch.testing.assert_close(a[0], b.detach(), rtol=1e-4, atol=1e-6)


def distances_from_half(weights, x, y, device):
    """Distances of the gradients of the fp16 recipe from those of torch's half modules, each relative to its norm."""
    recipe = recipes.RECIPES["fp16, scale 1000"]
    scale = torch.full((1,), 1000.0, device=device)
    emulated, _ = recipes.loss_gradients(weights, x[None], y[None], recipe, scale, 1.0)
    model = recipes.small_net(x.shape[-1]).to(device)
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        parameter.data.copy_(weight[0])
    model.half()
    true = torch.autograd.grad(F.cross_entropy(model(x.half()), y) * 1000, list(model.parameters()))
    return [((a[0] - b.float()).norm() / a[0].norm()).item() for a, b in zip(emulated, true, strict=True)]


def test_the_fp16_recipes_gradients_are_those_of_a_half_model(digits):
    weights = [recipes.rounded(w) for w in recipes.initial_parameters(8, (0,), CPU)]
    assert max(distances_from_half(weights, digits.train_x[:16], digits.train_y[:16], CPU)) < 0.01


def test_mixed_skips_an_overflowing_seed_and_trains_the_other(digits):
    trainings = recipes.Trainings(recipes.RECIPES["mixed"], digits, (0, 1), 64, 0.1, 4)
    trainings.scaler.scale[0] = 2.0**40
    before = [w.clone() for w in trainings.weights]
    trainings.step()
    assert all(torch.equal(a[0], b[0]) for a, b in zip(trainings.weights, before, strict=True))
    assert any(not torch.equal(a[1], b[1]) for a, b in zip(trainings.weights, before, strict=True))
    assert trainings.scale.tolist() == [2.0**39, 2.0**16] and trainings.skipped.tolist() == [1, 0]


def test_the_batched_scaler_stays_at_the_largest_scale_as_torchs_does():
    ours, parameter = recipes.BatchedScaler(1, CPU, 2.0**126, 1), torch.nn.Parameter(torch.ones(1))
    torchs = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    for _ in range(4):
        ours.update(torch.tensor([False]))
        torchs.scale(torch.zeros(()))
        parameter.grad = torch.zeros(1)
        torchs.step(optimizer)
        torchs.update()
    assert ours.scale.item() == torchs.get_scale() == 2.0**127


def test_the_batched_scaler_follows_torchs_rule():
    ours, parameter = recipes.BatchedScaler(1, CPU, 8.0, 3), torch.nn.Parameter(torch.ones(1))
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


@pytest.mark.parametrize("case", loss_scaler.CASES, ids=["default", "others", "below 1", "far"])
def test_the_exercises_right_step_is_that_of_torchs_scaler(case):
    options, start, gradients = case
    factors = dict(growth_factor=options["growth"], backoff_factor=options["backoff"], growth_interval=options["interval"])
    scaler = torch.amp.GradScaler("cpu", init_scale=start, **factors)
    weight = loss_scaler.START.clone().requires_grad_()
    optimizer, trace = torch.optim.SGD([weight], lr=options["lr"]), []
    for gradient in gradients:
        scale = scaler.scale(torch.ones(()))
        weight.grad = (scale * torch.tensor(gradient)).half().float()
        scaler.step(optimizer)
        scaler.update()
        trace.append(loss_scaler.row_of((weight.detach(), scaler.get_scale(), scaler._get_growth_tracker())))
    assert same(loss_scaler.trace_of(loss_scaler.scaled_step, *case), trace)


def test_growth_at_the_wrong_time_is_noticed():
    def row(scale, after, overflow=False):
        return ScalerStep(step=0, scale=scale, overflow=overflow, changed=not overflow, next_scale=after)

    assert doubles_every_interval([row(1, 1), row(1, 2)], 2)
    assert not doubles_every_interval([row(1, 2), row(2, 2)], 2)
    assert not doubles_every_interval([row(1, 1), row(1, 0.5, True), row(0.5, 1)], 2)


def test_master_weights_keep_updates_that_fp16_weights_lose():
    x, y = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10
    data = DataSet("noise", x, y, x, y)
    names = ("fp16, scale 1000", "mixed")
    half, master = (recipes.Trainings(recipes.RECIPES[name], data, (0,), 32, 1e-3, 10).run().lost for name in names)
    assert half > 0.5 > 0.1 > master


def test_cudas_autocast_list_is_that_of_the_table_by_tensors_without_memory():
    """Tensors of torch's tracer claim to be on a GPU: autocast casts them as it would there."""
    was = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    try:
        with FakeTensorMode():
            x, w = torch.empty(2, 8, 8, device="cuda")
            seen = {name: dict(dtypes(lambda call=call: call(x, w))) for name, (_, call) in PROBES.items()}
    finally:
        torch.set_autocast_enabled("cuda", was[0])
        torch.set_autocast_dtype("cuda", was[1])
        torch.clear_autocast_cache()
    float32 = {name for name, (operator, _) in PROBES.items() if seen[name][operator] == torch.float32}
    assert float32 == FLOAT32["cuda"] and seen["linear"]["addmm"] == torch.float16
    assert seen["cross_entropy"]["_log_softmax"] == torch.float16  # inside, and only there


@pytest.mark.cuda
def test_cudas_autocast_list_is_that_of_the_table():
    for dtype in (torch.float16, torch.bfloat16):
        rows = autocast_table(torch.device("cuda"), dtype)
        assert [row for row in rows if row.result != row.expected] == []


@pytest.mark.cuda
def test_the_emulation_is_close_to_the_gpus_own_fp16():
    device = torch.device("cuda")
    data = load("digits", device)
    weights = [recipes.rounded(w) for w in recipes.initial_parameters(8, (0,), device)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert max(distances_from_half(weights, data.train_x[:128], data.train_y[:128], device)) < 0.01


@pytest.mark.cuda
@pytest.mark.parametrize("experiment", (amp_training.amp_training, loss_scaling), ids=lambda experiment: experiment.slug)
def test_the_experiments_are_sound_on_a_gpu(experiment, sound):
    sound(experiment("quick", device="cuda"))


def test_the_exercises_batches_overflow_to_nan_and_to_infinities_only():
    model = torch.nn.Linear(3, 1)
    kinds = []
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.5, 1.0]]))
        model.bias.zero_()
    for x_size, y_size, _ in clip_with_scaler.BATCHES:
        loss = 1024 * F.mse_loss(model(x_size * clip_with_scaler.X), torch.full((2, 1), y_size))
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        kinds.append("finite" if gradient.isfinite().all() else "nan" if gradient.isnan().any() else "inf")
    assert kinds == ["finite"] * 3 + ["nan", "finite", "inf", "finite"]
