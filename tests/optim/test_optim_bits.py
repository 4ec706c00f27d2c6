"""The classes take torch.optim's for-loop steps to the bit, over torch's own inputs and over many that its suite lacks."""

import copy
import random
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing._internal.common_optimizers import optim_db

import hpml_lab.optim

NAMES = ("SGD", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax", "NAdam")
# 0-dimensional, empty, odd, and one that is cut into pieces by the foreach path
SHAPES = ((), (0,), (1,), (7,), (3, 5), (17, 33), (2, 3, 4))
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}

INPUTS = [
    pytest.param(info.optim_cls.__name__, one.kwargs, id=f"{info.optim_cls.__name__}: {one.desc or 'defaults'}")
    for info in optim_db
    if info.optim_cls.__name__ in NAMES
    for one in info.optim_inputs_func("cpu")
]


def parameters(shapes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    made.append(torch.randn(6, 4, generator=generator, dtype=dtype).t())  # not contiguous
    return [one.requires_grad_() for one in made]


def gradients(params, steps, seed=1):
    """For each step one gradient a parameter: from 1e-6 to 1e3, some exactly zero, some elements zero, some missing."""
    generator, draw = torch.Generator().manual_seed(seed), random.Random(seed)
    for t in range(steps):
        row = []
        for i, p in enumerate(params):
            g = torch.randn(p.shape, generator=generator, dtype=p.dtype) * 10 ** draw.uniform(-6, 3)
            g[torch.rand(p.shape, generator=generator) < 0.1] = 0
            row.append(None if (t + i) % 7 == 6 else torch.zeros_like(g) if (t + i) % 5 == 4 else g)
        yield row


def walk(optimizer, params, steps, change=None):
    for t, row in enumerate(gradients(params, steps)):
        if change:
            change(optimizer, t)
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
            assert list(s) == list(t), "the state bears torch's names"
            for name in s:
                torch.testing.assert_close(torch.as_tensor(s[name]), torch.as_tensor(t[name]), rtol=0, atol=0, equal_nan=True)


def compare(name, options, dtype, steps=25, shapes=SHAPES, change=None, **ours):
    runs = []
    for module, more in ((hpml_lab.optim, ours), (torch.optim, {} if name == "SparseAdam" else {"foreach": False})):
        params = parameters(shapes, dtype)
        optimizer = getattr(module, name)(params, **copy.deepcopy(options), **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a tensor learning rate that becomes a number
            walk(optimizer, params, steps, change)
        runs.append(optimizer)
    assert_same_bits(*runs)


def test_the_suite_has_the_inputs_that_are_claimed():
    assert len(INPUTS) == 52


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name, options", INPUTS)
def test_torchs_own_inputs_one_by_one(name, options, dtype):
    compare(name, options, dtype)


@pytest.mark.parametrize("name, options", INPUTS)
def test_torchs_own_inputs_as_lists(name, options):
    if isinstance(options.get("lr"), torch.Tensor) and name.startswith("Adam"):
        pytest.skip("a tensor lr with foreach is refused, as by torch")
    compare(name, options, torch.float32, shapes=(*SHAPES, (40_000,), (3, 100_000)), steps=8, foreach=True)


@pytest.mark.parametrize("name, options", INPUTS)
def test_complex_parameters(name, options):
    compare(name, options, torch.complex64)
    compare(name, options, torch.complex128, steps=5, foreach=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype):
    compare(name, {"weight_decay": 0.01}, dtype)  # as lists torch itself rounds 16 bits otherwise than one by one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_steps_with_a_rate_that_changes(name, dtype):
    def change(optimizer, t):
        for group in optimizer.param_groups:
            group["lr"] *= 0.997 if t % 3 else 1.001

    compare(name, {}, dtype, steps=1000, shapes=((), (3, 5)), change=change)


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_in_a_tensor(name):
    for dtype in (torch.float32, torch.float64):
        compare(name, {"lr": torch.tensor(0.01)}, dtype)
        compare(name, {"lr": torch.tensor([0.013]), "weight_decay": 0.1}, dtype)


def test_a_tensor_rate_stays_the_object_that_it_was():
    rate = torch.tensor(0.01)
    optimizer = hpml_lab.optim.Adam(parameters(SHAPES, torch.float32), lr=rate)
    walk(optimizer, optimizer.param_groups[0]["params"], 2)
    assert optimizer.param_groups[0]["lr"] is rate


DECAY = st.floats(0, 0.999)
SIZE = st.floats(-10, 0).map(lambda power: 10**power)
DRAWN = {
    "lr": SIZE,
    "eps": SIZE,
    "weight_decay": st.one_of(st.just(0.0), SIZE),
    "betas": st.tuples(DECAY, DECAY),
    "rho": DECAY,
    "alpha": DECAY,
    "momentum": st.one_of(st.just(0.0), DECAY),
    "dampening": DECAY,
    "nesterov": st.booleans(),
    "lr_decay": st.floats(0, 1),
    "initial_accumulator_value": st.floats(0, 10),
    "momentum_decay": st.floats(0, 0.1),
    "maximize": st.booleans(),
    "amsgrad": st.booleans(),
    "centered": st.booleans(),
    "decoupled_weight_decay": st.booleans(),
    "foreach": st.booleans(),
}


def any_options_agree(data):
    import inspect

    name = data.draw(st.sampled_from(NAMES))
    known = [one for one in inspect.signature(getattr(torch.optim, name)).parameters if one in DRAWN]
    options = {one: data.draw(DRAWN[one], label=one) for one in known}
    if options.get("nesterov"):
        options.update(dampening=0.0) if options["momentum"] else options.update(nesterov=False)
    shapes = data.draw(st.lists(st.lists(st.integers(0, 6), max_size=3).map(tuple), max_size=4))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    lists = options.pop("foreach")
    compare(name, options, dtype, steps=data.draw(st.integers(1, 12)), shapes=shapes, foreach=lists)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_options_agree(data):
    any_options_agree(data)


@pytest.mark.nightly
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_options_agree_at_length(data):
    any_options_agree(data)


SPARSE = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "maximize": True, "initial_accumulator_value": 0.1}),
    ("SparseAdam", {}),
    ("SparseAdam", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "maximize": True}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name, options", SPARSE, ids=str)
