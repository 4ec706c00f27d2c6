"""What the doctor's probes return, and what they are given."""

from dataclasses import dataclass
from typing import Any

from hpml_lab.core.system.paths import REINSTALL as REINSTALL

OK, LIMITED, MISSING = "ok", "limited", "missing"
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
