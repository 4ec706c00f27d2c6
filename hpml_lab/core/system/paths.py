"""Where things lie, whatever folder a notebook or a command was started from."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "notebooks"
DATA = ROOT / "data"
REFERENCE = DATA / "reference"
RESULTS = ROOT / "results"


def data_folders() -> list[Path]:
    """Folders that may hold data sets, in the order of search: `HPML_DATA` if it is set, then the project's `data/`."""
    named = os.environ.get("HPML_DATA")
    return [Path(named).expanduser(), DATA] if named else [DATA]
