"""Profiling: where the time goes, what a profiler can and cannot see, and what bounds a loop (notebook 09).

Experiments, in the order of the notebook:
    profile_loop            a slow trainer made fast, one checked change at a time
    cprofile_line_profiler  which function, which line
    flame_graph             a running program, seen from outside by py-spy
    torch_profiler          operators, a trace, memory over time
    kernel_table            nvprof's table
    async_timing            clocks that stop before a GPU is done
    monitors                what the machine does, at an instant and on average
    bottleneck_classes      what bounds a loop
    perf_counters           page faults, context switches, cycles
Tools for your own code:
    Monitor, read_csv       sample processors, memory, disk and GPUs while a block runs
    classify, decide        name what bounds a training loop, with the evidence
    PartClock               seconds by part of a loop
    by_function, by_line, by_sample   cProfile, line_profiler and a sampler around one function
    record_stacks, read_stacks, frame_shares, draw_icicle, flame_svg   py-spy's samples as tables and flame graphs
    kernel_rows, read_nvprof, named_regions   torch's traces as tables
    process_usage, perf_stat, perf_functions, perf_rows   what the system and the processor count for a command
On the command line: `hpml-lab profile SCRIPT`, `hpml-lab monitor -- COMMAND`, `hpml-lab bottleneck -- COMMAND`.
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.profile_loop": ["profile_loop", "rung_checks"],
        "experiments.cprofile_line_profiler": ["cprofile_line_profiler", "random_walk_profile"],
        "experiments.flame_graph": ["flame_graph"],
        "experiments.torch_profiler": ["torch_profiler", "operators_and_memory"],
        "experiments.kernel_table": ["kernel_table"],
        "experiments.async_timing": ["async_timing"],
        "experiments.monitors": ["monitors"],
        "experiments.bottleneck_classes": ["bottleneck_classes"],
        "experiments.perf_counters": ["perf_counters", "where_the_time_went"],
        "monitor": ["Monitor", "read_csv"],
        "bottleneck": ["classify", "decide", "Diagnosis", "Evidence", "BOUNDS"],
        "part_clock": ["PartClock"],
        "functions": ["by_function", "by_line", "by_sample", "function_rows", "line_rows", "profile_markers"],
        "stacks": ["read_stacks", "split_imports", "frame_shares", "draw_icicle"],
        "flames": ["flame_svg"],
        "py_spy": ["record_stacks", "read_speedscope"],
        "watched_training": ["record_training"],
        "traces": ["named_regions"],
        "nvprof": ["kernel_rows", "read_nvprof", "LECTURE_LOG"],
        "counters": ["process_usage", "perf_stat", "perf_functions", "perf_rows", "counted_program"],
        "queued": ["QueuedDevice"],
        "random_walk": ["simulate", "known_program", "expensive"],
        "habits": ["write_folder"],
        "slow_trainer": ["Trainer", "Switches", "PARTS", "WRONG"],
        "ladder": ["CHANGES", "largest_difference"],
        "known_loops": ["SlowSamples", "training_step"],
        "exercise_profiles": ["loop_profile", "profile_table"],
    },
)
