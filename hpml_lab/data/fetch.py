"""Downloads that can be interrupted at any moment: they resume, and no file gets its name before its content is verified."""

import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.installed import need
from hpml_lab.core.system.paths import data_folders, user_path
from hpml_lab.core.system.readers import bytes_of
from hpml_lab.data import mnist

SILENCE_SECONDS = 30  # without a byte from the server, after which it is given up
ATTEMPTS = 3  # per mirror, as long as each attempt makes progress
LARGEST = 16 << 20  # bytes: the largest of the archives has 10 MB, and a server that sends without end is not let fill the disk


class _Failed(Exception):
    """The network or the server did not deliver; the message says why."""


def fetch_mnist(to: Path | str | None = None) -> Path:
    """Download MNIST's four files into `<to>/MNIST/raw` (default: `HPML_DATA`, else `data/`) and return that folder.

    Valid files are kept. Raises LabError if no mirror delivers or the folder cannot be written.
    """
    source = mnist.torchvision_class()
    raw = (user_path(to, "--to") if to is not None else data_folders()[0]) / "MNIST" / "raw"
    try:
        raw.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"{raw} cannot be created ({error.strerror}).", "Choose another folder: hpml-lab data fetch mnist --to DIR"
        ) from error
    for archive, _ in source.resources:
        if not _is_valid(raw, archive.removesuffix(".gz")):
            _fetch(archive, raw, source.mirrors)
    return raw


def _is_valid(raw: Path, name: str) -> bool:
    path = mnist.file_of(raw, name)
    if path is None:
        return False
    try:
        mnist.read_file(path)
    except mnist.Damaged:
        return False  # the new file will be unpacked, and unpacked files are read first
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _fetch(archive: str, raw: Path, mirrors: list[str]) -> None:
    """Download one archive from the first mirror that delivers it, verify it, and write it unpacked."""
    name, partial, failures = archive.removesuffix(".gz"), raw / f"{archive}.part", []
    if partial.is_symlink() or partial.exists() and not partial.is_dir() and not 0 < _size(partial) <= LARGEST:
        partial.unlink()  # what a link leads to is not ours to write; a pipe would wait, and too many bytes are no archive
    for mirror in mirrors:
        for _ in range(ATTEMPTS):
            before, why = _size(partial), ""
            try:
                _download(f"{mirror}{archive}", partial)
                content = mnist.verified(bytes_of(partial, LARGEST), name, gzipped=True)
            except _Failed as error:
                why = str(error)
                if _size(partial) <= before:
                    break  # no progress: another attempt would make none either
            except ValueError as error:
                why = f"what it sent is not {name}: {error}"
                partial.unlink(missing_ok=True)
                if before == 0:
                    break  # otherwise the partial file of an earlier run may be wrong: try again from the start
            else:
                atomic_write(raw / name, content)
                partial.unlink()
                return
        failures.append(f"{mirror} ({why})")
    raise LabError(
        f"{archive} could not be downloaded from {' or from '.join(failures)}.",
        f"Check the network and {mnist.FETCH} again: it goes on where it stopped. "
        f"Or copy the four files of MNIST from another machine into {raw}.",
    )


def _download(url: str, partial: Path) -> None:
    """Complete the file `partial` from `url`, resuming if the server can. _Failed leaves what was received.

    Raises ValueError for more bytes than any of the archives has.
    """
    have = _size(partial)
    headers = {"User-Agent": "hpml-lab"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            return  # there is nothing after what we have: the check of the content decides
        raise _Failed(f"it answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"not reached: {getattr(error, 'reason', None) or error or type(error).__name__}") from error
    with answer:
        resuming = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not resuming:
            have = 0  # the server sends the whole file again
        if answer.status == 206 and not resuming:
            partial.unlink(missing_ok=True)
            raise _Failed("it answered with a different range than requested")
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        bar = need("tqdm").tqdm(
            desc=partial.name.removesuffix(".part"),
            initial=have,
            total=total,
            unit="B",
            unit_scale=True,
            leave=False,
            dynamic_ncols=True,
        )
        try:
            with bar, open(partial, "ab" if resuming else "wb") as file:
                for chunk in _chunks(answer):
                    if file.tell() + len(chunk) > LARGEST:
                        raise ValueError(f"it has more than {LARGEST:,} bytes")
                    file.write(chunk)
                    bar.update(len(chunk))
        except OSError as error:
            raise LabError(
                f"{partial} could not be written ({error.strerror or error}).",
                f"Free some space or choose another folder with --to, then {mnist.FETCH} again: it goes on where it stopped.",
            ) from error
    if total is not None and _size(partial) < total:
        raise _Failed(f"the connection was cut after {_size(partial):,} of {total:,} bytes")


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body piece by piece; errors of the network come as _Failed, so that they differ from those of the disk."""
    with contextlib.closing(answer):
        while True:
            try:
                chunk = answer.read(1 << 16)
            except http.client.IncompleteRead as error:
                yield error.partial
                raise _Failed("the connection was cut") from error
            except (OSError, http.client.HTTPException) as error:
                raise _Failed(f"the connection was cut: {error or type(error).__name__}") from error
            if not chunk:
                return
            yield chunk
