"""Topic 07: processes, threads and shared memory. What each start method, queue and lock costs, with its timeline."""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {"hpml_lab.core.ring": ["Ring"]})
