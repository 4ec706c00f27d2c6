"""Answers to `same-as-plain`: a JSON that trains like the plain loop, on two ranks."""

import json
from types import MappingProxyType

import numpy as np
import torch

ADAM = {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 1e-4}
solution = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_clipping": 0.0,
    "optimizer": {
        "type": "Adam",
        "params": {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 1e-4, "adam_w_mode": False},
    },
    "zero_optimization": {"stage": 2},
    "steps_per_print": 2000,
}


def adam(**params):
    return {"type": "Adam", "params": {**solution["optimizer"]["params"], **params}}


def without(*names, **settings):
    return {name: value for name, value in {**solution, **settings}.items() if name not in names}


def warm_up(**params):
    return {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 100, **params}}


WRONG = [
    ("misplaced", without("gradient_clipping", optimizer={**adam(), "gradient_clipping": 0.0})),
    ("unknown-key", without("gradient_clipping", gradient_cliping=0.0)),
    ("unknown-key", without(batch_size=64)),
    ("wrong-type", without(gradient_clipping="0.0")),
    ("wrong-type", without(optimizer={"type": "Adam", "params": None})),
    ("wrong-type", without(zero_optimization=2)),
    ("wrong-type", without(zero_optimization={"stage": 4})),
    ("wrong-type", without(optimizer=adam(adam_w_mode=None))),
    ("batch-per-rank", without(train_micro_batch_size_per_gpu=64)),
    ("too-many-parts", without(gradient_accumulation_steps=2)),
    ("divided-twice", without(train_micro_batch_size_per_gpu=16)),
    ("other-batch", without(train_micro_batch_size_per_gpu=4)),
    ("refused", without(train_batch_size=64, train_micro_batch_size_per_gpu=64)),
    ("still-clips", without("gradient_clipping")),
    ("still-adamw", without(optimizer={"type": "Adam", "params": ADAM})),
    ("misplaced", without(optimizer={"type": "Adam", "params": ADAM, "adam_w_mode": False})),
    ("text-is-true", without(optimizer=adam(adam_w_mode="false"))),
    ("other-optimizer", without("optimizer")),
    ("decay-dropped", without(optimizer=adam(weight_decay=0.0))),
    ("other-optimizer", without(optimizer={"type": "SGD", "params": ADAM})),
    ("parameter-changed", without(optimizer=adam(betas=[0.9, 0.999]))),
    ("parameter-changed", without(optimizer=adam(amsgrad=True))),
    ("unknown-parameter", without(optimizer=adam(gradient_clipping=0.0))),
    ("warms-up", without(scheduler=warm_up(warmup_min_lr=1e-4))),
    ("warms-up-linearly", without(scheduler=warm_up(warmup_type="linear"))),
    ("first-steps-late", without(scheduler=warm_up(warmup_type="linear", warmup_num_steps=1))),
    ("other-rate", without(optimizer=adam(lr=2e-3))),
    ("half-precision", without(bf16={"enabled": True})),
    ("only-the-changes", {"gradient_clipping": 0.0, "adam_w_mode": False}),
    ("not-a-json", 4),
]
ALSO_RIGHT = [
    without(zero_optimization={"stage": 3, "stage3_prefetch_bucket_size": 0}, torch_autocast={"enabled": False}),
    without(comms_logger={"enabled": False}, gradient_clipping=False, zero_optimization=False),
    json.dumps(solution, indent=2),
    MappingProxyType(solution),
    without(optimizer=adam(amsgrad=False)),
    without("train_micro_batch_size_per_gpu", train_batch_size=64),
    without("zero_optimization", "steps_per_print", "train_micro_batch_size_per_gpu", train_batch_size=64, gradient_clipping=0),
    without(train_micro_batch_size_per_gpu=16, gradient_accumulation_steps=2),
    without(train_micro_batch_size_per_gpu=16, train_batch_size=64),
    without(scheduler=warm_up(warmup_min_lr=1e-3)),
    without(optimizer={**adam(torch_adam=True), "type": "adam"}),
    without(optimizer=adam(adam_w_mode=0), bf16={"enabled": False}),
    without(train_micro_batch_size_per_gpu=np.int64(32), gradient_clipping=torch.tensor(0.0)),
    without(gradient_clipping=1e9),
    without(scheduler=None, zero_optimization={"stage": 3, "reduce_bucket_size": 100_000}),
]
