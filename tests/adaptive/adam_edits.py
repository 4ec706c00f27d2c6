"""Adam's lines and the wrong ones, as write_adam.py and write_adamw.py both have them."""

from edited_source import edited, wrong_answers  # noqa: F401

_MOMENTS = """\
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
"""

ADAM_EDITS = [
    ("argument-ignored", ("+ eps", "+ 1e-8")),
    ("argument-ignored", ("    for i,", "    beta1, beta2 = 0.9, 0.999\n    for i,")),
    ("argument-ignored", ("p -= lr", "p -= 0.001")),
    ("argument-ignored", ("    for i,", "    lr = state.setdefault('lr', lr)\n    for i,")),
    ("some-parameters-rest", ("v_hat.sqrt() + eps)", "v_hat.sqrt() + eps)\n        return")),
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
