"""The judge of update rules names each wrong rule of the catalogues, and finds what is wrong with any rule's memory."""

import inspect

import pytest
import torch

from hpml_lab.core.exercises import Mistake
from hpml_lab.optim import mistakes
from hpml_lab.optim.formulas import FORMULAS
from hpml_lab.optim.judging import SHAPES, STEPS, as_rule, judge_rule

MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}
VELOCITY = {"lr": 0.1, "momentum": 0.8}
ASKED = {  # what is asked: the right rule, the catalogue, the judge's arguments
    "momentum": (as_rule(FORMULAS["momentum"]), mistakes.MOMENTUM_MISTAKES, VELOCITY),
    "lecture's momentum": (as_rule(FORMULAS["lecture_momentum"]), mistakes.LECTURE_MOMENTUM_MISTAKES, VELOCITY),
    "nesterov": (as_rule(FORMULAS["nesterov"]), mistakes.NESTEROV_MISTAKES, VELOCITY),
    "look-ahead": (
        as_rule(FORMULAS["lecture_nesterov"], look_ahead=True), mistakes.LOOK_AHEAD_MISTAKES, VELOCITY | {"look_ahead": True}
    ),
    "sgd with decay": (mistakes.sgd_with_decay(), mistakes.SGD_DECAY_MISTAKES, VELOCITY | {"weight_decay": 0.1}),
    "adagrad": (as_rule(FORMULAS["adagrad"]), mistakes.ADAGRAD_MISTAKES, {"lr": 0.1, "eps": 0.01}),
    "lecture's adagrad": (as_rule(FORMULAS["lecture_adagrad"]), mistakes.LECTURE_ADAGRAD_MISTAKES, {"lr": 0.1, "eps": 0.01}),
    "rmsprop": (as_rule(FORMULAS["rmsprop"]), mistakes.RMSPROP_MISTAKES, {"lr": 0.1, "alpha": 0.9, "eps": 0.01}),
    "adam": (as_rule(FORMULAS["adam"]), mistakes.ADAM_MISTAKES, MOMENTS),
    "adamw": (as_rule(FORMULAS["adamw"]), mistakes.ADAMW_MISTAKES, MOMENTS | {"weight_decay": 0.1}),
    "adam, coupled": (mistakes.coupled_adam(), mistakes.COUPLED_ADAM_MISTAKES, MOMENTS | {"weight_decay": 0.1}),
}  # fmt: skip

NAMED_IN_THE_ISSUE = {
    "no-bias-correction", "bias-exponent-off-by-one", "betas-swapped", "eps-inside-root", "eps-outside-root", "eps-on-weights",
    "velocity-as-running-average", "rate-inside-velocity", "nesterov-as-plain-momentum", "look-ahead-wrong-way",
    "squares-not-accumulated", "accumulated-after-use", "coupled-decay", "decoupled-decay",
}  # fmt: skip


def verdict(asked, rule):
    """The name of the mistake that the judge finds in a rule, "right" for none."""
    right, catalogue, arguments = ASKED[asked]
    try:
        judge_rule(rule, right, catalogue, **arguments)
    except Mistake as mistake:
        assert len(str(mistake)) > 40, "a hint says something"
        return mistake.name
    return "right"


@pytest.mark.parametrize("asked", ASKED)
def test_the_right_rule_is_right(asked):
    assert verdict(asked, ASKED[asked][0]) == "right"


@pytest.mark.parametrize(
    "asked, name", [(asked, name) for asked, (_, catalogue, _) in ASKED.items() for name in catalogue], ids=lambda one: one
)
def test_each_wrong_rule_is_told_from_the_others(asked, name):
    assert verdict(asked, ASKED[asked][1][name][0]) == name.split(",")[0]


def test_the_catalogues_hold_every_mistake_that_is_to_be_told_apart():
    held = {name.split(",")[0] for _, catalogue, _ in ASKED.values() for name in catalogue}
    assert NAMED_IN_THE_ISSUE <= held


# ---- What the judge finds in every rule: a right one, spoilt ------------------------------------------------

OUTSIDE: dict = {}


def uphill(rule):
    def step(params, grads, state, **hyper):
        before = [p.clone() for p in params]
        rule(params, grads, state, **hyper)
        for p, old in zip(params, before, strict=True):
            p.copy_(2 * old - p)

    return step


def rebinding(rule):
    return lambda params, grads, state, **hyper: rule([p.clone() for p in params], grads, state, **hyper)


def into_the_list(rule):
    def step(params, grads, state, **hyper):
        params[:] = [p.clone() for p in params]
        rule(params, grads, state, **hyper)

    return step


def shared_by_optimizers(rule):
    return lambda params, grads, state, **hyper: rule(params, grads, OUTSIDE.setdefault(rule, {}), **hyper)


