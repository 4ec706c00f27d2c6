"""Distributed training: ranks, and what is sent, kept and lost on many processes (notebook 12).

Experiments, in the order of the notebook:
    gradient_aggregation   averaged gradients: equal to the whole batch's, summed on a ring, hidden behind the backward pass
    dp_vs_ddp              one process with threads, and one process per replica
    load_balance           what a slow rank costs all others, and batches of sentences of similar length
    scaling                strong and weak scaling, measured and extrapolated
    zero_memory            what each rank keeps: DDP, ZeRO's stages and fully sharded training
    deepspeed_training     the lecture's DeepSpeed JSON and loop: what they train, and what makes them the plain loop
    sync_batch_norm        batch norm over all ranks
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
For the notebook:
    collectives_drawn      what five collectives move, from a real run
    fork_hang              a forked child on one thread and on two
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

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.gradient_aggregation": ["gradient_aggregation"],
        "experiments.dp_vs_ddp": ["dp_vs_ddp"],
        "experiments.load_balance": ["load_balance"],
        "experiments.scaling": ["scaling"],
        "experiments.zero_memory": ["zero_memory"],
        "experiments.deepspeed_training": ["deepspeed_training"],
        "experiments.sync_batch_norm": ["sync_batch_norm"],
        "experiments.elastic": ["elastic"],
        "experiments.many_machines": ["many_machines"],
        "overlap_pictures": ["bucket_sizes"],
        "scaling_pictures": ["all_reduce_fit"],
        "balance_pictures": ["balance_and_randomness"],
        "ranks": ["launch", "need_cores"],
        "rank_errors": ["RankError"],
        "ddp": ["OverlappingDDP"],
        "sharded_optimizer": ["ShardedOptimizer"],
        "fsdp": ["FullyShardedDataParallel"],
        "batch_norm": ["SyncBatchNorm", "convert_batch_norm", "merge_moments", "moments"],
        "recovery": ["launch_elastic", "Snapshots", "average_in_order", "my_shards", "best_interval", "fingerprint"],
        "deepspeed_config": ["meaning_of", "LECTURE_JSON", "changed"],
        "collectives": ["collectives_drawn"],
        "forked_threads": ["fork_hang"],
        "ring": ["ring_all_reduce", "gather_and_broadcast", "ring_schedule", "ring_states"],
        "ring_pictures": ["ring_stepper", "ring_picture"],
        "buckets": ["assign_buckets", "GradientBucket", "last_arrival", "Link", "ddp_hook"],
        "data_parallel": ["ThreadedDataParallel"],
        "sentences": ["design_effect", "epochs", "expected_longest", "plan_cost", "sentence_lengths"],
        "costs": ["Interconnect", "LINKS", "ring_seconds", "tree_seconds", "hierarchical_seconds"]
        + ["weak_efficiency", "strong_efficiency", "speed_up_on", "fit_link"],
        "sliders": ["scaling_sliders"],
        "zero": ["footprint", "Footprint", "storages", "zero_formula", "FLOAT32", "MIXED"],
        "zero_pictures": ["zero_sliders"],
        "elastic_training": ["TrainingRun"],
        "hosts": ["two_hosts", "why_no_hosts"],
    },
)
