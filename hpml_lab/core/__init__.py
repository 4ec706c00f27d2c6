"""What every topic builds on. Imports nothing from the rest of the package, and nothing at all until a name is used.

For notebooks:
    check, predicted             judge an exercise; compare a prediction with what was measured
    choose_device                the device to run on, and why
For your own code:
    measure, compare, interleaved    honest timing: warm-up, synchronization, several samples, turns
    speed_up, speed_up_of, SpeedUp   a ratio of times with its interval, and the noise band of a placebo
    ceiling                      the copy bandwidth and matrix product rate of a device
    operators, kernels, peak_bytes   what a piece of work asks of the machine, counted
    run_in_child                 a function in a child process with a deadline
    progress, LiveCurve          a progress line and a curve for long work
    one_thread, all_threads      how many CPU threads torch uses
For experiments:
    experiment, find, all_experiments, load_result, Result, Table, column, LabError
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "exercises": ["check"],
        "prediction": ["predicted"],
        "device": ["choose_device"],
        "timing": ["measure", "compare", "interleaved", "ceiling"],
        "noise": ["SpeedUp", "speed_up", "speed_up_of"],
        "counting": ["operators", "kernels", "peak_bytes"],
        "children": ["run_in_child"],
        "live_curve": ["LiveCurve"],
        "threads": ["one_thread", "all_threads"],
        "experiment": ["find", "all_experiments", "load_result"],
        "result": ["Result"],
        "findings": ["Table", "column"],
        "errors": ["LabError"],
    },
)
