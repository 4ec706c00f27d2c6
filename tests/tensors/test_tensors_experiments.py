"""The experiments of notebook 01 hold what they claim, and their kernels count rightly."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab import tensors
from hpml_lab.core.experiment import KeyFigure, Result, Table
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.report.machines import machine_cards
from hpml_lab.tensors import positions, shares_memory
from hpml_lab.tensors.experiments import cpu_vs_gpu as module
from hpml_lab.tensors.experiments.cpu_vs_gpu import Copy, Images, Product, Roofline, Transfer, comparisons, workloads
from hpml_lab.tensors.experiments.cpu_vs_gpu.comparisons import GpuGain, faster_from
from hpml_lab.tensors.experiments.cpu_vs_gpu.memories import Cache, caches
from hpml_lab.tensors.experiments.cpu_vs_gpu.rows import Measured
from hpml_lab.tensors.experiments.tensor_basics import Arithmetic, Construction, Expression, Move

CPU = torch.device("cpu")

# cpu-vs-gpu at sizes of a second or so, for a GPU machine
TINY = {"copy_kib": (64, 4096), "matmul": (8, 64), "batches": (1, 2), "elements": 4096, "matvec": 64, "transfer_mib": 8}


def test_tensor_basics_holds_all_its_claims(ran):
    result = ran("tensor-basics")
    assert len(result.claims) == 6 and all(claim.holds and claim.exact for claim in result.claims)
    memory = {row.text: row.memory for row in result.rows(Expression)}
    assert memory["x[:, 1]"] == memory["x.T"] == "shared with x"
    assert memory["x[[0, 2]]"] == memory["x.T.reshape(2, 6)"] == "its own"
    values = {row.text: row.values for row in result.rows(Arithmetic)}
    built = {row.text: (row.shape, row.dtype) for row in result.rows(Construction)}
    assert built["torch.zeros(2, 3)"] == ("(2, 3)", "torch.float32") and built["torch.tensor([1, 2])"][1] == "torch.int64"
    stays, cast, *_, meta = result.rows(Move)
    assert (stays.returns, cast.returns, cast.dtype, meta.device) == ("x itself", "a new tensor", "torch.float64", "meta")
    assert cast.numbers == "[0.0, 1.0, 2.0, 3.0]" and meta.numbers.startswith("NotImplementedError")
    assert values["a * b"] == "[4.0, 10.0, 18.0]" and values["a / b"] == "[0.25, 0.4, 0.5]"


def test_dtypes_are_those_that_the_notebook_names(ran):
    built = {row.text: row for row in ran("tensor-basics").rows(Construction)}
    assert [row.dtype for row in built.values()] == ["torch.float32"] * 3 + [
        "torch.int64",
        "torch.float32",
        "torch.float64",
        "torch.bool",
    ]
    low, high = map(float, built["torch.rand(1000)"].values.split(" to "))
    assert 0 <= low < 0.1 and 0.9 < high <= 1
    assert (torch.arange(3) + torch.ones(3)).dtype == (torch.arange(3) / torch.arange(1, 4)).dtype == torch.float32


def test_the_cnns_flops_by_formula_are_those_that_torch_counts():
    net, batch = workloads.SmallCNN(), 4
    images, labels = torch.zeros(batch, 1, 28, 28), torch.zeros(batch, dtype=torch.long)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        net(images)
    with FlopCounterMode(display=False) as training:
        F.cross_entropy(net(images), labels).backward()
    assert forward.get_total_flops() == net.flops(batch)
    assert training.get_total_flops() == net.training_flops(batch)


def output_error(device):
    """The largest difference of the CNN's outputs in float32 on a device from those in float64 on the CPU."""
    net, x = workloads.SmallCNN(), torch.randn(64, 1, 28, 28)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = copy.deepcopy(net).double()(x.double())
        return (net.to(device)(x.to(device)).cpu() - exact).abs().max().item()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_the_cnn_computes_the_same_on_each_device(device):
    assert output_error(device) < 1e-3


