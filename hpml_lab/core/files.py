"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from hpml_lab.core.errors import LabError


def atomic_write(path: Path, content: bytes | str) -> Path:
    """Write `content` to `path` so that a reader finds the old file or the new one, never a part.

    The bytes go to a temporary file in the same folder, reach the disk, and then take the name in one step. A full disk, a
    read-only folder or an interruption leaves what was there before and raises LabError (or passes the interruption on).
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
    except OSError as error:
        raise LabError(
            f"{path} could not be written ({error.strerror or error}); what was there before is unchanged.",
            "Free some space or choose another folder.",
        ) from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return path
