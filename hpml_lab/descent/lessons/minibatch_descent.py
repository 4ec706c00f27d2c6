"""Gradient descent on softmax regression with batches of any size: its updates, the drawing of its batches, its noise."""

import math
from collections.abc import Callable, Iterator

import torch

from hpml_lab.descent.lessons.softmax_regression import softmax_gradient, softmax_loss


def evaluation_steps(updates: int) -> list[int]:
    """The numbers of updates at which the loss is evaluated: 0, 1, 2, … evenly spaced on a logarithmic axis."""
    return sorted({0, updates, *(round(10 ** (i / 8)) for i in range(int(8 * math.log10(updates)) + 1))})


def drawn_batches(n: int, batch: int, seeds: int, device: torch.device) -> Iterator[torch.Tensor]:
    """The samples (seeds, batch) of one update after another: each epoch in a new order, without a rest below a batch."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    while True:
        order = torch.stack([torch.randperm(n, generator=generator) for generator in generators]).to(device)
        for first in range(0, n - batch + 1, batch):
            yield order[:, first : first + batch]


def train(x: torch.Tensor, y: torch.Tensor, batch: int, lr: float, updates: int, seeds: int) -> tuple[list[int], torch.Tensor]:
    """Softmax regression from zero for several seeds at once: (numbers of updates, losses on all samples (…, seeds))."""
    w = torch.zeros(seeds, x.shape[1], y.shape[1], dtype=x.dtype, device=x.device)
    evaluated, losses, drawn = evaluation_steps(updates), [], drawn_batches(len(x), batch, seeds, x.device)
    for update in range(updates + 1):
        if update in evaluated:
            losses.append(softmax_loss(w, x, y))
        if update == updates:
            break
        if batch == len(x):
            w = w - lr * softmax_gradient(w, x, y)
        else:
            chosen = next(drawn)
            w = w - lr * softmax_gradient(w, x[chosen], y[chosen])
    return evaluated, torch.stack(losses)


def update_and_draw(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batch: int, lr: float) -> tuple[Callable, Callable]:
    """One update of one seed as `train` does it, and its drawing alone; the whole batch needs no drawing."""
    drawn = drawn_batches(len(x), batch, 1, x.device)

    def draw_batch() -> tuple[torch.Tensor, torch.Tensor]:
        if batch == len(x):
            return x, y
        chosen = next(drawn)
        return x[chosen], y[chosen]

    return lambda: w - lr * softmax_gradient(w, *draw_batch()), draw_batch


def noise_of_batches(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batches: list[int], draws: int) -> list[tuple]:
    """(measured, by the formula) for each batch size: E|g_B − g|² / |g|² at the point w."""
    n, true = len(x), softmax_gradient(w, x, y)
    length = true.square().sum().item()
    errors = torch.softmax(x @ w, -1) - y  # a sample's gradient is the outer product of x and its error
    variance = ((x.square().sum(1) * errors.square().sum(1)).mean() - true.square().sum()).item()  # σ² = E|g_i − g|²
    generator = torch.Generator().manual_seed(0)
    found = []
    for batch in batches:
        orders = 1 if batch == n else draws  # in any order the whole batch is the same
        picks = torch.stack([torch.randperm(n, generator=generator)[:batch] for _ in range(orders)]).to(x.device)
        drawn = softmax_gradient(w, x[picks], y[picks])
        measured = (drawn - true).square().sum((1, 2)).mean().item() / length
        found.append((measured, variance / length / batch * (n - batch) / (n - 1)))
    return found


def mean_of_parts_error(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batch: int) -> float:
    """Relative difference between the mean of an epoch's mini-batch gradients and the batch gradient, in float64."""
    x, y, w = x.double(), y.double(), w.double()
    parts = softmax_gradient(w, x.view(-1, batch, x.shape[1]), y.view(-1, batch, 10))
    whole = softmax_gradient(w, x, y)
    return ((parts.mean(0) - whole).norm() / whole.norm()).item()
