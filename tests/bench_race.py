"""What the race costs as batched programs, and how many times faster that is than training the nets one after the other.

    python tests/bench_race.py            ratios per iteration, in turns in one run (about a minute)
    python tests/bench_race.py --whole    the whole single-seed comparison: 3 nets × 7 optimizers × 20 000 iterations

Real MNIST where it is present (HPML_DATA), else noise of the same shape.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.threads import all_threads, one_thread
from hpml_lab.data import DataSet, load
from hpml_lab.race.experiments.mnist_three_nets.training import Inputs, Trainer, split_into_tasks
from hpml_lab.race.experiments.training_speed import ways_to_train
from hpml_lab.race.lessons.rate_sweep import LECTURE_LR
from hpml_lab.race.tools.program import NETS, Setting

SETTINGS = [Setting(name, lr=lr) for name, lr in LECTURE_LR.items()]
BATCH, ITERATIONS, ROUNDS = 128, 20_000, 7


def images() -> DataSet:
    try:
        return load("mnist")
    except LabError as error:
        print(f"{error.problem} Noise of the same shape is used.")
        x, y = torch.rand(70_000, 1, 28, 28), torch.randint(0, 10, (70_000,))
        return DataSet("noise", x[:60_000], y[:60_000], x[60_000:], y[60_000:])


def ratios(data, inputs, device):
    """Milliseconds of one iteration of all seven settings of a net, three ways, in turns."""
    print(f"one iteration of {len(SETTINGS)} settings of a net on {device}, one thread")
    for name, net in NETS.items():
        rows, gain = ways_to_train(net, SETTINGS, data, inputs.x, inputs.y, BATCH, ROUNDS)
        for row in rows:
            print(f"{name:8}{row.way:16}{row.ms:9.2f} ms{row.gain:8.1f} times as fast ({row.interval})")
        print(f"{name:8}{gain}", flush=True)


def whole(inputs, device):
    """The single-seed comparison from start to end; asked for: 240 s of training on 2 CPU cores, 60 s on a GPU."""
    gpu = device.type == "cuda"
    workers = 1 if gpu else all_threads()
    tasks = [t for name, net in NETS.items() for t in split_into_tasks(name, net, SETTINGS, [0], 16 if gpu else 4)]
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        curves = Trainer(inputs, BATCH, workers, Path(folder), every_seconds=1e9).train(tasks, [0, ITERATIONS])
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
    inputs = Inputs.of(data, 2000, 0, device)
    if chosen.whole:
        whole(inputs, device)
    else:
        ratios(data, inputs, device)


if __name__ == "__main__":
    main()
