"""Adam's lines and the wrong ones, as write_adam.py and write_adamw.py both have them."""

from edited_source import edited, wrong_answers  # noqa: F401

ADAM_STEP = "m_hat / (v_hat.sqrt() + eps)"
_STEP_LINE = "        p -= lr * m_hat / (v_hat.sqrt() + eps)\n"
_MOMENTS = """\
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
"""

ADAM_EDITS = [
    ("no-bias-correction", ("m / (1 - beta1**t)", "m"), ("v / (1 - beta2**t)", "v")),
    ("bias-exponent-off-by-one", ('t = state["t"] = state.get("t", 0) + 1', 't = state.get("t", 0); state["t"] = t + 1')),
    ("bias-exponent-off-by-one", ("**t)", "**(t + 1))")),
    ("bias-exponent-missing", ("**t)", ")")),
    ("bias-exponent-outside", ("**t)", ") ** t")),
    ("second-moment-not-corrected", ("v / (1 - beta2**t)", "v")),
    ("first-moment-not-corrected", ("m / (1 - beta1**t)", "m")),
    (
        "betas-swapped",
        ("m = beta1 * m + (1 - beta1)", "m = beta2 * m + (1 - beta2)"),
        ("v = beta2 * v + (1 - beta2)", "v = beta1 * v + (1 - beta1)"),
        ("m / (1 - beta1**t)", "m / (1 - beta2**t)"),
        ("v / (1 - beta2**t)", "v / (1 - beta1**t)"),
    ),
    ("eps-inside-root", ("(v_hat.sqrt() + eps)", "(v_hat + eps).sqrt()")),
    ("eps-on-weights", ("(v_hat.sqrt() + eps)", "v_hat.sqrt() + eps")),
    ("eps-on-weights", (ADAM_STEP, "(m_hat / v_hat.sqrt() + eps)")),
    ("eps-missing", ("(v_hat.sqrt() + eps)", "v_hat.sqrt()")),
    ("eps-before-correction", (ADAM_STEP, "m_hat * (1 - beta2**t) ** 0.5 / (v.sqrt() + eps)")),
    ("squares-not-accumulated", ("v = beta2 * v + (1 - beta2) * g * g", "v = g * g"), ("v / (1 - beta2**t)", "v")),
    ("squares-not-accumulated", ("v = beta2 * v + (1 - beta2) * g * g", "v = g * g")),
    ("squares-not-accumulated", ("v = beta2 * v + ", "v = ")),
    ("momentum-missing", ("m_hat = m / ", "m_hat = g / ")),
    ("momentum-missing", ("m_hat = m / (1 - beta1**t)", "m_hat = g")),
    ("averages-as-sums", ("(1 - beta1) * g", "g"), ("(1 - beta2) * g * g", "g * g")),
    ("root-missing", ("v_hat.sqrt()", "v_hat")),
    ("correction-outside-root", ("v_hat.sqrt()", "v.sqrt() / (1 - beta2**t)")),
    ("weights-swapped", ("beta1 * m + (1 - beta1) * g", "(1 - beta1) * m + beta1 * g")),
    ("weights-swapped", ("beta2 * v + (1 - beta2) * g * g", "(1 - beta2) * v + beta2 * g * g")),
    (
        "weights-swapped",
        ("beta1 * m + (1 - beta1) * g", "(1 - beta1) * m + beta1 * g"),
        ("beta2 * v + (1 - beta2) * g * g", "(1 - beta2) * v + beta2 * g * g"),
    ),
    ("first-gradient-twice", ("(torch.zeros_like(p), torch.zeros_like(p))", "(g.clone(), g * g)")),
    ("corrected-moments-kept", (_STEP_LINE, f"{_STEP_LINE}        state[i] = (m_hat, v_hat)\n")),
    ("one-beta-for-both", ("v / (1 - beta2**t)", "v / (1 - beta1**t)")),
    ("one-beta-for-both", ("m / (1 - beta1**t)", "m / (1 - beta2**t)")),
    ("bias-exponent-as-factor", ("beta1**t", "beta1 * t"), ("beta2**t", "beta2 * t")),
    ("not-squared", ("g * g", "g.abs()")),
    ("argument-ignored", ("+ eps", "+ 1e-8")),
    ("argument-ignored", ("    for i,", "    beta1, beta2 = 0.9, 0.999\n    for i,")),
    ("argument-ignored", ("p -= lr", "p -= 0.001")),
    ("argument-ignored", ("    for i,", "    lr = state.setdefault('lr', lr)\n    for i,")),
    ("some-parameters-rest", ("v_hat.sqrt() + eps)", "v_hat.sqrt() + eps)\n        return")),
    ("one-number-per-tensor", ("g * g", "(g * g).mean()")),
    ("accumulated-after-use", (_MOMENTS, ""), (ADAM_STEP, f"{ADAM_STEP}\n{_MOMENTS}")),
    ("wrong-sign", ("p -= lr", "p += lr")),
    ("state-shared-between-parameters", ("state.setdefault(i,", 'state.setdefault("mv",'), ("state[i]", 'state["mv"]')),
    ("state-shared-between-optimizers", ("state.setdefault(i,", "MEMORY.setdefault(i,"), ("state[i]", "MEMORY[i]")),
    ("state-shared-between-optimizers", ('state["t"] = state.get', 'MEMORY["t"] = MEMORY.get')),
    ("gradient-edited-in-place", ("g * g", "g.mul_(g)")),
    ("float32-state-under-float64", ("(m, v)", "(m.float(), v.float())")),
    (
        "step-counted-per-parameter",
        ('    t = state["t"] = state.get("t", 0) + 1\n', ""),
        ("        m, v = state", '        t = state["t"] = state.get("t", 0) + 1\n        m, v = state'),
    ),
    (
        "gradient-kept-by-reference",
        (_MOMENTS, "        state.setdefault((i, 'past'), []).append(g)\n        past = enumerate(reversed(state[i, 'past']))\n"
                   "        terms = [((1 - beta1) * beta1**k * old, (1 - beta2) * beta2**k * old**2) for k, old in past]\n"
                   "        m, v = map(sum, zip(*terms))\n"),
    ),
]  # fmt: skip