def test_cpu_vs_gpu_measures_every_kernel_and_marks_what_is_missing(ran):
    result = ran("cpu-vs-gpu")
    assert result
    assert all(len(result.rows(kind)) >= 2 for kind in (Copy, Product, Roofline, Images)) and not result.rows(Transfer)
    assert all(row.microseconds > 0 and row.device == "cpu" for row in result.rows(Measured))
    assert result.here("small CNN, inference: the GPU's best images/s over the CPU's") is None, "no GPU, no figure"
    largest = max(result.rows(Copy), key=lambda row: row.bytes)
    assert result.here("CPU memory bandwidth (large copy)") == largest.rate == result.arrays["ceilings"]["cpu"]["GB/s"] > 0
    assert any("GPU half is not measured" in note for note in result.notes)


def test_both_experiments_are_sound(ran, sound):
    sound(ran("cpu-vs-gpu"))
    sound(ran("tensor-basics"))


@pytest.mark.parametrize(
    "make, flops, size",
    [
        (workloads.copy, 0, 2 * 4 * 100),
        (workloads.add, 100, 3 * 4 * 100),
        (workloads.matvec, 2 * 100**2, 4 * (100**2 + 200)),
        (workloads.matmul, 2 * 100**3, 3 * 4 * 100**2),
    ],
)
def test_kernels_count_flops_and_bytes(make, flops, size):
    workload = make(100, CPU)
    assert (workload.flops, workload.bytes) == (flops, size)
    workload.work()


def test_convolution_flops_are_those_that_torch_counts():
    workload = workloads.conv(2, 8, 16, CPU)
    with FlopCounterMode(display=False) as counter:
        workload.work()
    assert counter.get_total_flops() == workload.flops


def gains(verdicts):
    return [GpuGain("product", n, 1.0, "", verdict) for n, verdict in verdicts.items()]


@pytest.mark.parametrize(
    "verdicts, found",
    [
        ({32: "slower", 64: "within noise", 128: "faster", 256: "faster"}, 128),
        ({32: "faster", 64: "slower", 128: "faster"}, 128),
        ({32: "faster", 64: "faster"}, "32, the smallest measured"),
        ({32: "slower", 64: "within noise"}, "none up to 64"),
    ],
)
def test_the_size_from_which_the_gpu_is_faster_is_beyond_noise_at_all_larger_sizes(verdicts, found):
    assert faster_from([*gains(verdicts), GpuGain("inference", 1, 9.0, "", "faster")], "product") == found


def test_the_figure_of_two_devices_is_drawn_without_a_gpu():
    """Rates of a CPU and of a GPU that is thirty times as fast, on one machine with four caches."""

    def rows(device, rate):
        yield from (Copy(device, 1.0, 0.0, kib << 10, rate) for kib in (32, 2048, 131072))
        yield from (Product(device, 1.0, 0.0, n, rate * n, n / 6) for n in (32, 256, 2048))
        yield from (
            Roofline(device, 1.0, 0.0, name, rate * x, rate, x, 1.0) for name, x in (("add", 1 / 12), ("conv 3×3", 100.0))
        )
        yield from (Images(device, 1.0, 0.0, work, b, rate * b) for work in ("inference", "training") for b in (1, 64))

    both = [*rows("cpu", 100.0), *rows("cuda:0", 3000.0)]
    tables = [Table(kind.__name__, [row for row in both if type(row) is kind]) for kind in (Copy, Product, Roofline, Images)]
    caches_of_both = [Cache("cpu", f"L{i}", 1 << 15 + 5 * i, 1, 1 << 15 + 5 * i) for i in (1, 2, 3)]
    tables.append(Table("Caches", [*caches_of_both, Cache("cuda:0", "L2", 60 << 20, 132, 60 << 20)]))
    limits = {name: {"GB/s": rate, "GFLOP/s": 1e4 * rate} for name, rate in (("cpu", 100.0), ("cuda:0", 3000.0))}
    figure = tensors.cpu_vs_gpu.figure(Result(tables, arrays={"ceilings": limits}))
    bandwidth, *_, roof = figure.axes
    assert bandwidth.get_yscale() == "log", "both devices can be read"
    assert [text.get_text() for text in bandwidth.texts] == ["L1", "L2", "L3", "L2"]
    assert len({text.xy[1] for text in bandwidth.texts}) == 4, "no name lies on another"
    assert [len(line.get_xdata()) for line in roof.lines if line.get_linestyle() == ":"] == [3, 3], "products of every size"


