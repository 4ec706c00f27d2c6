"""What the race costs as batched programs, and how many times faster that is than training the nets one after the other.

    python tests/bench_race.py            ratios per iteration, in turns in one run (about a minute)
    python tests/bench_race.py --whole    the whole single-seed comparison: 3 nets × 7 optimizers × 20 000 iterations

Real MNIST where it is present (HPML_DATA), else noise of the same shape. The loader loop is the tutorial's: images as PIL
images, ToTensor and Normalize in a DataLoader without workers, the optimizer's default loop, loss.item() in every step.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.device import choose_device
from hpml_lab.core.errors import LabError
from hpml_lab.core.threads import all_threads, one_thread
from hpml_lab.data import DataSet, load
from hpml_lab.race.program import NETS, Program, Setting
from hpml_lab.race.records import LECTURE_LR
from hpml_lab.race.training import Inputs, split_into_tasks, train_all

SETTINGS = [Setting(name, lr=lr) for name, lr in LECTURE_LR.items()]
BATCH, ITERATIONS, ROUNDS = 128, 20_000, 5


def images() -> DataSet:
    try:
        return load("mnist")
    except LabError as error:
        print(f"{error.problem} Noise of the same shape is used.")
        x, y = torch.rand(70_000, 1, 28, 28), torch.randint(0, 10, (70_000,))
        return DataSet("noise", x[:60_000], y[:60_000], x[60_000:], y[60_000:])


def loader_of(data: DataSet):
    """An endless DataLoader as in the tutorials: each image is a PIL image that becomes a normalised tensor."""
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms

    pixels = (data.train_x[:, 0] * 255).to(torch.uint8).numpy()
    to_tensor = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])

    class Images(Dataset):
        def __len__(self):
            return len(pixels)

        def __getitem__(self, i):
            return to_tensor(Image.fromarray(pixels[i])), int(data.train_y[i])

    while True:
        yield from DataLoader(Images(), batch_size=BATCH, shuffle=True, drop_last=True)


def naive(net, setting, batches, device):
    """One training as a student writes it; returns a function that takes `steps` steps."""
    model = nn.Sequential(nn.Flatten(), net.module(784)).to(device)
    optimizer = setting.build(model.parameters())

    def run(steps):
        for _ in range(steps):
            x, y = next(batches)
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()

    return run


def sequential(net, setting, inputs):
    """One net alone on the same tensors and slices, by autograd: what is gained is then the batching of settings alone."""
    model = net.module(inputs.x.shape[1]).to(inputs.x.device)
    optimizer = setting.build(model.parameters())
    place = 0

    def run(steps):
        nonlocal place
        for _ in range(steps):
            part = slice(place, place + BATCH)
            place = (place + BATCH) % (len(inputs.x) - BATCH)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs.x[part]), inputs.y[part]).backward()
            optimizer.step()

    return run


def timed(run, steps, device):
    start = time.perf_counter()
    run(steps)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / steps


def ratios(data, inputs, device):
    """Milliseconds of one iteration of all seven settings of a net, three ways, in turns."""
    print(f"one iteration of {len(SETTINGS)} settings, ms (smallest of {ROUNDS} turns), {device}, one thread")
    print(f"{'':8}{'loader loop':>14}{'sequential':>14}{'batched':>14}{'loader/batched':>18}{'sequential/batched':>20}")
    batches = loader_of(data)
    sums = [0.0, 0.0, 0.0]
    for name, net in NETS.items():
        program = Program(net, SETTINGS, [0], inputs.x, inputs.y, BATCH)
        loops = [naive(net, setting, batches, device) for setting in SETTINGS]
        alone = [sequential(net, setting, inputs) for setting in SETTINGS]
        for run in (*loops, *alone, program.run):
            run(2)
        turns = [
            (
                sum(timed(run, 3, device) for run in loops),
                sum(timed(run, 5, device) for run in alone),
                timed(program.run, 20, device),
            )
            for _ in range(ROUNDS)
        ]
        best = [min(column) * 1e3 for column in zip(*turns, strict=True)]
        sums = [a + b for a, b in zip(sums, best, strict=True)]
        _line(name, best)
    _line("all", sums)
    print(f"{ITERATIONS} iterations by these figures: " + ", ".join(f"{value * ITERATIONS / 1e3:.0f} s" for value in sums))


def _line(name, best):
    a, b, c = best
    print(f"{name:8}{a:14.2f}{b:14.2f}{c:14.2f}{a / c:17.1f}x{b / c:19.1f}x", flush=True)


def whole(inputs, device):
    """The single-seed comparison from start to end; asked for: 240 s of training on 2 CPU cores, 60 s on a GPU."""
    gpu = device.type == "cuda"
    workers = 1 if gpu else all_threads()
    tasks = [t for name, net in NETS.items() for t in split_into_tasks(name, net, SETTINGS, [0], 16 if gpu else 4)]
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        curves = train_all(tasks, inputs, [0, ITERATIONS], BATCH, workers, folder=Path(folder), every_seconds=1e9)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    for task, found in zip(tasks, curves, strict=True):
        for k, setting in enumerate(task.settings):
            loss, right = found["loss"][-1][k][0], found["final_accuracy"][k][0]
            print(f"{task.net}  {setting.optimizer:9} {setting.lr:<6g} loss {loss:.5f}  test accuracy {100 * right:.2f} %")
    seconds = sum(found["seconds"] for found in curves)
    print(
        f"3 nets x {len(SETTINGS)} optimizers x {ITERATIONS} iterations on {device}, {workers} workers: {wall:.0f} s of wall, "
        f"{cpu:.0f} s of CPU, {seconds:.0f} s of training over all workers"
    )


@one_thread()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--whole", action="store_true", help="train all of it once")
    chosen = parser.parse_args()
    device = choose_device().torch
    data = images()
    inputs = Inputs.of(data, 2000, device)
    if chosen.whole:
        whole(inputs, device)
    else:
        ratios(data, inputs, device)


if __name__ == "__main__":
    main()
