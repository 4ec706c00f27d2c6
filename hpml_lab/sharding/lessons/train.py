"""A training script to copy: the same file for one process, for many GPUs and for many machines.

    python train.py                                                             one process
    torchrun --standalone --nproc-per-node 2 train.py                           two ranks
    deepspeed --num_accelerators 2 train.py --deepspeed_config deepspeed.json   two ranks, with what the JSON says
    sbatch train.slurm                                                          srun torchrun on several machines

Every rank runs this file. A batch counts the samples of all ranks: their number changes the speed, not what is learned. A run
that is started again goes on from its newest whole snapshot; SIGTERM saves one. All machines must see its folder. For your own
work replace `make_…`, `loss_of` and `score_of`. torch is needed, scikit-learn for these data, and DeepSpeed for a JSON.
"""

import argparse
import contextlib
import gc
import json
import logging
import os
import random
import re
import shutil
import signal
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
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

log = logging.getLogger("train")
SNAPSHOTS = "step-" + "[0-9]" * 8


class UserError(Exception):
    """A mistake in how the script was started. All ranks find it; rank 0 reports it, in one line."""


def make_model() -> nn.Module:
    # Batch norm is over a rank's share, and rank 0's statistics are saved; nn.SyncBatchNorm is over the whole batch, on GPUs.
    torch.manual_seed(0)  # all ranks start with the same weights
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def make_data() -> tuple[Dataset, Dataset]:
    """To train and to test: any two Datasets with a length, of pairs (x, y). Here 1,437 and 360 digits of 8 × 8 pixels."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.tensor, load_digits(return_X_y=True))
    pixels = pixels.float() / 16
    return TensorDataset(pixels[:1437], labels[:1437]), TensorDataset(pixels[1437:], labels[1437:])


def make_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.001, betas=(0.8, 0.999), eps=1e-8, weight_decay=3e-7)


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))


def loss_of(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.float(), y)  # a mean; with --bf16 outputs have 8 bits, too few for it


def score_of(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1) == y  # a number for each sample: their mean over the test set is logged


class Engine(nn.parallel.DistributedDataParallel):
    """PyTorch's DDP with the methods of DeepSpeed's engine, so that one loop serves both."""

    def __init__(self, model: nn.Module, device: torch.device, accumulate: int = 1, bf16: bool = False) -> None:
        super().__init__(model.to(device), device_ids=[device] if device.type == "cuda" else None)
        self.optimizer = make_optimizer(model.parameters())
        self.schedule = make_schedule(self.optimizer)
        self.saved = model, self.optimizer, self.schedule
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
        self.micro_batch, self.accumulate = 1, accumulate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.autocast, self.no_sync() if self.micro_batch < self.accumulate else contextlib.nullcontext():
            return super().forward(x)

    def backward(self, loss: torch.Tensor) -> None:
        (loss / self.accumulate).backward()  # after the last micro-batch it averages the gradients of the ranks on the way

    def step(self) -> None:
        self.micro_batch = self.micro_batch % self.accumulate + 1
        if self.micro_batch == 1:
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()

    def save_checkpoint(self, folder: str, tag: str, save_latest: bool) -> None:
        if dist.get_rank() == 0:  # all ranks hold the same; with ZeRO each writes its part
            Path(folder, tag).mkdir()
            torch.save([part.state_dict() for part in self.saved], Path(folder, tag, "state.pt"))

    def load_checkpoint(self, folder: str, tag: str) -> None:
        for part, state in zip(self.saved, torch.load(Path(folder, tag, "state.pt"), "cpu", weights_only=True), strict=True):
            part.load_state_dict(state)


def prepare_deepspeed(device: torch.device, extensions: Path) -> None:
    """Import DeepSpeed, but compile no `deepspeed_shm_comm` on a CPU, and wait for no `lock` of a run that was killed."""
    os.environ |= {"DS_ACCELERATOR": device.type, "TORCH_EXTENSIONS_DIR": str(extensions / socket.gethostname())}
    import deepspeed.ops

    if device.type == "cpu":
        deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    for lock in extensions.glob("**/lock"):  # this run was killed before
        lock.unlink(missing_ok=True)


def deepspeed_engine(config: dict[str, Any]) -> Any:
    """DeepSpeed's engine, which does what the JSON says; what it omits is ours. Inputs follow weights of "bf16"."""
    import deepspeed

    weights = list((model := make_model()).parameters())
    model.register_forward_pre_hook(lambda _, xs: tuple(x.type_as(weights[0]) if x.is_floating_point() else x for x in xs))
    own = {} if "optimizer" in config else {"optimizer": make_optimizer}
    own |= {} if "scheduler" in config else {"lr_scheduler": make_schedule}
    return deepspeed.initialize(model=model, model_parameters=weights, config=config, **own)[0]


