"""Sparse formats: their elements, bytes and products; channels taken out of LeNet; the experiment, with and without extras."""

import copy
import importlib
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn

from hpml_lab.core.experiment import Params, Result, Table
from hpml_lab.core.experiment.registry import find
from hpml_lab.core.show.style import png
from hpml_lab.core.system import machine
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.pruning.experiments.sparse_formats import format_times, smaller_nets
from hpml_lab.pruning.experiments.sparse_formats.format_times import BreakEven, FormatTime, crossing
from hpml_lab.pruning.experiments.sparse_formats.pictures import format_bytes
from hpml_lab.pruning.experiments.sparse_formats.smaller_nets import SmallerNet
from hpml_lab.pruning.lessons import channels, sparse_layouts
from hpml_lab.quantization.lessons.lenet import LeNet

experiments = importlib.import_module("hpml_lab.pruning.experiments.sparse_formats")
SMALL = experiments.QUICK | dict(
    sizes=(128,), columns=8, zeros=(0.5, 0.9), samples=5, train_images=500, steps=20, batch=32, side=64
)


@pytest.fixture(autouse=True)
def seeded():
    """One of ten million numbers of torch.randn is 0: an element that is kept, and not counted where elements are."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def result(ran):
    return ran("sparse-formats")


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return LeNet().eval()


# ---- the experiment ----------------------------------------------------------------------------------------------------


def test_its_exact_claims_hold(result):
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert sum(claim.exact for claim in result.claims) == 2


def test_each_format_is_timed_at_each_sparsity_and_its_bytes_are_counted(result):
    rows, percents = result.rows(FormatTime), (50, 70, 80, 90, 95, 99)
    assert [(row.format, row.zeros) for row in rows[1:]] == [
        (name, zeros) for name in sparse_layouts.FORMATS if name in {row.format for row in rows} for zeros in percents
    ]
    for row in rows[1:]:
        assert row.time_ms > 0 and row.verdict in ("faster", "slower", "within noise", "less than 2 %") and row.error <= 1
        assert abs(row.kept / 1024**2 - (1 - row.zeros / 100)) < 0.001, "a block is 1 of 1,024, a row, too"
    by_format = {(row.format, row.zeros): row for row in rows}
    assert by_format["CSR", 50].kilobytes * 1e3 == 1024**2 / 2 * 12 + 1025 * 8
    assert by_format["dense with zeros", 90].share == 100
    assert by_format["rows taken out", 50].share == 50


def test_the_break_even_of_bytes_is_that_of_the_formula(result):
    smaller = {row.format: row.smaller for row in result.rows(BreakEven)}
    assert smaller["CSR"] == pytest.approx(100 * (1 - (4 * 1024**2 - 1 - 1025 * 8) // 12 / 1024**2))
    assert 66.6 < smaller["CSR"] < 68


def test_its_figures_are_drawn_and_the_recorded_run_can_be_read(result, tmp_path):
    for figure in (result.figure(), format_bytes(result).figure):
        assert len(png(figure)) > 10_000
    again = result.experiment.load(result.save(tmp_path))
    assert again.rows(FormatTime) == result.rows(FormatTime) and again.rows(SmallerNet) == result.rows(SmallerNet)
    assert len(png(again.figure())) > 10_000


def test_four_matrices_and_the_point_of_two_of_four_are_drawn(result):
    """As a GPU's run has them: two sizes in two dtypes, and 2:4 in the one of 16 bits."""
    matrices = [f"{n} × {n}, {dtype}" for n in (4096, 8192) for dtype in ("float32", "bfloat16")]
    dense, *rows = result.rows(FormatTime)
    semi = replace(rows[0], format="2:4")
    given = copy.copy(result)
    given.arrays = {"noise": dict.fromkeys(matrices, 0.05)}
    given.tables = [
        Table("times", [replace(row, matrix=name) for name in matrices for row in [dense, *rows, *[semi] * ("16" in name)]]),
        Table("break-even", [BreakEven(matrices[0], "CSR", None, "", 66.0)]),
    ]
    panels = given.figure().axes
    assert [panel.get_title() for panel in panels] == [f"Weights {name}; noise ±5 %" for name in matrices]
    labels = [[line.get_label() for line in panel.lines] for panel in panels]
    assert ["2:4" in found for found in labels] == [False, True, False, True]
    assert not any(text.get_text() for panel in panels for text in panel.texts), "no break-even, no mark"


