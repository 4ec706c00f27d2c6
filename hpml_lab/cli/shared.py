"""What the commands share: exit codes, errors in two lines, and the registry of experiments."""

import argparse
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError

if TYPE_CHECKING:
    from hpml_lab.core.experiment.registry import Experiment

RESULTS_FOLDER = "HPML_RESULTS, else results/"  # as core/experiment/results_folder.py has it
FINE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, -signal.SIGINT  # exit codes, as subprocess gives them


YEAR = 366 * 86_400.0  # seconds: the most that a time may be, which clocks and time limits can still count


def number(low: float, high: float, whole: bool = False) -> Callable[[str], float]:
    """What argparse reads an option's number with: one from `low` to `high`, so that no option asks for work without end."""

    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:  # nan is not either
            kind = "a whole number" if whole else "a number"
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {kind} from {low:,.12g} to {high:,.12g}")
        return value

    return read


def print_error(problem: str, fix: str = "") -> None:
    """Say on stderr what is wrong and how to fix it."""
    print(f"hpml-lab: {problem}" + (f"\n  {fix}" if fix else ""), file=sys.stderr, flush=True)


def require_writable(folder: Path, option: str) -> None:
    """Make `folder`, which `option` names, if it is not there. Raises LabError if no file can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise LabError(
            f"no file can be written into {folder} ({getattr(error, 'strerror', None) or error}).",
            f"Choose another folder with {option}.",
        ) from error


def named_or_kept(folder: Path | None) -> Path:
    """The folder of results that was named, else the one where all are kept. Raises LabError where none are."""
    from hpml_lab.core.experiment.results_folder import require_folder, results_folder

    if (found := folder or results_folder()) is None:
        raise LabError("HPML_RESULTS is empty: no results are kept.", "Name a folder that has some.")
    if found.exists():
        require_folder(found)
    return found


def load_experiments(slugs: Sequence[str], size: str) -> list["Experiment"]:
    """The experiments of these names, or all that load here where none are given; a topic that does not load is reported.

    Raises LabError for an unknown name or size, before torch is imported, and where torch or what was named does not load.
    """
    from hpml_lab.core.experiment import catalogue

    for slug in slugs:
        catalogue.listed(slug)
    catalogue.require_size(size)
    machine.require_torch()
    try:
        from hpml_lab.core.experiment import registry

        if slugs:
            return [registry.find(slug) for slug in dict.fromkeys(slugs)]
        found = registry.all_experiments()
    except LabError:
        raise
    except Exception as error:  # a broken installation fails in many ways
        raise LabError(
            f"the experiments do not load ({type(error).__name__}: {error}).", "Run `hpml-lab doctor` to see what to fix."
        ) from error
    for topic, why in registry.topics_that_do_not_load().items():
        print_error(f"the experiments of {topic} do not load here ({why}).", "The other topics work.")
    return found
