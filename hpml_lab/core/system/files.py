"""Files that are written whole or not at all."""

import contextlib
import glob
import os
import tempfile
import time
from pathlib import Path

from hpml_lab.core.system.errors import LabError

STALE_SECONDS = 3600  # after which a temporary file is one of a process that was killed


def atomic_write(path: Path, content: bytes | str) -> Path:
    """Write `content` to `path` so that a reader finds the old file or the new one, never a part.

    The bytes go to a temporary file in the same folder, reach the disk, and then take the name in one step. A full disk, a
    read-only folder or an interruption leaves what was there before and raises LabError (or passes the interruption on). A link
    is replaced, and the file that it leads to stays as it is; into a device or a pipe, such as /dev/stdout, the bytes are
    written as they are.
    """
    path = Path(path)
    temporary = None
    try:
        data = content.encode() if isinstance(content, str) else content
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_stream(path):
            path.write_bytes(data)
            return path
        _remove_stale(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only the owner can read
        os.replace(temporary, path)
        temporary = None
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name, a text that is not Unicode
        raise LabError(
            f"{path} could not be written ({getattr(error, 'strerror', None) or error}); what was there before is unchanged.",
            "Free some space or choose another folder.",
        ) from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return path


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that nothing is written over it, and return its new name: `<stem>.damaged.json`.

    If there is one of that name already it gets a number. Raises OSError if the folder cannot be written.
    """
    aside, number = path.with_name(f"{path.stem}.damaged{path.suffix}"), 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
    return path.rename(aside)


def _is_stream(path: Path) -> bool:
    """Whether `path` is a device or a pipe, or one of the system's links to them. Others' links are replaced like files."""
    if path.is_symlink():
        return path.absolute().parts[1:2] in (("dev",), ("proc",))
    return path.exists() and not path.is_file() and not path.is_dir()


def _remove_stale(path: Path) -> None:
    """Remove what writers of `path` left that were killed before they had finished."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(OSError):  # another process removes it, too
            if time.time() - left.lstat().st_mtime > STALE_SECONDS:
                left.unlink()