def test_without_torch_pruning_the_rest_stands(on_digits, result, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    without = on_digits("sparse-formats", **SMALL)
    assert [claim.text for claim in without.claims if claim.exact] == [claim.text for claim in result.claims if claim.exact]
    assert without, "its exact claims hold"
    assert any("pip install torch-pruning" in note for note in without.notes)
    [row] = [row for row in without.rows(SmallerNet) if "ResNet-18" in row.net]
    assert row.parameters is None and row.verdict == "torch-pruning is not installed"
    without.machine = dict(machine.describe())
    assert row.verdict in without.html()


@pytest.mark.skipif(importlib.util.find_spec("torch_pruning") is None, reason="torch-pruning is not installed")
def test_torch_pruning_leaves_a_quarter_of_resnet18(result):
    whole, half = (row.parameters for row in result.rows(SmallerNet) if "ResNet-18" in row.net)
    assert whole == 11_689_512 and half == 3_055_880


def test_a_format_whose_product_does_not_run_is_left_out_with_a_note(monkeypatch):
    def refused(weight):
        raise RuntimeError("no kernel for this processor")

    monkeypatch.setitem(
        sparse_layouts.FORMATS,
        "BSR, 32 × 32",
        sparse_layouts.SparseFormat(sparse_layouts.largest_blocks, refused, sparse_layouts.bsr_bytes),
    )
    weight = torch.randn(64, 64)
    found, notes = format_times.products(weight, (0.5, 0.9), torch.randn(64, 4))
    assert {product.format for product in found} == {"dense with zeros", "CSR", "rows taken out"}
    assert notes == [
        "BSR, 32 × 32, 64 × 64, float32: its product does not run here (RuntimeError: no kernel for this processor)."
    ]
    gains = {(product.format, product.zeros): SpeedUp(2, 1.9, 2.1, 0.1) for product in found}
    assert [row.format for row in format_times.break_even("", 64, 4, gains)] == ["CSR", "rows taken out"]


# ---- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparsity", [0, 0.3, 0.5, 0.99, 0.9999])
def test_exactly_as_many_are_kept_also_where_sizes_are_equal(sparsity):
    weight = torch.ones(20, 30)
    assert sparse_layouts.largest(weight, sparsity).count_nonzero() == max(1, round(600 * (1 - sparsity)))
    assert weight.eq(1).all(), "the weights that were given do not change"


def test_the_largest_are_kept():
    weight = torch.randn(40, 40)
    pruned = sparse_layouts.largest(weight, 0.75)
    assert pruned[pruned != 0].abs().min() >= weight[pruned == 0].abs().max()
    rows = sparse_layouts.largest_rows(weight, 0.75)
    alive = rows.any(1)
    assert alive.sum() == 10 and weight[alive].norm(dim=1).min() >= weight[~alive].norm(dim=1).max()
    assert torch.equal(sparse_layouts.without_zero_rows(rows), weight[alive])


def test_blocks_are_kept_whole():
    weight = torch.randn(96, 64)
    pruned = sparse_layouts.largest_blocks(weight, 0.5)
    tiles = pruned.unfold(0, 32, 32).unfold(1, 32, 32).reshape(6, -1)
    assert sorted(tiles.count_nonzero(dim=1).tolist()) == [0, 0, 0, 1024, 1024, 1024]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows, columns, kept", [(32, 64, 0), (32, 64, 1), (64, 32, 700), (64, 96, 6144)])
def test_formulas_count_what_torch_stores(dtype, rows, columns, kept):
    weight = torch.zeros(rows * columns, dtype=dtype)
    weight[torch.randperm(len(weight))[:kept]] = -1
    weight, value = weight.view(rows, columns), dtype.itemsize
    assert sparse_layouts.stored_bytes(sparse_layouts.csr(weight)) == sparse_layouts.csr_bytes(rows, columns, kept, value)
    int32 = sparse_layouts.csr(weight, torch.int32)
    assert sparse_layouts.stored_bytes(int32) == sparse_layouts.csr_bytes(rows, columns, kept, value, index=4)
    assert torch.equal(int32.to_dense(), weight)
    blocks = sparse_layouts.largest_blocks(torch.randn(rows, columns, dtype=dtype), 0.5)
    count = int(blocks.count_nonzero())
    assert sparse_layouts.stored_bytes(sparse_layouts.bsr(blocks)) == sparse_layouts.bsr_bytes(rows, columns, count, value)
    assert sparse_layouts.stored_bytes(weight) == sparse_layouts.dense_bytes(rows, columns, value=value)


@pytest.mark.parametrize("value, share", [(4, 2 / 3), (2, 4 / 5), (1, 8 / 9), (8, 1 / 2)])
def test_the_smaller_a_value_the_more_zeros_csr_needs(value, share):
    most = sparse_layouts.most_kept(sparse_layouts.csr_bytes, 1000, 1000, value)
    assert (
        sparse_layouts.csr_bytes(1000, 1000, most, value)
        < value * 10**6
        <= sparse_layouts.csr_bytes(1000, 1000, most + 1, value)
    )
    assert 0 <= 1 - most / 10**6 - share < 0.01


def test_two_of_four_keeps_two_of_each_group_also_where_all_are_equal():
    for weight in (torch.ones(8, 12), torch.randn(64, 64), torch.randn(6, 4).T.contiguous().T):
        groups = sparse_layouts.two_of_four(weight).reshape(-1, 4)
        assert (groups != 0).sum(1).tolist() == [2] * len(groups)
    assert sparse_layouts.two_of_four(torch.tensor([[1.0, -4, 3, 2]])).tolist() == [[0, -4, 3, 0]]
    assert sparse_layouts.two_of_four_bytes(32, 64, 1024) == 32 * 64 * 2 * 9 / 16, "nine sixteenths of 16-bit weights"


def test_two_of_four_keeps_what_torchs_sparsifier_keeps():
    pruning = pytest.importorskip("torch.ao.pruning")  # torch.ao moves to other packages part by part
    weight = torch.randn(128, 96)
    net = nn.Sequential(nn.Linear(96, 128, bias=False))
    net[0].weight.data.copy_(weight)
    sparsifier = pruning.WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4), zeros_per_block=2)
    sparsifier.prepare(net, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    sparsifier.squash_mask()
    assert torch.equal(net[0].weight != 0, sparse_layouts.two_of_four(weight) != 0)


def test_every_format_multiplies_as_the_dense_matrix_does():
    weight, x = torch.randn(256, 256), torch.randn(256, 16)
    found, _ = format_times.products(weight, experiments.ALL_ZEROS, x)
    assert found and max(format_times.rounding_error(product, x) for product in found) <= 1


def test_the_packed_form_of_two_of_four_has_the_bytes_of_the_formula():
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass as packed

    weight = sparse_layouts.two_of_four(torch.randn(64, 128)).half()
    assert sum(part.nbytes for part in packed(weight)) == sparse_layouts.two_of_four_bytes(64, 128, 64 * 64)


@pytest.mark.parametrize(
    "work, words",
    [
        (lambda: sparse_layouts.largest(torch.randn(4, 4), 1), "not a valid sparsity"),
        (lambda: sparse_layouts.largest(torch.randn(4, 4), 90), "0.9 for 90 %"),
        (lambda: sparse_layouts.largest(torch.randn(4, 4), float("nan")), "not a valid sparsity"),
        (lambda: sparse_layouts.largest(torch.randn(2, 2, 2), 0.5), "flatten"),
        (lambda: sparse_layouts.largest_rows(torch.empty(0, 4), 0.5), "matrix is needed"),
        (lambda: sparse_layouts.largest(torch.tensor([[1.0, float("nan")]]), 0.5), "NaN"),
        (lambda: sparse_layouts.two_of_four(torch.tensor([[1.0, 2, 3, float("inf")]])), "infinity"),
        (lambda: sparse_layouts.two_of_four(torch.randn(4, 6)), "multiple of 4"),
        (lambda: sparse_layouts.largest_blocks(torch.randn(64, 40), 0.5), "whole blocks"),
        (lambda: sparse_layouts.most_kept(sparse_layouts.csr_bytes, 10, 1), "Keep it dense"),
        (lambda: channels.weakest(nn.Conv2d(1, 6, 3), 1.0), "valid share"),
        (lambda: channels.zero_channels(LeNet(), {"conv1": [6]}), "0 to 5"),
        (lambda: channels.zero_channels(LeNet(), {"fc1": [0]}), "convolution"),
        (
            lambda: channels.without_zero_channels(channels.zero_channels(LeNet(), {"conv2": range(16)})),
            "every channel of conv2",
        ),
    ],
)
def test_bad_input_is_named(work, words):
    with pytest.raises(LabError, match=words):
        work()


# ---- break-even --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "slowdowns, level, zeros",
    [
        ([3, 1, 0.5], 2, 65),
        ([0.9, 0.5, 0.1], 1, 50),  # below from the start
        ([3, 2, 1.5], 1, None),
        ([3, 0.5, 1.5], 1, None),  # above again at the last
        ([0.5, 1.5, 0.5], 1, 85),  # the last crossing counts
        ([2, 1, 0.5], 1, 80),
    ],
)
def test_where_a_time_crosses_the_dense_one(slowdowns, level, zeros):
    assert crossing([50, 80, 90], slowdowns, level) == (None if zeros is None else pytest.approx(zeros))