def test_two_devices_are_timed_in_turns_with_a_placebo_of_the_first_on_its_better_number_of_threads(monkeypatch):
    seconds = {"cpu": 4e-3, "cuda:0": 1e-3, PLACEBO: 4.4e-3}

    def timed(works, *, threads, placebo):
        assert (list(works), placebo) == (["cpu", "cuda:0"], "cpu")
        return {name: Timing((value,) * 7, threads) for name, value in seconds.items()}

    monkeypatch.setattr(comparisons, "interleaved", timed)
    monkeypatch.setattr(comparisons, "best_threads", lambda work, **_: Timing((1.0,), 6))
    works = {"cpu": lambda: None, "cuda:0": lambda: None}
    times, gain = comparisons.on_each_device(works)
    assert set(times) == {"cpu", "cuda:0"} and gain.ratio == pytest.approx(4) and gain.noise == pytest.approx(0.1)
    assert times["cpu"].threads == 6 and comparisons.on_each_device(works, threads=3)[0]["cpu"].threads == 3
    times, alone = comparisons.on_each_device({"cpu": lambda: None})
    assert alone is None and times["cpu"].threads == 6


def test_a_gain_per_byte_does_not_depend_on_how_many_bytes_there_are(monkeypatch):
    small, large = workloads.copy(100, CPU), workloads.copy(1000, CPU)
    seconds = {"base": 1e-3, "changed": 1e-4, PLACEBO: 1e-3}
    monkeypatch.setattr(comparisons, "interleaved", lambda *_, **__: {n: Timing((s,) * 7, 1) for n, s in seconds.items()})
    assert comparisons.gain_per("bytes", large, small, 1).ratio == pytest.approx(1)


@pytest.mark.parametrize("launch, copies", [(1e-3, comparisons.COPIES), (1e-5, 0)])
def test_on_a_gpu_a_copy_is_timed_in_a_graph_of_many_only_if_its_launch_would_hide_it(monkeypatch, launch, copies):
    copied = []
    monkeypatch.setattr(comparisons, "launch_seconds", lambda device: launch)
    monkeypatch.setattr(comparisons, "captured", lambda work, device: work)
    monkeypatch.setattr(comparisons, "measure", lambda work, **_: (work(), Timing((1e-3, 2e-3), 1))[1])
    timing = comparisons.time_copy(lambda: copied.append(1), torch.device("cuda"))
    assert len(copied) == 1 + copies and timing.samples == pytest.approx((2e-5, 4e-5) if copies else (1e-3, 2e-3))


@pytest.mark.parametrize("devices, largest", [(["cpu"], 1024), (["cpu", "cuda:0"], 2048)])
def test_a_product_that_would_take_too_long_on_the_cpu_is_left_out_there(monkeypatch, devices, largest):
    """A CPU that needs 1 s for n = 1024, and 8 s for 2048."""
    seen = {}

    def timed(works, threads=None):
        [n] = set(works.values())
        seen[n] = list(works), threads
        times = {device: Timing(((n / 1024) ** 3,) * 2, 1) for device in works}
        return times, SpeedUp(2, 2, 2, 0) if len(works) == 2 else None

    monkeypatch.setattr(module, "on_each_device", timed)
    monkeypatch.setattr(workloads, "matmul", lambda n, device: workloads.Workload("matmul", n, 2.0 * n**3, 12.0 * n**2))
    monkeypatch.setattr(module, "all_threads", lambda: 4)
    rows, gains, left_out = module.multiply((512, 1024, 2048), [torch.device(name) for name in devices])
    assert left_out == {2048: pytest.approx(8)} and max(row.n for row in rows) == largest
    assert max(row.n for row in rows if row.device == "cpu") == 1024
    assert seen[512][1] is None and seen[1024] == (devices, 4), "one thread is not tried where all take long"
    assert [n for (_, n), gain in gains.items() if gain] == ([512, 1024] if len(devices) == 2 else [])


