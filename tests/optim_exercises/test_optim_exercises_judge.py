"""The judge of update rules names each wrong rule of the catalogues, and finds what is wrong with any rule's state."""

import inspect

import pytest
import torch

from hpml_lab.adaptive.exercises import fix_the_rmsprop, write_adagrad, write_adam, write_adamw
from hpml_lab.core.judge.exercises import Mistake
from hpml_lab.optim_exercises import velocity_mistakes
from hpml_lab.optim_exercises.judge import SHAPES, STEPS, judge_rule
from hpml_lab.optim_exercises.rules import altered, as_rule

MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}
VELOCITY = {"lr": 0.1, "momentum": 0.8}
EXERCISES = {  # what is exercise for: the right rule, the catalogue of mistakes, the judge's arguments
    "momentum": (as_rule("momentum"), velocity_mistakes.MOMENTUM_MISTAKES, VELOCITY),
    "lecture's momentum": (as_rule("lecture_momentum"), velocity_mistakes.LECTURE_MOMENTUM_MISTAKES, VELOCITY),
    "nesterov": (as_rule("nesterov"), velocity_mistakes.NESTEROV_MISTAKES, VELOCITY),
    "look-ahead": (
        as_rule("lecture_nesterov", look_ahead=True), velocity_mistakes.LOOK_AHEAD_MISTAKES, VELOCITY | {"look_ahead": True}
    ),
    "sgd with decay": (
        velocity_mistakes.sgd_with_decay(), velocity_mistakes.SGD_DECAY_MISTAKES, VELOCITY | {"weight_decay": 0.1}
    ),
    "adagrad": (as_rule("adagrad"), write_adagrad.ADAGRAD_MISTAKES, {"lr": 0.1, "eps": 0.01}),
    "lecture's adagrad": (as_rule("lecture_adagrad"), write_adagrad.LECTURE_ADAGRAD_MISTAKES, {"lr": 0.1, "eps": 0.01}),
    "rmsprop": (as_rule("rmsprop"), fix_the_rmsprop.RMSPROP_MISTAKES, {"lr": 0.1, "alpha": 0.9, "eps": 0.01}),
    "adam": (as_rule("adam"), write_adam.ADAM_MISTAKES, MOMENTS),
    "adamw": (as_rule("adamw"), write_adamw.ADAMW_MISTAKES, MOMENTS | {"weight_decay": 0.1}),
    "adam, coupled": (write_adamw.coupled_adam(), write_adamw.COUPLED_ADAM_MISTAKES, MOMENTS | {"weight_decay": 0.1}),
}  # fmt: skip

WELL_KNOWN = {
    "no-bias-correction", "bias-exponent-off-by-one", "betas-swapped", "eps-inside-root", "eps-outside-root", "eps-on-weights",
    "velocity-as-running-average", "rate-inside-velocity", "nesterov-as-plain-momentum", "look-ahead-wrong-way",
    "squares-not-accumulated", "accumulated-after-use", "coupled-decay", "decoupled-decay",
}  # fmt: skip


def found(exercise, rule):
    """The name of the mistake that the judge finds in a rule, "right" for none."""
    right, catalogue, arguments = EXERCISES[exercise]
    try:
        judge_rule(rule, right, catalogue, **arguments)
    except Mistake as mistake:
        assert len(str(mistake)) > 40, "a hint says something"
        return mistake.name
    return "right"


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_right_rule_is_right(exercise):
    assert found(exercise, EXERCISES[exercise][0]) == "right"


@pytest.mark.parametrize(
    "exercise, name", [(exercise, name) for exercise, (_, catalogue, _) in EXERCISES.items() for name in catalogue], ids=str
)
def test_each_wrong_rule_is_distinguished_from_the_others(exercise, name):
    assert found(exercise, EXERCISES[exercise][1][name][0]) == name.split(",")[0]


def test_the_catalogues_hold_every_well_known_mistake():
    known = {name.split(",")[0] for _, catalogue, _ in EXERCISES.values() for name in catalogue}
    assert WELL_KNOWN <= known


# ---- What the judge finds in every rule: a right one, spoiled ------------------------------------------------

GLOBAL_STATE: dict = {}


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
    return lambda params, grads, state, **hyper: rule(params, grads, GLOBAL_STATE.setdefault(rule, {}), **hyper)


def shared_until_a_new_one_starts(rule):
    """A global that a fresh `state` empties: two optimizers in turn still share it."""

    def step(params, grads, state, **hyper):
        if not state:
            GLOBAL_STATE[rule] = {}
        state["begun"] = True
        rule(params, grads, GLOBAL_STATE[rule], **hyper)

    return step


