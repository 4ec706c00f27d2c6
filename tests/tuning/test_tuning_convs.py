"""cuDNN's search, the layout of images, and the run with all switches: what changes is speed and memory, not the numbers."""

import traceback
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpml_lab.core.experiment import Params, registry
from hpml_lab.core.system.device import Device, choose_device
from hpml_lab.core.timing.counting import operators
from hpml_lab.data import load
from hpml_lab.tuning.experiments import all_switches, channels_last, cudnn_benchmark, turns
from hpml_lab.tuning.experiments.all_switches import SwitchedStep
from hpml_lab.tuning.experiments.all_switches import in_process as switches_in_process
from hpml_lab.tuning.experiments.all_switches.in_process import peak_of_step
from hpml_lab.tuning.experiments.channels_last import LayoutTiming, conv_layouts
from hpml_lab.tuning.experiments.cudnn_benchmark import DEFAULT, LECTURE, FirstCall, SearchTiming, by_fft, by_product
from hpml_lab.tuning.experiments.cudnn_benchmark import in_process as search_in_process
from hpml_lab.tuning.experiments.cudnn_benchmark.in_process import ConvolutionCase, Convolutions
from hpml_lab.tuning.experiments.tuned_networks import gradient_bytes
from hpml_lab.tuning.experiments.turns import Remote, in_turns, own_process
from hpml_lab.tuning.lessons.switches import OPTIMIZATIONS, GuideSwitches, SwitchedRun, cudnn_search

EXPERIMENTS = [cudnn_benchmark.cudnn_benchmark, channels_last.channels_last, all_switches.all_switches]
IMAGES, LABELS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10


def run(switches, dtype=torch.float64):
    return SwitchedRun(switches, IMAGES.to(dtype), LABELS, channels=8, blocks=1, batch=16)


SEARCH = dict(batch=1, channels=2, side=4, samples=5, shapes=2)
SWITCHES = dict(data="digits", channels=4, blocks=1, batch=8, steps=1, samples=5)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.slug)
def test_the_experiment_is_sound(experiment, ran, sound):
    sound(ran(experiment.slug))


@contextmanager
def here(kind, *arguments):
    """Stands for `own_process` and stays in this process."""
    yield kind(*arguments)


class SaidToBeGpu(Device):
    """A CPU that says it is a GPU, with TF32."""

    is_cuda = True

    def can(self, what):
        return True


class Older(SaidToBeGpu):
    """The same without TF32, such as a T4."""

    def can(self, what):
        return False


class FakeConvolutions:
    """A GPU's convolutions with the search off or on, and known times: the search gains much in one case, 1 % in the others."""

    WORKS = ("forward", "forward + backward")
    GAINS = dict.fromkeys(["float16, channels last"], 3.0)

    def __init__(self, search, _, cases):
        self.search, self.cases = search, cases

    def seconds(self, case, work):
        return 3e-3 / self.GAINS.get(case, 1.01) if self.search else 3e-3

    def first_calls(self, shapes):
        return 9e-3 if self.search else 2e-3

    def longest_kernel(self, case, work):
        return f"winograd of {case}" if self.search else f"gemm of {case}"

    def output(self, case):
        return np.full(4, (2.01 if "float16" in case else 2.001) if self.search else 2.0)


@pytest.fixture
def searched(monkeypatch):
    """(kind of device, gains) runs the experiment with the times of FakeConvolutions."""

    def run_experiment(kind=SaidToBeGpu, gains=None):
        monkeypatch.setattr(registry, "choose_device", lambda _: kind(*vars(choose_device("cpu")).values()))
        monkeypatch.setattr(cudnn_benchmark, "own_process", here)
        monkeypatch.setattr(cudnn_benchmark, "Convolutions", FakeConvolutions)
        monkeypatch.setattr(FakeConvolutions, "GAINS", FakeConvolutions.GAINS if gains is None else gains)
        return replace(cudnn_benchmark.cudnn_benchmark, quick=SEARCH | dict(channels=8, side=9))("quick")

    return run_experiment


