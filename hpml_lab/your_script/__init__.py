"""Your own script: the steps of a lab on a training script that you have, or on one to start from (notebook 21).

The lab:
    run_lab           run its steps on a script, one after the other, and keep what they find
    TASKS             the steps: a question to answer before each, and what it runs
    remark            what you expect of a step before it runs, and what you make of it
    LabNotebook       the same in a notebook, a cell for each step
    lab_page          the report as one page
    scalars           its numbers, for TensorBoard and Weights & Biases
    LabReport, read_report, DONE   the report, from its file, and the state of a step
    shortcomings      what a report lacks, and which of its figures cannot be
    report_points, kernel_points   points for a report that is handed in, and for kernels measured by hand
On the command line: `hpml-lab lab SCRIPT [ARGS]`; `hpml-lab template --of lab .` and `--of text .` write scripts to start from.
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.your_script.tools.lab import run_lab as run_lab, remark as remark
    from hpml_lab.your_script.tools.lab_steps import TASKS as TASKS
    from hpml_lab.your_script.views.lab_notebook import LabNotebook as LabNotebook
    from hpml_lab.your_script.views.lab_page import lab_page as lab_page
    from hpml_lab.your_script.tools.lab_report import (
        LabReport as LabReport,
        read_report as read_report,
        scalars as scalars,
        DONE as DONE,
    )
    from hpml_lab.your_script.tools.lab_points import (
        shortcomings as shortcomings,
        report_points as report_points,
        kernel_points as kernel_points,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
