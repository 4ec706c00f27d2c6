"""Known mistakes of an answer that is made of parts: each part wrong by itself, and every two of them together."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

MORE = "And it is not the only mistake."


def combined(
    build: Callable[..., Any], parts: Mapping[str, Mapping[str, tuple[Any, str]]]
) -> dict[str, tuple[Callable[..., Any], str]]:
    """{name: (the function that a mistake gives, hint)} for `expect_function`.

    build   makes the answer; it takes each part as a keyword argument, and without it the part is right
    parts   {part: {name: (what stands in its place, hint)}}; two mistakes together have the name of the first part's
    """
    wrong = [(part, name, value, hint) for part, found in parts.items() for name, (value, hint) in found.items()]
    known = {name: (build(**{part: value}), hint) for part, name, value, hint in wrong}
    for (part, name, value, hint), (other, second, another, _) in itertools.combinations(wrong, 2):
        if part != other:
            known[f"{name}, and {second}"] = build(**{part: value, other: another}), f"{hint} {MORE}"
    return known
