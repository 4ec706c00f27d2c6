"""The experiments of notebook 03 hold what they claim, and their figures can be drawn from a file."""

from dataclasses import replace

import pytest
import torch

from hpml_lab import nets
from hpml_lab.core.show import style
from hpml_lab.core.timing.clock import PLACEBO, STUCK, Timing
from hpml_lab.nets.experiments import manual_sgd as manual_sgd_module
from hpml_lab.nets.experiments import move_to_gpu as move_to_gpu_module
from hpml_lab.nets.experiments import xor as xor_module
from hpml_lab.nets.experiments.move_to_gpu import step_flops
from hpml_lab.nets.experiments.three_layer_net import LossCase
from hpml_lab.nets.experiments.xor import Slopes
from hpml_lab.nets.lessons import sgd_by_hand

SMALL = {  # the experiments at sizes of a second or so
    "three_layer_net": {"samples": 64, "steps": 200, "lr": 0.05},
    "manual_sgd": {"batch": 8, "steps": 20, "lr": 0.01},
    "move_to_gpu": {"widths": (8, 64), "batch": 16, "same_steps": 300, "threads": 1, "samples": 3},
}
GPU_FIGURES = ("XOR step on the GPU", "widest net's step on the GPU", "narrowest net for which the GPU is faster")


def small(name, device="cpu"):
    return replace(getattr(nets, name), quick=SMALL[name])("quick", device=device)


@pytest.fixture(scope="module")
def results(ran):
    return {name: ran(name.replace("_", "-")) for name in NAMES}


NAMES = [*SMALL, "xor"]


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_sound(results, name, sound):
    sound(results[name])


def test_three_layer_net_reports_layers_losses_and_what_this_torch_does_with_integers(results):
    result = results["three_layer_net"]
    *layers, whole_net = result.rows()
    assert [layer.name for layer in layers] == ["fc1", "fc2", "fc3"]
    assert whole_net.parameters == result.here("parameters") == 41_854
    [figure] = [figure for figure in result.key_figures if figure.label == "layers"]
    assert figure.here == figure.lecture == "256-120-84-10"
    outcomes = {row.case: row.outcome for row in result.rows(LossCase)}
    backward = outcomes["an int64 target, backward pass in this torch"]
    assert backward == "works" or "Found dtype Long but expected Float" in backward
    assert "Using a target size" in outcomes["a batch of 4 and one target"]


def test_three_layer_net_notices_a_net_that_learns_nothing():
    """Its claims can fail: without steps neither training does what it claims."""
    still = replace(nets.three_layer_net, quick={"samples": 64, "steps": 1, "lr": 0.0})("quick", device="cpu")
    assert not still
    assert sum(not claim.holds for claim in still.claims) == 2


def test_manual_sgd_distinguishes_identical_from_close(results):
    result = results["manual_sgd"]
    identical = {row.update: row.identical for row in result.rows()}
    assert identical[sgd_by_hand.ALPHA]
    assert all(curve[-1] < curve[0] for curve in result.arrays["losses"].values()), "every form learns"
    assert set(result.arrays["losses"]) == set(result.arrays["differences"]) == set(identical)
    assert identical[manual_sgd_module.DEFAULT], "on a CPU it is the plain loop"


def test_manual_sgd_notices_a_wrong_update(monkeypatch):
    @torch.no_grad()
    def twice(net, lr):
        for weight in net.parameters():
            weight.sub_(weight.grad, alpha=2 * lr)

    monkeypatch.setitem(sgd_by_hand.BY_HAND, sgd_by_hand.ALPHA, twice)
    result = small("manual_sgd")
    assert not result and not result.claims[0].holds


def test_xor_has_the_known_fractions(results):
    """Measured before this program was written, with the same initialization: 1, 1, 140 and 196 of 200 seeds."""
    result = results["xor"]
    lecture = result.rows()[0]
    found = [lecture.after_1000, lecture.after_2000, lecture.after_5000, lecture.after_10000]
    assert found == pytest.approx([0.5, 0.5, 70, 98], abs=1.01)
    assert result.here("seeds right after 5000 epochs") == lecture.after_5000
    assert result.here("predictions for 00, 01, 10, 11 of the seed of median speed") == "0 1 1 0"