def test_a_time_is_in_the_column_of_the_state_it_was_measured_with(searched):
    result = searched()
    rows = {row.case: row for row in result.rows(SearchTiming)}
    assert len(rows) == 5 and "float16, 5 channels, 6 × 6" in rows
    row = rows["float16, channels last"]
    assert (row.off_ms, row.on_ms, row.gain) == (pytest.approx(3), pytest.approx(1), pytest.approx(3))
    assert (row.off_kernel, row.on_kernel) == (f"gemm of {row.case}", f"winograd of {row.case}") and row.verdict == "faster"
    assert [(row.search, row.first_ms) for row in result.rows(FirstCall)] == [("off", 2), ("on", 9)]


def test_a_profiler_that_sees_no_kernels_is_no_error(monkeypatch, searched, sound):
    monkeypatch.setattr(search_in_process, "kernels", lambda work, device: [])
    nets = Convolutions(False, torch.device("cpu"), {"": ConvolutionCase(1, 2, 4)})
    name = nets.longest_kernel("", "forward")
    monkeypatch.setattr(FakeConvolutions, "longest_kernel", lambda *_: name)
    result = searched()
    sound(result)
    assert {name for row in result.rows(SearchTiming) for name in (row.off_kernel, row.on_kernel)} == {None}


def test_the_key_figure_is_the_lectures_case_and_the_one_that_gains_most(searched, sound):
    result = searched()
    sound(result)
    assert result.here(f"forward, {LECTURE}, speed-up") == pytest.approx(1.01)
    assert result.here("the most that the search gains").startswith("3× faster")
    assert "float16, channels last" in result.here("the most that the search gains")
    claims = {claim.text: claim for claim in result.claims}
    assert not claims["The search makes the lecture's convolution faster"].holds, "1 % is not claimed"
    assert claims["The search makes at least one of the convolutions faster"].holds
    assert claims["The search changes no output in float16 by more than 1e-2 of the largest"].measured == "5.0e-03"
    [note] = result.notes
    assert "2 of 10 passes faster and 0 slower" in note and "adds 7 ms" in note and "after 4 calls" in note  # 3.5: 7 / (3 - 1)


def test_where_the_search_gains_nothing_the_result_says_so_and_what_it_cost(searched):
    result = searched(gains={})
    assert not any(claim.holds for claim in result.claims if "faster" in claim.text)
    assert {row.verdict for row in result.rows(SearchTiming)} == {"less than 2 %"}
    assert [note for note in result.notes if "saved" in note] == [] and "0 of 10 passes faster" in result.notes[0]


def test_a_gpu_without_tf32_has_no_case_for_it(searched):
    assert [row.case for row in searched().rows(SearchTiming)].count(DEFAULT) == 2
    cases = [row.case for row in searched(Older).rows(SearchTiming)]
    assert DEFAULT not in cases and cases.count(LECTURE) == 2 and len(cases) == 8


def test_the_cases_differ_from_the_lectures_in_what_their_names_say():
    gpu = SaidToBeGpu(*vars(choose_device("cpu")).values())
    cases = cudnn_benchmark.convolution_cases(Params(device=gpu, **SEARCH | dict(channels=8, side=9)))
    lecture, default, half, last, odd = cases.values()
    assert [*cases][:2] == [LECTURE, DEFAULT] and (lecture.tf32, lecture.dtype) == (False, torch.float32)
    assert default == replace(lecture, tf32=True) and half == replace(lecture, dtype=torch.float16)
    assert last == replace(half, layout=torch.channels_last) and odd == replace(half, channels=5, side=6)


def test_the_recorded_gain_of_one_percent_has_no_color():
    axes = cudnn_benchmark.cudnn_benchmark.reference().figure().axes[0]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1