def float32(rule):
    """Its state passes through float32 after each step."""

    def step(params, grads, state, **hyper):
        rule(params, grads, state, **hyper)
        for i in range(len(params)):
            vars(state[i]).update({key: kept.float().to(kept.dtype) for key, kept in vars(state[i]).items()})
        state["small"] = torch.zeros(1)

    return step


SPOILED = {
    "wrong-sign": [uphill],
    "rebinds": [rebinding],
    "replaces-the-tensors": [into_the_list],
    "state-shared-between-optimizers": [shared_by_optimizers, shared_until_a_new_one_starts],
    "float32-state-under-float64": [float32],
}


@pytest.mark.parametrize("exercise", [name for name in EXERCISES if "look" not in name])
@pytest.mark.parametrize("name, spoil", [(name, spoil) for name, spoils in SPOILED.items() for spoil in spoils])
def test_a_spoiled_right_rule_is_named(exercise, name, spoil):
    assert found(exercise, spoil(EXERCISES[exercise][0])) == name


@pytest.mark.parametrize("name", ["wrong-sign", "rebinds", "replaces-the-tensors", "state-shared-between-optimizers"])
def test_spoiled_rules_with_a_look_ahead_are_named(name):
    assert found("look-ahead", SPOILED[name][0](EXERCISES["look-ahead"][0])) == name


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


def by_the_square_of_momentum(params, grads, state, lr, momentum):
    for p, g in zip(params, grads, strict=True):
        p -= lr * momentum**2 * g


def first_parameter_only(params, grads, state, lr, momentum):
    params[0].sub_(lr * momentum * grads[0])


def at_the_first_rate(params, grads, state, lr, momentum):
    EXERCISES["momentum"][0](params, grads, state.setdefault("own", {}), lr=state.setdefault("lr", lr), momentum=momentum)


def one_point_only(params, gradient, state, lr, momentum):
    for p in params:
        p -= lr * gradient([p])[0]


@pytest.mark.parametrize(
    "exercise, rule, name",
    [
        ("momentum", one_velocity, "state-shared-between-parameters"),
        ("sgd with decay", decays_the_gradient_in_place, "gradient-edited-in-place"),
        ("momentum", grows_the_first_gradient, "gradient-edited-in-place"),
        ("momentum", keeps_the_last_gradient, "gradient-kept-by-reference"),
        ("adam", counts_in_the_loop, "step-counted-per-parameter"),
        ("momentum", by_halves, "argument-ignored"),
        ("momentum", by_the_square_of_momentum, "wrong-value"),
        ("momentum", first_parameter_only, "some-parameters-rest"),
        ("momentum", at_the_first_rate, "argument-ignored"),
        ("look-ahead", one_point_only, "gradient-of-some"),
    ],
)
def test_mistakes_with_the_state_are_named(exercise, rule, name):
    assert found(exercise, rule) == name


def test_it_judges_all_parameters_over_at_least_fifty_steps():
    assert STEPS >= 50 and len(set(SHAPES)) >= 3
    right, calls = EXERCISES["adam"][0], []

    def wrong_late(params, grads, state, **hyper):
        right(params, grads, state, **hyper)
        calls.append([p.dtype for p in params])
        if len(params) == len(SHAPES) and state["t"] == 50:
            params[-1] += 1e-6  # the last parameter, in the 50th step, by little

    assert found("adam", wrong_late) == "wrong-value"
    assert {dtype for types in calls for dtype in types} == {torch.float64}


def test_another_order_of_the_operations_is_right():
    def torchs_own(params, grads, state, lr, beta1, beta2, eps):
        if "optimizer" not in state:
            state["optimizer"] = torch.optim.Adam(params, lr=lr, betas=(beta1, beta2), eps=eps)
        state["optimizer"].param_groups[0]["lr"] = lr
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        state["optimizer"].step()

    assert found("adam", torchs_own) == "right"


def test_hints_do_not_contain_the_answers_code():
    for _, catalogue, _ in EXERCISES.values():
        for _, hint in catalogue.values():
            assert "state[" not in hint and "lr *" not in hint


def test_wrong_rules_are_functions_in_the_students_form():
    for _, catalogue, _ in EXERCISES.values():
        for rule, _ in catalogue.values():
            assert list(inspect.signature(rule).parameters)[0] == "params"


def test_an_altered_rule_names_the_line_that_its_formula_does_not_have():
    with pytest.raises(ValueError, match="adagrad has no line for s.v"):
        altered("adagrad", "s.v = g")
    with pytest.raises(ValueError, match="the lines of adagrad are s.G, theta"):
        altered("adagrad", order=("theta", "s.v"))


@pytest.mark.parametrize("name", ["momentum", "adagrad", "rmsprop", "adam"])
def test_a_rule_altered_in_nothing_is_the_formula(name):
    rule, catalogue, arguments = EXERCISES[name]
    judge_rule(altered(name), rule, catalogue, **arguments)