def test_wrong_nets_of_adam_are_those_that_merge_two_inputs(results):
    """The hidden values of right nets differ by more than a half; those of wrong ones by rounding."""
    _, right, wrong = results["xor"].rows(Slopes)
    assert wrong.seeds > 0 and wrong.distance < 1e-3 and right.distance > 0.5
    assert right.weight > wrong.weight, "large weights are not what is wrong"
    told = next(claim for claim in results["xor"].claims if "tell two inputs" in claim.text)
    assert told.holds and f"{wrong.seeds} wrong nets, {wrong.seeds} whose" in told.measured


def test_xor_draws_a_seed_that_learns_and_the_slowest(results, same_picture, as_shown):
    result = results["xor"]
    median, slowest = result.arrays["panels"]["median"], result.arrays["panels"]["slowest"]
    first = result.arrays["first_right"]
    assert first[median["seed"]] is not None
    assert first[slowest["seed"]] is None, "some seed has not learned after 10 000 epochs"
    assert [snapshot["epoch"] for snapshot in median["snapshots"]] == list(xor_module.SNAPSHOTS)
    drawn = [nets.xor_surfaces(result, which) for which in ("median", "slowest")]
    assert [len(picture.figure.axes) for picture in drawn] == [5, 5] and "four epochs" in drawn[0].caption
    assert as_shown(result, drawn[0].figure, nets.xor_surfaces)
    assert not as_shown(result, result.figure(), nets.xor_surfaces), "it sees another figure"
    assert not same_picture(drawn[0].figure, drawn[1].figure)


def test_the_slopes_of_nets_are_those_that_autograd_computes():
    stack = nets.stack_of_nets(range(3))
    chosen = torch.tensor([False, True, False])
    found = xor_module.slopes_of("the second", stack, chosen)
    torch.manual_seed(1)
    net = nets.XorNet()
    loss = torch.nn.BCELoss()(net(xor_module.INPUTS), xor_module.TARGETS)
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    assert (found.seeds, found.loss) == (1, pytest.approx(loss.item()))
    assert found.gradient == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert found.weight == pytest.approx(max(parameter.abs().max().item() for parameter in net.parameters()))
    assert xor_module.slopes_of("none", stack, ~torch.ones(3, dtype=torch.bool)).gradient is None


def test_nets_trained_together_are_compared_with_the_same_program_for_one_net():
    def timing(seconds):
        return Timing((seconds,) * 9, 1)

    times = {xor_module.LOOP: timing(9e-4), xor_module.ONE: timing(1e-4), xor_module.ALL: timing(2e-4), PLACEBO: timing(1e-4)}
    gain = xor_module.gain_of_batching(times, 200)
    assert gain.ratio == pytest.approx(100) and gain.faster and gain.noise == pytest.approx(0)
    assert xor_module.gain_of_batching(times, 2).verdict == "within noise", "the loop's autograd counts for nothing here"


def test_move_to_gpu_without_a_gpu_says_so_and_makes_nothing_up(results):
    result = results["move_to_gpu"]
    for row in result.rows():
        assert row.cpu_us > 0 and (row.gpu_us, row.gpu_gflops, row.gain, row.verdict, row.copy_us) == (None,) * 5
    assert [result.here(label) for label in GPU_FIGURES] == [None] * 3
    assert any("--size full" in note for note in result.notes)