def test_sparse_gradients(name, options, dtype):
    runs = []
    for module in (hpml_lab.optim, torch.optim):
        generator = torch.Generator().manual_seed(0)
        table = torch.nn.Embedding(50, 4, sparse=True, dtype=dtype)
        with torch.no_grad():
            table.weight.copy_(torch.randn(50, 4, generator=generator, dtype=dtype))
        optimizer = getattr(module, name)(table.parameters(), **options)
        for t in range(20):
            words = torch.randint(0, 50, (0 if t == 7 else 12,), generator=generator)  # some twice; once none
            optimizer.zero_grad()
            (table(words) ** 2).sum().backward()
            assert table.weight.grad.is_sparse
            optimizer.step()
        runs.append(optimizer)
    assert_same_bits(*runs)


@pytest.mark.cuda
@pytest.mark.parametrize("name, options", INPUTS)
def test_within_four_spacings_on_a_gpu(name, options):
    for lists in (False, True):
        if lists and isinstance(options.get("lr"), torch.Tensor):
            continue
        for dtype in (torch.float32, torch.float64):
            runs = []
            for module, more in ((hpml_lab.optim, {"foreach": lists}), (torch.optim, {"foreach": False})):
                params = [p.detach().cuda().requires_grad_() for p in parameters(SHAPES, dtype)]
                optimizer = getattr(module, name)(params, **copy.deepcopy(options), **more)
                largest = [p.detach().abs() for p in params]
                for row in gradients(parameters(SHAPES, dtype), 25):
                    for p, g in zip(params, row, strict=True):
                        p.grad = None if g is None else g.cuda()
                    optimizer.step()
                    largest = [torch.maximum(one, p.detach().abs()) for one, p in zip(largest, params, strict=True)]
                runs.append((params, largest))
            for p, q, size in zip(runs[0][0], *runs[1], strict=True):
                spacing = torch.nextafter(size, torch.full_like(size, torch.inf)) - size
                assert ((p - q).abs() <= 4 * spacing).all()