@pytest.mark.parametrize(
    "seconds, share, holds", [({1: 1.0, 2: 0.5}, (0.5, 0.5), True), ({1: 1.0, 2: 1.0}, (0.5, 0.25), False)]
)
def test_training_is_compared_per_flop_of_the_peak(monkeypatch, seconds, share, holds):
    """A product of 16 MFLOP takes 1/threads s, a step with half as many FLOPs as its thread's peak allows `seconds`."""
    batch = 2
    flops = workloads.SmallCNN.training_flops(batch)

    def timed(works, *, threads):
        times = {"product": 1 / threads, "step": seconds[threads] * flops / (0.5 * 2 * 200**3)}
        return {name: Timing((times[name],) * 11, threads) for name in works}

    monkeypatch.setattr(comparisons, "interleaved", timed)
    monkeypatch.setattr(comparisons, "all_threads", lambda: 2)
    rows = comparisons.peak_shares([CPU], 200, {"cpu": batch})
    assert [row.device for row in rows] == ["cpu, 1 thread", "cpu, 2 threads"]
    assert [row.peak for row in rows] == pytest.approx([0.016, 0.032]) and [row.share for row in rows] == pytest.approx(share)
    module._claim_peak(result := Result([Table("Training", rows)]))
    assert result.claims[0].holds is holds and result.key_figures[0].here == pytest.approx(1 if holds else 2)
    module._claim_peak(alone := Result([Table("Training", rows[:1])]))
    assert not alone.claims and "no second device" in alone.notes[0]


def test_a_run_without_peak_shares_gives_them_from_its_best_training_and_largest_product():
    recorded = tensors.cpu_vs_gpu.reference()
    older = Result([table for table in recorded.tables if not isinstance(table.rows[0], comparisons.PeakShare)])
    host, gpu = rows = tensors.peak_shares_of(older)
    assert [row.device for row in rows] == ["cpu", "cuda:0"]
    for row in rows:
        trained = [each.rate for each in recorded.rows(Images) if (each.device, each.work) == (row.device, "training")]
        products = [each for each in recorded.rows(Product) if each.device == row.device]
        assert row.rate == max(trained) and row.peak == max(each.rate for each in products)
    assert host.rate > next(each.rate for each in recorded.rows(Images) if each.batch == 1024 and each.work == "training")
    assert tensors.peak_shares_of(Result([Table("Training", rows)])) == rows and gpu.per_peak > 0


def recorded_copies(rates, cache):
    """A result with copies of so many KiB at so many GB/s on a CPU with one cache of so many KiB."""
    copies = [Copy("cpu", kib * 1024 / rate / 1e3, 0.0, kib << 10, rate) for kib, rate in rates.items()]
    return Result([Table("Copies", copies), Table("Caches", [Cache("cpu", "L3", cache << 10, 1, cache << 10)])])


def test_a_copy_that_is_said_to_fit_in_a_cache_fits_in_one(monkeypatch):
    monkeypatch.setattr(module, "gain_per", lambda *_, **__: SpeedUp(2, 2, 2, 0))
    result = recorded_copies({32: 50.0, 2048: 60.0, 8192: 70.0, 16384: 20.0}, cache=4096)
    module._claim_cache(result)
    assert result.claims[0].text == "Per byte, a copy within 2048 KiB, which fits in a cache, is faster than one within 16 MiB"
    result = recorded_copies({32: 50.0, 16384: 20.0}, cache=1 << 20)
    module._claim_cache(result)
    assert not result.claims and "1024 MiB" in result.notes[0]


def test_times_that_stay_equal_while_the_work_grows_are_a_note_and_fail_nothing(monkeypatch):
    """The recorded run whose clock was cold: copies of 512 KB to 128 MB took 7.95 ms."""
    monkeypatch.setattr(module, "launch_seconds", lambda device: 1e-6)
    for microseconds, holds in (([7950, 7950, 7960], False), ([20, 300, 9000], True)):
        copies = [Copy("cpu", us, 0.0, kib << 10, 1.0) for us, kib in zip(microseconds, (512, 8192, 131072), strict=True)]
        module._check_clock(result := Result([Table("Copies", copies)]), [CPU])
        assert result and not result.checks and (result.notes == []) is holds


def test_the_recorded_run_has_no_time_of_a_clock_that_was_cold(monkeypatch):
    """On a machine whose threads wake slowly the CPU's times of short work would be one constant."""
    monkeypatch.setattr(module, "launch_seconds", lambda device: 1e-6)
    recorded = tensors.cpu_vs_gpu.reference()
    module._check_clock(again := Result(recorded.tables), [CPU])
    assert not again.notes and recorded.here("CPU memory bandwidth (large copy)") > 1
    short = [row.microseconds for row in recorded.rows(Product) if row.device == "cpu" and row.n < 4096]
    assert len(short) > 4 and short == sorted(short) and short[1] > 2 * short[0]
    for work in module.CNN:
        label = f"small CNN, {work}: the GPU's best images/s over the CPU's"
        assert recorded.here(label) == pytest.approx(module.best_rates(recorded.rows(Images), work))


