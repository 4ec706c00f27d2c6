"""The experiments of notebook 09, in six files: a slow trainer, profilers, torch's profiler, clocks, monitors, counters."""

# Each import registers its experiments.
from hpml_lab.profiling.experiments_ladder import profile_loop  # isort: skip
from hpml_lab.profiling.experiments_tools import cprofile_line_profiler, flame_graph  # isort: skip
from hpml_lab.profiling.experiments_torch import kernel_table, torch_profiler  # isort: skip
from hpml_lab.profiling.experiments_async import async_timing  # isort: skip
from hpml_lab.profiling.experiments_monitors import bottleneck_classes, monitors  # isort: skip
from hpml_lab.profiling.experiments_counters import perf_counters  # isort: skip

__all__ = [
    "profile_loop",
    "cprofile_line_profiler",
    "flame_graph",
    "torch_profiler",
    "kernel_table",
    "async_timing",
    "monitors",
    "bottleneck_classes",
    "perf_counters",
]
