"""Processes, threads and shared memory: what each start method, queue and lock costs, with its timeline (notebook 07).

Experiments, in the order of the notebook:
    gil                 which work threads speed up, and which only processes
    start_methods       what fork, forkserver and spawn cost, and the deadlock of a fork
    process_and_pool    the lecture's Process and Pool with every start method
    tensor_queues       five routes for a tensor to another process
    producer_consumer   a ring of shared memory between two processes
    shared_gpu          small processes that share a GPU: in turn, at once, under MPS
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
    train_small         a training run that is far too small for a GPU
    greet, square       functions for workers
    message_bytes       the length of the message that a queue sends for an item
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.processes.experiments.gil import gil as gil, gil_timelines as gil_timelines
    from hpml_lab.processes.experiments.start_methods import (
        start_methods as start_methods,
        held_lock_timelines as held_lock_timelines,
    )
    from hpml_lab.processes.experiments.process_and_pool import process_and_pool as process_and_pool
    from hpml_lab.processes.experiments.tensor_queues import tensor_queues as tensor_queues
    from hpml_lab.processes.experiments.producer_consumer import producer_consumer as producer_consumer
    from hpml_lab.processes.experiments.shared_gpu import shared_gpu as shared_gpu
    from hpml_lab.processes.lessons.shared_memory_ring import Ring as Ring
    from hpml_lab.processes.lessons.thread_exit import thread_at_exit as thread_at_exit, THREAD_KINDS as THREAD_KINDS
    from hpml_lab.processes.lessons.held_lock import start_while_held as start_while_held
    from hpml_lab.processes.experiments.pool import (
        process_prints as process_prints,
        run_slides as run_slides,
        run_cell_function as run_cell_function,
    )
    from hpml_lab.processes.experiments.start_cost import safe_methods as safe_methods
    from hpml_lab.processes.lessons.small_training import train_small as train_small
    from hpml_lab.processes.lessons.work import greet as greet, square as square
    from hpml_lab.processes.lessons.messages import message_bytes as message_bytes
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
