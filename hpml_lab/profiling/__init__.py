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
Further figures of their results:
    rung_checks, random_walk_profile, operators_and_memory, where_the_time_went
Tools for your own code:
    Monitor, read_csv       sample processors, memory, disk and GPUs while a block runs; read its file again
    classify, decide        name what bounds a training loop: a Diagnosis, one of BOUNDS, with the Evidence
    PartClock               seconds by part of a loop
    by_function, by_line, by_sample     run a function under cProfile, line_profiler or a sampler
    function_rows, line_rows, profile_markers   what they measured, as rows; what @profile does
    record_stacks, record_training      let py-spy watch a process, or the training program of the notebook
    read_stacks, read_speedscope, split_imports, frame_shares   what it saw, as a tree and as rows
    icicle, draw_icicle, flame_svg      what it saw, as a figure or a flame graph for a browser
    named_regions, kernel_rows, read_nvprof, LECTURE_LOG        torch's traces and nvprof's logs as tables
    process_usage, perf_stat, perf_functions, perf_rows         what the system and the processor count for a command
    show_rows               rows as a table in a notebook
On the command line, for any script: `hpml-lab profile SCRIPT`, `hpml-lab monitor -- COMMAND`, `hpml-lab bottleneck -- COMMAND`.
What the notebook looks at:
    SlowTrainer, TrainerSwitches, PARTS, CHANGES, WRONG     the slow trainer, its changes, and tempting mistakes
    largest_difference, write_folder                        how far losses are off; the images that it reads
    evaluate_slow, evaluate_fast, input_slow, input_fast, transform_slow, transform_fast   habits, slow and fast
    simulate, known_program, expensive, counted_program     programs whose profile is known
    QueuedDevice, SlowSamples, training_step                a simulated device, a slow data set, a step of a small net
    loop_profile, profile_table                             the profiles of the exercises
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
        "shown": ["show_rows"],
        "functions": ["by_function", "by_line", "by_sample", "function_rows", "line_rows", "profile_markers"],
        "stacks": ["read_stacks", "split_imports", "frame_shares", "draw_icicle", "icicle"],
        "flames": ["flame_svg"],
        "py_spy": ["record_stacks", "read_speedscope"],
        "watched_training": ["record_training"],
        "traces": ["named_regions"],
        "nvprof": ["kernel_rows", "read_nvprof", "LECTURE_LOG"],
        "counters": ["process_usage", "perf_stat", "perf_functions", "perf_rows", "counted_program"],
        "queued": ["QueuedDevice"],
        "random_walk": ["simulate", "known_program", "expensive"],
        "habits": [
            "write_folder",
            "evaluate_slow",
            "evaluate_fast",
            "input_slow",
            "input_fast",
            "transform_slow",
            "transform_fast",
        ],
        "slow_trainer": ["SlowTrainer", "TrainerSwitches", "PARTS", "WRONG"],
        "ladder_steps": ["CHANGES"],
        "ladder": ["largest_difference"],
        "known_loops": ["SlowSamples", "training_step"],
        "exercise_profiles": ["loop_profile", "profile_table"],
    },
)