def test_best_rates_compare_each_device_at_its_own_best_batch_size():
    rates = {"cpu": {1: 10.0, 64: 40.0, 1024: 20.0}, "cuda:0": {1: 5.0, 64: 400.0, 1024: 800.0}}
    rows = [Images(device, 1.0, 0.0, "training", n, rate) for device, found in rates.items() for n, rate in found.items()]
    assert module.best_rates(rows, "training") == 20.0 and module.best_rates(rows, "inference") is None


def test_a_line_has_a_gap_where_only_the_other_device_was_measured():
    rows = [Product(device, 1.0, 0.0, n, 1.0, n / 6) for device, n in (("cpu", 32), ("cpu", 128), ("gpu", 64))]
    sizes, rates = module._line("cpu", rows, "n")
    assert sizes == [32, 64, 128] and [rate == rate for rate in rates] == [True, False, True]


@pytest.mark.parametrize("label, shown", [("CPU memory bandwidth (copy)", False), ("CPU memory bandwidth (large copy)", True)])
def test_a_machine_card_has_no_bandwidth_that_a_cold_clock_measured(label, shown):
    """Runs of before have 45 GB/s under another name, for a memory that does over 100."""
    result = tensors.cpu_vs_gpu.reference()
    result.key_figures = [KeyFigure(label, 45.05, "GB/s")]
    [card] = machine_cards([result])
    assert card.measured == ([("memory bandwidth (copy)", "45.05 GB/s")] if shown else [])


def test_caches_are_read_from_the_system_and_shared_ones_counted_once(tmp_path):
    known = [("Data", "1", "48K", "0,8"), ("Instruction", "1", "32K", "0,8"), ("Unified", "2", "1M", "0,8")]
    for i, values in enumerate([*known, ("Unified", "3", "32768K", "0-7,8-15")]):
        (tmp_path / f"index{i}").mkdir()
        for name, value in zip(("type", "level", "size", "shared_cpu_list"), values, strict=True):
            (tmp_path / f"index{i}" / name).write_text(value + "\n")
    found = {row.name: (row.bytes, row.cores, row.used) for row in caches(CPU, 16, tmp_path)}
    assert found == {"L1": (48 << 10, 1, 768 << 10), "L2": (1 << 20, 1, 16 << 20), "L3": (32 << 20, 8, 64 << 20)}
    assert caches(CPU, 16, tmp_path / "absent") == []
    (tmp_path / "index0" / "size").write_text("unknown")
    assert caches(CPU, 16, tmp_path) == []


def test_training_flops_are_those_that_torch_counts():
    step = workloads.cnn_training(3, CPU)
    with FlopCounterMode(display=False) as counter:
        step()
    assert counter.get_total_flops() == workloads.SmallCNN.training_flops(3)


def test_training_changes_the_net_and_inference_does_not_track_gradients():
    step = workloads.cnn_training(4, CPU)
    net = step.__closure__[[name for name in step.__code__.co_freevars].index("net")].cell_contents
    before = net.classifier.weight.detach().clone()
    step()
    assert not torch.equal(before, net.classifier.weight)
    assert not workloads.cnn_inference(4, CPU)().requires_grad


def test_places_of_a_view_are_offset_plus_index_times_stride():
    x = torch.arange(24).reshape(2, 3, 4)
    for view in (x, x[1], x[:, 1], x.transpose(0, 2), x[..., ::2], x[1, 2, 3]):
        assert shares_memory(view, x)
        assert torch.equal(x.flatten()[positions(view)], view.flatten())


@pytest.mark.cuda
def test_on_a_gpu_both_halves_and_the_transfers_are_measured():
    result = replace(tensors.cpu_vs_gpu, quick=TINY)("quick", device="cuda")
    assert result
    assert {row.device for row in result.rows(Product)} == {"cpu", "cuda:0"}
    assert (
        result.here("host to GPU, pinned") > 0
        and result.here("small CNN, inference: the GPU's best images/s over the CPU's") > 0
    )
    assert repr(result) == repr(replace(tensors.cpu_vs_gpu, quick=TINY)("quick", device="cpu")), "the same text on both"
    assert [row.work for row in result.rows(GpuGain)] == ["product"] * 2 + ["inference"] * 2 + ["training"] * 2
    assert result.figure() is not None
