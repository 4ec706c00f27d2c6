"""What a notebook shows is kept in `results/`: the report and later notebooks then have the reader's own figures.

`hpml-lab run` writes the same files. `HPML_RESULTS` names another folder; if it is empty, as in tests, nothing is kept.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.paths import RESULTS

PREDICTIONS = "predictions.json"

_last_shown: dict[str, str] = {}  # slug, size and device of the result that this process showed last


def results_folder() -> Path | None:
    """Where notebooks keep their results, or None if they keep nothing."""
    named = os.environ.get("HPML_RESULTS")
    return RESULTS if named is None else Path(named).expanduser() if named else None


def keep(result: Any) -> None:
    """Save a result that a notebook shows, but do not replace a run at full size by a quick one.

    A folder that cannot be written is reported on stderr: the notebook goes on.
    """
    _last_shown.update(slug=result.slug, size=result.size, device=result.device)
    folder = results_folder()
    if folder is None or not result.slug:
        return
    try:
        before = _read(folder / f"{result.slug}.json")
        if result.size == "full" or not isinstance(before, dict) or before.get("size") != "full":
            result.save(folder)
            (folder / f"{result.slug}.png").unlink(missing_ok=True)  # an older picture must not stay next to a newer result
    except (LabError, OSError) as error:
        print(f"This result was not kept: {error}", file=sys.stderr)


def keep_prediction(guess: float, measured: float, unit: str) -> None:
    """Add a prediction to `predictions.json`, with the cell that compares it; a later one of the same cell replaces it."""
    folder, cell = results_folder(), _cell()
    if folder is None or not cell:
        return
    found = {"cell": cell, "guess": guess, "measured": measured, "unit": unit, **_last_shown}
    others = [other for other in read_predictions(folder) if other["cell"] != cell]
    try:
        atomic_write(folder / PREDICTIONS, json.dumps([*others, found], indent=1) + "\n")
    except LabError as error:
        print(f"This prediction was not kept: {error}", file=sys.stderr)


def read_predictions(folder: Path) -> list[dict[str, Any]]:
    """The predictions kept in `folder`, oldest first; those that are damaged are left out."""
    found = _read(folder / PREDICTIONS)
    return [item for item in found if _is_prediction(item)] if isinstance(found, list) else []


def _is_prediction(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and all(isinstance(item.get(name), str) for name in ("cell", "unit"))
        and all(isinstance(item.get(name), int | float) for name in ("guess", "measured"))
    )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _cell() -> str:
    """The code of the notebook's cell that runs now, or "" outside of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cells = shell.user_ns.get("In", []) if shell is not None else []
    return cells[-1].strip() if cells else ""
