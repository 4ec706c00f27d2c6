"""A training script to copy: the same file for one process, for many GPUs and for many machines.

    python train.py                                                             one process
    torchrun --standalone --nproc-per-node 2 train.py                           two ranks
    deepspeed --num_accelerators 2 train.py --deepspeed_config deepspeed.json   two ranks, with what the JSON says
    sbatch train.slurm                                                          srun torchrun on several machines

Every rank runs this file. A batch counts the samples of all ranks, so that their number changes the speed and not what is
learned. A run that is started again goes on from its newest whole snapshot; all machines must see its folder. For your own
work replace the four functions `make_…`. Only torch is needed, scikit-learn for these data, and DeepSpeed for a JSON.
"""

import argparse
import contextlib
import gc
import json
import logging
import os
import shutil
import socket
import sys
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed.nn  # before there is a group: `leave` says why
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("train")


class UserError(Exception):
    """A mistake in how the script was started. All ranks find it; rank 0 reports it, in one line."""


# ---- what to train: replace these ---------------------------------------------------------------------------------------


def make_model() -> nn.Module:
    torch.manual_seed(0)  # all ranks start with the same weights
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def make_data() -> tuple[TensorDataset, TensorDataset]:
    """Handwritten digits of 8 × 8 pixels: 1,437 to train with and 360 to test."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
    pixels = pixels.float() / 16
    return TensorDataset(pixels[:1437], labels[:1437]), TensorDataset(pixels[1437:], labels[1437:])


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.001, betas=(0.8, 0.999), eps=1e-8, weight_decay=3e-7)


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))


# ---- what trains: two engines with the same methods ------------------------------------------------------------------------


class Engine(nn.parallel.DistributedDataParallel):
    """PyTorch's DDP with the methods of DeepSpeed's engine, so that one loop serves both."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__(model.to(device), device_ids=[device] if device.type == "cuda" else None)
        self.optimizer = make_optimizer(model.parameters())
        self.schedule = make_schedule(self.optimizer)
        self.parts = model, self.optimizer, self.schedule

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # averages the gradients of the ranks on the way

    def step(self) -> None:
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()

    def save_checkpoint(self, folder: str, tag: str, save_latest: bool) -> None:
        if dist.get_rank() == 0:  # all ranks hold the same; with ZeRO each writes its part
            Path(folder, tag).mkdir()
            torch.save([part.state_dict() for part in self.parts], Path(folder, tag, "state.pt"))

    def load_checkpoint(self, folder: str, tag: str) -> None:
        states = torch.load(Path(folder, tag, "state.pt"), map_location="cpu", weights_only=True)
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)

    def destroy(self) -> None:
        """Nothing. DeepSpeed's engine removes its hooks here, which would keep it alive."""


def prepare_deepspeed(device: torch.device, extensions: Path) -> None:
    """Import DeepSpeed so that it compiles nothing at the start, and no file of an earlier run can stop it.

    To be called before `connect`, which waits for all ranks, so that no rank starts until the files are gone.

    On a CPU it would compile `deepspeed_shm_comm`, for a minute; gloo does the same work. A run that is killed meanwhile
    leaves a `lock` in a folder that all runs share, and each later run waits for it: forever, without a word. So what is
    compiled all the same, such as FusedAdam, goes to a folder of this run.
    """
    os.environ |= {"DS_ACCELERATOR": device.type, "TORCH_EXTENSIONS_DIR": str(extensions / socket.gethostname())}
    import deepspeed.ops

    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    if os.environ.get("LOCAL_RANK", "0") == "0":
        for lock in extensions.glob("**/lock"):  # this run was killed before
            lock.unlink()


def deepspeed_engine(config: dict[str, Any]) -> Any:
    """DeepSpeed's engine, which does what the JSON says; what the JSON omits is ours."""
    import deepspeed

    model = make_model()
    own = {} if "optimizer" in config else {"optimizer": make_optimizer}
    own |= {} if "scheduler" in config else {"lr_scheduler": make_schedule}
    return deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config, **own)[0]


