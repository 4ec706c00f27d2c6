"""Downloads that can be cut at any moment: what came so far is kept and gone on with, and nothing unchecked takes its name."""

import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from hpml_lab.core.errors import LabError
from hpml_lab.core.files import atomic_write
from hpml_lab.core.paths import data_folders
from hpml_lab.data import mnist

SILENCE_SECONDS = 30  # a server that says nothing for so long is given up
ATTEMPTS = 3  # on one mirror, as long as each brings something


class _Failed(Exception):
    """The network or the server did not deliver; says why."""


def fetch_mnist(to: Path | str | None = None) -> Path:
    """Download MNIST's four files into `<to>/MNIST/raw` (default: `HPML_DATA`, else `data/`) and return that folder.

    Files that are there and good are kept. Raises LabError where no mirror delivers or the folder cannot be written.
    """
    source = mnist.torchvision_class()
    raw = (Path(to).expanduser() if to is not None else data_folders()[0]) / "MNIST" / "raw"
    try:
        raw.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"{raw} cannot be made ({error.strerror}).", "Choose another folder: hpml-lab data fetch mnist --to DIR"
        ) from error
    for archive, _ in source.resources:
        if not _is_there(raw, archive.removesuffix(".gz")):
            _fetch(archive, raw, source.mirrors)
    return raw


def _is_there(raw: Path, name: str) -> bool:
    path = mnist.file_of(raw, name)
    if path is None:
        return False
    try:
        mnist.read_file(path)
    except mnist.Damaged:
        return False  # the new file will be the unpacked one, which is the one that is read
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _fetch(archive: str, raw: Path, mirrors: list[str]) -> None:
    """Get one archive from the first mirror that delivers it, check it, and write it unpacked."""
    name, part, failures = archive.removesuffix(".gz"), raw / f"{archive}.part", []
    for mirror in mirrors:
        for _ in range(ATTEMPTS):
            before, why = _size(part), ""
            try:
                _download(f"{mirror}{archive}", part)
                content = mnist.checked(part.read_bytes(), name, packed=True)
            except _Failed as error:
                why = str(error)
                if _size(part) <= before:
                    break  # it brought nothing: another try would not either
            except ValueError as error:
                why = f"what it sent is not {name}: {error}"
                part.unlink()
                if before == 0:
                    break  # otherwise the piece from an earlier run may be at fault: try again from the start
            else:
                atomic_write(raw / name, content)
                part.unlink()
                return
        failures.append(f"{mirror} ({why})")
    raise LabError(
        f"{archive} could not be fetched from {' nor from '.join(failures)}.",
        f"Check the network and {mnist.FETCH} again: it goes on where it stopped. "
        f"Or copy the four files of MNIST from another machine into {raw}.",
    )


def _download(url: str, part: Path) -> None:
    """Bring `part` to the whole of `url`, going on from what it holds where the server can; _Failed keeps what came."""
    have = _size(part)
    headers = {"User-Agent": "hpml-lab"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:
            return  # nothing beyond what is there: the check of the content decides
        raise _Failed(f"it answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"not reached: {getattr(error, 'reason', None) or error or type(error).__name__}") from error
    with answer:
        going_on = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not going_on:
            have = 0  # the server sends the whole file again
        if answer.status == 206 and not going_on:
            part.unlink(missing_ok=True)
            raise _Failed("it answered with another piece than was asked for")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(
            desc=part.name.removesuffix(".part"),
            initial=have,
            total=total,
            unit="B",
            unit_scale=True,
            leave=False,
            dynamic_ncols=True,
        )
        try:
            with bar, open(part, "ab" if going_on else "wb") as file:
                for chunk in _chunks(answer):
                    file.write(chunk)
                    bar.update(len(chunk))
        except OSError as error:
            raise LabError(
                f"{part} could not be written ({error.strerror or error}).",
                f"Free some space or choose another folder with --to, then {mnist.FETCH} again: what came is kept.",
            ) from error
    if total is not None and _size(part) < total:
        raise _Failed(f"the connection was cut after {_size(part):,} of {total:,} bytes")


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