def shared_until_a_new_one_starts(rule):
    """A global that a fresh `state` empties: two optimizers in turn still meet in it."""

    def step(params, grads, state, **hyper):
        if not state:
            OUTSIDE[rule] = {}
        state["begun"] = True
        rule(params, grads, OUTSIDE[rule], **hyper)

    return step


def float32(rule):
    """Its memory passes through float32 after each step."""

    def step(params, grads, state, **hyper):
        rule(params, grads, state, **hyper)
        for i in range(len(params)):
            vars(state[i]).update({key: one.float().to(one.dtype) for key, one in vars(state[i]).items()})
        state["small"] = torch.zeros(1)

    return step


SPOILT = {
    "wrong-sign": [uphill],
    "rebinds": [rebinding],
    "replaces-the-tensors": [into_the_list],
    "state-shared-between-optimizers": [shared_by_optimizers, shared_until_a_new_one_starts],
    "float32-state-under-float64": [float32],
}


@pytest.mark.parametrize("asked", [one for one in ASKED if "look" not in one])
@pytest.mark.parametrize("name, spoil", [(name, spoil) for name, ways in SPOILT.items() for spoil in ways])
def test_a_spoilt_right_rule_is_named(asked, name, spoil):
    assert verdict(asked, spoil(ASKED[asked][0])) == name


@pytest.mark.parametrize("name", ["wrong-sign", "rebinds", "replaces-the-tensors", "state-shared-between-optimizers"])
def test_rules_with_a_look_ahead_are_spoilt_alike(name):
    assert verdict("look-ahead", SPOILT[name][0](ASKED["look-ahead"][0])) == name


def one_velocity(params, grads, state, lr, momentum):
    for p, g in zip(params, grads, strict=True):
        state["b"] = momentum * state.get("b", 0) + g
        p -= lr * state["b"]


def decays_the_gradient_in_place(params, grads, state, lr, momentum, weight_decay):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        g += weight_decay * p
        state[i] = momentum * state.get(i, 0) + g
        p -= lr * state[i]


def grows_the_first_gradient(params, grads, state, lr, momentum):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        if i in state:
            state[i].mul_(momentum).add_(g)
        else:
            state[i] = g
        p -= lr * state[i]


def keeps_the_last_gradient(params, grads, state, lr, momentum):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        b, last = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        b = momentum * (b + last)
        state[i] = (b, g)
        p -= lr * (b + g)


def counts_in_the_loop(params, grads, state, lr, beta1, beta2, eps):
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        t = state["t"] = state.get("t", 0) + 1
        m, v = state.get(i, (0, 0))
        m, v = state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        p -= lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)


def by_halves(params, grads, state, lr, momentum):
    for p, g in zip(params, grads, strict=True):
        p -= lr / 2 * g


def one_point_only(params, gradient, state, lr, momentum):
    for p in params:
        p -= lr * gradient([p])[0]


@pytest.mark.parametrize(
    "asked, rule, name",
    [
        ("momentum", one_velocity, "state-shared-between-parameters"),
        ("sgd with decay", decays_the_gradient_in_place, "gradient-edited-in-place"),
        ("momentum", grows_the_first_gradient, "gradient-edited-in-place"),
        ("momentum", keeps_the_last_gradient, "gradient-kept-by-reference"),
        ("adam", counts_in_the_loop, "step-counted-per-parameter"),
        ("momentum", by_halves, "wrong-value"),
        ("look-ahead", one_point_only, "gradient-of-some"),
    ],
)
def test_mistakes_of_memory_are_named(asked, rule, name):
    assert verdict(asked, rule) == name


def test_it_judges_all_parameters_over_at_least_fifty_steps():
    assert STEPS >= 50 and len(set(SHAPES)) >= 3
    right, calls = ASKED["adam"][0], []

    def wrong_late(params, grads, state, **hyper):
        right(params, grads, state, **hyper)
        calls.append([p.dtype for p in params])
        if len(params) == len(SHAPES) and state["t"] == 50:
            params[-1] += 1e-6  # the last parameter, in the 50th step, by little

    assert verdict("adam", wrong_late) == "wrong-value"
    assert {dtype for types in calls for dtype in types} == {torch.float64}


def test_another_order_of_the_operations_is_right():
    def torchs_own(params, grads, state, lr, beta1, beta2, eps):
        if "optimizer" not in state:
            state["optimizer"] = torch.optim.Adam(params, lr=lr, betas=(beta1, beta2), eps=eps)
        state["optimizer"].param_groups[0]["lr"] = lr
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        state["optimizer"].step()

    assert verdict("adam", torchs_own) == "right"


def test_hints_do_not_contain_the_answers_code():
    for _, catalogue, _ in ASKED.values():
        for _, hint in catalogue.values():
            assert "state[" not in hint and "lr *" not in hint


def test_wrong_rules_are_functions_in_the_students_form():
    for _, catalogue, _ in ASKED.values():
        for rule, _ in catalogue.values():
            assert list(inspect.signature(rule).parameters)[0] == "params"
