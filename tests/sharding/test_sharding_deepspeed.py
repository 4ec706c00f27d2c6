"""deepspeed-training, and what a JSON means compared with what DeepSpeed makes of it."""

import importlib.util

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.sharding.exercises.same_as_plain import ZERO
from hpml_lab.sharding.experiments import deepspeed_training as experiment_module
from hpml_lab.sharding.experiments.deepspeed_training import FormatOfJson, RunOfJson, Trap, _by_hysteresis, deepspeed_training
from hpml_lab.sharding.experiments.deepspeed_training.on_ranks import LARGE, LargeBuffers, Trained, plain_run
from hpml_lab.sharding.experiments.quiet_deepspeed import load_deepspeed
from hpml_lab.sharding.lessons.train import deepspeed_engine, make_data, make_optimizer
from hpml_lab.sharding.tools.deepspeed_config import LECTURE_JSON, changed, meaning_of

needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


@pytest.fixture(scope="module")
def result(ran):
    return ran("deepspeed-training")


@needs_deepspeed
def test_the_experiment_is_sound(result, sound):
    sound(result)


@needs_deepspeed
def test_only_the_corrected_json_trains_the_plain_loops_weights(result):
    rows = {row.json: row for row in result.rows(RunOfJson)}
    assert len(rows) == 9 and len(result.rows(Trap)) == 4
    for name, row in rows.items():
        assert (row.distance < 0.1) == name.startswith("corrected, ZeRO"), row


@needs_deepspeed
def test_in_16_bits_the_loss_scale_is_deepspeeds_and_the_weights_stay_near_the_plain_loops(result):
    bf16, fp16 = result.rows(FormatOfJson)
    assert (bf16.name, bf16.scales, bf16.skipped) == ("bf16", "1", "–")
    assert fp16.scales.startswith("65,536 → 32,768") and fp16.skipped.startswith("0, 1")
    assert 0 < fp16.distance < bf16.distance < 30, "fp16 has three more bits"


def test_the_first_overflow_leaves_the_scale_and_each_later_one_halves_it():
    assert _by_hysteresis([True, True, False, True, False]) == [65536.0, 65536.0, 32768.0, 32768.0, 16384.0]


def test_a_plain_run_skips_the_steps_without_a_rate():
    asked = meaning_of(changed(LECTURE_JSON, **TORCH), 2)
    run = plain_run([1e-3, None, 1e-3], asked)
    assert torch.equal(run.weights[1], run.weights[2]) and not torch.equal(run.weights[2], run.weights[3])


def test_without_deepspeed_it_says_so(monkeypatch):
    monkeypatch.setattr(experiment_module.importlib.util, "find_spec", lambda name: None)
    result = deepspeed_training("quick", "cpu")
    assert result and result.claims == [] and "pip install deepspeed" in result.notes[0]
    assert result.figure() is None
    assert [caption.partition(",")[0] for _, caption in result.pictures()] == ["Recorded run"]  # all there is to show
    assert result.here(f"distance, {experiment_module.GIVEN}") is None and "DeepSpeed is not installed" in result.html()
    assert "DeepSpeed is not installed" in result.text()


def test_large_buffers_are_counted_and_not_allocated():
    with LargeBuffers() as asked:
        large, small = torch.empty(5 * LARGE, dtype=torch.float16), torch.empty(10)
    assert asked.bytes == [10 * LARGE] and large.shape == (5 * LARGE,)
    assert large.untyped_storage().nbytes() == 2 and small.untyped_storage().nbytes() == 40


def test_distances_are_fractions_of_the_way():
    a = Trained([torch.zeros(2), torch.tensor([3.0, 4.0])], [0.1])
    b = Trained([torch.zeros(2), torch.zeros(2)], [0.1])
    assert a.distances(b, way=10.0) == [0.5] and a.distances(a, way=10.0) == [0.0]


# ---- what a JSON means --------------------------------------------------------------------------------------------------

TORCH = {"optimizer": {"params": {"torch_adam": True}}}
JSONS = {
    "lecture": changed(LECTURE_JSON, **TORCH),
    "L2, clipping at 3": changed(
        LECTURE_JSON, gradient_clipping=3.0, optimizer={"params": {"torch_adam": True, "adam_w_mode": False}}
    ),
    "linear": changed(LECTURE_JSON, **TORCH, scheduler={"params": {"warmup_type": "linear", "warmup_num_steps": 4}}),
    "from a rate": changed(LECTURE_JSON, **TORCH, scheduler={"params": {"warmup_min_lr": 1e-4, "warmup_num_steps": 3}}),
    "unknown kind": changed(LECTURE_JSON, **TORCH, scheduler={"params": {"warmup_type": "cosine"}}),
    "AdamW": {"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}},
    "adam, lower case": {"train_batch_size": 4, "optimizer": {"type": "adam", "params": {"torch_adam": True, "lr": 0.1}}},
    "micro-batches": {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
    },
    "accumulated": {
        "train_batch_size": 12,
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
    },
    "bf16": {"train_batch_size": 4, "bf16": {"enabled": True}, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}},
}
REFUSED = {
    "uneven": {"train_batch_size": 5},
    "no batch": {"optimizer": {"type": "SGD", "params": {"lr": 0.5}}},
    "contradiction": {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3},
    "uneven parts": {"train_batch_size": 6, "gradient_accumulation_steps": 2},
}


