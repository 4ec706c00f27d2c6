"""The errors of reading: each names the file and the stage."""

from pathlib import Path

from hpml_lab.core.errors import LabError

STAGE = "read"


def unreadable(path: str | Path, problem: str, fix: str) -> LabError:
    """The error for a file or folder that is not a scan: it begins with the stage and the file's name."""
    path = Path(path)
    return LabError(f"read, {path.parent.name}/{path.name}: {problem}", fix)
