"""What every topic builds on. Imports nothing from the rest of the package, and nothing at all until a name is used.

For notebooks:
    check, predicted             judge an exercise; compare a prediction with what was measured
    hint, solution               one hint more at each call; the answer, on purpose
    choose_device                the device to run on, and why
    source                       the code of a lesson, as it stands in its file
    reading                      sentences that read a result's figures, checked on this run and the recorded one
For your own code:
    measure, compare, interleaved    honest timing: warm-up, synchronization, several samples, turns
    speed_up, speed_up_of, SpeedUp   a ratio of times with its interval, and the noise band of a placebo
    ceiling                      the copy bandwidth and matrix product rate of a device
    operators, kernels, peak_bytes   what a piece of work asks of the machine, counted
    run_in_child                 a function in a child process with a deadline
    progress, LiveCurve          a progress line and a curve for long work
    one_thread, all_threads      how many CPU threads torch uses
To read experiments and their results (what writes one is imported from `hpml_lab.core.experiment`):
    find, all_experiments, load_result, Result, Table, Row, column, LabError
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.core.judge.exercises import check as check
    from hpml_lab.core.judge.help import hint as hint, solution as solution
    from hpml_lab.core.judge.prediction import predicted as predicted
    from hpml_lab.core.system.device import choose_device as choose_device
    from hpml_lab.core.show.source import source as source
    from hpml_lab.core.timing.clock import measure as measure, interleaved as interleaved, ceiling as ceiling
    from hpml_lab.core.timing.noise import (
        compare as compare,
        SpeedUp as SpeedUp,
        speed_up as speed_up,
        speed_up_of as speed_up_of,
    )
    from hpml_lab.core.timing.counting import operators as operators, kernels as kernels, peak_bytes as peak_bytes
    from hpml_lab.core.system.children import run_in_child as run_in_child
    from hpml_lab.core.show.progress import progress as progress
    from hpml_lab.core.show.live_curve import LiveCurve as LiveCurve
    from hpml_lab.core.timing.threads import one_thread as one_thread, all_threads as all_threads
    from hpml_lab.core.experiment.sentences import reading as reading
    from hpml_lab.core.experiment.registry import find as find, all_experiments as all_experiments, load_result as load_result
    from hpml_lab.core.experiment.result import Result as Result
    from hpml_lab.core.experiment.findings import Row as Row, Table as Table, column as column
    from hpml_lab.core.system.errors import LabError as LabError
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
