"""Bitwise agreement with torch.optim on more inputs: large tensors in chunks, complex numbers, 16 bits, rates in tensors."""

import copy
import random
import warnings

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import hpml_lab.optim

NAMES = ("SGD", "ASGD", "Rprop", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax", "NAdam", "RAdam")
OF_WHOLE_TENSORS = ("Adafactor", "Muon")
# 0-dimensional, empty and odd ones
SHAPES = ((), (0,), (1,), (7,), (3, 5), (17, 33), (2, 3, 4))


def fitting(name):
    """The shapes that torch's class takes: Muon matrices only, Adafactor none without elements."""
    return [shape for shape in SHAPES if (name != "Muon" or len(shape) == 2) and (name != "Adafactor" or 0 not in shape)]


INPUTS = [
    pytest.param(info.optim_cls.__name__, entry.kwargs, id=f"{info.optim_cls.__name__}: {entry.desc or 'defaults'}")
    for info in optim_db
    if info.optim_cls.__name__ in NAMES
    for entry in info.optim_inputs_func("cpu")
]


def parameters(shapes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    made.append(torch.randn(6, 4, generator=generator, dtype=dtype).t())  # not contiguous
    return [tensor.requires_grad_() for tensor in made]


def gradients(params, steps, seed=1):
    """For each step one gradient per parameter: from 1e-6 to 1e3, some exactly zero, some elements zero, some missing."""
    generator, draw = torch.Generator().manual_seed(seed), random.Random(seed)
    for t in range(steps):
        row = []
        for i, p in enumerate(params):
            g = torch.randn(p.shape, generator=generator, dtype=p.dtype) * 10 ** draw.uniform(-6, 3)
            g[torch.rand(p.shape, generator=generator) < 0.1] = 0
            row.append(None if (t + i) % 7 == 6 else torch.zeros_like(g) if (t + i) % 5 == 4 else g)
        yield row


def decay(name, value):
    """Weight decay as an option, which Rprop does not have."""
    return {} if name == "Rprop" else {"weight_decay": value}


def walk(optimizer, params, steps):
    for row in gradients(params, steps):
        for p, g in zip(params, row, strict=True):
            p.grad = None if g is None else g.clone()
        optimizer.step()
        for p, g in zip(params, row, strict=True):
            assert g is None or torch.equal(p.grad, g), "a gradient was overwritten"


def assert_same_bits(mine, theirs):
    for a, b in zip(mine.param_groups, theirs.param_groups, strict=True):
        for p, q in zip(a["params"], b["params"], strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=0, equal_nan=True)
            s, t = mine.state.get(p, {}), theirs.state.get(q, {})
            assert list(s) == list(t), "the state has torch's names"
            for name in s:
                torch.testing.assert_close(torch.as_tensor(s[name]), torch.as_tensor(t[name]), rtol=0, atol=0, equal_nan=True)


def compare(name, options, dtype, steps=25, shapes=SHAPES, **ours):
    runs = []
    for module, more in ((hpml_lab.optim, ours), (torch.optim, {"foreach": False})):
        params = parameters(shapes, dtype)
        more = {} if name == "Muon" else more  # which has no lists
        optimizer = getattr(module, name)(params, **copy.deepcopy(options), **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a tensor learning rate that becomes a number
            walk(optimizer, params, steps)
        runs.append(optimizer)
    assert_same_bits(*runs)


@pytest.mark.parametrize("name, options", INPUTS)
def test_large_tensors_go_through_lists_in_chunks(name, options):
    if isinstance(options.get("lr"), torch.Tensor) and name.startswith("Adam"):
        pytest.skip("a tensor lr with foreach is refused, as by torch")
    compare(name, options, torch.float32, shapes=(*SHAPES, (40_000,), (3, 100_000)), steps=8, foreach=True)


@pytest.mark.parametrize("name, options", INPUTS)
def test_complex_parameters(name, options):
    compare(name, options, torch.complex64)
    compare(name, options, torch.complex128, steps=5, foreach=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", [*NAMES, *OF_WHOLE_TENSORS])
def test_sixteen_bits(name, dtype):
    compare(name, decay(name, 0.01), dtype, shapes=fitting(name))  # as lists torch itself rounds 16 bits differently


@pytest.mark.parametrize("name", [*NAMES, *OF_WHOLE_TENSORS])
def test_a_rate_in_a_tensor(name):
    for dtype in (torch.float32, torch.float64):
        compare(name, {"lr": torch.tensor(0.01)}, dtype, shapes=fitting(name))
        compare(name, {"lr": torch.tensor([0.013]), **decay(name, 0.1)}, dtype, shapes=fitting(name))
