"""Start here: what this machine is, and what each notebook can show on it (notebook 00).

Experiments:
    environment   the doctor's report as a result
Tools:
    examine       the doctor's report as an object; `hpml-lab doctor` prints it
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.start.experiments.environment import environment as environment
    from hpml_lab.start.tools.doctor import examine as examine
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
