"""Packages that notebook 16 can use and that not every environment has: the extra `compression`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from hpml_lab.core.system.installed import need
from hpml_lab.core.system.warned import collect_warnings


def torchao(part: str = "quantization") -> ModuleType:
    """torchao.<part>, imported without the warnings that its own code causes; LabError where torchao is not installed."""
    with without_torchaos_warnings():
        return need(f"torchao.{part}", "torchao")


@contextmanager
def without_torchaos_warnings() -> Iterator[None]:
    """For calls that make torchao import more of itself."""
    log = logging.getLogger("torch.utils._pytree")  # says that torchao registers an Enum, which torch 2.15 does not need
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with collect_warnings():
            yield
    finally:
        log.setLevel(level)
