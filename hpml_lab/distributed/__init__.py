"""Distributed training: ranks, and what is sent, kept and lost on many processes (notebook 13).

Experiments, in the order of the notebook:
    gradient_aggregation   averaged gradients: equal to the whole batch's, summed on a ring, hidden behind the backward pass
    dp_vs_ddp              one process with threads, and one process per replica
    load_balance           what a slow rank costs all others, and batches of sentences of similar length
    scaling                strong and weak scaling, measured and extrapolated
    sync_batch_norm        batch norm over all ranks
    zero_memory            what each rank keeps: DDP, ZeRO's stages and fully sharded training
    deepspeed_training     the lecture's DeepSpeed JSON and loop: what they train, and what makes them the plain loop
    elastic                a rank is killed, and training ends with bitwise identical weights
    many_machines          two hosts, the link between them, and the loss of one
Further figures of their results:
    bucket_sizes           of gradient_aggregation: the time of a step by the number of buckets
    balance_and_randomness of load_balance: what sorted sentences gain, and what they cost in randomness
    all_reduce_fit         of scaling: the measured all-reduces and the line through the large ones
Tools:
    launch                 run a function on N ranks; RankError says which one failed first, how and where
    need_cores             refuse to time more ranks than there are cores
    OverlappingDDP         data parallel training from scratch: buckets of gradients are summed during the backward pass
    ShardedOptimizer       ZeRO-1 from scratch: each rank keeps the optimizer's state of its share of the parameters
    FullyShardedDataParallel   ZeRO-3 from scratch: each rank keeps 1/N of parameters, gradients and state
    SyncBatchNorm          batch norm over all ranks, on CPU and GPU; convert_batch_norm replaces those of a network
    launch_elastic         launch again on other numbers of ranks each time one fails
    Snapshots              atomic snapshots of a run in a folder; a damaged one is passed over
    average_in_order       the mean of virtual shards' gradients, bitwise identical on any number of ranks (my_shards)
    best_interval          the work between two snapshots that wastes least time
    meaning_of             the training that a DeepSpeed JSON asks for, with all that it leaves unsaid
    LECTURE_JSON, changed  the lecture's JSON, and a copy of one with other settings
    train_with_ddp         a plain training loop with torch's DDP, to read
For the notebook:
    collectives_drawn      what five collectives move, from a real run
    ring_all_reduce        the sum of a tensor over ranks, on a ring; gather_and_broadcast does it by way of rank 0
    ring_schedule, ring_states, ring_stepper, ring_picture   the steps of the ring, in one process, on a slider, as a picture
    assign_buckets, GradientBucket, last_arrival             which parameters share a message, and when the last one arrives
    Link, ddp_hook         a link of chosen speed, and the hook with which torch's DDP sends through it
    ThreadedDataParallel   DataParallel with threads of a CPU in place of GPUs
    sentence_lengths, epochs, plan_cost, design_effect       orders of sentences for several ranks, their cost and randomness
    expected_longest       the expected length of the longest of several sentences
    Interconnect, LINKS    latency and bandwidth of a connection; published constants with their sources
    ring_seconds, tree_seconds, hierarchical_seconds         what an all-reduce costs by the alpha-beta model
    weak_efficiency, strong_efficiency, speed_up_on          what that means for training on N ranks
    fit_link               latency and bandwidth from measured times
    scaling_sliders        the model with sliders over model size, link and ranks
    footprint, Footprint, storages    the bytes of parameters, gradients, state and the rest, counted by distinct storages
    zero_formula, FLOAT32, MIXED      bytes per parameter at a stage of ZeRO, and on one rank alone
    zero_sliders           the formula with sliders over parameters, ranks and precision
    moments, merge_moments n, mean and M2 of a share, and of all shares together
    fingerprint            the sha256 of a network's weights
    TrainingRun            a run with everything that a snapshot can forget
    two_hosts, why_no_hosts   two hosts on one machine and the link between them; why there are none
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.distributed.experiments.gradient_aggregation import gradient_aggregation as gradient_aggregation
    from hpml_lab.distributed.experiments.dp_vs_ddp import dp_vs_ddp as dp_vs_ddp
    from hpml_lab.distributed.experiments.load_balance import load_balance as load_balance
    from hpml_lab.distributed.experiments.scaling import scaling as scaling
    from hpml_lab.distributed.experiments.sync_batch_norm import sync_batch_norm as sync_batch_norm
    from hpml_lab.distributed.experiments.zero_memory import zero_memory as zero_memory
    from hpml_lab.distributed.experiments.deepspeed_training import deepspeed_training as deepspeed_training
    from hpml_lab.distributed.experiments.elastic import elastic as elastic
    from hpml_lab.distributed.experiments.many_machines import many_machines as many_machines
    from hpml_lab.distributed.overlap_pictures import bucket_sizes as bucket_sizes
    from hpml_lab.distributed.scaling_pictures import all_reduce_fit as all_reduce_fit
    from hpml_lab.distributed.balance_pictures import balance_and_randomness as balance_and_randomness
    from hpml_lab.distributed.ranks import launch as launch, need_cores as need_cores
    from hpml_lab.distributed.rank_errors import RankError as RankError
    from hpml_lab.distributed.ddp_loop import train_with_ddp as train_with_ddp
    from hpml_lab.distributed.ddp import OverlappingDDP as OverlappingDDP
    from hpml_lab.distributed.sharded_optimizer import ShardedOptimizer as ShardedOptimizer
    from hpml_lab.distributed.fsdp import FullyShardedDataParallel as FullyShardedDataParallel
    from hpml_lab.distributed.batch_norm import (
        SyncBatchNorm as SyncBatchNorm,
        convert_batch_norm as convert_batch_norm,
        merge_moments as merge_moments,
        moments as moments,
    )
    from hpml_lab.distributed.recovery import (
        launch_elastic as launch_elastic,
        Snapshots as Snapshots,
        average_in_order as average_in_order,
        my_shards as my_shards,
        best_interval as best_interval,
        fingerprint as fingerprint,
    )
    from hpml_lab.distributed.deepspeed_config import meaning_of as meaning_of, LECTURE_JSON as LECTURE_JSON, changed as changed
    from hpml_lab.distributed.collectives import collectives_drawn as collectives_drawn
    from hpml_lab.distributed.ring import (
        ring_all_reduce as ring_all_reduce,
        gather_and_broadcast as gather_and_broadcast,
        ring_schedule as ring_schedule,
        ring_states as ring_states,
    )
    from hpml_lab.distributed.ring_pictures import ring_stepper as ring_stepper, ring_picture as ring_picture
    from hpml_lab.distributed.buckets import (
        assign_buckets as assign_buckets,
        GradientBucket as GradientBucket,
        last_arrival as last_arrival,
        Link as Link,
        ddp_hook as ddp_hook,
    )
    from hpml_lab.distributed.data_parallel import ThreadedDataParallel as ThreadedDataParallel
    from hpml_lab.distributed.sentences import (
        design_effect as design_effect,
        epochs as epochs,
        expected_longest as expected_longest,
        plan_cost as plan_cost,
        sentence_lengths as sentence_lengths,
    )
    from hpml_lab.distributed.costs import (
        Interconnect as Interconnect,
        LINKS as LINKS,
        ring_seconds as ring_seconds,
        tree_seconds as tree_seconds,
        hierarchical_seconds as hierarchical_seconds,
        weak_efficiency as weak_efficiency,
        strong_efficiency as strong_efficiency,
        speed_up_on as speed_up_on,
        fit_link as fit_link,
    )
    from hpml_lab.distributed.sliders import scaling_sliders as scaling_sliders
    from hpml_lab.distributed.zero import (
        footprint as footprint,
        Footprint as Footprint,
        storages as storages,
        zero_formula as zero_formula,
        FLOAT32 as FLOAT32,
        MIXED as MIXED,
    )
    from hpml_lab.distributed.zero_pictures import zero_sliders as zero_sliders
    from hpml_lab.distributed.elastic_training import TrainingRun as TrainingRun
    from hpml_lab.distributed.hosts import two_hosts as two_hosts, why_no_hosts as why_no_hosts
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
