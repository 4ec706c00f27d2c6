"""What the doctor's probes return, and what they are given."""

from dataclasses import dataclass
from typing import Any

OK, LIMITED, MISSING = "ok", "limited", "missing"
REINSTALL = "run `make lab` in the project's folder"
TORCH_FIRST = "fix torch first"

Answers = dict[str, dict[str, Any]]  # {step of asking.ask: its facts}


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    state  ok, limited (it works, but shows less), or missing
    value  the fact, short
    means  what follows from it for the reader
    fix    one line that fixes it; empty if there is nothing to fix
    """

    name: str
    state: str
    value: str
    means: str = ""
    fix: str = ""
