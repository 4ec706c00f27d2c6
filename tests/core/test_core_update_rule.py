"""The judge of update rules finds what is wrong with a rule's state, whatever the rule is."""

import pytest
import torch

from hpml_lab.adaptive.exercises import fix_the_rmsprop, write_adagrad, write_adam, write_adamw
from hpml_lab.core.judge import asked, update_rule
from hpml_lab.core.judge.exercises import check
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.update_rule import RATE_CHANGE, SHAPES, STEPS, _first_difference, judge_rule
from hpml_lab.descent.exercises import look_ahead_step, momentum_step

MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}
EXERCISES = {  # the rubric, the judge's arguments
    "momentum": (momentum_step.RUBRIC, {"lr": 0.1, "momentum": 0.8}),
    "look-ahead": (look_ahead_step.RUBRIC, {"lr": 0.1, "momentum": 0.8, "look_ahead": True}),
    "adagrad": (write_adagrad.RUBRIC, {"lr": 0.1, "eps": 0.01}),
    "rmsprop": (fix_the_rmsprop.RUBRIC, {"lr": 0.1, "alpha": 0.9, "eps": 0.01}),
    "adam": (write_adam.RUBRIC, MOMENTS),
    "adamw": (write_adamw.RUBRIC, MOMENTS | {"weight_decay": 0.1}),
}


def right(exercise):
    return EXERCISES[exercise][0].right


def found(exercise, rule):
    """The name of the mistake that the judge finds in a rule, "right" for none."""
    rubric, arguments = EXERCISES[exercise]
    try:
        judge_rule(rule, rubric, **arguments)
    except Mistake as mistake:
        assert len(str(mistake)) > 40, "a hint says something"
        return mistake.name
    return "right"


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


def rounded(tensor):
    return tensor.float().to(tensor.dtype)


def float32(rule):
    """Its state passes through float32 after each step."""

    def step(params, grads, state, **hyper):
        rule(params, grads, state, **hyper)
        for i in range(len(params)):
            kept = state[i]
            state[i] = tuple(map(rounded, kept)) if isinstance(kept, tuple) else rounded(kept)
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
    assert found(exercise, spoil(right(exercise))) == name


@pytest.mark.parametrize("name", ["wrong-sign", "rebinds", "replaces-the-tensors", "state-shared-between-optimizers"])
def test_spoiled_rules_with_a_look_ahead_are_named(name):
    assert found("look-ahead", SPOILED[name][0](right("look-ahead"))) == name


def one_velocity(params, grads, state, lr, momentum):
    for p, g in zip(params, grads, strict=True):
        state["b"] = momentum * state.get("b", 0) + g
        p -= lr * state["b"]


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
    right("momentum")(params, grads, state.setdefault("own", {}), lr=state.setdefault("lr", lr), momentum=momentum)


def one_point_only(params, gradient, state, lr, momentum):
    for p in params:
        p -= lr * gradient([p])[0]


@pytest.mark.parametrize(
    "exercise, rule, name",
    [
        ("momentum", one_velocity, "state-shared-between-parameters"),
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
    adam, calls = right("adam"), []

    def wrong_late(params, grads, state, **hyper):
        adam(params, grads, state, **hyper)
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


def test_a_beta_of_0_may_cost_digits(monkeypatch):
    """v + (1 - β) (g² - v) is g² to the rounding of v, which is 1e-9 of a step where g is small: this draw has such a g."""

    def by_differences(params, grads, state, lr, beta1, beta2, eps):
        t = state["t"] = state.get("t", 0) + 1
        c1, c2 = 1 - beta1**t, (1 - beta2**t) ** 0.5
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            m, v = state.get(i, (torch.zeros_like(g), torch.zeros_like(g)))
            state[i] = m, v = m + (1 - beta1) * (g - m), v + (1 - beta2) * (g**2 - v)
            p.sub_(lr * c2 / c1 * m / (v**0.5 + eps * c2))

    monkeypatch.setattr(asked, "hidden_seed", lambda: 1006)
    assert check("write-adam", by_differences)
    monkeypatch.setattr(update_rule, "ROUNDED", update_rule.EQUAL)
    assert check("write-adam", by_differences).mistake == "zero-taken-for-none"


def test_hints_do_not_contain_the_answers_code():
    for rubric, _ in EXERCISES.values():
        for _, _, hint in rubric.single():
            assert "state[" not in hint and "lr *" not in hint


@pytest.mark.parametrize(
    "first, says",
    [
        (1, "Already after the first step"),
        (2, "Right for 1 step; after step 2"),
        (3, "Right for 2 steps; after step 3"),
        (RATE_CHANGE + 1, f"Right for {RATE_CHANGE} steps, until the learning rate was quartered"),
    ],
)
def test_the_hint_says_after_which_step_a_rule_goes_wrong(first, says):
    goal = torch.zeros(STEPS, 3)
    track = goal.clone()
    track[first - 1 :, 1] = 2.0
    step, hint = _first_difference(track, goal)
    assert step == first - 1
    assert hint.startswith(says) and "is 2 where it should be 0" in hint