def test_each_case_runs_with_its_own_format_layout_and_settings(monkeypatch):
    seen, conv2d = [], torch.nn.functional.conv2d

    def noted(x, weight, **options):
        layout = x.is_contiguous(memory_format=torch.channels_last)
        seen.append((tuple(x.shape), weight.dtype, layout, torch._C._get_cudnn_allow_tf32(), torch._C._get_cudnn_benchmark()))
        return conv2d(x, weight, **options)

    monkeypatch.setattr(torch.nn.functional, "conv2d", noted)
    lecture = ConvolutionCase(2, 4, 8, tf32=False)
    other = replace(lecture, dtype=torch.bfloat16, layout=torch.channels_last, tf32=True, side=5)
    nets = Convolutions(True, torch.device("cpu"), {"lecture": lecture, "other": other})
    for _ in range(2):  # settings that can be entered only once would raise here
        for case in ("lecture", "other"):
            assert [tuple(g.shape) for g in nets.run(case, "forward + backward")] == [seen[-1][0], (4, 4, 3, 3)]
    assert seen[:2] == [((2, 4, 8, 8), torch.float32, False, False, True), ((2, 4, 5, 5), torch.bfloat16, True, True, True)]
    nets.first_calls(1)
    assert [(shape[-1], tf32, benchmark) for shape, _, _, tf32, benchmark in seen[4:]] == [(10, False, True), (12, False, True)]


def test_each_state_of_the_search_has_a_process_of_its_own():
    small = (torch.device("cpu"), {"": ConvolutionCase(1, 2, 4)})
    with own_process(Convolutions, True, *small) as on, own_process(Convolutions, False, *small) as off:
        assert on.seconds("", "forward") > 0 and (on.output("") == off.output("")).all()
        with pytest.raises(RuntimeError, match="no attribute 'flies'"):
            on.flies()
        with pytest.raises(RuntimeError, match="flies"):  # it has ended
            on.flies()
    assert torch.backends.cudnn.benchmark is False


def test_a_gpu_that_is_full_for_another_process_is_full():
    def receive(*_, **__):
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        except torch.OutOfMemoryError:
            return "raised", traceback.format_exc()

    remote = Remote(SimpleNamespace(connection=SimpleNamespace(send=lambda _: None), receive=receive))
    with pytest.raises(torch.OutOfMemoryError, match=r"run step\(\) failed"):
        remote.step()


def test_turns_alternate():
    order = []
    times = in_turns({name: lambda name=name: order.append(name) or len(order) for name in "ab"}, samples=3)
    assert "".join(order) == "ababab" and times["b"].samples == (2, 4, 6)


def test_on_a_cpu_there_is_no_search_and_no_gain(ran):
    result = ran("cudnn-benchmark")
    assert all(row.off_ms > 0 and row.on_ms is row.gain is row.verdict is None for row in result.rows(SearchTiming))
    # A CPU's time, of another batch, is neither drawn with the lecture's nor set beside it.
    assert result.key_figures == []
    assert len(result.figure().axes[0].patches) == 1
    assert [claim for claim in result.claims if not claim.exact] == []


