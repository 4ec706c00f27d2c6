"""Distributed training: ranks that divide the work, and what they send and wait for (notebook 13).

Experiments, in the order of the notebook:
    gradient_aggregation  averaged gradients: equal to the whole batch's, and hidden behind the backward pass
    dp_vs_ddp             one process with threads, and one process per replica
    load_balance          what a slow rank costs all others, and batches of sentences of similar length
    scaling               strong and weak scaling, measured and extrapolated
    step_parts            forward, backward, the all-reduce that is not hidden, optimizer: by ranks and batch size
    asynchronous_sgd      workers that wait for all others, for K, or for none, on a virtual clock
    sync_batch_norm       batch norm over all ranks
Further figures of their results:
    bucket_sizes            of gradient_aggregation: the time of a step by the number of buckets
    balance_and_randomness  of load_balance: what sorted sentences gain, and what they cost in randomness
    all_reduce_fit          of scaling: the measured all-reduces and the line through the large ones
Tools:
    launch          run a function on N ranks
    RankError       says which rank failed first, how and where
    OverlappingDDP  data parallel training from scratch: buckets of gradients are summed during the backward pass
    SyncBatchNorm   batch norm over all ranks, on CPU and GPU
    time_step_parts the parts of a step of your own net and loss, on 1, 2, … ranks
For the notebook:
    train_with_ddp                                    a plain training loop with torch's DDP
    collectives_drawn                                 what five collectives move, from a real run
    ring_stepper                                      the steps of the ring on a slider
    assign_buckets, last_arrival                      which parameters share a message, and when the last one arrives
    ThreadedDataParallel                              DataParallel with threads of a CPU in place of GPUs
    sentence_lengths, epochs, plan_cost               orders of sentences for several ranks, and their cost
    expected_longest                                  the expected length of the longest of several sentences
    LINKS, Interconnect                               published latencies and bandwidths with their sources, and one of these
    ring_seconds, tree_seconds, hierarchical_seconds  what an all-reduce costs by the alpha-beta model
    efficiency, fit_link                              what that means for training; latency and bandwidth from measured times
    scaling_sliders                                   the model with sliders over the network's size, link and ranks
    waiting_sliders                                   what waiting costs, with sliders over workers, K and their unevenness
    moments, merge_moments                            n, mean and M of a share, and of all shares together
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.distributed.experiments.gradient_aggregation import gradient_aggregation as gradient_aggregation
    from hpml_lab.distributed.experiments.dp_vs_ddp import dp_vs_ddp as dp_vs_ddp
    from hpml_lab.distributed.experiments.load_balance import load_balance as load_balance
    from hpml_lab.distributed.experiments.scaling import scaling as scaling
    from hpml_lab.distributed.experiments.step_parts import step_parts as step_parts
    from hpml_lab.distributed.experiments.asynchronous_sgd import asynchronous_sgd as asynchronous_sgd
    from hpml_lab.distributed.experiments.sync_batch_norm import sync_batch_norm as sync_batch_norm
    from hpml_lab.distributed.experiments.gradient_aggregation.figure import bucket_sizes as bucket_sizes
    from hpml_lab.distributed.experiments.load_balance.figure import balance_and_randomness as balance_and_randomness
    from hpml_lab.distributed.experiments.scaling.figure import all_reduce_fit as all_reduce_fit
    from hpml_lab.core.system.launcher import launch as launch
    from hpml_lab.core.system.rank_errors import RankError as RankError
    from hpml_lab.distributed.lessons.ddp import OverlappingDDP as OverlappingDDP
    from hpml_lab.distributed.lessons.batch_norm import SyncBatchNorm as SyncBatchNorm
    from hpml_lab.distributed.tools.parts_of_a_step import time_step_parts as time_step_parts
    from hpml_lab.distributed.lessons.ddp_loop import train_with_ddp as train_with_ddp
    from hpml_lab.distributed.views.collectives import collectives_drawn as collectives_drawn
    from hpml_lab.distributed.views.ring_stepper import ring_stepper as ring_stepper
    from hpml_lab.distributed.lessons.buckets import assign_buckets as assign_buckets, last_arrival as last_arrival
    from hpml_lab.distributed.lessons.data_parallel import ThreadedDataParallel as ThreadedDataParallel
    from hpml_lab.distributed.lessons.sentence_batches import (
        sentence_lengths as sentence_lengths,
        epochs as epochs,
        plan_cost as plan_cost,
    )
    from hpml_lab.distributed.lessons.sentence_batches import expected_longest as expected_longest
    from hpml_lab.distributed.lessons.alpha_beta import LINKS as LINKS, Interconnect as Interconnect
    from hpml_lab.distributed.lessons.alpha_beta import (
        ring_seconds as ring_seconds,
        tree_seconds as tree_seconds,
        hierarchical_seconds as hierarchical_seconds,
    )
    from hpml_lab.distributed.lessons.alpha_beta import efficiency as efficiency, fit_link as fit_link
    from hpml_lab.distributed.views.scaling_sliders import scaling_sliders as scaling_sliders
    from hpml_lab.distributed.views.waiting_sliders import waiting_sliders as waiting_sliders
    from hpml_lab.distributed.lessons.batch_norm import moments as moments, merge_moments as merge_moments
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
