"""The capstone: a whole workload made fast (notebook 16)."""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {})