def test_the_interval_of_the_break_even_widens_with_the_noise():
    def row(noise):
        gains = {("CSR", zeros): SpeedUp(1 / slow, 0.95 / slow, 1.05 / slow, noise) for zeros, slow in ((50, 2), (90, 0.4))}
        return format_times.break_even("", 64, 4, gains)[0]

    assert row(0.05).faster == row(0.3).faster == pytest.approx(75)
    narrow, wide = ([float(end) for end in row(noise).interval.split(" to ")] for noise in (0.05, 0.3))
    assert wide[0] < narrow[0] < 75 < narrow[1] < wide[1]
    assert row(3).interval == f"≤ 50 to {format_times.NEVER}"


def test_a_format_that_is_never_faster_says_so_once():
    gains = {("CSR", zeros): SpeedUp(0.5, 0.45, 0.55, 0.05) for zeros in (50, 90)}
    [row] = format_times.break_even("", 64, 4, gains)
    assert (row.faster, row.interval, row.faster_from()) == (None, format_times.NEVER, format_times.NEVER)


# ---- channels ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_smaller_lenet_is_the_same_function(net):
    x = torch.randn(16, 1, 28, 28)
    for kept in ({"conv1": [1, 4], "conv2": [0, 7, 15]}, {"conv1": [2]}, {"conv2": range(15)}, {}):
        zeroed = channels.zero_channels(copy.deepcopy(net), kept)
        small = channels.without_zero_channels(zeroed)
        assert small.conv1.out_channels == 6 - len(kept.get("conv1", ()))
        assert small.fc1.in_features == 25 * (16 - len(kept.get("conv2", ())))
        torch.testing.assert_close(small(x), zeroed(x), rtol=1e-5, atol=1e-5)
        again = channels.without_zero_channels(small)
        assert smaller_nets.parameters(again) == smaller_nets.parameters(small), "nothing more to take out"
        grid = channels.on_a_grid(x, channels.IMAGE_BITS)
        assert torch.equal(channels.without_rounding(small)(grid), channels.without_rounding(zeroed)(grid))
    assert smaller_nets.parameters(net) == 60_074, "the net that was given does not change"