def train_step(engine: Any, x: torch.Tensor, y: torch.Tensor, parts: int) -> float:
    """One step, in `parts` micro-batches; returns the loss of the last one."""
    for micro_x, micro_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
        loss = F.cross_entropy(engine(micro_x), micro_y)
        engine.backward(loss)
        engine.step()  # DeepSpeed's changes the weights after the last part
    return loss.item()


def all_weights(engine: Any) -> dict[str, torch.Tensor]:
    """On every rank; all take part, because in ZeRO's stage 3 each has only its part of each weight."""
    weights, gathered = dict(engine.module.named_parameters()), contextlib.nullcontext()
    if not isinstance(engine, Engine):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(weights.values()))
    with gathered:
        return {name: value.detach().cpu().clone() for name, value in weights.items()}


# ---- batches and snapshots ----------------------------------------------------------------------------------------------


def batches(samples: int, batch: int, first: int, last: int) -> Iterator[list[int]]:
    """This rank's part of each batch. The order depends on the epoch's number alone, so that a resumed run draws the same."""
    for step in range(first, last):
        epoch, position = divmod(step, samples // batch)
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        whole = order[position * batch : (position + 1) * batch]
        yield whole[dist.get_rank() :: dist.get_world_size()].tolist()


def snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-" + "[0-9]" * 8))


def save_snapshot(engine: Any, folder: Path, step: int) -> None:
    """Write a folder `step-…` whole or not at all, by writing it under another name first. Two are kept."""
    path = folder / f"step-{step:08d}"
    part = path.with_suffix(".part")
    if dist.get_rank() == 0:
        shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while it wrote
    dist.barrier()
    engine.save_checkpoint(str(folder), tag=part.name, save_latest=False)
    dist.barrier()  # each rank has written
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        os.replace(part, path)
        for old in snapshots(folder)[:-2]:
            shutil.rmtree(old)


def load_snapshot(engine: Any, folder: Path) -> int:
    """Load the newest whole snapshot, which rank 0 chooses for all; return its step, or 0 if there is none."""
    chosen: list[Path | None] = [None]
    if dist.get_rank() == 0:
        found = snapshots(folder)
        while found and not is_whole(found[-1]):
            log.warning("%s is damaged: the one before it is used", found.pop())
        chosen = found[-1:] or [None]
    dist.broadcast_object_list(chosen)
    if (path := chosen[0]) is None:
        return 0
    plain = isinstance(engine, Engine)
    if (path / "state.pt").exists() != plain:
        how = "with DeepSpeed. Give its JSON" if plain else "without DeepSpeed. Leave out the JSON"
        raise UserError(f"{path} was written {how}, or choose another --folder.")
    engine.load_checkpoint(str(folder), tag=path.name)
    log.info("continues from %s", path)
    return int(path.name.removeprefix("step-"))


def is_whole(snapshot: Path) -> bool:
    """True if all its files can be read to the end: torch.save writes zip archives, which carry checksums."""
    files = list(snapshot.glob("*.pt"))
    try:
        return bool(files) and all(zipfile.ZipFile(file).testzip() is None for file in files)
    except (zipfile.BadZipFile, OSError):
        return False


# ---- how it was started -------------------------------------------------------------------------------------------------


def choose_device(wanted: str) -> torch.device:
    """This rank's GPU if each rank of this machine has one, else the CPU; or what is `wanted`."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or 1)  # torchrun's, DeepSpeed's name
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and gpus < local_ranks:
        raise UserError(f"NCCL needs a GPU for each of {local_ranks} ranks here, and torch sees {gpus}. Use --device cpu.")
    if wanted == "cpu" or gpus < local_ranks:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def connect(device: torch.device) -> None:
    """Connect the ranks, by NCCL or gloo. A script that no launcher started is a group of one."""
    options: dict[str, Any] = {"backend": "gloo"}
    if device.type == "cuda":
        torch.cuda.set_device(device)
        options = {"backend": "nccl", "device_id": device}
    if "RANK" not in os.environ:
        options |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    try:
        dist.init_process_group(timeout=timedelta(minutes=5), **options)
    except dist.DistNetworkError as error:
        if "EADDRINUSE" not in str(error):
            raise
        port = os.environ["MASTER_PORT"]
        raise UserError(f"Port {port} is in use on {socket.gethostname()}. Choose another with --master-port.") from None


def leave(with_deepspeed: bool) -> None:
    """Leave the group when all ranks are done, and wait until gloo's threads have ended.

    A thread that still holds a tensor when Python ends aborts the process: "terminate called without an active exception"
    (pytorch issue 190489). Destroying the group ends the threads, but only if nothing else holds it. An engine does, and so
    do modules that are imported later and make it a default argument of their functions: torch.distributed.nn, which DDP
    imports, and DeepSpeed. So both are imported before there is a group.
    """
    dist.barrier()
    gc.collect()  # parts of DeepSpeed's engine refer to each other
    if with_deepspeed:
        from deepspeed import comm

        comm.destroy_process_group()
    else:
        dist.destroy_process_group()


def read_config(path: str | None, batch: int, ranks: int) -> dict[str, Any]:
    """The JSON for DeepSpeed, with `batch` as its train_batch_size if it gives none; without a JSON only that."""
    try:
        config = json.loads(Path(path).read_text()) if path else {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a readable JSON file ({error}).") from None
    parts, micro = config.setdefault("gradient_accumulation_steps", 1), config.get("train_micro_batch_size_per_gpu")
    batch = config.setdefault("train_batch_size", micro * parts * ranks if micro else batch)
    if batch % (ranks * parts):
        each = f" with {parts} micro-batches each" if parts > 1 else ""
        raise UserError(f"A batch of {batch} does not divide among {ranks} ranks{each}. Use a multiple of {ranks * parts}.")
    return config


def start_log(folder: Path) -> None:
    """Each rank has its own file; rank 0 writes to the terminal as well."""
    rank = dist.get_rank()
    folder.mkdir(parents=True, exist_ok=True)
    handlers = [logging.FileHandler(folder / f"rank{rank}.log"), *([logging.StreamHandler()] if rank == 0 else [])]
    logging.basicConfig(format=f"%(asctime)s rank {rank}: %(message)s", handlers=handlers, force=True)
    log.setLevel(logging.INFO)


def train(options: argparse.Namespace, device: torch.device) -> None:
    start_log(options.folder)
    ranks = dist.get_world_size()
    config = read_config(options.deepspeed_config, options.batch, ranks)
    batch, parts = config["train_batch_size"], config["gradient_accumulation_steps"]
    engine = deepspeed_engine(config) if options.deepspeed_config else Engine(make_model(), device)
    train_set, test_set = make_data()
    first = load_snapshot(engine, options.folder)
    log.info("%s, %d ranks on %s, from step %d", type(engine).__name__, ranks, device.type, first)
    loader = DataLoader(train_set, batch_sampler=batches(len(train_set), batch, first, options.steps))
    for step, (x, y) in enumerate(loader, start=first + 1):
        loss = train_step(engine, x.to(device), y.to(device), parts)
        if step % options.save_every == 0 or step == options.steps:
            log.info("step %d, loss on this rank %.4f", step, loss)
            save_snapshot(engine, options.folder, step)
    x, y = test_set[dist.get_rank() :: ranks]
    with torch.no_grad():
        right = (engine(x.to(device)).argmax(1) == y.to(device)).sum()
    dist.all_reduce(right)
    weights = all_weights(engine)
    if dist.get_rank() == 0:
        torch.save(weights, options.folder / "model.part")
        os.replace(options.folder / "model.part", options.folder / "model.pt")
        log.info("test accuracy %.1f %%", 100 * right.item() / len(test_set))
    engine.destroy()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits, on any number of ranks.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all ranks")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="for snapshots, logs and model.pt")
    parser.add_argument("--save-every", type=int, default=50, help="steps between snapshots")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deepspeed_config", metavar="JSON", help="train with DeepSpeed")
    parser.add_argument("--local_rank", type=int, help="passed by DeepSpeed's launcher; LOCAL_RANK says the same")
    options = parser.parse_args(arguments)
    try:
        device = choose_device(options.device)
        if options.deepspeed_config:
            prepare_deepspeed(device, options.folder / "extensions")
        connect(device)
        train(options, device)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"train.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    leave(with_deepspeed=options.deepspeed_config is not None)


if __name__ == "__main__":
    main()
