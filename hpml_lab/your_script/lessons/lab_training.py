"""A script to start from: ResNet-18 on pictures of 32 × 32 pixels, with the options that a lab asks for. Copy it, change it.

    python lab_training.py --quick                              a narrow net and few pictures: seconds on a laptop
    python lab_training.py --data cifar-10-batches-bin          CIFAR-10's own binary files; without --data, handwritten digits
    python lab_training.py --optimizer adam --workers 2         one change at a time
    torchrun --standalone --nproc-per-node 2 lab_training.py    on two ranks, each with its share of the batch

Nothing is downloaded. Each epoch ends in one line, which `hpml-lab lab` reads:

    epoch 1: load 0.520 s, train 3.101 s, total 3.714 s, loss 1.8204, accuracy 0.3512
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

SIDE, CLASSES = 32, 10
CIFAR_RECORD = 1 + 3 * SIDE * SIDE  # a label, then red, green and blue
CIFAR_FILES = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
QUICK = {"epochs": 3, "samples": 512, "width": 16, "batch": 32}
# Each optimizer with a learning rate of its own, as its authors or torch recommend it for such a net.
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, 0.1, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, 0.1, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, 0.01, {}),
    "adadelta": (torch.optim.Adadelta, 1.0, {}),
    "adam": (torch.optim.Adam, 0.001, {}),
}


# ---- the net ----------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))), where x passes a 1 × 1 convolution if its shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module], dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=norm is nn.Identity),
            norm(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=norm is nn.Identity),
            norm(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.body(x))


def make_net(width: int = 64, norm: str = "batch", dropout: float = 0.0) -> nn.Module:
    """ResNet-18 for small pictures (He et al. 2016): four stages of two blocks, each stage twice as wide and half as large."""
    layer = {"batch": nn.BatchNorm2d, "none": nn.Identity}[norm]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=norm == "none"), layer(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            layers.append(Block(inputs, width << stage, stride, layer, dropout))
            inputs = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def make_batch(size: int) -> tuple[Tensor, Tensor]:
    """Random pictures and labels: as many, and as large, as a step needs to be timed."""
    return torch.randn(size, 3, SIDE, SIDE), torch.randint(CLASSES, (size,))


# ---- the data ---------------------------------------------------------------------------------------------------------------


class Pictures(Dataset):
    """Pictures as bytes (N, 3, 32, 32) and labels; to train, each is shifted by up to 4 pixels, and some are mirrored."""

    def __init__(self, pixels: Tensor, labels: Tensor, train: bool, mirrored: bool) -> None:
        self.pixels, self.labels, self.train, self.mirrored = pixels, labels, train, mirrored

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.pixels[index].float() / 127.5 - 1
        if self.train:
            down, right = torch.randint(9, (2,)).tolist()
            x = F.pad(x, (4, 4, 4, 4), value=-1.0)[:, down : down + SIDE, right : right + SIDE]
            if self.mirrored and torch.rand(()) < 0.5:
                x = x.flip(2)
        return x, self.labels[index]


def make_data(folder: Path | None = None) -> tuple[Dataset, Dataset]:
    """To train and to test: CIFAR-10 of a folder; without one, digits, or patterns where scikit-learn is missing."""
    if folder is not None:
        (pixels, labels), (test_pixels, test_labels) = (cifar(folder, part) for part in ("train", "test"))
        mirrored = True
    else:
        pixels, labels = digits()
        (pixels, test_pixels), (labels, test_labels) = ((part[:1437], part[1437:]) for part in (pixels, labels))
        mirrored = False  # a mirrored 2 is no 2
    return Pictures(pixels, labels, True, mirrored), Pictures(test_pixels, test_labels, False, False)


def cifar(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """The pictures and labels of CIFAR-10's binary files. Ends the script where one is missing or not whole."""
    parts = []
    for name in CIFAR_FILES[part]:
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            sys.exit(f"{folder / name} cannot be read ({error.strerror}). --data names the folder of data_batch_1.bin, …")
        if not content or len(content) % CIFAR_RECORD:
            sys.exit(f"{folder / name} has {len(content)} bytes, not a multiple of {CIFAR_RECORD}: unpack it again.")
        parts.append(torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, CIFAR_RECORD))
    records = torch.cat(parts)
    if records[:, 0].max() >= CLASSES:
        sys.exit(f"{folder} has labels of {CLASSES} and more: these are not CIFAR-10's files.")
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0].long()


