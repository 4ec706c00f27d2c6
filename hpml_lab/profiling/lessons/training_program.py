"""The program that py-spy watches: a small net that learns images, with one function in its loop that is slow on purpose.

`python -m hpml_lab.profiling.lessons.training_program SECONDS` takes images and labels from its standard input (an .npz) and
trains for that long at most. It prints "warm" once everything that happens only once is over (imports, the first steps), so
that a profile shows the training and not its start.
"""

import io
import random
import sys
import time

import numpy as np
import torch

from hpml_lab.profilers.tracing_access import allow_tracing

WARM, BATCH = "warm", 64
WARM_UP_STEPS = 20


def noise_by_hand(images: torch.Tensor) -> torch.Tensor:
    """The slow function: adds noise pixel by pixel in Python, where one line of torch would do."""
    pixels = images.flatten().tolist()
    noisy = []
    for pixel in pixels:
        value = pixel + random.random() / 10
        if value > 1.0:
            value = 1.0
        noisy.append(value)
    return torch.tensor(noisy).view_as(images)


def train_step(net: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """One step of plain gradient descent; returns the loss."""
    loss = torch.nn.functional.cross_entropy(net(images.flatten(1)), labels)
    net.zero_grad()
    loss.backward()
    # By hand: building one of torch's optimizers imports its compiler first, which takes seconds.
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.1 * parameter.grad
    return loss.item()


def train(seconds: float, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Train on images (N, 1, 8, 8) and labels (N,) until `seconds` are over."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    end, steps = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for x, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            train_step(net, noise_by_hand(x), y)
            steps += 1
            if steps == WARM_UP_STEPS:
                print(WARM, flush=True)


if __name__ == "__main__":
    allow_tracing()
    given = np.load(io.BytesIO(sys.stdin.buffer.read()))
    train(float(sys.argv[1]), torch.from_numpy(given["x"]), torch.from_numpy(given["y"]))
