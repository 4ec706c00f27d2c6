"""What a DeepSpeed JSON means: the training that it asks for, with all that it leaves unsaid.

    meaning_of(LECTURE_JSON, ranks=2)     clips to norm 1, decouples the weight decay, warms up logarithmically …

It follows the rules of DeepSpeed 0.19 for what decides the weights: batch, optimizer, clipping, rates, number format. ZeRO,
buckets and logging change memory and time, not the weights, and are not read.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log
from numbers import Integral
from typing import Any

from hpml_lab.core.system.errors import LabError

# The lecture's file, word by word.
LECTURE_JSON: dict[str, Any] = {
    "train_batch_size": 4,
    "steps_per_print": 2000,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, "warmup_num_steps": 1000}},
    "wall_clock_breakdown": False,
}
HALF = ("fp16", "bf16", "bfloat16", "torch_autocast")  # blocks that make DeepSpeed compute in 16 bits
CLIP_BY_DEFAULT = 1.0  # since 2026 (DeepSpeed's pull request 8068); before, the default was not to clip


class WrongType(LabError):
    """A setting is not of the type that DeepSpeed reads, such as a text in place of a number."""


@dataclass(frozen=True)
class Hyperparameters:
    """What a JSON sets, or leaves to a default.

    batch      samples a step, over all ranks; parts: in how many micro-batches each rank takes its share
    optimizer  "Adam" (L2: the decay is added to the gradient), "AdamW" (the decay is apart from it), or torch's name
    clip_norm  gradients are scaled down to this norm; 0 means never
    warm_up    None for a constant rate, else (from, to, steps, "log" or "linear")
    """

    batch: int
    parts: int
    optimizer: str
    lr: float
    betas: tuple[float, ...]
    eps: float
    weight_decay: float
    clip_norm: float
    dtype: str
    warm_up: tuple[float, float, float, str] | None

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0.

        DeepSpeed asks its scheduler once before the first step and once after each, so that WarmupLR is a step late: step 0
        has the rate to start from, and step i has max · γ(i − 1) with γ(n) = ln(n + 1) / ln(steps), or n / steps.
        """
        if self.warm_up is None:
            return self.lr
        low, high, steps, kind = self.warm_up
        n = max(0, step - 1)
        gamma = 1.0 if n >= steps else log(n + 1) / log(steps) if kind == "log" else n / steps
        return low + (high - low) * gamma


def meaning_of(config: Mapping[str, Any] | str, ranks: int = 2) -> Hyperparameters:
    """Read a JSON, as text or as a dictionary. LabError for one that DeepSpeed refuses, or that this function cannot read."""
    config = _dictionary(config)
    _require_no_auto(config)
    if isinstance(ranks, bool) or not isinstance(ranks, Integral) or ranks < 1:
        raise LabError(f"ranks={ranks!r} is not a number of ranks.", "Use a whole number of at least 1.")
    formats = [name for name in HALF if _enabled(config, name)]
    if {"fp16"} < {*formats} & {"fp16", "bf16", "bfloat16"}:
        raise LabError(f"{' and '.join(formats)} are both enabled in this JSON.", "DeepSpeed refuses that: enable one.")
    batch, parts = _batch(config, ranks)
    optimizer = _block(config, "optimizer")
    params = _block(optimizer, "params")
    name = str(optimizer.get("type") or "none given")
    if name.lower() in ("adam", "adamw"):
        name = "AdamW" if name.lower() == "adamw" or params.get("adam_w_mode", True) else "Adam"
    decay = 0.01 if name == "AdamW" and params.get("torch_adam") else 0.0  # torch's own AdamW decays by default
    lr = _number(params, "lr", 1e-3)
    return Hyperparameters(
        batch=batch,
        parts=parts,
        optimizer=name,
        lr=lr,
        betas=_betas(params),
        eps=_number(params, "eps", 1e-8),
        weight_decay=_number(params, "weight_decay", decay),
        clip_norm=_number(config, "gradient_clipping", CLIP_BY_DEFAULT),
        dtype=next(iter(formats), "fp32"),
        warm_up=_warm_up(config, lr),
    )


def changed(config: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """A copy of the JSON with other settings; those of a block, such as optimizer={…}, are merged into it."""
    new = copy.deepcopy(dict(config))
    for name, value in settings.items():
        new[name] = _merged(new.get(name), value)
    return new


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merged(old.get(name), value) for name, value in new.items()}
    return new


