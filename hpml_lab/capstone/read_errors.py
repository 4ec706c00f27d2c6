"""The errors of reading: each names the file and the stage."""

from pathlib import Path

from hpml_lab.core.system.errors import LabError

STAGE = "read"
# Bytes that a compressed file may unpack to, 2,048 slices of 1,024 × 1,024: what asks for more is a bomb and no scan.
LARGEST_UNPACKED = 1 << 32


def unreadable(path: str | Path, problem: str, fix: str) -> LabError:
    """The error for a file or folder that is not a scan: it begins with the stage and the file's name."""
    path = Path(path)
    return LabError(f"read, {path.parent.name}/{path.name}: {problem}", fix)


def check_file(path: Path, missing: str, fix: str) -> None:
    """Raise unless `path` is a file: one that is not there is `missing`, and reading a pipe or a device might never end."""
    if not path.exists():
        raise unreadable(path, missing, fix)
    if not path.is_file():
        raise unreadable(path, "this is not a file but a folder, a pipe, a socket or a device.", fix)
