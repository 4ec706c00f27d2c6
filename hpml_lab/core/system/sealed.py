"""States that this program writes and reads again, with a digest: what was damaged in between is never taken for right.

A file that is cut off fails to parse; one in which a bit flipped often does not, and other numbers are loaded. `write_state`
puts the sha256 of the content in front of it, `sealed_record` into a record for JSON, and `write_digests` those of files that
others wrote into one beside them. (`Snapshots` of notebook 14 have it in their names.)
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import RECORD, STATE, bytes_of, check_zip, open_file, reader, reading, text_of

MARK = b"hpml-lab state 1\n"  # the first line of a file; the second one is the sha256 of all that follows
DIGEST = "sha256"  # the key of a record's
UNFINISHED = "# not finished"  # the first line of digests whose files are being written
MISMATCH = "its content does not match its digest: it was damaged, or changed by hand"


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_state(path: Path, state: Any) -> Path:
    """Write what `torch.save` can, with its digest, whole or not at all. Raises LabError where nothing can be written."""
    import torch  # here: records are read where torch is not needed

    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    return atomic_write(path, MARK + digest_of(content).encode() + b"\n" + content)


@reader("a whole state as this program writes them", "Delete it: what it holds is computed again.")
def read_state(path: Path) -> Any:
    """What `write_state` wrote, on the CPU. Raises LabError for a file that was damaged, or that holds something else."""
    import torch

    mark, digest, content = bytes_of(path, STATE).split(b"\n", 2)
    if mark + b"\n" != MARK or digest.decode() != digest_of(content):
        raise ValueError(MISMATCH)
    check_zip(file := io.BytesIO(content), STATE)
    return torch.load(file, map_location="cpu", weights_only=True)


def digest_of_file(path: Path) -> str:
    """The digest of a regular file of any size. Raises LabError for another one."""
    with reading(path, "a file whose digest can be taken", "Use what was saved before."), open_file(path, None) as file:
        return hashlib.file_digest(file, DIGEST).hexdigest()


def write_digests(path: Path, digests: Mapping[str, str] | None) -> Path:
    """Write {name of a file beside `path`: its digest} in the format of sha256sum, whose `-c` checks it, too.

    The first line, a comment to sha256sum, is the digest of the others: a list that was cut off checks fewer files. None says
    that the files are being written: until their digests are there `check_digests` refuses them.
    """
    if digests is None:
        return atomic_write(path, f"{UNFINISHED}\n")
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    return atomic_write(path, f"# {digest_of(lines.encode())}\n{lines}")


@reader("the digests of whole files beside it", "Use what was saved before.")
def check_digests(path: Path, first: int = 0, every: int = 1) -> None:
    """Raise LabError unless each `every`-th file from `first` on has the digest that `write_digests` wrote."""
    own, lines = text_of(path, RECORD).split("\n", 1)
    if own == UNFINISHED:
        raise ValueError("these files were not written to the end")
    if own != f"# {digest_of(lines.encode())}":
        raise ValueError(MISMATCH)
    for digest, name in [line.split("  ", 1) for line in lines.splitlines()][first::every]:
        if digest_of_file(path.with_name(name)) != digest:
            raise ValueError(f"{name}: {MISMATCH}")


def sealed_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of JSON's types with the digest of its content."""
    return {**record, DIGEST: _record_digest(record)}


def unsealed_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record without its digest; ValueError where it has none, or another one than its content."""
    content = {key: value for key, value in record.items() if key != DIGEST}
    if record.get(DIGEST) != _record_digest(content):
        raise ValueError(MISMATCH)
    return content


def whole_records(found: Any) -> list[dict[str, Any]]:
    """The records of a list, without their digests. Those that were damaged are left out, and what is no record; one without a
    digest was written before there were any."""
    whole = []
    for record in found if isinstance(found, list) else []:
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(record, dict):
                whole.append(unsealed_record(record) if DIGEST in record else record)
    return whole


def _record_digest(record: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(record, sort_keys=True).encode())
