"""Processes, threads and shared memory: what each start method, queue and lock costs, with its timeline (notebook 07).

Experiments, in the order of the notebook:
    gil                 which work threads speed up, and which only processes
    start_methods       what fork, forkserver and spawn cost, and the deadlock of a fork
    process_and_pool    the lecture's Process and Pool with every start method
    tensor_queues       five routes for a tensor to another process
    producer_consumer   a ring of shared memory between two processes
Further figures of their results:
    gil_timelines       when each of two workers ran and when it waited
    held_lock_timelines a process that is started while a thread holds a lock
Tools:
    Ring                arrays between two processes through shared memory, with deadlines
    thread_at_exit      what a thread of one of the THREAD_KINDS still does when its program ends
    start_while_held    start a process while a thread holds a lock
    safe_methods        the start methods that are safe on this platform
    process_prints      what a function prints in a Process
    run_slides          the lecture's two slides, each with a function f, as one program
    run_cell_function   a process for a function that was typed into a cell, as a program
    greet, square       functions for workers
    message_bytes       the length of the message that a queue sends for an item
    count_copies        how often each route copies a tensor's bytes
    shared_segments     the shared memory of rings and tensors, in use and afterwards
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.gil": ["gil", "gil_timelines"],
        "experiments.start_methods": ["start_methods", "held_lock_timelines"],
        "experiments.process_and_pool": ["process_and_pool"],
        "experiments.tensor_queues": ["tensor_queues"],
        "experiments.producer_consumer": ["producer_consumer"],
        "hpml_lab.core.ring": ["Ring"],
        "thread_exit": ["thread_at_exit", "THREAD_KINDS"],
        "held_lock": ["start_while_held"],
        "pool": ["process_prints", "run_slides", "run_cell_function"],
        "start_cost": ["safe_methods"],
        "work": ["greet", "square"],
        "messages": ["message_bytes", "count_copies"],
        "segments": ["shared_segments"],
    },
)
