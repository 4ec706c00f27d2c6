"""same-as-plain: the DeepSpeed JSON that trains like a plain loop. Its meaning is judged, not its text."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import plain
from hpml_lab.core.system.errors import LabError
from hpml_lab.sharding.tools.deepspeed_config import Hyperparameters, WrongType, meaning_of

NOTEBOOK = "14_sharding"
RANKS, STEPS = 2, 300
READ = {"lr", "betas", "eps", "weight_decay", "adam_w_mode", "torch_adam", "bias_correction", "amsgrad"}  # of the optimizer
# What DeepSpeed 0.19 reads. Any other name is ignored without a word, and in "zero_optimization" refused.
KNOWN = set(
    "activation_checkpointing aio autotuning bf16 bfloat16 checkpoint comet comms_logger communication_data_type compile "
    "compression_training csv_monitor curriculum_learning data_efficiency data_types dataloader_drop_last disable_allgather "
    "disable_python_gc dump_state eigenvalue elasticity expert_parallel flops_profiler fp16 fp32 gradient_accumulation_steps "
    "gradient_allreduce_op gradient_clipping gradient_predivide_factor hybrid_engine log_level managed_gradient_accumulation "
    "memory_breakdown monitor_config nebula optimizer pipeline prescale_gradients progressive_layer_drop quantize_training "
    "scheduler seq_parallel_communication_data_type sequence_parallel_size sparse_attention sparse_gradients steps_per_print "
    "tensor_parallel tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu "
    "use_data_before_expert_parallelism vocabulary_size wall_clock_breakdown wandb weight_quantization "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization".split()
)
ZERO = set(
    "allgather_bucket_size allgather_partitions allgather_sequential compute_grad_norm contiguous_gradients cpu_offload "
    "cpu_offload_param cpu_offload_use_pin_memory elastic_checkpoint enable_sanity_checks gather_16bit_weights_on_model_save "
    "ignore_unused_parameters leaf_module legacy_stage1 load_from_fp32_weights log_trace_cache_warnings max_live_parameters "
    "max_reuse_distance memory_efficient_linear model_persistence_threshold module_granularity_threshold offload_optimizer "
    "offload_param overlap_comm override_module_apply param_persistence_threshold parameter_alignment prefetch_bucket_size "
    "pipeline_loading_checkpoint reduce_bucket_size reduce_scatter round_robin_gradients save_muon_momentum_buffer_in_memory "
    "stage stage3_allgather_sequential stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save "
    "stage3_max_live_parameters stage3_max_reuse_distance stage3_model_persistence_threshold "
    "stage3_module_granularity_threshold stage3_param_persistence_threshold stage3_prefetch_bucket_size "
    "stage3_use_all_reduce_for_fetch_params sub_group_size use_all_reduce_for_fetch_params use_multi_rank_bucket_allreduce "
    "zenflow zero_hpz_partition_size zero_quantized_gradients zero_quantized_nontrainable_weights "
    "zero_quantized_weights".split()
)
NEVER = 1e6  # no gradient of the plain loop has such a norm

# The plain loop: 64 samples a step, and this optimizer at a constant rate.
BATCH, RATE, BETAS, EPS, DECAY = 64, 1e-3, (0.8, 0.999), 1e-8, 1e-4


@exercise("same-as-plain", notebook=NOTEBOOK, returns=object)
def judge_same_as_plain(answer: Any) -> None:
    """The JSON means: 64 samples over both ranks, torch.optim.Adam with L2, no clipping, the constant rate 0.001, float32."""
    if not isinstance(answer, Mapping | str):
        hint = f"Give the whole JSON, as a dictionary or as text; yours is a {type(answer).__name__}."
        raise Mistake("not-a-json", hint)
    config = _python(answer)
    if isinstance(config, dict) and not {"optimizer", "train_batch_size", "train_micro_batch_size_per_gpu"} & set(config):
        raise Mistake("only-the-changes", "Give the whole JSON, not only what changes: DeepSpeed reads one file.")
    try:
        meant = meaning_of(config, RANKS)
    except WrongType as error:
        raise Mistake("wrong-type", f"One of the values has a type that DeepSpeed cannot read. {error}") from error
    except LabError as error:
        raise Mistake("refused", str(error)) from error
    config = json.loads(config) if isinstance(config, str) else config
    if meant.batch != BATCH:
        _judge_batch(meant)
    _judge_spelling(config)
    if 0 < meant.clip_norm < NEVER:
        hint = (
            f"Gradients with a norm above {meant.clip_norm:g} are still scaled down. What does DeepSpeed do if the JSON does "
            "not say, and which value means never?"
        )
        raise Mistake("still-clips", hint)
    if meant.optimizer == "AdamW":
        _judge_place_of_settings(config)
    _judge_optimizer(meant)
    _judge_other_parameters(config)
    _judge_rates(meant)
    _judge_names_and_types(config)
    if meant.dtype != "fp32":
        raise Mistake("half-precision", f"The plain loop trains in float32; with {meant.dtype} the weights are rounded.")


def _python(value: Any) -> Any:
    """The JSON with Python's own numbers for those of NumPy and torch."""
    if isinstance(value, Mapping):
        return {name: _python(item) for name, item in value.items()}
    return [_python(item) for item in value] if isinstance(value, list | tuple) else plain(value)