def digits() -> tuple[Tensor, Tensor]:
    """1,797 handwritten digits, enlarged from 8 × 8 to 32 × 32 pixels and gray in three channels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        generator = torch.Generator().manual_seed(0)  # ten random patterns under noise
        labels = torch.randint(CLASSES, (1797,), generator=generator)
        patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=generator)
        noise = torch.randn(len(labels), 3, SIDE, SIDE, generator=generator)
        return (patterns[labels] * 30 + noise * 40 + 128).clamp(0, 255).byte(), labels
    pixels, targets = map(torch.tensor, load_digits(return_X_y=True))
    large = F.interpolate(pixels.view(-1, 1, 8, 8).float() * (255 / 16), size=SIDE, mode="bilinear")
    return large.byte().expand(-1, 3, -1, -1).contiguous(), targets


# ---- training ---------------------------------------------------------------------------------------------------------------


def batch_of_epoch(options: argparse.Namespace, epoch: int) -> int:
    """The batch; with --schedule growing it is five times as large where the rate of --schedule falling would be a fifth."""
    return options.batch * 5 ** (3 * epoch // options.epochs) if options.schedule == "growing" else options.batch


def rate_factor(options: argparse.Namespace, epoch: float) -> float:
    """What the learning rate is multiplied by, at a moment such as 0.5: in the middle of the first epoch."""
    if options.schedule == "falling":
        return 0.2 ** (3 * int(epoch) // options.epochs)
    if options.schedule == "cyclical":  # one triangle an epoch, between a tenth and all of the rate (Smith 2017)
        return 1 - 0.9 * abs(2 * (epoch % 1) - 1)
    return 1.0


def make_loader(data: Dataset, options: argparse.Namespace, epoch: int) -> DataLoader:
    """This rank's share of each batch, in an order that depends on the seed and the epoch."""
    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    batch = max(1, batch_of_epoch(options, epoch) // ranks)
    generator = torch.Generator().manual_seed(options.seed * 1000 + epoch)
    if ranks == 1:
        return DataLoader(data, batch, shuffle=True, num_workers=options.workers, generator=generator)
    sampler = DistributedSampler(data, seed=options.seed)
    sampler.set_epoch(epoch)  # otherwise each epoch has the order of the first
    return DataLoader(data, batch, sampler=sampler, num_workers=options.workers, generator=generator)


def train_epoch(
    net: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, options: argparse.Namespace, epoch: int
) -> tuple[float, float, float, float]:
    """Train for one epoch. Returns the seconds in which it waits for batches, those in which it trains, all, and the mean loss.

    On a GPU the clock is read when the GPU is done: only so does each part have its own time.
    """
    net.train()
    load = train = 0.0
    losses, count = torch.zeros((), device=options.device), len(loader)
    cast = torch.autocast(options.device, torch.bfloat16) if options.bf16 else contextlib.nullcontext()
    start = before = now(options.device)
    for step, (x, y) in enumerate(loader):
        x, y = x.to(options.device), y.to(options.device)
        loaded = now(options.device)
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * rate_factor(options, epoch + step / count)
        with cast:
            loss = F.cross_entropy(net(x).float().flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        end = now(options.device)
        load, train, before = load + loaded - before, train + end - loaded, end
    return load, train, now(options.device) - start, losses.item() / count


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


@torch.no_grad()
def accuracy(net: nn.Module, data: Dataset, device: str) -> float:
    """The share of right answers on a data set."""
    net.eval()
    right = total = 0
    for x, y in DataLoader(data, 256):
        hits = net(x.to(device)).argmax(-1) == y.to(device)
        right, total = right + int(hits.sum()), total + hits.numel()
    return right / total


# ---- the command ------------------------------------------------------------------------------------------------------------


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="CIFAR-10's binary files (default: digits)")
    parser.add_argument("--quick", action="store_true", help="a narrow net on few samples, for 3 epochs")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, help="train on the first so many only")
    parser.add_argument("--batch", type=int, default=128, help="samples of a step, over all ranks (default: 128)")
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader (default: 0)")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage (default: 64)")
    parser.add_argument("--norm", choices=("batch", "none"), default="batch")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="P")
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="sgd")
    parser.add_argument("--lr", type=float, help="learning rate (default: one that suits the optimizer)")
    parser.add_argument("--schedule", choices=("constant", "falling", "growing", "cyclical"), default="constant")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 by torch.autocast")
    parser.add_argument("--compile", action="store_true", help="compile the net")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the trained weights")
    options = parser.parse_args(arguments)
    if options.quick:  # what is given besides holds
        parser.set_defaults(**QUICK)
        options = parser.parse_args(arguments)
    if (problem := problem_of(options)) is not None:
        parser.exit(2, f"{parser.prog}: {problem}\n")
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    return options


