"""Where things lie, whatever folder a notebook or a command was started from.

In a checkout all lies next to the package. Installed from a wheel, notebooks and recorded runs are in the package itself;
results go into the current folder and data into the user's own, because the package's folder may be read-only.
"""

import os
from pathlib import Path

from hpml_lab.core.system.errors import LabError

ROOT = Path(__file__).resolve().parents[3]
CHECKOUT = (ROOT / "notebooks").is_dir() and (ROOT / "pyproject.toml").is_file()
SHIPPED = ROOT / "hpml_lab" / "shipped"  # made when the wheel is built
NOTEBOOKS = ROOT / "notebooks" if CHECKOUT else SHIPPED / "notebooks"
REFERENCE = ROOT / "data" / "reference" if CHECKOUT else SHIPPED / "reference"
if CHECKOUT:
    DATA = ROOT / "data"
else:
    from platformdirs import user_data_path  # only here: a checkout also runs where nothing was installed for it

    DATA = user_data_path("hpml-lab", appauthor=False)
RESULTS = (ROOT if CHECKOUT else Path.cwd()) / "results"
# What makes the packages whole again.
REINSTALL = "run `python bootstrap.py lab` in the project's folder" if CHECKOUT else "pip install 'hpml-lab[lab]'"


def data_folders() -> list[Path]:
    """Folders that may hold data sets, in the order of search: `HPML_DATA` if it is set, then the project's or the user's."""
    named = os.environ.get("HPML_DATA")
    return [user_path(named, "HPML_DATA"), DATA] if named else [DATA]


def user_path(named: Path | str, where: str) -> Path:
    """A path that a user gave in the variable or option `where`, with ~ for a home. LabError for a user who has none."""
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise LabError(f"{where} is {named}, and there is no such user.", "Name a folder by its whole path.") from error
