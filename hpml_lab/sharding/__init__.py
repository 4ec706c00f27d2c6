"""Sharded training: ranks that divide the memory, fail, and live on many machines (notebook 14).

Experiments, in the order of the notebook:
    zero_memory         what each rank keeps: DDP, ZeRO's stages and fully sharded training
    pipeline_parallel   layers divided among ranks: GPipe, 1F1B, and the time in which a stage waits
    deepspeed_training  the lecture's DeepSpeed JSON and loop: what they train, and what makes them the plain loop
    elastic             a rank is killed, and training ends with bitwise identical weights
    many_machines       two hosts, the link between them, and the loss of one
Tools:
    ShardedOptimizer          ZeRO-1 from scratch: each rank keeps the optimizer's state of its share of the parameters
    FullyShardedDataParallel  ZeRO-3 from scratch: each rank keeps 1/N of parameters, gradients and state
    Snapshots                 atomic snapshots of a run in a folder; a damaged one is passed over
    best_interval             the work between two snapshots that wastes least time
    meaning_of                the training that a DeepSpeed JSON asks for, with all that it leaves unsaid
    LECTURE_JSON, changed     the lecture's JSON, and a copy of one with other settings
    two_hosts                 two hosts on one machine and the link between them
For the notebook:
    storages                      the bytes of tensors, counted by distinct storages
    zero_formula, FLOAT32, MIXED  bytes per parameter at a stage of ZeRO, and on one rank alone
    zero_sliders                  the formula with sliders over parameters, ranks and precision
    pipeline_slider               when each stage of a pipeline works on which micro-batch
    TrainingRun                   a run with everything that a snapshot can forget
    fingerprint                   the sha256 of a network's weights
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.sharding.experiments.zero_memory import zero_memory as zero_memory
    from hpml_lab.sharding.experiments.pipeline_parallel import pipeline_parallel as pipeline_parallel
    from hpml_lab.sharding.experiments.deepspeed_training import deepspeed_training as deepspeed_training
    from hpml_lab.sharding.experiments.elastic import elastic as elastic
    from hpml_lab.sharding.experiments.many_machines import many_machines as many_machines
    from hpml_lab.sharding.lessons.sharded_optimizer import ShardedOptimizer as ShardedOptimizer
    from hpml_lab.sharding.lessons.fsdp import FullyShardedDataParallel as FullyShardedDataParallel
    from hpml_lab.sharding.lessons.recovery import Snapshots as Snapshots
    from hpml_lab.sharding.lessons.recovery import best_interval as best_interval
    from hpml_lab.sharding.tools.deepspeed_config import meaning_of as meaning_of
    from hpml_lab.sharding.tools.deepspeed_config import LECTURE_JSON as LECTURE_JSON, changed as changed
    from hpml_lab.sharding.tools.hosts import two_hosts as two_hosts
    from hpml_lab.sharding.lessons.zero import storages as storages
    from hpml_lab.sharding.lessons.zero import zero_formula as zero_formula, FLOAT32 as FLOAT32, MIXED as MIXED
    from hpml_lab.sharding.views.zero_sliders import zero_sliders as zero_sliders
    from hpml_lab.sharding.views.pipeline_slider import pipeline_slider as pipeline_slider
    from hpml_lab.sharding.lessons.training_run import TrainingRun as TrainingRun
    from hpml_lab.sharding.lessons.recovery import fingerprint as fingerprint
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
