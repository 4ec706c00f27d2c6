"""Checkpoints of long trainings: written whole, named by what they belong to, removed when all is done."""

import hashlib
import io
import time
from pathlib import Path
from typing import Any

import torch

from hpml_lab import __version__
from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.paths import RESULTS

FOLDER = RESULTS / "checkpoints"
FORMAT = 1  # of the file and of the numbers in it; raise it when a change of the program changes either


def key_of(**parts: Any) -> str:
    """A text that names a training: every part that its numbers depend on, and the versions."""
    named = {**parts, "format": FORMAT, "torch": torch.__version__, "hpml_lab": __version__}
    return "\n".join(f"{name} = {value!r}" for name, value in sorted(named.items()))


def digest(*tensors: torch.Tensor) -> str:
    """A short name of the tensors' content."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


class Checkpoint:
    """The file of one training, found by its key; `every` is the least number of seconds from one saving to the next.

    The whole key stands in the file and is compared, so that a file is never taken for another's. A file that is damaged or
    cannot be read counts as absent: the training starts anew.
    """

    def __init__(self, key: str, folder: Path = FOLDER, every: float = 60.0) -> None:
        self.key, self.every = key, every
        self.path = Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.pt"
        self.saved = time.monotonic()
        self.problem = ""  # why the last saving failed; training goes on without

    def due(self) -> bool:
        """Has it been long enough since the last saving, or since the start?"""
        return time.monotonic() - self.saved >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Write `state`; a full disk or a read-only folder is noted in `problem` and stops nothing."""
        buffer = io.BytesIO()
        torch.save({"key": self.key, "state": state}, buffer)
        try:
            atomic_write(self.path, buffer.getvalue())
        except LabError as error:
            self.problem = error.problem
        self.saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, on the CPU, or None."""
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            return found["state"] if found["key"] == self.key else None
        except Exception:  # absent, cut off, or not a file of torch's: each raises its own
            return None

    def remove(self) -> None:
        """Delete the file, and the folder when nothing else is in it."""
        try:
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        except OSError:
            pass  # other trainings' files are in the folder
