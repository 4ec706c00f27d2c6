"""Answers to `complete-snapshot`: all six parts, each with its state."""

import copy
import io
from collections import OrderedDict

import numpy as np
import torch


def solution(run):
    import copy

    state = {
        "net": run.net.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "generator": run.generator.get_state(),
        "epoch": run.epoch,
        "batch": run.batch,
    }
    return copy.deepcopy(state)


def without(*parts):
    return lambda run: {name: value for name, value in solution(run).items() if name not in parts}


def with_(**others):
    return lambda run: {**solution(run), **{name: make(run) for name, make in others.items()}}


def draws_first(run):
    torch.randint(2**31, (), generator=run.generator)
    return solution(run)


def evaluates_first(run):
    run.net.eval()
    return solution(run)


WRONG = [
    ("forgets-the-weights", without("net")),
    ("forgets-the-optimizer", without("optimizer")),
    ("forgets-the-schedule", without("scheduler")),
    ("forgets-the-generator", without("generator")),
    ("forgets-the-epoch", without("epoch")),
    ("forgets-the-place-in-the-epoch", without("batch")),
    ("the-global-generator", with_(generator=lambda run: torch.get_rng_state())),
    ("seed-not-state", with_(generator=lambda run: run.generator.initial_seed())),
    ("wrong-generator", with_(generator=lambda run: torch.Generator().manual_seed(0).get_state())),
    ("saves-objects", with_(net=lambda run: run.net)),
    ("method-not-called", with_(net=lambda run: run.net.state_dict)),
    ("not-a-state-dict", with_(net=lambda run: list(run.net.parameters()))),
    ("cannot-be-loaded", with_(net=lambda run: {f"module.{k}": v for k, v in run.net.state_dict().items()})),
    ("rounded", with_(net=lambda run: {k: v.half() for k, v in run.net.state_dict().items()})),
    ("state-cut-short", with_(optimizer=lambda run: {**run.optimizer.state_dict(), "state": {}})),
    ("state-cut-short", with_(scheduler=lambda run: {"last_epoch": run.epoch})),
    ("wrong-place", with_(batch=lambda run: run.steps)),
    ("wrong-place", with_(batch=lambda run: run.batch + 1)),
    ("wrong-type", with_(epoch=lambda run: str(run.epoch))),
    ("unknown-part", lambda run: {**solution(run), "x": run.x}),
    ("unknown-part", lambda run: {**without("net")(run), "model": run.net.state_dict()}),
    ("changes-the-run", draws_first),
    ("changes-the-run", evaluates_first),
    ("changes-with-the-run", lambda run: run.state()),
    ("wrong-net", with_(net=lambda run: {k: 2 * v for k, v in run.net.state_dict().items()})),
    ("saves-arrays", with_(net=lambda run: {name: value.numpy() for name, value in run.net.state_dict().items()})),
    ("epoch-and-batch-exchanged", with_(epoch=lambda run: run.batch, batch=lambda run: run.epoch)),
]


def by_name(run):
    """One loop over all parts."""
    saved = {}
    for name in ("batch", "epoch", "generator", "scheduler", "optimizer", "net"):
        part = getattr(run, name)
        if hasattr(part, "state_dict"):
            part = part.state_dict()
        elif hasattr(part, "get_state"):
            part = part.get_state()
        saved[name] = copy.deepcopy(part)
    return saved


def from_steps(run):
    epoch, batch = divmod(run.steps, len(run.x) // 64)
    return {**solution(run), "epoch": epoch, "batch": batch}


def numpy_numbers(run):
    return {**solution(run), "epoch": int(np.int64(run.epoch)), "batch": torch.tensor(run.batch).item()}


def cloned(run):
    net = OrderedDict((name, value.detach().clone()) for name, value in run.net.state_dict().items())
    return OrderedDict(solution(run), net=net, generator=run.generator.get_state().clone())


def written_and_read(run):
    """As a file does it, in memory."""
    file = io.BytesIO()
    torch.save(run.state(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


ALSO_RIGHT = [
    by_name,
    from_steps,
    numpy_numbers,
    cloned,
    with_(net=lambda run: copy.deepcopy(dict(run.net.named_parameters()))),
    lambda run: copy.deepcopy(run.state()),
    written_and_read,
    with_(net=lambda run: copy.deepcopy(run.net).state_dict()),
    with_(net=lambda run: {name: value.double() for name, value in run.net.state_dict().items()}),
    with_(epoch=lambda run: torch.tensor(run.epoch)),
]