def train_step(engine: Any, x: torch.Tensor, y: torch.Tensor, parts: int) -> float:
    """One step, in `parts` micro-batches; returns the loss of the last one."""
    for micro_x, micro_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
        loss = loss_of(engine(micro_x), micro_y)
        engine.backward(loss)
        engine.step()  # changes the weights after the last part
    return loss.item()


@torch.no_grad()
def evaluate(engine: Any, test_set: Any, batch: int, device: torch.device) -> float:
    """The mean score over the whole test set, on every rank; each scores its share, in batches of `batch` samples."""
    for buffer in engine.module.buffers():
        dist.broadcast(buffer, 0)
    # The sampler repeats one where shares differ by one: in ZeRO's stage 3 all ranks must call the model equally often.
    loader = DataLoader(test_set, batch, sampler=DistributedSampler(test_set, shuffle=False))
    engine.eval()
    scores = [score_of(engine(x.to(device)), y.to(device)) for x, y in loader]
    engine.train()
    total = torch.cat(scores)[: len(range(dist.get_rank(), len(test_set), dist.get_world_size()))].sum(dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / len(test_set)


def all_weights(engine: Any) -> dict[str, torch.Tensor]:
    """The model's state_dict on every rank; all take part, because in ZeRO's stage 3 each has only a part of each weight."""
    whole = contextlib.nullcontext if isinstance(engine, Engine) else sys.modules["deepspeed"].zero.GatheredParameters
    with whole(list(engine.module.parameters())):
        return {name: value.detach().cpu().clone() for name, value in engine.module.state_dict().items()}


def batches(samples: int, batch: int, first: int, last: int) -> Iterator[list[int]]:
    """This rank's part of each batch. The order depends on the epoch's number alone, so that a resumed run draws the same."""
    if batch > samples:
        raise UserError(f"A batch of {batch} samples is more than the {samples} of the training set. Use a smaller --batch.")
    for step in range(first, last):
        epoch, position = divmod(step, samples // batch)
        if samples >= 1 << 26:  # their order would take 512 MiB of each rank: each step draws from all of them
            order, position = torch.randint(samples, (batch,), generator=torch.Generator().manual_seed(step)), 0
        elif step == first or position == 0:
            order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        yield order[position * batch : (position + 1) * batch][dist.get_rank() :: dist.get_world_size()].tolist()


def seed(step: int) -> None:
    """By the step and the rank alone: so a resumed run draws the same dropout and augmentation, without a state to save."""
    number = step * dist.get_world_size() + dist.get_rank()
    torch.manual_seed(number)  # of all devices
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)


def save_snapshot(engine: Any, folder: Path, step: int) -> None:
    """Write a folder `step-…` whole or not at all, by writing it under another name first. Two are kept."""
    path, part = (folder / f"step-{step:08d}{end}" for end in ("", ".part"))
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed while it wrote
    dist.barrier()
    engine.save_checkpoint(str(folder), tag=part.name, save_latest=False)
    dist.barrier()  # each rank has written
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        os.replace(part, path)
        found = sorted(folder.glob(SNAPSHOTS))  # later ones are damaged: this run would have begun with one that is whole
        for old in {*found} - {*found[: found.index(path) + 1][-2:]}:
            shutil.rmtree(old, ignore_errors=True)  # a file of this name is not ours


def load_snapshot(engine: Any, folder: Path) -> int:
    """Load the newest whole snapshot, which rank 0 chooses for all; return its step, or 0 if there is none."""
    chosen = [next(filter(is_whole, sorted(folder.glob(SNAPSHOTS), reverse=True)), None) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(chosen)
    if (path := chosen[0]) is None:
        return 0
    if (plain := isinstance(engine, Engine)) != (path / "state.pt").exists():
        raise UserError(f"{path} was written with{'' if plain else 'out'} DeepSpeed's JSON. Start so, or use another --folder.")
    engine.load_checkpoint(str(folder), tag=path.name)
    log.info("continues from %s", path)
    return int(path.name.removeprefix("step-"))


def is_whole(snapshot: Path) -> bool:
    """True if all its files can be read: torch.save writes zip archives, which carry checksums of all but their directory."""
    with contextlib.suppress(Exception):  # a damaged archive raises anything, from BadZipFile to UnicodeDecodeError
        plain = (snapshot / "state.pt").exists()  # DeepSpeed loads its own files, which hold objects, in the other way
        files = {file: torch.load(file, "cpu", weights_only=plain, mmap=True) for file in snapshot.glob("*.pt")}
        if files and all(zipfile.ZipFile(file).testzip() is None for file in files):
            return True
    log.warning("%s is damaged: the one before it is used", snapshot)
    return False


def choose_device(wanted: str) -> torch.device:
    """This rank's GPU if each rank of this machine has one, else the CPU; or what is `wanted`."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or 1)  # torchrun's, DeepSpeed's name
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and gpus < local_ranks:
        raise UserError(f"NCCL needs a GPU for each of {local_ranks} ranks here, and torch sees {gpus}. Use --device cpu.")
    return torch.device("cpu" if wanted == "cpu" or gpus < local_ranks else f"cuda:{os.environ.get('LOCAL_RANK', 0)}")


def connect(device: torch.device) -> None:
    """Connect the ranks, by NCCL or gloo. A script that no launcher started is a group of one."""
    options: dict[str, Any] = {"backend": "nccl", "device_id": device} if device.type == "cuda" else {"backend": "gloo"}
    if device.type == "cuda":
        torch.cuda.set_device(device)
    options |= {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(timeout=timedelta(minutes=5), **options)


def leave(with_deepspeed: bool) -> None:
    """Leave the group when all ranks are done, before Python ends: threads of gloo that still run then abort the process."""
    dist.barrier()
    gc.collect()  # they run while anything holds the group: an engine, or a default argument of a module imported later
    (sys.modules["deepspeed.comm"] if with_deepspeed else dist).destroy_process_group()


def read_config(options: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """The JSON for DeepSpeed, in which the options stand for what it omits; without a JSON only the options."""
    path = options.deepspeed_config
    try:
        text = Path(path).read_text(encoding="utf-8-sig") if path else "{}"
        config = {name: value for name, value in {**json.loads(text)}.items() if value is not None}
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a readable JSON file ({error}).") from None
    if wrong := re.search(r'"\w+"\s*:\s*\[?\s*"(auto|[-+.]?\d[-+\d.eE]*)"', text):
        raise UserError(f'{path} has {wrong[0]}. "auto" is for a trainer to fill in: give the value, a number without quotes.')
    for name in {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"} & config.keys():
        if type(config[name]) is not int or config[name] < 1:
            raise UserError(f"{path} has {name} {json.dumps(config[name])}. Give a whole number of at least 1.")
    config.setdefault("torch_autocast", {"enabled": options.bf16, "dtype": "bfloat16"})
    micro, batch = config.get("train_micro_batch_size_per_gpu", 0) * ranks, config.get("train_batch_size", 0)
    parts = config.setdefault("gradient_accumulation_steps", micro and batch // micro or options.accumulate)
    batch = config.setdefault("train_batch_size", micro * parts or options.batch)
    if batch % (ranks * parts):
        each = f" with {parts} micro-batches each" if parts > 1 else ""
        raise UserError(f"A batch of {batch} does not divide among {ranks} ranks{each}. Use a multiple of {ranks * parts}.")
    return config


def train(options: argparse.Namespace, device: torch.device) -> int:
    """Train, test and save; return the exit code: 0, or after SIGTERM the conventional 143."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        handlers = [logging.FileHandler(options.folder / f"rank{rank}.log"), *([logging.StreamHandler()] if rank == 0 else [])]
    except OSError as error:
        raise UserError(f"--folder {options.folder} cannot be used ({error.strerror}). Choose another.") from None
    logging.basicConfig(format=f"%(asctime)s rank {rank}: %(message)s", handlers=handlers, force=True)
    log.setLevel(logging.INFO)
    config = read_config(options, ranks)
    batch, parts = config["train_batch_size"], config["gradient_accumulation_steps"]
    engine = deepspeed_engine(config) if options.deepspeed_config else Engine(make_model(), device, parts, options.bf16)
    train_set, test_set = make_data()
    first = load_snapshot(engine, options.folder)
    if first > options.steps:
        raise UserError(f"{options.folder} is at step {first} already. Use at least as many --steps, or another --folder.")
    log.info("%s, %d ranks on %s, from step %d", type(engine).__name__, ranks, device.type, first)
    loader = iter(DataLoader(train_set, batch_sampler=batches(len(train_set), batch, first, options.steps)))
    received, stop = list[int](), torch.tensor(0)
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    for step in range(first + 1, options.steps + 1):
        seed(step)
        x, y = next(loader)
        loss = train_step(engine, x.to(device), y.to(device), parts)
        stop = torch.tensor(len(received), device=device)
        dist.all_reduce(stop)  # the signal reaches the ranks at different times: all stop after the same step
        if stop or step % options.save_every == 0 or step == options.steps:
            log.info("step %d, loss on this rank %.4f", step, loss)
            save_snapshot(engine, options.folder, step)
        if stop:
            log.info("stopped by SIGTERM after step %d: the same command goes on from there", step)
            break
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is lost any more
        score, weights = evaluate(engine, test_set, batch // ranks // parts, device), all_weights(engine)
        if rank == 0:
            torch.save(weights, options.folder / "model.part")
            os.replace(options.folder / "model.part", options.folder / "model.pt")
            log.info("test accuracy %.1f %%", 100 * score)
    if options.deepspeed_config:
        engine.destroy()  # removes the hooks that would keep DeepSpeed's engine alive
    return 128 + signal.SIGTERM if stop else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train a network on digits, on any number of ranks.", exit_on_error=False)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all ranks")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="micro-batches a step, to save memory")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 by torch.autocast")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="for snapshots, logs and model.pt")
    parser.add_argument("--save-every", type=int, default=50, help="steps between snapshots")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deepspeed_config", metavar="JSON", help="train with DeepSpeed")
    parser.add_argument("--local_rank", type=int, help="passed by DeepSpeed's launcher; LOCAL_RANK says the same")
    try:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            raise UserError(f"unrecognized arguments: {' '.join(unknown)}. See --help.")
        for name, least in {"steps": 0, "batch": 1, "accumulate": 1, "save_every": 1}.items():
            if (number := getattr(options, name)) < least:
                raise UserError(f"--{name.replace('_', '-')} {number} makes no sense. Use at least {least}.")
        device = choose_device(options.device)
        if options.deepspeed_config:
            prepare_deepspeed(device, options.folder / "extensions")
        connect(device)
        code = train(options, device)
    except (UserError, argparse.ArgumentError) as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"train.py: {error}", file=sys.stderr)
        return 2
    leave(with_deepspeed=options.deepspeed_config is not None)
    return code


if __name__ == "__main__":
    sys.exit(main())
