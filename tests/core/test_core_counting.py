"""Counts are facts about the code: they can be worked out by hand."""

import gc

import torch
from torch import nn

from hpml_lab.core.timing import counting

CPU = torch.device("cpu")


def test_operators_are_named_in_order_with_the_bytes_they_move():
    x = torch.randn(1000)
    seen = counting.operators(lambda: 0.5 * x * (1 + torch.erf(x / 1.41)))
    assert [operator.name for operator in seen] == ["mul", "div", "erf", "add", "mul"]
    assert [operator.bytes for operator in seen] == [8000, 8000, 8000, 8000, 12000]


def test_views_and_empty_tensors_are_no_work():
    x = torch.randn(10, 10)
    assert counting.operators(lambda: x.t()[2:].reshape(80).unsqueeze(0) if x.is_contiguous() else None)[1:] == []
    assert counting.operators(lambda: (torch.empty(5), x.view(100), x.expand(3, 10, 10).detach())) == []


def test_the_backward_pass_is_counted_too():
    weight, x = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)
    names = [operator.name for operator in counting.operators(lambda: (x @ weight.t()).sum().backward())]
    assert names.count("mm") == 2


def test_saved_tensors_counts_each_storage_once_and_not_what_was_there():
    net, x = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10)), torch.randn(512, 100)
    with counting.saved_tensors([*net.parameters(), x]) as saved:
        net(x).square().sum()
    assert sum(saved.values()) == 512 * 200 * 4 + 512 * 10 * 4


def test_a_graph_that_was_counted_ends():
    """exp and softmax keep their own results: what holds a result of theirs would hold its whole graph, and a GPU's memory."""

    def live():
        gc.collect()
        return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())

    before = live()
    with counting.saved_tensors() as saved:
        torch.ones(3, requires_grad=True).exp().softmax(0).sum()
    assert len(saved) == 2 and live() <= before  # what other tests left may end here, too


def test_peak_bytes_is_what_was_in_use_at_once():
    mib = 1 << 18  # elements of float32
    both = counting.peak_bytes(lambda: torch.ones(mib) + torch.ones(mib), CPU)
    assert both == 3 << 20

    def one_after_another():
        for _ in range(5):
            torch.ones(mib)

    assert counting.peak_bytes(one_after_another, CPU) == 1 << 20


def test_kernels_of_a_cpu_are_its_operators_the_most_expensive_first():
    a = torch.randn(256, 256)
    found = counting.kernels(lambda: [torch.mm(a, a) for _ in range(3)] and torch.relu(a[:2]), CPU)
    assert {kernel.name: kernel.calls for kernel in found}["aten::mm"] == 3
    assert [kernel.seconds for kernel in found] == sorted((kernel.seconds for kernel in found), reverse=True)


def test_kernels_whose_long_names_begin_alike_are_told_apart():
    """cuDNN's choices with and without its search, and two of torch's own kernels of one template."""
    names = [
        "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64",
        "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x64",
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::relu>(int)",
        "aten::add_",
    ]
    first, second, third, fourth = counting.short_kernel_names(names, 60)
    assert "64x64x64" in first and "128x32x64" in second and first != second
    assert third == "vectorized_elementwise_kernel<4, relu>(int)" and fourth == "aten::add_"
    assert max(map(len, (first, second))) <= 60
    assert counting.short_kernel_names(names[:1] * 2, 60)[0].endswith("…"), "one kernel twice: nothing differs"