def by_deepspeed(folder):
    """What the engines do: for each JSON its settings and the rates of the first steps; the names of those refused."""
    load_deepspeed(torch.device("cpu"), folder)
    found = {}
    for name, config in JSONS.items():
        config = {**config, "scheduler": config.get("scheduler") or {"type": None}}  # or train.py brings its own schedule
        engine, rates = deepspeed_engine(config), []
        for _ in range(6):
            rates.append(engine.optimizer.param_groups[0]["lr"])
            if config["scheduler"]["type"]:
                engine.lr_scheduler.step()
        group = engine.basic_optimizer.param_groups[0]
        found[name] = (
            type(engine.basic_optimizer).__name__,
            engine.train_batch_size(),
            engine.gradient_accumulation_steps(),
            engine.gradient_clipping(),
            str(next(engine.module.parameters()).dtype),
            {key: group.get(key) for key in ("betas", "eps", "weight_decay")},
            rates,
        )
    refused = []
    for name, config in REFUSED.items():
        try:
            deepspeed_engine(config)
        except AssertionError:
            refused.append(name)
    return found, refused


@needs_deepspeed
def test_deepspeed_does_what_the_json_is_said_to_mean(tmp_path):
    make_optimizer(make_data()[0].tensors[:1])  # what this imports, forked ranks inherit
    found, refused = launch(by_deepspeed, tmp_path, deadline_seconds=500)[0]
    assert refused == list(REFUSED)
    for name, config in JSONS.items():
        meant = meaning_of(config)
        optimizer, batch, parts, clip, dtype, options, rates = found[name]
        assert (meant.optimizer, meant.batch, meant.parts, meant.clip_norm) == (optimizer, batch, parts, clip), name
        assert dtype == {"fp32": "torch.float32", "bf16": "torch.bfloat16"}[meant.dtype], name
        if optimizer != "SGD":
            assert options == {"betas": meant.betas, "eps": meant.eps, "weight_decay": meant.weight_decay}, name
        assert rates == pytest.approx([meant.rate(step) for step in range(6)]), name


@pytest.mark.parametrize("name", REFUSED)
def test_what_deepspeed_refuses_is_a_clear_error(name):
    with pytest.raises(LabError, match="train_batch_size"):
        meaning_of(REFUSED[name])


@pytest.mark.parametrize(
    "config, text",
    [
        ("{'train_batch_size': 4}", "not JSON"),
        ([4], "a dictionary, not"),
        ({"train_batch_size": 4, "optimizer": "Adam"}, "'optimizer' is 'Adam'"),
        ({"train_batch_size": 4, "scheduler": {"type": "OneCycle"}}, "OneCycle"),
        ({"train_batch_size": "32"}, "'train_batch_size' is '32' in this JSON, not a whole number. Give it without quotes"),
        ({"train_batch_size": 32.0}, "'train_batch_size' is 32.0 in this JSON, not a whole number"),
        ({"train_batch_size": True}, "'train_batch_size' is True in this JSON, not a whole number"),
        ({"train_batch_size": 4, "gradient_clipping": None}, "'gradient_clipping' is None in this JSON, not a number"),
        ('{"train_batch_size": 4, "gradient_clipping": NaN}', "'gradient_clipping' is nan in this JSON, not a number"),
        (changed(LECTURE_JSON, optimizer={"params": {"lr": "1e-3"}}), "'lr' is '1e-3' in this JSON, not a number"),
        (changed(LECTURE_JSON, optimizer={"params": {"betas": 0.9}}), "'betas' is 0.9 in this JSON, not two numbers"),
        (changed(LECTURE_JSON, optimizer={"params": {"betas": [0.9]}}), "not two numbers"),
        (changed(LECTURE_JSON, optimizer={"params": {"betas": [0.9, "0.99"]}}), "'betas' is '0.99' in this JSON, not a number"),
        (changed(LECTURE_JSON, scheduler={"params": {"warmup_num_steps": "10"}}), "'warmup_num_steps' is '10'"),
        ({"train_batch_size": 4, "bf16": {"enabled": "true"}}, "'enabled' of 'bf16' is 'true' .* Give true or false"),
    ],
)
def test_what_is_no_such_json_is_a_clear_error(config, text):
    with pytest.raises(LabError, match=text):
        meaning_of(config)