def problem_of(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, so that it is said before the training and not after it."""
    for name, least in {"epochs": 1, "batch": 1, "width": 1, "samples": 1, "workers": 0}.items():
        if (value := getattr(options, name)) is not None and value < least:
            return f"--{name} {value}: at least {least}"
    if not 0 <= options.dropout <= 1:
        return f"--dropout {options.dropout}: from 0 to 1"
    if options.lr is not None and not 0 <= options.lr < float("inf"):  # nan is not either
        return f"--lr {options.lr}: a number of at least 0"
    if options.save is not None and options.save.is_dir():
        return f"--save {options.save}: a folder"
    if options.save is not None and not options.save.parent.is_dir():
        return f"--save {options.save}: there is no folder {options.save.parent}"
    if options.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda: torch sees no GPU here"
    return None


def main(
    arguments: Sequence[str] | None = None,
    make_net: Callable[..., nn.Module] = make_net,
    make_data: Callable[..., tuple[Dataset, Dataset]] = make_data,
) -> None:
    options = read_options(arguments)
    if "RANK" in os.environ:  # torchrun has started this
        distributed.init_process_group("nccl" if options.device == "cuda" else "gloo")
        if options.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    train_set, test_set = make_data(options.data)
    if options.samples:
        train_set = Subset(train_set, range(min(options.samples, len(train_set))))
    torch.manual_seed(options.seed)  # all ranks start with the same weights
    net = make_net(options.width, options.norm, options.dropout).to(options.device)
    trained = DistributedDataParallel(net) if distributed.is_initialized() else net
    if options.compile:
        trained = torch.compile(trained)
    make, own_rate, rule = OPTIMIZERS[options.optimizer]
    rate = own_rate if options.lr is None else options.lr
    optimizer = make([{"params": list(net.parameters()), "initial_lr": rate}], lr=rate, weight_decay=5e-4, **rule)
    torch.manual_seed(options.seed + rank)  # from here on each rank draws its own shifts
    for epoch in range(options.epochs):
        load, train, total, loss = train_epoch(trained, optimizer, make_loader(train_set, options, epoch), options, epoch)
        if rank == 0:
            seconds = f"load {load:.3f} s, train {train:.3f} s, total {total:.3f} s"
            score = accuracy(net, test_set, options.device)
            print(f"epoch {epoch + 1}: {seconds}, loss {loss:.4f}, accuracy {score:.4f}", flush=True)
    if options.save and rank == 0:
        torch.save(net.state_dict(), options.save)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
