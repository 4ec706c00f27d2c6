"""Your own script: the steps of a lab on a training script that you have, or on one to start from.

The lab:
    run_lab           run its steps on a script, one after the other, and keep what they find
    TASKS             the steps: a question to answer before each, and what it runs
    remark            what you expect of a step before it runs, and what you make of it
    lab_page          the report as one page
    LabReport, read_report, DONE, implausible   the report, from its file, the state of a step, and what cannot be
On the command line: `hpml-lab lab SCRIPT [ARGS]`; `hpml-lab template --of lab .` and `--of text .` write scripts to start from.
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.your_script.tools.lab import run_lab as run_lab, remark as remark
    from hpml_lab.your_script.tools.lab_steps import TASKS as TASKS
    from hpml_lab.your_script.views.lab_page import lab_page as lab_page
    from hpml_lab.your_script.tools.lab_report import (
        LabReport as LabReport,
        read_report as read_report,
        implausible as implausible,
        DONE as DONE,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
