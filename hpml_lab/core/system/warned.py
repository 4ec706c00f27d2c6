"""Collects the warnings of a block instead of showing them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collect_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect all warnings within a `with` block, also when the block raises: each has a `message` and a `category`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