def _dictionary(config: Mapping[str, Any] | str) -> dict[str, Any]:
    if isinstance(config, str):
        try:
            config = json.loads(config, object_pairs_hook=_once)
        except ValueError as error:
            raise LabError(
                f"This is not JSON ({error}).", "Names stand in double quotes, and there is no last comma."
            ) from error
    if not isinstance(config, Mapping):
        raise LabError(f"A DeepSpeed JSON is a dictionary, not {config!r}.", "Give it as a dictionary or as text.")
    return dict(config)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise LabError(f"{twice!r} is twice in this JSON.", "DeepSpeed refuses that: leave one of them.")
    return dict(pairs)


def _require_no_auto(value: Any, place: str = "") -> None:
    """Raise WrongType if a setting anywhere is "auto", which a trainer, such as Hugging Face's, would replace."""
    if isinstance(value, str) and value == "auto":
        raise WrongType(f'{place!r} is "auto" in this JSON.', '"auto" is for a trainer to fill in: give the value itself.')
    if isinstance(value, Mapping):
        for name, part in value.items():
            _require_no_auto(part, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for part in value:
            _require_no_auto(part, place)


def _block(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = config.get(name) or {}
    if not isinstance(block, Mapping):
        raise LabError(f"{name!r} is {block!r} in this JSON.", "It should be a dictionary.")
    return block


def _number(block: Mapping[str, Any], name: str, default: Any, whole: bool = False) -> Any:
    """A setting that has to be a number; `whole`: and an integer."""
    value = block.get(name, default)
    # As a float false is 0.0, which DeepSpeed accepts, too.
    if (whole and isinstance(value, bool)) or not isinstance(value, int if whole else int | float) or not isfinite(value):
        kind = "a whole number" if whole else "a number"
        raise WrongType(f"{name!r} is {value!r} in this JSON, not {kind}.", "Give it without quotes, or leave it out.")
    return value if whole else float(value)


def _betas(params: Mapping[str, Any]) -> tuple[float, ...]:
    betas = params.get("betas", (0.9, 0.999))
    if not isinstance(betas, list | tuple) or len(betas) != 2:
        raise WrongType(f"'betas' is {betas!r} in this JSON, not two numbers.", "Give a list, such as [0.9, 0.999].")
    return tuple(_number({"betas": beta}, "betas", None) for beta in betas)


def _enabled(config: Mapping[str, Any], name: str) -> bool:
    enabled = _block(config, name).get("enabled", False)
    if not isinstance(enabled, bool):
        raise WrongType(f"'enabled' of {name!r} is {enabled!r} in this JSON.", "Give true or false, without quotes.")
    return enabled


def _batch(config: Mapping[str, Any], ranks: int) -> tuple[int, int]:
    """Samples a step over all ranks, and micro-batches of a rank: batch = micro-batch · parts · ranks."""
    names = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    batch, micro, parts = (config.get(name) for name in names)
    for name, number in zip(names, (batch, micro, parts), strict=True):
        if number is not None and _number(config, name, None, whole=True) < 1:
            raise LabError(f"{name!r} is {number} in this JSON.", "Give at least 1, or leave it out.")
    if batch is None and micro is None:
        raise LabError("This JSON gives no batch size.", 'Give "train_batch_size", which counts the samples of all ranks.')
    if parts is None:
        parts = 1 if batch is None or micro is None else max(1, batch // (micro * ranks))
    if batch is None:
        batch = micro * parts * ranks
    if batch % (parts * ranks) or micro not in (None, batch // (parts * ranks)):
        each = f"{parts} micro-batch{'es' * (parts > 1)} of {micro or 'equal size'} on each of {ranks} ranks"
        makes = f", which makes {parts * micro * ranks}" if micro else ""
        hint = "leave the micro-batch to DeepSpeed"
        if batch % (parts * ranks):
            hint = f"use a multiple of {parts * ranks}, and {hint}"
        raise LabError(f"A train_batch_size of {batch} is not {each}{makes}.", f"It counts the samples of all ranks: {hint}.")
    return batch, parts


def _warm_up(config: Mapping[str, Any], lr: float) -> tuple[float, float, float, str] | None:
    scheduler = _block(config, "scheduler")
    if not scheduler.get("type"):
        return None
    if scheduler["type"] != "WarmupLR":
        raise LabError(f"The scheduler {scheduler['type']!r} is not read here.", "Use WarmupLR, or leave the scheduler out.")
    params = _block(scheduler, "params")
    high = lr if params.get("warmup_max_lr") is None else _number(params, "warmup_max_lr", lr)
    kind = "linear" if params.get("warmup_type") == "linear" else "log"
    steps = max(2.0, _number(params, "warmup_num_steps", 1000))
    return _number(params, "warmup_min_lr", 0.0), high, int(steps) if steps.is_integer() else steps, kind
