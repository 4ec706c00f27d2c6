"""The conformance table: all of torch's inputs and many others give torch's bits, and the comparison sees what does not."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import hpml_lab.optim
from hpml_lab.adaptive.experiments import optimizer_conformance
from hpml_lab.adaptive.experiments.optimizer_conformance import comparison, conformance
from hpml_lab.adaptive.experiments.optimizer_conformance.comparison import Agreement, compare_with_torch, same_errors
from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import (
    CLASSES,
    ELEMENTWISE,
    EXPENSIVE,
    REFUSE_COMPLEX,
    SPARSE,
    OptimizerInput,
    own_inputs,
    random_options,
    suite,
)

REAL = (torch.float32, torch.float64)
by_dtype = pytest.mark.parametrize("dtype", REAL, ids=["float32", "float64"])


@pytest.fixture(scope="module")
def table(ran):
    """The row of each class, by its name."""
    return {row.name: row for row in ran("optimizer-conformance").rows()}


def test_the_table_has_all_classes_of_torch_optim(table):
    offered = [name for name in torch.optim.__all__ if isinstance(found := getattr(torch.optim, name), type) and found.__base__]
    assert set(table) == set(CLASSES) == {name for name in offered if name != "Optimizer"}
    assert len(CLASSES) == 15


def test_all_runs_over_torchs_own_inputs_give_torchs_bits(table):
    assert sum(row.suite_inputs for row in table.values()) >= 180  # torch 2.15 has some more than 2.11
    assert [row.suite_identical for row in table.values()] == [row.suite_inputs for row in table.values()]


def test_all_inputs_that_must_fail_fail_as_torchs_do(table):
    assert sum(row.faulty_inputs for row in table.values()) >= 110  # as above
    assert [row.same_errors for row in table.values()] == [row.faulty_inputs for row in table.values()]


@pytest.mark.parametrize("name", CLASSES)
def test_own_inputs_and_lists_give_torchs_bits_and_no_gradient_is_overwritten(table, name):
    row = table[name]
    assert row.own_identical == row.own_inputs >= 6 + optimizer_conformance.QUICK["draws"]
    assert row.list_identical == row.list_inputs and (row.list_inputs > 0) == (name in ELEMENTWISE)
    assert (row.spacings, row.overwritten) == (0, 0)
    assert row.same_errors == row.faulty_inputs > 0


# ---- the comparison sees what differs -------------------------------------------------------------------------------


class FormulaAdam(torch.optim.Adam):
    """Adam spelled as the formula: the right numbers, other roundings."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = b1 * state.get("m", 0) + (1 - b1) * p.grad
                v = state["v"] = b2 * state.get("v", 0) + (1 - b2) * p.grad**2
                p.copy_(p - group["lr"] * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"]))


@by_dtype
def test_another_spelling_is_some_spacings_apart_and_another_rule_very_many(dtype):
    [spelled] = compare_with_torch(OptimizerInput("Adam", {"lr": 0.5}, dtype, 100), package=SimpleNamespace(Adam=FormulaAdam))
    assert not spelled.identical and 0 < spelled.spacings < 1000
    [other] = compare_with_torch(OptimizerInput("Adam", {}, dtype), package=SimpleNamespace(Adam=torch.optim.AdamW))
    assert not other.identical and other.spacings > 1000


def test_a_state_that_is_not_torchs_is_seen_though_the_parameters_are_the_same():
    class Kept(hpml_lab.optim.Adam):
        def step(self, closure=None):
            super().step(closure)
            for state in self.state.values():
                state["exp_avg_sq"] = state["exp_avg_sq"] + 0.0
                state["step"] = state["step"].double()

    [agreement] = compare_with_torch(OptimizerInput("Adam", steps=5), package=SimpleNamespace(Adam=Kept))
    assert agreement.spacings == 0 and not agreement.identical


def test_nan_is_infinitely_far_from_a_number():
    class Lost(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            super().step(closure)
            self.param_groups[0]["params"][3][2] = math.nan

    [agreement] = compare_with_torch(OptimizerInput("SGD", steps=2), package=SimpleNamespace(SGD=Lost))
    assert agreement.spacings == math.inf and not agreement.identical


def test_both_signs_of_zero_are_different_bits():
    zero = torch.zeros(1)
    assert not comparison._identical(zero, -zero).any() and comparison._identical(zero, zero).all()


@by_dtype
def test_a_difference_is_counted_in_gaps_at_the_largest_value_that_was(dtype):
    one, gap = torch.ones(1, dtype=dtype), torch.finfo(dtype).eps
    assert comparison._spacings(one + 3 * gap, one, one) == 3
    # now near zero, after it was 1: still three gaps of numbers near 1
    assert comparison._spacings(torch.tensor([3 * gap], dtype=dtype), torch.zeros(1, dtype=dtype), one) == 3


NESTEROV = OptimizerInput("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0}, steps=4)


def test_nesterov_as_lists_leaves_the_gradient_alone_where_torch_overwrites_it():
    for agreement in compare_with_torch(NESTEROV, foreach=(False, True, None)):
        assert agreement.identical and not agreement.overwritten
    [torchs] = compare_with_torch(NESTEROV, foreach=(True,), package=torch.optim)
    assert torchs.overwritten, "torch has fixed this: say so in notebook 05"


def test_a_row_counts_lists_and_own_inputs_and_its_difference_is_the_largest_of_all(monkeypatch):
    plain, lists = OptimizerInput("Adam"), Agreement(False, 7.0, True)
    agreements = {25: [Agreement(True, 0.0, False), lists], 9: [Agreement(False, 3.0, False)]}
    tensor_rate = OptimizerInput("Adam", {"lr": torch.tensor(0.1)}, steps=9)
    monkeypatch.setattr(optimizer_conformance, "suite_inputs", lambda name, steps: [plain] * 3)
    monkeypatch.setattr(optimizer_conformance, "own_inputs", lambda *_: [tensor_rate] * 2)
    monkeypatch.setattr(
        optimizer_conformance,
        "compare_with_torch",
        lambda entry, device, foreach, package: agreements[entry.steps][: len(foreach)],
    )
    monkeypatch.setattr(optimizer_conformance, "same_errors", lambda *_: (5, 6))
    [row] = conformance(classes=("Adam",))
    assert (row.suite_inputs, row.own_inputs, row.list_inputs) == (3, 2, 3)
    assert (row.suite_identical, row.own_identical, row.list_identical) == (3, 0, 0)
    assert (row.spacings, row.overwritten) == (7.0, 3)
    assert (row.same_errors, row.faulty_inputs) == (5, 6)


@pytest.mark.parametrize("bad", [0, 2, 5])
def test_a_single_bad_step_is_seen_and_its_size_stays(bad):
    class Once(torch.optim.SGD):
        """In step `bad` the parameter is a 64th off and the gradient is changed; in the next both are as they should be."""

        taken = 0

        @torch.no_grad()
        def step(self, closure=None):
            p = self.param_groups[0]["params"][3]
            if self.taken == bad + 1:
                p.copy_(self.right)
            super().step(closure)
            if self.taken == bad:
                self.right = p.clone()
                p.add_(2.0**-6)
                p.grad.add_(1.0)
            self.taken += 1

    [agreement] = compare_with_torch(OptimizerInput("SGD", {"lr": 1e-9}, steps=6), package=SimpleNamespace(SGD=Once))
    assert (
        not agreement.identical and agreement.overwritten and agreement.spacings > 2.0**-6 / torch.finfo(torch.float32).eps / 8
    )


def test_a_class_that_refuses_nothing_is_seen():
    class Careless(torch.optim.Optimizer):
        def __init__(self, params, **options):
            pass

        def step(self):
            pass

    count, faulty = same_errors("Adam", SimpleNamespace(Adam=Careless))
    assert count == 0 < faulty


@pytest.mark.parametrize("name", CLASSES)
def test_torch_itself_agrees_with_itself(name):
    [agreement] = compare_with_torch(OptimizerInput(name, steps=5, sparse=name == "SparseAdam"), package=torch.optim)
    assert agreement.identical and agreement.spacings == 0
    assert same_errors(name, torch.optim) == (len(suite(name)[1]),) * 2


# ---- own inputs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_own_inputs_are_seeded_and_go_beyond_torchs(name):
    inputs = own_inputs(name, draws=12, long_steps=1000)
    assert str(inputs) == str(own_inputs(name, draws=12, long_steps=1000)) != str(own_inputs(name, draws=12, seed=1))
    assert {True, False} == {entry.rates for entry in inputs}
    assert sum(entry.steps == (50 if name in EXPENSIVE else 1000) for entry in inputs) == 2
    assert any(isinstance(entry.options.get("lr"), torch.Tensor) for entry in inputs)
    assert any(entry.sparse for entry in inputs) == (name in SPARSE)
    dtypes = {entry.dtype for entry in inputs}
    assert dtypes == {*REAL, *(() if name in REFUSE_COMPLEX else (torch.complex64, torch.complex128))}
    drawn = [entry.options for entry in inputs[:12]]
    for option in drawn[0]:
        values = {str(options[option]) for options in drawn}
        few = isinstance(drawn[0][option], bool) or option == "line_search_fn"
        assert len(values) == 2 if few else len(values) >= 3, option


def any_input_agrees(name, draw, dtype, steps, rates, shapes):
    assume(name != "Muon" or not any(0 in shape for shape in shapes))  # both divide by the number of a matrix's columns
    sparse = name == "SparseAdam"
    dtype = dtype.to_real() if name in REFUSE_COMPLEX else dtype
    entry = OptimizerInput(name, random_options(name, draw), dtype, steps, rates, sparse, shapes)
    for agreement in compare_with_torch(entry, foreach=(False, True) if entry.accepts_lists else (False,)):
        assert agreement.identical and not agreement.overwritten, (entry, agreement)


any_input = given(
    st.sampled_from(CLASSES),
    st.randoms(use_true_random=False),
    st.sampled_from([*REAL, torch.complex64, torch.complex128]),
    st.integers(1, 15),
    st.booleans(),
    st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=4).map(tuple),
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@any_input
def test_any_input_agrees(name, draw, dtype, steps, rates, shapes):
    any_input_agrees(name, draw, dtype, steps, rates, shapes)


@pytest.mark.nightly("2000 random inputs")
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@any_input
def test_any_input_agrees_at_length(name, draw, dtype, steps, rates, shapes):
    any_input_agrees(name, draw, dtype, steps, rates, shapes)


@pytest.mark.nightly("200 option sets a class, 1000 steps each")
@pytest.mark.parametrize("name", CLASSES)
def test_two_hundred_draws_a_class_and_a_thousand_steps(name):
    [row] = conformance(steps=1000, draws=200, long_steps=5000, classes=(name,))
    assert (row.spacings, row.overwritten) == (0, 0)
    assert row.identical == row.runs, row


@pytest.mark.cuda
@pytest.mark.parametrize("name", CLASSES)
def test_on_a_gpu_within_four_spacings(name):
    [row] = conformance("cuda", draws=4, long_steps=200, classes=(name,))
    assert row.spacings <= 4
    assert row.overwritten == 0


@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_betas_may_be_tensors_in_another_precision(name, shape, dtype):
    betas = torch.full(shape, 0.034), torch.full(shape, 0.5454)  # 1 - 0.034 has more digits in float64 than in float32
    [agreement] = compare_with_torch(OptimizerInput(name, {"betas": betas}, dtype))
    assert agreement.identical and not agreement.overwritten