AUTO = {
    "train_batch_size": {"train_batch_size": "auto"},
    "train_micro_batch_size_per_gpu": {"train_batch_size": 4, "train_micro_batch_size_per_gpu": "auto"},
    "gradient_accumulation_steps": {"train_batch_size": 4, "gradient_accumulation_steps": "auto"},
    "gradient_clipping": {"train_batch_size": 4, "gradient_clipping": "auto"},
    **{name: changed(LECTURE_JSON, optimizer={"params": {name: "auto"}}) for name in ("lr", "betas", "eps", "weight_decay")},
    **{
        name: changed(LECTURE_JSON, scheduler={"params": {name: "auto"}})
        for name in ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps")
    },
    **{name: {"train_batch_size": 4, name: {"enabled": "auto"}} for name in ("fp16", "bf16", "torch_autocast", "amp")},
    "optimizer": {"train_batch_size": 4, "optimizer": "auto"},
    "warmup_type": changed(LECTURE_JSON, scheduler={"params": {"warmup_type": "auto"}}),
    "torch_adam": changed(LECTURE_JSON, optimizer={"params": {"torch_adam": "auto"}}),
    "reduce_bucket_size": {"train_batch_size": 4, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}},
}


@pytest.mark.parametrize("name", AUTO)
def test_what_a_trainer_would_fill_in_is_named_and_never_guessed(name):
    with pytest.raises(LabError, match=rf"{name}\S*' is \"auto\".* \"auto\" is for a trainer to fill in: give "):
        meaning_of(AUTO[name])


@pytest.mark.parametrize("given, read", [(1000, "1000"), (1e3, "1000"), (10.5, "10.5"), (0, "2")])
def test_the_steps_of_a_warm_up_are_shown_as_they_count(given, read):
    meant = meaning_of(changed(LECTURE_JSON, scheduler={"params": {"warmup_num_steps": given}}))
    assert str(meant.warm_up) == f"(0.0, 0.001, {read}, 'log')"


@pytest.mark.parametrize("ranks", [0, -1, "2", 2.0, True])
def test_what_is_no_number_of_ranks_is_a_clear_error(ranks):
    with pytest.raises(LabError, match="is not a number of ranks"):
        meaning_of(LECTURE_JSON, ranks)


def test_settings_are_merged_into_a_copy():
    new = changed(LECTURE_JSON, gradient_clipping=0.0, optimizer={"params": {"lr": 1.0}})
    assert new["optimizer"] == {"type": "Adam", "params": {**LECTURE_JSON["optimizer"]["params"], "lr": 1.0}}
    assert new["gradient_clipping"] == 0.0 and LECTURE_JSON["optimizer"]["params"]["lr"] == 0.001
    assert changed({"train_batch_size": 4}, fp16={"enabled": True})["fp16"] == {"enabled": True}


@pytest.mark.parametrize(
    "numbers, problem, fix",
    [
        ((64, 64, None), "64 is not 1 micro-batch of 64 on each of 2 ranks, which makes 128", "leave the micro-batch"),
        ((64, 16, 4), "64 is not 4 micro-batches of 16 on each of 2 ranks, which makes 128", "leave the micro-batch"),
        ((65, None, None), "65 is not 1 micro-batch of equal size on each of 2 ranks", "a multiple of 2"),
        ((64, 0, None), "'train_micro_batch_size_per_gpu' is 0", "at least 1"),
        ((64, None, 0), "'gradient_accumulation_steps' is 0", "at least 1"),
    ],
)
def test_numbers_of_a_batch_that_do_not_fit_are_named_with_what_they_make(numbers, problem, fix):
    names = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    with pytest.raises(LabError, match=problem) as error:
        meaning_of(dict(zip(names, numbers, strict=True)))
    assert fix in str(error.value) and ("multiple" in str(error.value)) == (numbers[0] == 65)


@needs_deepspeed
def test_a_json_that_says_nothing_of_clipping_clips_at_the_default_of_this_deepspeed():
    from deepspeed.runtime.config import get_gradient_clipping

    assert meaning_of({"train_batch_size": 4}).clip_norm == get_gradient_clipping({}) == 1.0
    assert meaning_of({"train_batch_size": 4, "gradient_clipping": 0.0}).clip_norm == 0.0


@needs_deepspeed
def test_the_exercise_knows_every_name_that_this_deepspeed_takes_for_zero():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    fields = DeepSpeedZeroConfig.model_fields
    assert {*fields, *(field.alias for field in fields.values() if field.alias)} <= ZERO


@pytest.mark.parametrize(
    "text, match",
    [
        ('{"train_batch_size": 4, "train_batch_size": 8}', "'train_batch_size' is twice"),
        ('{"optimizer": {"type": "Adam", "type": "AdamW"}, "train_batch_size": 4}', "'type' is twice"),
        ('{"train_batch_size": 4, "fp16": {"enabled": true}, "bf16": {"enabled": true}}', "fp16 and bf16 are both enabled"),
    ],
)
def test_what_deepspeed_refuses_as_contradictory_is_refused(text, match):
    with pytest.raises(LabError, match=match):
        meaning_of(text)
