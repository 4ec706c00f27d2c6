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
    ("constants-tracked", dict.fromkeys(solution, True)),
    ("all-operands-needed", dict.fromkeys(solution, False)),
    ("slices-cut", solution | {"(x + z)[0]": False, "z.clone()": False}),
    ("detach-tracks", solution | {"z.detach()": True, "torch.zeros_like(z)": True}),
    ("clone-cuts", solution | {"z.clone()": False, "z > 0": True}),
    ("like-inherits", solution | {"torch.zeros_like(z)": True, "no_grad: z * 2": True}),
    ("comparison-tracks", solution | {"z > 0": True, "no_grad: z * 2": True}),
    ("no-grad-ignored", solution | {"no_grad: z * 2": True}),
    ("all-reversed", {text: not is_tracked for text, is_tracked in solution.items()}),
    ("wrong-keys", solution | {"z": True}),
]
ALSO_RIGHT = [{text: int(is_tracked) for text, is_tracked in reversed(solution.items())}]