def _judge_batch(meant: Hyperparameters) -> None:
    if meant.parts > 1 and meant.batch == BATCH * meant.parts:
        hint = f"A step sees {meant.batch} samples: {meant.parts} micro-batches on each of {RANKS} ranks. Is one not enough?"
        raise Mistake("too-many-parts", hint)
    if meant.batch == BATCH * RANKS:
        hint = f"A step sees {meant.batch} samples: one of your numbers counts those of one rank, and there are {RANKS}."
        raise Mistake("batch-per-rank", hint)
    if meant.batch in (BATCH // RANKS, BATCH // RANKS // RANKS):
        raise Mistake(
            "divided-twice", f"A step sees {meant.batch} samples over both ranks. Who divides by the ranks, you or DeepSpeed?"
        )
    raise Mistake("other-batch", f"A step sees {meant.batch} samples over both ranks, that of the plain loop {BATCH}.")


def _judge_place_of_settings(config: Mapping[str, Any]) -> None:
    """Settings that are there, but not where DeepSpeed reads them, or not as it reads them."""
    params = config["optimizer"].get("params") or {}
    if "adam_w_mode" in config or "adam_w_mode" in config["optimizer"]:
        raise Mistake(
            "misplaced", ('DeepSpeed looks for "adam_w_mode" in one place only: it is one of the optimizer\'s "params".')
        )
    if isinstance(params.get("adam_w_mode"), str):
        hint = "A text in quotes is true, whatever it says. JSON has false, and Python False, without quotes."
        raise Mistake("text-is-true", hint)


def _judge_optimizer(meant: Hyperparameters) -> None:
    if meant.optimizer not in ("Adam", "AdamW"):
        hint = (
            "The JSON has no optimizer." if meant.optimizer == "none given" else f"The optimizer is {meant.optimizer!r} here."
        )
        raise Mistake("other-optimizer", f"{hint} That of the plain loop is Adam.")
    if meant.optimizer == "AdamW" and meant.weight_decay:
        hint = (
            "This optimizer decays the weights apart from the gradient (AdamW). The plain loop's Adam adds the decay to the "
            "gradient. A parameter of the optimizer's block chooses between the two."
        )
        raise Mistake("still-adamw", hint)
    if meant.weight_decay == 0:
        raise Mistake("decay-dropped", "Without weight decay both kinds of Adam are the same, but the plain loop has it.")
    wanted = {"betas": BETAS, "eps": EPS, "weight_decay": DECAY}
    for name, value in wanted.items():
        if getattr(meant, name) != value:
            hint = f"{name} is {getattr(meant, name)} here and {value} in the plain loop: it was right before."
            raise Mistake("parameter-changed", hint)


def _judge_other_parameters(config: Any) -> None:
    """Parameters of Adam that `meaning_of` does not read have the plain loop's value."""
    for name, value in (config["optimizer"].get("params") or {}).items():
        if value != {"bias_correction": True, "amsgrad": False}.get(name, value):
            raise Mistake("parameter-changed", f"{name} is {value} here; the plain loop's Adam has the default.")
        if name not in READ:
            raise Mistake("unknown-parameter", f"DeepSpeed's Adam has no parameter {name!r}: does it belong elsewhere?")


def _judge_spelling(config: Any) -> None:
    """A setting that decides is there, but under a name or in a place that nobody reads; or the whole block is null."""
    params = (config.get("optimizer") or {}).get("params", {})
    if params is None:
        raise Mistake("wrong-type", 'The optimizer\'s "params" are not null: its rate and its decay stand there.')
    blocks = set(config.get("optimizer") or {}) | set(params)
    if "gradient_clipping" in blocks - set(config):
        raise Mistake(
            "misplaced", ('DeepSpeed looks for "gradient_clipping" in one place only: it stands outside of the blocks.')
        )
    for wanted, settings in (("gradient_clipping", config), *((name, params) for name in sorted(READ))):
        near = [] if wanted in settings else difflib.get_close_matches(wanted, map(str, settings), n=1, cutoff=0.85)
        if near:
            raise Mistake("unknown-key", f"DeepSpeed knows no {near[0]!r} and does not do what it says: it is {wanted!r}.")


def _judge_names_and_types(config: Any) -> None:
    """What `meaning_of` forgives, and DeepSpeed does not: a text or null for a number; and names that nobody reads."""
    optimizer, zero = config["optimizer"], config.get("zero_optimization", {})
    blocks = {"": (config, KNOWN), "optimizer": (optimizer, {"type", "params", "legacy_fusion"})}
    if not isinstance(zero, Mapping | bool):
        raise Mistake(
            "wrong-type", f'"zero_optimization" is {json.dumps(zero)}: DeepSpeed wants a block here, or no such line.'
        )
    if isinstance(zero, Mapping):
        blocks["zero_optimization"] = zero, ZERO
        if zero.get("stage", 0) not in (0, 1, 2, 3, "0", "1", "2", "3"):
            raise Mistake("wrong-type", f'"stage" is {json.dumps(zero["stage"])}, and ZeRO has the stages 0, 1, 2 and 3.')
    for block, (settings, known) in blocks.items():
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                place = f"in {block!r} " if block else ""
                hint = f"DeepSpeed knows no {name!r} {place}and does not do what it says." + (
                    f" Did you mean {near[0]!r}?" if near else " Leave it out."
                )
                raise Mistake("unknown-key", hint)
    for settings in (config, optimizer.get("params") or {}):
        for name, value in settings.items():
            if (value is None or isinstance(value, str)) and name in READ | {"gradient_clipping"}:
                hint = f"{name!r} is {json.dumps(value)}: give a number, true or false, without quotes, or leave the line out."
                raise Mistake("wrong-type", hint)


def _judge_rates(meant: Hyperparameters) -> None:
    rates = [meant.rate(step) for step in range(STEPS)]
    wrong = [step for step, rate in enumerate(rates) if abs(rate - RATE) > 1e-9]
    if not wrong:
        return
    if meant.warm_up and meant.warm_up[3] == "log" and wrong:
        name, hint = "warms-up", "The rate is still warmed up, logarithmically. The plain loop's is the same in each step."
    elif meant.warm_up and wrong[-1] < 3:
        name, hint = "first-steps-late", "A warm-up in two steps is still one: its first two steps have another rate."
    elif meant.warm_up:
        name, hint = (
            "warms-up-linearly",
            "The rate is still warmed up, now linearly. The plain loop's is the same in each step.",
        )
    else:
        name, hint = "other-rate", "The rate is not that of the plain loop."
    raise Mistake(name, f"{hint} Step {wrong[0]} has rate {rates[wrong[0]]:.3g} instead of {RATE:g}.")