@pytest.mark.parametrize("side", [1, 3, 5])
def test_a_convolution_is_also_a_product_of_matrices_and_of_spectra(side):
    x, weight = torch.randn(2, 3, 7, 10).double(), torch.randn(4, 3, side, side).double()
    direct = torch.nn.functional.conv2d(x, weight, padding=side // 2)
    for way in (by_product, by_fft):
        torch.testing.assert_close(way(x, weight), direct)


def test_first_calls_are_their_median_without_the_very_first(monkeypatch):
    clock = iter([0.0, 90.0, 100.0, 103.0, 200.0, 201.0, 300.0, 302.0])
    monkeypatch.setattr(search_in_process, "perf_counter", lambda: next(clock))
    assert Convolutions(False, torch.device("cpu"), {"": ConvolutionCase(1, 2, 4)}).first_calls(3) == 2


def test_the_time_of_a_layout_is_that_of_its_own_images(known_times, monkeypatch):
    layouts = []

    class Net(torch.nn.Sequential):
        def forward(self, x):
            layouts.append(x.is_contiguous(memory_format=torch.channels_last))
            return super().forward(x)

    def small_net(**_):
        return Net(torch.nn.Conv2d(3, 10, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    def seconds(_, step):
        step()
        return 1e-3 if layouts[-1] else 2e-3

    monkeypatch.setattr("torchvision.models.resnet18", small_net)
    known_times(turns, seconds)
    result = replace(channels_last.channels_last, quick=dict(batch=2, side=8, samples=3))("quick", device="cpu")
    for row in result.rows(LayoutTiming):
        assert (row.nchw_ms, row.nhwc_ms, row.gain) == (pytest.approx(2), pytest.approx(1), pytest.approx(2))


def test_with_known_times_a_larger_batch_counts_all_its_samples(monkeypatch):
    monkeypatch.setattr(switches_in_process.SwitchBench, "seconds", lambda _, name: 2.0 if "debugging" in name else 1.0)
    result = replace(all_switches.all_switches, quick=SWITCHES)("quick", device="cpu")
    steps = {row.switches: (row.step_ms, row.gain, row.verdict) for row in result.rows(SwitchedStep)}
    assert steps["all off"] == steps["all on"] == (1000, 1, "within noise")
    assert steps["all off, debugging"] == (2000, 0.5, "slower")
    assert steps["all on, batch × 4"] == (1000, 4, "faster")
    assert "search" not in steps, "on a CPU there is none"


def test_runs_with_the_search_and_without_it_are_in_different_processes(monkeypatch):
    made, asked = [], []

    class FakeBench:
        def __init__(self, runs, *_):
            self.runs = runs
            made.append(runs)

        def seconds(self, name):
            asked.append((made.index(self.runs), name))
            return 1.0

        def counts(self, name, steps):
            return switches_in_process.SwitchCounts(1, 1, 1, [self.runs[name][1]] * steps)

    monkeypatch.setattr(all_switches, "own_process", here)
    monkeypatch.setattr(all_switches, "SwitchBench", FakeBench)
    compared = all_switches.compared_switches(has_cudnn=True)
    params = Params(device=choose_device("cpu"), **SWITCHES | dict(samples=1))
    times, counts = all_switches.measure_switches(compared, params, "digits", processes=True)
    off, on, placebo = made
    assert set(off) | set(on) == set(compared) and set(placebo) == {"all off"}
    assert all(run.search for run, _ in on.values()) and not any(run.search for run, _ in off.values())
    assert {"search", "all on"} <= set(on) and (2, "all off") in asked and (0, "all off") in asked
    assert on["all on, batch × 4"][1] == 4 * 8 and set(times) == {*compared, "placebo"}
    assert counts["all on, batch × 4"].losses == [], "they would be compared with those of other batches"
    assert all(len(count.losses) == SWITCHES["steps"] for name, count in counts.items() if name != "all on, batch × 4")


def test_without_mnist_the_batches_of_full_size_are_whole(monkeypatch, without_mnist):
    class Asked(Exception):
        pass

    def measure_switches(compared, params, data, processes):
        raise Asked(data, params.batch)

    monkeypatch.setattr(all_switches, "measure_switches", measure_switches)
    with pytest.raises(Asked) as asked:
        all_switches.all_switches.function(Params(device=choose_device("cpu"), **all_switches.FULL))
    data, batch = asked.value.args
    assert data == "digits" and 0 < all_switches.FACTOR * batch <= len(load(data).train_x)


def test_losses_are_compared_in_float64_on_few_images(monkeypatch):
    """A copy in float64 of a run with 512 images took 33 GB on a GPU."""
    made = []

    class Noted(SwitchedRun):
        def __init__(self, switches, images, labels, **sizes):
            made.append((images.dtype, len(images), sizes["batch"]))
            super().__init__(switches, images, labels, **sizes)

    monkeypatch.setattr(switches_in_process, "SwitchedRun", Noted)
    runs = {"all off": (GuideSwitches(), 32)}
    bench = switches_in_process.SwitchBench(runs, torch.device("cpu"), "digits", channels=2, blocks=1)
    counts, without = bench.counts("all off", 3), bench.counts("all off", 0)
    assert len(counts.losses) == 3 and without.losses == []
    assert made[0][2] == 32 and made[1] == (torch.float64, 3 * 8, 8)


def test_a_run_gives_its_memory_back_after_each_sample(monkeypatch):
    """Three processes share a GPU: what the allocator of one keeps is missing in the others."""
    order = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: order.append("freed"))
    monkeypatch.setattr(switches_in_process, "one_sample", lambda step: order.append("sample") or 1.0)
    bench = switches_in_process.SwitchBench(
        {"all off": (GuideSwitches(), 2)}, torch.device("cpu"), "digits", channels=2, blocks=1
    )
    bench.seconds("all off")
    bench._device = torch.device("cuda")
    bench.seconds("all off")
    assert order == ["sample", "sample", "freed"]


def test_gradients_that_stay_from_step_to_step_are_part_of_the_peak(monkeypatch):
    monkeypatch.setattr(switches_in_process, "peak_bytes", lambda step, _: 1000)
    kept, dropped = run(GuideSwitches()), run(GuideSwitches(gradients_to_none=True))
    assert peak_of_step(kept) == 1000 + gradient_bytes(kept.net) > 1000
    assert peak_of_step(dropped) == 1000


@pytest.mark.parametrize("name", [*OPTIMIZATIONS, "debugging"])
def test_a_switch_changes_no_loss(name):
    off, on = run(GuideSwitches()), run(GuideSwitches(**{name: True}))
    for _ in range(6):
        assert on.step().item() == pytest.approx(off.step().item(), abs=1e-12)


def test_a_batch_that_was_changed_would_be_noticed():
    off, other = run(GuideSwitches()), run(GuideSwitches())
    other.batch_index = 1
    assert other.step().item() != pytest.approx(off.step().item(), abs=1e-6)


def test_the_run_trains():
    trained = run(GuideSwitches(**dict.fromkeys(OPTIMIZATIONS, True)))
    losses = [trained.step().item() for _ in range(40)]
    assert losses[-1] < losses[0]


def test_flags_are_restored_even_when_a_step_fails():
    failing = run(GuideSwitches(search=True, debugging=True))
    failing.optimizer.step = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        failing.step()
    assert torch.backends.cudnn.benchmark is False and not torch.is_anomaly_enabled()
    others = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    with torch.backends.cudnn.flags(enabled=True, deterministic=True), pytest.raises(KeyError), cudnn_search(True):
        assert torch.backends.cudnn.benchmark and torch.backends.cudnn.deterministic, "other flags are not touched"
        raise KeyError
    assert torch.backends.cudnn.benchmark is False
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32) == others


def test_each_operator_that_a_switch_saves_is_counted():
    counts = {name: len(operators(run(GuideSwitches(**{name: True})).step)) for name in ("fused_optimizer", "fused_pointwise")}
    off = [op.name for op in operators(run(GuideSwitches()).step)]
    assert off.count("erf") == 2 and len(off) > max(counts.values())


def test_a_layout_that_is_lost_between_layers_is_noticed():
    class Transposed(torch.nn.Module):
        def forward(self, x):
            return x.contiguous()

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Transposed(), torch.nn.Conv2d(4, 4, 3)).double()
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    assert conv_layouts(net, x) == (2, 0)
    net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    assert conv_layouts(net, x) == (2, 2)


@pytest.mark.cuda
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.slug)
def test_on_a_gpu_the_exact_claims_hold(experiment):
    result = experiment("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []


@pytest.mark.cuda
def test_on_a_gpu_the_search_takes_time_at_a_new_shape_and_only_where_it_is_on():
    result = cudnn_benchmark.cudnn_benchmark("quick", device="cuda")
    off, on = result.rows(FirstCall)
    assert on.first_ms > off.first_ms, "ten plans are run instead of one"
    assert all(row.gain > 0 and row.off_kernel and row.on_kernel for row in result.rows(SearchTiming))
    assert "search" in {row.switches for row in all_switches.all_switches("quick", device="cuda").rows(SwitchedStep)}
