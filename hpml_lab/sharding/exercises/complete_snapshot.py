"""complete-snapshot: everything that the next step depends on, and nothing else is changed."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import plain
from hpml_lab.core.system.errors import LabError
from hpml_lab.sharding.lessons.recovery import snapshot_bytes
from hpml_lab.sharding.lessons.training_run import BATCHES, PARTS, TrainingRun

BEFORE = 9  # steps, in the middle of the second epoch
FORGOTTEN = {
    "net": ("forgets-the-weights", "A new run begins with new weights. Which part of `run` holds those that were learned?"),
    "optimizer": (
        "forgets-the-optimizer",
        "Adam begins with empty moments after the restart, and its next steps are those of a first step.",
    ),
    "scheduler": ("forgets-the-schedule", "After the restart the schedule counts from 0: the learning rate is another one."),
    "generator": (
        "forgets-the-generator",
        "After the restart the generator gives its first numbers again: noise and dropout are those of the first steps.",
    ),
    "epoch": ("forgets-the-epoch", "After the restart the sampler shuffles as in epoch 0: the batches are others."),
    "batch": ("forgets-the-place-in-the-epoch", "After the restart the epoch begins again: its first batches come twice."),
}


@exercise("complete-snapshot", notebook="14_sharding", takes="run", returns={str: object})
def judge_complete_snapshot(answer: Callable) -> None:
    """A dictionary from which a new run continues bitwise identical, also at the start and at the end of an epoch."""
    for before in (BEFORE, BATCHES, 1):
        run, twin = TrainingRun(), TrainingRun()
        for _ in range(before):
            run.step()
            twin.step()
        random = torch.get_rng_state()
        saved = answer(run)
        if not torch.equal(random, torch.get_rng_state()) or _changed(run, twin):
            raise Mistake(
                "changes-the-run", "Taking a snapshot must not change the run itself: a run without it would end elsewhere."
            )
        kept = _loaded(saved)
        run.step()  # as a real run does, while the file is written
        shared = [part for part in kept if not _same(saved[part], kept[part])]
        again = _restored(kept)
        for part in PARTS:
            if not _same(again.state()[part], twin.state()[part]):
                _explain(part, kept, twin, random)
        if shared:
            hint = (
                f"All parts are there, but after the run's next step your snapshot says something else at {shared[0]!r}: a "
                "state_dict holds the run's own tensors, and optimizers change them in place. A file that is written meanwhile "
                "mixes two steps. What makes the snapshot independent of the run?"
            )
            raise Mistake("changes-with-the-run", hint)


def _changed(run: TrainingRun, twin: TrainingRun) -> bool:
    modes = [[module.training for module in one.net.modules()] for one in (run, twin)]
    return modes[0] != modes[1] or not _same(run.state(), twin.state())


def _loaded(saved: Any) -> dict[str, Any]:
    """What a file holds that is written at once, after a look at what is in it."""
    unknown = [str(name) for name in saved if name not in PARTS]
    if unknown:
        is_made = unknown[0] in vars(TrainingRun())
        why = (
            "is nothing that a new run loads: it makes its own" if is_made else "is no part of `run`, so nothing would load it"
        )
        hint = f"{unknown[0]!r} {why}. The parts are {', '.join(PARTS)}."
        raise Mistake("unknown-part", hint)
    methods = [name for name, value in saved.items() if callable(value) and not isinstance(value, torch.nn.Module)]
    if methods:
        raise Mistake("method-not-called", f"At {methods[0]!r} you saved the method itself: call it, with parentheses.")
    for name in ("epoch", "batch"):
        if name in saved and not isinstance(plain(saved[name]), int):
            raise Mistake("wrong-type", f"run.{name} is a whole number; at {name!r} yours is {saved[name]!r}.")
    try:
        content = snapshot_bytes(saved)
    except LabError as error:
        for name, part in saved.items():
            kinds = {type(value) for value in part.values()} if isinstance(part, Mapping) else set()
            if np.ndarray in kinds or any(issubclass(kind, np.generic) for kind in kinds):
                hint = f"At {name!r} there are arrays of NumPy. Leave the tensors as state_dict() gives them."
                raise Mistake("saves-arrays", hint) from error
        raise Mistake("saves-objects", f"{error.problem} {error.fix}") from error
    return torch.load(io.BytesIO(content), weights_only=True)


def _restored(kept: Mapping) -> TrainingRun:
    """A new run that has loaded the file."""
    again = TrainingRun()
    for name, value in kept.items():
        try:
            again.load({name: value})
        except Exception as error:
            if name == "generator" and isinstance(value, int):
                hint = "A seed says where the generator began; its state says where it is now. get_state() gives that."
                raise Mistake("seed-not-state", hint) from error
            if name != "generator" and not isinstance(value, Mapping):
                hint = (
                    f"At {name!r} you saved a {type(value).__name__}; load_state_dict wants what {name}.state_dict() returns."
                )
                raise Mistake("not-a-state-dict", hint) from error
            text = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
            hint = f"A new run could not load what you saved at {name!r}: {text[:200]}"
            raise Mistake("cannot-be-loaded", hint) from error
    return again


def _explain(part: str, saved: Mapping, run: TrainingRun, random: torch.Tensor) -> None:
    name, hint = FORGOTTEN[part]
    if part not in saved:
        raise Mistake(name, hint)
    if part == "generator" and _same(saved[part], random):
        raise Mistake("the-global-generator", "torch.get_rng_state() is the global generator's; the run draws from its own.")
    if part in ("epoch", "batch"):
        right = getattr(run, part)
        now = f"After {run.steps} steps run.{part} is {right}; your snapshot says {plain(saved[part])}."
        if (plain(saved.get("epoch")), plain(saved.get("batch"))) == (run.batch, run.epoch):
            raise Mistake("epoch-and-batch-exchanged", f"{now} You have exchanged epoch and batch.")
        if plain(saved[part]) == right + 1:
            now += " The next step is not done yet."
        elif plain(saved[part]) == run.steps:
            now += " Those are the steps of all epochs together."
        raise Mistake("wrong-place", now)
    state = run.state()[part]
    found = f"What you save at {part!r} is not the state that {part} has now"
    if isinstance(saved[part], Mapping) and isinstance(state, Mapping):
        if lost := [key for key in state if key not in saved[part]]:
            missing = f"{', '.join(map(repr, lost[:3]))} {'is' if len(lost) == 1 else 'are'} missing"
            raise Mistake("state-cut-short", f"{found}: of its keys, {missing}. Save the whole state_dict().")
        key = next((key for key in state if not _same(saved[part][key], state[key])), next(iter(state)))
        types = [value.dtype for value in (saved[part][key], state[key]) if isinstance(value, torch.Tensor)]
        if len(types) == 2 and types[0].itemsize < types[1].itemsize:
            hint = f"{found}: {key!r} was rounded, from {str(types[1])[6:]} to {str(types[0])[6:]}."
            raise Mistake("rounded", hint)
        if isinstance(saved[part][key], Mapping) and not saved[part][key]:
            raise Mistake("state-cut-short", f"{found}: {key!r} is empty. Save the whole state_dict().")
        found += f": {key!r} has other values"
    raise Mistake(f"wrong-{part}", f"{found}.")


def _same(a: Any, b: Any) -> bool:
    """True if every bit is the same."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(plain(a) == plain(b))
