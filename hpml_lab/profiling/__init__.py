"""Profiling: where the time goes, what a profiler can and cannot see, and what bounds a loop (notebook 10).

Experiments, in the order of the notebook:
    profile_loop            a slow trainer made fast, one checked change at a time
    cprofile_line_profiler  which function, which line
    slow_causes             four causes of slow code, each with its fast form
    flame_graph             a running program, seen from outside by py-spy and by perf
    torch_profiler          operators, a trace, memory over time
    kernel_table            nvprof's table
    async_timing            clocks that stop before a GPU is done
    monitors                what the machine does, at an instant and on average
    bottleneck_classes      what bounds a loop
    perf_counters           page faults, context switches, cycles
    tune_up                 habits planted in a script, found by `hpml-lab tuneup`
Further figures of their results:
    rung_checks, random_walk_profile, operators_and_memory, where_the_time_went
Tools for your own code:
    Monitor                 samples processors, memory, disk and GPUs while a block runs
    classify, decide        name what bounds a training loop, one of BOUNDS, with the evidence
    PartClock               seconds by part of a loop
    by_function, by_line    run a function under cProfile or line_profiler
    function_rows, line_rows  what they measured, as rows
    record_stacks           lets py-spy watch a process
    read_stacks, frame_shares, icicle   what it saw, as a tree, as rows and as a figure
    short_names, read_nvprof, LECTURE_LOG   kernel tables and nvprof's logs
    perf_functions, perf_rows, perf_stacks   what perf sees of a command, and of Python and C in one
    nsys_profile, read_nsys     a recording by Nsight Systems, and its events
    tuneup, tried_changes   what each change gains on a script, and its ladder as rows
    show_rows               rows as a table in a notebook
On the command line, for any script: `hpml-lab profile SCRIPT`, `hpml-lab monitor -- COMMAND`, `hpml-lab bottleneck -- COMMAND`.
What the notebook looks at:
    SlowTrainer, TrainerSwitches, PARTS, CHANGES, WRONG     the slow trainer, its changes, and tempting mistakes
    largest_difference, write_folder                        how far losses are off; the images that it reads
    simulate, known_program, expensive, counted_program, packed, brightened     programs whose profile is known
    QueuedDevice, SlowSamples, training_step                a simulated device, a slow data set, a step of a small net
    loop_profile, profile_table, tuneup_report              the profiles and reports of the exercises
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.profiling.experiments.profile_loop import profile_loop as profile_loop, rung_checks as rung_checks
    from hpml_lab.profiling.experiments.cprofile_line_profiler import (
        cprofile_line_profiler as cprofile_line_profiler,
        random_walk_profile as random_walk_profile,
    )
    from hpml_lab.profiling.experiments.slow_causes import slow_causes as slow_causes
    from hpml_lab.profiling.experiments.flame_graph import flame_graph as flame_graph
    from hpml_lab.profiling.experiments.torch_profiler import (
        torch_profiler as torch_profiler,
        operators_and_memory as operators_and_memory,
    )
    from hpml_lab.profiling.experiments.kernel_table import kernel_table as kernel_table
    from hpml_lab.profiling.experiments.async_timing import async_timing as async_timing
    from hpml_lab.profiling.experiments.monitors import monitors as monitors
    from hpml_lab.profiling.experiments.bottleneck_classes import bottleneck_classes as bottleneck_classes
    from hpml_lab.profiling.experiments.perf_counters import (
        perf_counters as perf_counters,
        where_the_time_went as where_the_time_went,
    )
    from hpml_lab.profiling.experiments.tune_up import tune_up as tune_up, tried_changes as tried_changes
    from hpml_lab.referee.tuneup import tuneup as tuneup
    from hpml_lab.profilers.monitor import Monitor as Monitor
    from hpml_lab.profiling.lessons.bottleneck import classify as classify, decide as decide, BOUNDS as BOUNDS
    from hpml_lab.profiling.tools.part_clock import PartClock as PartClock
    from hpml_lab.profiling.views.row_table import show_rows as show_rows
    from hpml_lab.profilers.functions import (
        by_function as by_function,
        by_line as by_line,
        function_rows as function_rows,
        line_rows as line_rows,
    )
    from hpml_lab.profilers.stacks import read_stacks as read_stacks, frame_shares as frame_shares
    from hpml_lab.profiling.views.icicle import icicle as icicle
    from hpml_lab.profilers.py_spy import record_stacks as record_stacks
    from hpml_lab.profiling.tools.nvprof import (
        read_nvprof as read_nvprof,
        short_names as short_names,
        LECTURE_LOG as LECTURE_LOG,
    )
    from hpml_lab.profiling.tools.perf import (
        perf_functions as perf_functions,
        perf_rows as perf_rows,
        perf_stacks as perf_stacks,
    )
    from hpml_lab.profiling.tools.nsys import nsys_profile as nsys_profile, read_nsys as read_nsys
    from hpml_lab.profiling.experiments.perf_counters.c_program import counted_program as counted_program
    from hpml_lab.profiling.tools.queued_device import QueuedDevice as QueuedDevice
    from hpml_lab.profiling.lessons.random_walk import (
        simulate as simulate,
        known_program as known_program,
        expensive as expensive,
    )
    from hpml_lab.profiling.lessons.native_program import packed as packed, brightened as brightened
    from hpml_lab.profiling.lessons.slow_and_fast import write_folder as write_folder
    from hpml_lab.profiling.lessons.slow_trainer import (
        SlowTrainer as SlowTrainer,
        TrainerSwitches as TrainerSwitches,
        PARTS as PARTS,
        WRONG as WRONG,
        largest_difference as largest_difference,
    )
    from hpml_lab.profiling.experiments.profile_loop.trainer_changes import CHANGES as CHANGES
    from hpml_lab.profiling.experiments.bottleneck_classes.known_loops import (
        SlowSamples as SlowSamples,
        training_step as training_step,
    )
    from hpml_lab.profiling.exercises.next_step import loop_profile as loop_profile
    from hpml_lab.profiling.exercises.name_the_bottleneck import profile_table as profile_table
    from hpml_lab.profiling.exercises.gains_to_keep import tuneup_report as tuneup_report
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
