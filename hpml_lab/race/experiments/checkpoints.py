"""Checkpoints of long trainings: written completely or not at all, named by what they belong to, removed at the end."""

import hashlib
import time
from pathlib import Path
from typing import Any

import torch

from hpml_lab import __version__
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.machine import processor_digest
from hpml_lab.core.system.paths import RESULTS
from hpml_lab.core.system.sealed import read_state, write_state

FOLDER = RESULTS / "checkpoints"
FORMAT = 1  # of the file and of the numbers in it; raise it when a change of the program changes either


def key_of(**parts: Any) -> str:
    """A text that identifies a training: everything that its numbers depend on, the processor and the versions too.

    What another processor began it would continue with other roundings, as on nodes that share a folder.
    """
    named = {**parts, "format": FORMAT, "torch": torch.__version__, "hpml_lab": __version__, "processor": processor_digest()}
    return "\n".join(f"{name} = {value!r}" for name, value in sorted(named.items()))


def digest(*tensors: torch.Tensor) -> str:
    """A short hash of the tensors' content."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


class Checkpoint:
    """The file of one training, found by its key; at least `every_seconds` pass from one save to the next.

    The whole key is stored in the file and compared, so a file is never mistaken for another training's. A file that is
    damaged or cannot be read counts as absent: the training starts from the beginning.
    """

    def __init__(self, key: str, folder: Path = FOLDER, every_seconds: float = 60.0) -> None:
        self.key, self.every_seconds = key, every_seconds
        self.path = Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.pt"
        self.saved = time.monotonic()
        self.problem = ""  # why the last save failed; the training continues without it

    def due(self) -> bool:
        """True if enough time has passed since the last save, or since the start."""
        return time.monotonic() - self.saved >= self.every_seconds

    def save(self, state: dict[str, Any]) -> None:
        """Write `state`. A full disk or a read-only folder is noted in `problem` and raises nothing."""
        try:
            write_state(self.path, {"key": self.key, "state": state})
        except LabError as error:
            self.problem = error.problem
        self.saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The last saved state, on the CPU, or None."""
        try:
            content = read_state(self.path)
        except LabError:
            return None
        whole = isinstance(content, dict) and content.keys() == {"key", "state"} and content["key"] == self.key
        return content["state"] if whole else None

    def remove(self) -> None:
        """Delete the file, and the folder if nothing else is in it."""
        try:
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        except OSError:
            pass  # the folder holds files of other trainings