def test_move_to_gpu_finds_the_narrowest_net_for_which_the_gpu_is_faster_beyond_noise(monkeypatch):
    """On a machine with two devices: the second one needs 100 µs for every step, the first one 1 µs for each unit of width."""
    from hpml_lab.nets.experiments import move_to_gpu as module

    def setup(width):
        net = nets.ThreeLayerNet(hidden=(width, width))
        return module.TrainingSetup(f"{width}", width, net, torch.randn(2, 256), torch.randn(2, 10), torch.nn.MSELoss())

    def row_of(width, cpu_us, again_us):
        times = {"cpu": cpu_us, "gpu": 100.0, PLACEBO: again_us}
        monkeypatch.setattr(module, "interleaved", lambda *_, **__: {n: Timing((t / 1e6,) * 5, 1) for n, t in times.items()})
        monkeypatch.setattr(module, "measure", lambda *_, **__: Timing((1e-6,) * 5, 1))
        return module.timed(setup(width), torch.device("meta"), 1, 5)

    row, gain = row_of(64, cpu_us=64, again_us=64)
    assert gain.slower and row.gain == pytest.approx(0.64) and row.gpu_us == 100
    row, gain = row_of(128, cpu_us=128, again_us=96)
    assert row.gain == pytest.approx(0.96) and gain.verdict == "within noise", "the same step twice differs as much"
    row, gain = row_of(1024, cpu_us=1024, again_us=1000)
    assert gain.faster and row.interval == gain.interval


def test_the_gain_per_flop_does_not_depend_on_how_much_is_computed(monkeypatch):
    from hpml_lab.nets.experiments import move_to_gpu as module

    narrow, wide = (
        module.TrainingSetup(
            f"{w}", w, nets.ThreeLayerNet(hidden=(w, w)), torch.randn(2, 256), torch.randn(2, 10), torch.nn.MSELoss()
        )
        for w in (8, 64)
    )
    flops = {"8": module.step_flops(narrow.net, 2), "64": module.step_flops(wide.net, 2)}
    flops[PLACEBO] = flops["8"]
    monkeypatch.setattr(module, "interleaved", lambda *_, **__: {n: Timing((f / 1e9,) * 5, 1) for n, f in flops.items()})
    assert module.gain_per_flop(narrow, wide, 5).ratio == pytest.approx(1)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_move_to_gpu_takes_the_better_of_one_thread_and_all_where_no_number_is_given(monkeypatch, device):
    from hpml_lab.nets.experiments import move_to_gpu as module

    asked = []
    monkeypatch.setattr(module, "best_threads", lambda *_, **__: Timing((5e-6,) * 5, threads=3))
    monkeypatch.setattr(module, "measure", lambda *_, **__: Timing((9e-6,) * 5, 1))
    both = {name: Timing((5e-6,) * 5, 1) for name in ("cpu", "gpu", PLACEBO)}
    monkeypatch.setattr(module, "interleaved", lambda *_, threads, **__: (asked.append(threads), both)[1])
    net = nets.ThreeLayerNet(hidden=(8, 8))
    work = module.TrainingSetup("8", 8, net, torch.randn(2, 256), torch.randn(2, 10), torch.nn.MSELoss())
    row, _ = module.timed(work, torch.device(device), None, 5)
    assert row.cpu_us == pytest.approx(5) and asked == ([3] if device == "meta" else [])


def test_move_to_gpu_does_not_believe_a_clock_that_gives_equal_times_for_unequal_work(monkeypatch):
    monkeypatch.setattr(move_to_gpu_module, "measure", lambda *_, **__: Timing((8e-3,) * 5, 1))
    assert STUCK in (result := small("move_to_gpu")).notes and result, "a note, and nothing fails"


def test_step_flops_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    for net, inputs in ((nets.ThreeLayerNet(hidden=(16, 16)), 256), (nets.XorNet(), 2)):
        counter = FlopCounterMode(display=False)
        with counter:
            net(torch.randn(8, inputs)).sum().backward()
        assert step_flops(net, 8) == counter.get_total_flops()


@pytest.mark.cuda
@pytest.mark.parametrize("name", SMALL)
def test_exact_claims_hold_on_a_gpu(name):
    result = small(name, device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert repr(result) == repr(small(name)), "the same text on both"


@pytest.mark.cuda
def test_move_to_gpu_measures_both_devices_where_there_is_a_gpu():
    result = small("move_to_gpu", device="cuda")
    assert all(row.gpu_us > 0 and row.copy_us > 0 for row in result.rows())
    assert None not in [result.here(label) for label in GPU_FIGURES]
    assert not result.notes
    assert style.png(result.figure())
