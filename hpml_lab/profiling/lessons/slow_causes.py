"""Four causes of slow code that the lecture names, each as a pair: a `…_slow` form, and the `…_fast` one that replaces it.

Both forms of a pair return the same, to the last bit.
"""

import traceback
import zlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import need
from hpml_lab.core.system.readers import ARRAYS, open_file, reader, reading

DAMAGED = ("an HDF5 file that can be read", "Write it again, or get another copy.")
MOST_PACKED = 1100  # times: DEFLATE makes of equal bytes a 1,032th of them
ABSENT = -1.0  # stands for an empty cell

# ---- exceptions as control flow ------------------------------------------------------------------------------------------


def parse_slow(cells: list[str]) -> list[float]:
    """A column of text as numbers: an empty cell raises an exception, which is caught."""
    values = []
    for cell in cells:
        try:
            values.append(float(cell))
        except ValueError:
            values.append(ABSENT)
    return values


def parse_fast(cells: list[str]) -> list[float]:
    """The same, but ask first: what is usual is no exception."""
    values = []
    for cell in cells:
        if cell:
            values.append(float(cell))
        else:
            values.append(ABSENT)
    return values


# ---- traversal against the order in memory ------------------------------------------------------------------------------


def column_sums_slow(matrix: np.ndarray) -> np.ndarray:
    """Down the columns: neighbors in a column lie a whole row apart, so each number is read with a cache line of its own."""
    sums = np.empty(matrix.shape[1], matrix.dtype)
    for column in range(matrix.shape[1]):
        sums[column] = matrix[:, column].sum()
    return sums


def column_sums_fast(matrix: np.ndarray) -> np.ndarray:
    """Along the rows, as the numbers lie: NumPy adds whole rows, and of each cache line every number is used."""
    return matrix.sum(axis=0)


# ---- a dictionary in the inner loop -------------------------------------------------------------------------------------


def weigh_slow(labels: np.ndarray, weights: dict[int, int]) -> int:
    """The weights of all labels summed up: a lookup in a dictionary for each."""
    total, known = 0, labels.tolist()
    for label in known:
        total += weights[label]
    return total


def weigh_fast(labels: np.ndarray, weights: dict[int, int]) -> int:
    """The dictionary becomes an array once; then all lookups are one operation."""
    table = np.array([weights[label] for label in range(len(weights))])
    return int(table[labels].sum())


# ---- HDF5 from several threads ------------------------------------------------------------------------------------------


def write_hdf5(path: Path, chunks: int, values: int) -> None:
    """A data set "x" of int32 (chunks × values,), each chunk compressed by itself."""
    x = np.random.default_rng(0).integers(0, 50, chunks * values, dtype=np.int32)
    with need("h5py").File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(values,), compression="gzip", compression_opts=4)


@reader(*DAMAGED)
def open_hdf5(path: Path) -> AbstractContextManager[Any]:
    """The file, to be read, for a `with` block. Raises LabError for one that is absent, damaged or locked, and without h5py;
    in the block, too, where a chunk of it cannot be read."""
    h5py, size = need("h5py"), Path(path).stat().st_size
    open_file(path, ARRAYS).close()  # HDF5 would wait for a pipe
    try:
        file = h5py.File(path, "r", rdcc_nbytes=0)  # no cache of chunks: in training each is read once an epoch
    except BlockingIOError as error:
        raise LabError(f"{path} is locked: another program writes to it.", "End that program, or wait for it.") from error
    with reading(path, *DAMAGED):
        file.visititems(lambda name, item: _check_item(name, item, size))
        links: list[tuple[str, Any]] = []
        file.visititems_links(lambda *link: links.append(link))
        if elsewhere := [name for name, link in links if isinstance(link, h5py.ExternalLink)]:
            raise ValueError(f"{elsewhere[0]} is in another file")
    return _open(path, file)


def _check_item(name: str, item: Any, size: int) -> None:
    """Raise ValueError for an array whose values are elsewhere, or that has more of them than the file can hold."""
    if not hasattr(item, "shape"):
        return
    if item.external or item.is_virtual:
        raise ValueError(f"the values of {name} are in other files")
    if item.nbytes > MOST_PACKED * size:
        raise ValueError(f"{name} claims {item.nbytes:,} bytes")


@contextmanager
def _open(path: Path, file: Any) -> Iterator[Any]:
    """What HDF5 and the forms below raise of the file's content names the file; the block's own errors stay as they are."""
    with file:
        try:
            yield file
        except Exception as error:
            innermost = traceback.extract_tb(error.__traceback__)[-1].filename
            if innermost != __file__ and "h5py" not in innermost:
                raise
            with reading(path, *DAMAGED):
                raise


def read_slow(dataset: Any, pool: Executor) -> np.ndarray:
    """Threads read chunks through HDF5, which lets in one at a time: what is read is decompressed under its lock."""
    return np.concatenate(list(pool.map(lambda chunk: dataset[chunk], dataset.iter_chunks())))


def read_fast(dataset: Any, pool: Executor) -> np.ndarray:
    """Threads fetch chunks as they lie in the file, which is short, and decompress them without the lock."""
    size = dataset.chunks[0] * dataset.dtype.itemsize

    def chunk_of(chunk: tuple[slice, ...]) -> np.ndarray:
        _, packed = dataset.id.read_direct_chunk(tuple(part.start for part in chunk))
        return np.frombuffer(zlib.decompressobj().decompress(packed, size), dataset.dtype)

    return np.concatenate(list(pool.map(chunk_of, dataset.iter_chunks())))
