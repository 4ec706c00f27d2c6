"""What notebooks and `hpml-lab run` find is kept in one folder, from which the report and later notebooks have their figures.

It is `results/`, or what `HPML_RESULTS` names; if that is empty, as in tests, nothing is kept.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write, set_aside
from hpml_lab.core.system.paths import RESULTS, user_path
from hpml_lab.core.system.readers import RECORD, reader, text_of
from hpml_lab.core.system.sealed import sealed_record, whole_records

PREDICTIONS = "predictions.json"
EXERCISES = "exercises.json"
LOCK_SECONDS = 20.0  # for which a notebook waits until another has written its prediction

_last_run: dict[str, str] = {}  # slug, size and device of the experiment that a cell ran last


def results_folder() -> Path | None:
    """Where results are kept if no other folder is named, or None if nothing is kept."""
    named = os.environ.get("HPML_RESULTS")
    return RESULTS if named is None else user_path(named, "HPML_RESULTS") if named else None


def _kept_in(what: str) -> Path | None:
    """The folder of results; where it cannot be found, this is reported on stderr, and the notebook goes on."""
    try:
        return results_folder()
    except LabError as error:
        print(f"{what} was not kept: {error}", file=sys.stderr)
        return None


def require_folder(folder: Path) -> None:
    """Raise LabError unless `folder` is one."""
    if not folder.is_dir():
        raise LabError(f"{folder} is not a folder.", "Name a folder of results, as `hpml-lab run` writes them.")


def keep(result: Any) -> None:
    """Save a result if a notebook's cell ran its experiment; what a script runs is the script's to save.

    A folder that cannot be written is reported on stderr: the notebook goes on.
    """
    if not _cell():
        return
    _last_run.update(slug=result.slug, size=result.size, device=result.device)
    folder = _kept_in("This result")
    if folder is None or not result.slug:
        return
    try:
        save(result, folder)
    except (LabError, OSError) as error:
        print(f"This result was not kept: {error}", file=sys.stderr)


def save(result: Any, folder: Path) -> bool:
    """Save a result, but do not replace a run at full size by a scaled or a quick one; returns whether it was saved.

    A run at full size that cannot be read any more is set aside, which is reported on stderr.
    """
    path = folder / f"{result.slug}.json"
    before = _read(path)
    if isinstance(before, dict) and _how_full(str(before.get("size"))) > _how_full(result.size):
        try:
            result.experiment.load(path)
            return False
        except LabError as error:
            print(f"{error.problem} It is now called {set_aside(path).name}.", file=sys.stderr)
    result.save(folder)
    path.with_suffix(".png").unlink(missing_ok=True)  # an older picture must not stay next to a newer result
    return True


def _how_full(size: str) -> tuple[bool, bool]:
    """Sizes in order: quick, "full, scaled to a quarter", full."""
    return size.startswith("full"), size == "full"


def keep_prediction(guess: float, measured: float, unit: str) -> None:
    """Add a prediction to `predictions.json`, with the cell that compares it; a later one of the same cell replaces it."""
    cell = _cell()
    if not cell or (folder := _kept_in("This prediction")) is None:
        return
    found = {"cell": cell, "guess": guess, "measured": measured, "unit": unit, **_last_run}
    _add(folder / PREDICTIONS, found, "cell", "This prediction")


def keep_verdict(notebook: str, exercise: str, state: str, mistake: str) -> None:
    """Add what a check in a notebook found to `exercises.json`; an exercise that was right stays so."""
    if not _cell() or state == "not yet" or (folder := _kept_in("What this check found")) is None:
        return
    if tried_exercises(folder).get(exercise):
        return
    found = {"exercise": exercise, "notebook": notebook, "state": state, "mistake": mistake}
    _add(folder / EXERCISES, found, "exercise", "What this check found")


def tried_exercises(folder: Path) -> dict[str, bool]:
    """{exercise that was tried: whether it is right} as kept in `folder`; {} where nothing is, or nothing that can be read."""
    rows = whole_records(_read(folder / EXERCISES))
    return {str(row.get("exercise")): row.get("state") == "right" for row in rows}


def _add(path: Path, found: dict[str, Any], key: str, what: str) -> None:
    """Add a record to a file that holds a list of them; one with the same `key` is replaced.

    Notebooks that add theirs at the same time take turns. A file that cannot be read is set aside and named on stderr.
    """
    from filelock import FileLock, Timeout  # here: what only reads works in a Python without it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_SECONDS):
            if is_damaged(path):
                print(f"{path} could not be read; it is now called {set_aside(path).name}.", file=sys.stderr)
            others = [other for other in _read(path) or [] if not isinstance(other, dict) or other.get(key) != found[key]]
            atomic_write(path, json.dumps([*others, sealed_record(found)], indent=1) + "\n")
    except (LabError, OSError, NotImplementedError, Timeout) as error:  # NotImplementedError: a file system without locks
        print(f"{what} was not kept: {error}", file=sys.stderr)


def read_predictions(folder: Path) -> list[dict[str, Any]]:
    """The predictions kept in `folder`, oldest first; those that are damaged are left out."""
    return [item for item in whole_records(_read(folder / PREDICTIONS)) if _is_prediction(item)]


def is_damaged(path: Path) -> bool:
    """Whether a file of predictions or exercises is there and cannot be read."""
    return os.path.lexists(path) and not isinstance(_read(path), list)


def _is_prediction(item: dict[str, Any]) -> bool:
    return all(isinstance(item.get(name), str) for name in ("cell", "unit")) and all(
        _is_finite(item.get(name)) for name in ("guess", "measured")
    )


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _read(path: Path) -> Any:
    """What a JSON file holds; None if it is not there or cannot be read."""
    try:
        return _content(path)
    except LabError:
        return None


@reader("a file of results", "Delete it.")
def _content(path: Path) -> Any:
    return json.loads(text_of(path, RECORD))


def _cell() -> str:
    """The code of the notebook's cell that runs now, or "" outside of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cells = shell.user_ns.get("In", []) if shell is not None else []
    return cells[-1].strip() if cells else ""
