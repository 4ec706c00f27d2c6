"""`explain` and the lines it shows: formula and code are read from the rule that runs."""

import pytest
import torch

import hpml_lab.optim
from hpml_lab.core.system.errors import LabError
from hpml_lab.optim import LBFGS, SGD, Adagrad, Adam, AdamW, NAdam, SparseAdam
from hpml_lab.optim.formulas.lines import formula_lines
from hpml_lab.optim.machinery.base import Optimizer

EXPORTS = [getattr(hpml_lab.optim, name) for name in hpml_lab.optim.__all__]
CLASSES = [export for export in EXPORTS if isinstance(export, type)]


def stepped(make, steps=3, **options):
    weight, bias = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)), torch.nn.Parameter(torch.ones(3, 1))
    optimizer = make([weight, bias], **options)
    for _ in range(steps):
        weight.grad = torch.ones(2, 3).to_sparse() if make is SparseAdam else torch.ones(2, 3)
        optimizer.step(lambda: weight.square().sum())
    return optimizer


@pytest.mark.parametrize("make", CLASSES, ids=lambda optimizer: optimizer.__name__)
def test_every_statement_of_a_rule_has_its_formula(make):
    rules = [*make.explained, *(["update_sparse"] if make.update_sparse else [])]
    pairs = [pair for rule in rules for pair in formula_lines(getattr(make, rule))]
    assert len(pairs) >= 3
    *_, (formula, code) = [pair for pair in pairs if not pair[0].startswith("ā")]  # ASGD's average comes after the step
    assert formula.startswith("θ = θ") and "theta.add" in code, "the last line moves the parameter"
    assert len(formula_lines(Optimizer.decay)) == 2


@pytest.mark.parametrize("make", CLASSES, ids=lambda optimizer: optimizer.__name__)
def test_explain_shows_the_rule_and_every_state_tensor(make):
    optimizer = stepped(make)
    explanation = optimizer.explain()
    shown = [(line.formula, line.code) for line in explanation.lines]
    assert set(formula_lines(optimizer.update)) <= set(shown)
    tensors = " ".join(text for line in explanation.lines for text in line.tensors)
    state = optimizer.state.get(optimizer.param_groups[0]["params"][0], {})
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.ndim:
            assert f"= {name} {tuple(value.shape)} float32" in tensors
    assert "θ (2, 3) float32" in tensors


def test_explain_shows_the_values_as_they_are_now():
    optimizer = stepped(Adam, 1)
    assert "m = exp_avg (2, 3) float32: 0.1, 0.1, 0.1, …; norm 0.245" in repr(optimizer.explain())
    optimizer.step()
    assert "m = exp_avg (2, 3) float32: 0.19, 0.19, 0.19" in repr(optimizer.explain())
    assert "after step 2" in repr(optimizer.explain())


@pytest.mark.parametrize("steps", [1, 3])
def test_an_optimizer_that_counts_no_steps_claims_no_number_of_them(steps):
    assert "after one step or more (" in repr(stepped(SGD, steps, momentum=0.9).explain())


def test_a_parameter_without_a_step_says_so_and_one_that_is_not_there_is_named():
    optimizer = stepped(SGD, momentum=0.9)
    assert "no step yet" in repr(optimizer.explain(1))
    with pytest.raises(LabError, match="no parameter 2 in this SGD.*from 0 to 1"):
        optimizer.explain(2)


def test_weight_decay_and_nadams_momentum_are_shown_where_they_act():
    assert any("λ θ" in line.formula for line in stepped(AdamW).explain().lines)
    assert not any("λ θ" in line.formula for line in stepped(Adam).explain().lines)
    assert any("Πμ · μₜ" in line.formula for line in stepped(NAdam).explain().lines)


def test_the_html_is_escaped_and_leaves_the_colors_to_the_page():
    page = stepped(Adam).explain()._repr_html_()
    assert page.count("<tr>") == 6 and "color" not in page
    assert "<code>m.lerp_(g, 1 - of_type(m, beta1))</code>" in page


def test_a_rule_whose_formulas_do_not_pair_is_refused():
    def rule(theta):
        """One formula for two statements.

            θ = 2 θ
        From nowhere.
        """
        theta.mul_(2)
        theta.add_(1)

    with pytest.raises(ValueError, match="1 formulas for 2 statements"):
        formula_lines(rule)


DECAYING = [
    make for make in CLASSES if make.decay is Optimizer.decay and make is not LBFGS
]  # others decay within their update, or never


@pytest.mark.parametrize("make", DECAYING, ids=lambda optimizer: optimizer.__name__)
def test_of_the_two_lines_of_weight_decay_that_one_stands_there_that_holds(make):
    explanation = stepped(make, weight_decay=0.1).explain()
    found = [line.formula for line in explanation.lines if line.formula.endswith((", if decoupled", ", if not"))]
    decoupled = "decoupled_weight_decay=True" in repr(explanation)
    assert found == ["θ = θ − α λ θ, if decoupled" if decoupled else "g = g + λ θ, if not"]


@pytest.mark.parametrize("make", [SGD, AdamW], ids=lambda optimizer: optimizer.__name__)
def test_a_gradient_that_is_turned_around_is_the_first_line(make):
    assert stepped(make, maximize=True).explain().lines[0].formula == "g = −g"
    assert all(line.formula != "g = −g" for line in stepped(make).explain().lines)


def test_a_state_that_is_there_from_the_start_is_of_no_step_yet():
    assert "no step yet" in repr(Adagrad([torch.nn.Parameter(torch.ones(2))]).explain())
    assert "after step 3" in repr(stepped(Adagrad).explain())


@pytest.mark.parametrize("make, options", [(SGD, {}), (SGD, {"momentum": 0.9}), (Adagrad, {}), (SparseAdam, {})])
def test_a_sparse_gradient_and_its_state_are_explained(make, options):
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = make(table.parameters(), **options)
    table(torch.tensor([1, 1, 3])).sum().backward()
    optimizer.step()
    assert "(4, 2) float32" in repr(optimizer.explain())
