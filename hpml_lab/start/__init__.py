"""Start here: what this machine is, and what each notebook can show on it (notebook 00).

Experiments:
    environment   the doctor's report as a result
Tools:
    examine       the doctor's report as an object; `hpml-lab doctor` prints it
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, {"experiments.environment": ["environment"], "doctor": ["examine"]})
