"""Answers to `which-track`."""

solution = {
    "x + y": False,
    "x + z": True,
    "(x + z)[0]": True,
    "z.detach()": False,
    "z.clone()": True,
    "torch.zeros_like(z)": False,
    "z > 0": False,
    "no_grad: z * 2": False,
}

WRONG = [
    ("constants-tracked", solution | {"x + y": True}),
    ("all-operands-needed", solution | {"x + z": False}),
    ("slices-cut", solution | {"(x + z)[0]": False}),
    ("detach-tracks", solution | {"z.detach()": True}),
    ("clone-cuts", solution | {"z.clone()": False}),
    ("like-inherits", solution | {"torch.zeros_like(z)": True}),
    ("comparison-tracks", solution | {"z > 0": True}),
    ("no-grad-ignored", solution | {"no_grad: z * 2": True}),
    ("several-wrong", solution | {"z.clone()": False, "z > 0": True}),
    ("several-wrong", dict.fromkeys(solution, True)),
    ("wrong-type", solution | {"x + y": "no"}),
    ("wrong-keys", {"x + y": False}),
]