def test_channels_are_named_by_a_mask_too(net):
    weak = torch.tensor([False, False, True, False, True, False])
    for given in (weak, weak.tolist(), [2, 4], torch.tensor([2, 4])):
        zeroed = channels.zero_channels(copy.deepcopy(net), {"conv1": given, "conv2": []})
        assert zeroed.conv1.weight.flatten(1).any(1).tolist() == (~weak).tolist() and zeroed.conv2.weight.all()


@torch.no_grad()
def test_a_channel_whose_bias_is_left_stays(net):
    biased = channels.zero_channels(copy.deepcopy(net), {"conv1": [0, 1, 2]}, biases=False)
    assert smaller_nets.parameters(channels.without_zero_channels(biased)) == 60_074


@torch.no_grad()
def test_the_net_without_rounding_computes_what_fractions_compute(net):
    exact = channels.without_rounding(net)
    image = channels.on_a_grid(torch.randn(1, 1, 28, 28), channels.IMAGE_BITS)
    got = exact.conv1(image)[0, 2, 5, 7]
    weights, window = exact.conv1.weight[2, 0].flatten().tolist(), image[0, 0, 5:8, 7:10].flatten().tolist()
    wanted = sum(Fraction(w) * Fraction(x) for w, x in zip(weights, window, strict=True)) + Fraction(exact.conv1.bias[2].item())
    assert Fraction(got.item()) == wanted
    sizes = copy.deepcopy(exact)
    for parameter in sizes.parameters():
        parameter.abs_()
    assert sizes(image.abs()).max() < 2**19, "far from where float64 would round"
    logits = exact(image)
    assert torch.equal(logits * 2**34, (logits * 2**34).round())


def test_the_weakest_channels_are_those_that_torch_prunes(net):
    from torch.nn.utils import prune

    theirs = copy.deepcopy(net)
    prune.ln_structured(theirs.conv2, "weight", amount=0.5, n=2, dim=0)
    zeroed = theirs.conv2.weight_mask.flatten(1).any(1).logical_not().nonzero().flatten()
    assert sorted(channels.weakest(net.conv2, 0.5).tolist()) == zeroed.tolist()


# ---- on a GPU ----------------------------------------------------------------------------------------------------------


class SaidToBeT4(Device):
    """16 bits are fp16, and there are no units for 2:4."""

    is_cuda = True

    def can(self, what):
        return False


def untimed(works, **options):
    """`interleaved` without a GPU's events."""
    return interleaved(works, **options | {"gpu": None, "samples": 1})


def test_what_a_t4_lacks_is_a_note_and_its_16_bits_are_fp16(monkeypatch, without_mnist):
    monkeypatch.setattr(format_times, "interleaved", untimed)
    device = SaidToBeT4(torch.device("cpu"), "", torch.float16, "")
    small = SMALL | dict(gpu_sizes=(128,), gpu_columns=8)
    result = find("sparse-formats").function(Params(size="quick", device=device, **small))
    assert list(result.arrays["noise"]) == ["128 × 128, float32", "128 × 128, float16"]
    assert [note for note in result.notes if "2:4" in note] == [
        "2:4 is only counted: this GPU has no units for it, which came with compute capability 8.0."
    ]
    assert result, "its exact claims hold"


def test_a_lack_of_memory_says_nothing_about_a_format(monkeypatch):
    def full(weight):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256.00 MiB.")

    monkeypatch.setitem(sparse_layouts.FORMATS, "CSR", replace(sparse_layouts.FORMATS["CSR"], store=full))
    with pytest.raises(torch.OutOfMemoryError):
        format_times.products(torch.randn(64, 64), (0.5,), torch.randn(64, 4))


def test_formats_that_do_not_run_are_not_judged():
    result = Result()
    experiments.judge_times(result, [("64 × 64", {})])
    assert result.claims == result.key_figures == []
    gain = SpeedUp(1.5, 1.4, 1.6, 0.01)
    gains = {("rows taken out", 50): gain, ("2:4", 50): gain, (sparse_layouts.SEARCHED, 50): gain}
    experiments.judge_times(result, [("64 × 64", gains)])
    assert [claim.holds for claim in result.claims] == [True, True]
    assert result.here("64 × 64: 2:4") == str(gain)


def test_two_of_four_is_tried_with_torchs_algorithm_and_with_the_one_that_a_search_finds(monkeypatch):
    class Packed:
        alg_id_cusparselt = 0

        def __init__(self, weight):
            self.packed = weight

        def __matmul__(self, x):
            return self.packed @ x

    asked = []
    monkeypatch.setattr(sparse_layouts, "semi_structured", Packed)
    monkeypatch.setattr(sparse_layouts, "SEMI_STRUCTURED", replace(sparse_layouts.SEMI_STRUCTURED, store=Packed))
    monkeypatch.setattr(torch, "_cslt_sparse_mm_search", lambda packed, x: asked.append((packed.shape, x.shape)) or 7)
    found, notes = format_times.products(torch.randn(64, 64), (0.5,), torch.randn(64, 4), two_of_four=True)
    numbers = {product.format: product.matrix.alg_id_cusparselt for product in found if product.format.startswith("2:4")}
    assert numbers == {"2:4": 0, "2:4, algorithm searched": 7} and asked == [((64, 64), (64, 4))]
    assert notes == ["2:4, 64 × 64, float32: cuSPARSELt's search chose algorithm 7; torch takes 0."]


@pytest.mark.parametrize("free, sizes", [(15e9, (4096, 8192)), (7e9, (4096,))])
def test_the_larger_matrices_are_left_out_where_they_do_not_fit(free, sizes):
    params = Params(device=None, **experiments.FULL)
    find("sparse-formats").fits.to(params, free)
    assert params.gpu_sizes == sizes


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_two_of_four_multiplies_on_a_gpu(dtype):
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(512, columns, generator=generator).to("cuda", dtype) for columns in (512, 256))
    found, notes = format_times.products(weight, (0.5,), x, two_of_four=True)
    assert not [note for note in notes if "does not run" in note]
    semi, searched = [product for product in found if product.format in ("2:4", "2:4, algorithm searched")]
    assert max(format_times.rounding_error(product, x) for product in (semi, searched)) <= 1
    assert sparse_layouts.stored_bytes(semi.matrix) == sparse_layouts.two_of_four_bytes(512, 512, 512 * 256)
