"""The five recipes of the lecture's accuracy table, in float32 arithmetic that is rounded to fp16 where a GPU would store fp16.

Most CPUs have no fp16 arithmetic and multiply it far slower than float32, so the recipes are emulated (`rounded`).
On every device, the effect on the training is that of fp16 with float32 accumulation. All seeds of a recipe train as one
batched program.

    trainings = Trainings(RECIPES["mixed"], data, seeds=range(4), batch=32, rate=0.1, steps=600)
    trainings.run()
    trainings.accuracy(data.test_x, data.test_y)      # one value per seed

Every loss may be multiplied by `loss_factor` while the rate is divided by it. In exact arithmetic this changes nothing. It
moves the gradients to the magnitudes found in deep networks, so that a small network shows what fp16 does to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from hpml_lab.data.dataset import DataSet

CHANNELS, CLASSES, MOMENTUM = (8, 16), 10, 0.9


class _Rounded(torch.autograd.Function):
    """Round the value in the forward pass and its gradient in the backward pass."""

    @staticmethod
    def forward(context, x: torch.Tensor) -> torch.Tensor:
        return x.half().float()

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.half().float()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x rounded to fp16 and stored in float32. Its gradient is rounded in the same way.

    An operation in float32 on such numbers, followed by `rounded`, computes what a tensor core does: the product of two fp16
    numbers is exact in float32 (11 + 11 ≤ 24 bits), the sum is kept in float32, and the result is rounded once.
    """
    return _Rounded.apply(x)


@dataclass(frozen=True)
class Recipe:
    """What a training stores in fp16.

    half     the layers' weights, activations and their gradients are fp16
    loss     softmax and loss are fp16 too (autocast keeps them in float32)
    scale    factor of the loss before the backward pass; None: a scaler adjusts it, as torch.amp.GradScaler does
    master   the optimizer keeps float32 weights and float32 momentum; otherwise both are fp16
    """

    half: bool
    loss: bool
    scale: float | None
    master: bool


RECIPES = {
    "fp32": Recipe(half=False, loss=False, scale=1.0, master=True),
    "mixed": Recipe(half=True, loss=False, scale=None, master=True),
    "fp16": Recipe(half=True, loss=True, scale=1.0, master=False),
    "fp16, scale 1000": Recipe(half=True, loss=True, scale=1000.0, master=False),
    "fp16, scale 1000, fp32 master": Recipe(half=True, loss=True, scale=1000.0, master=True),
}


class BatchedScaler:
    """The rule of torch.amp.GradScaler for many trainings together: `scale` (R,) is halved after a gradient that is not finite,
    and doubled after `interval` steps without one."""

    def __init__(self, trainings: int, device: torch.device, start: float = 2.0**16, interval: int = 2000) -> None:
        self.scale = torch.full((trainings,), start, device=device)
        self.good = torch.zeros(trainings, dtype=torch.int64, device=device)
        self.interval = interval

    def update(self, bad: torch.Tensor) -> None:
        """Update the scales after one step; `bad` (R,) says which trainings had a gradient that is not finite."""
        self.good = torch.where(bad, 0, self.good + 1)
        grown = self.good == self.interval
        scale = self.scale * torch.where(bad, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale = torch.where(scale.isfinite(), scale, self.scale)  # it never grows to infinity, from where none comes back
        self.good = torch.where(grown, 0, self.good)


def small_net(side: int) -> nn.Sequential:
    """The network to train, as torch layers: x (N, 1, side, side) → logits (N, 10). Each convolution halves the side."""
    last = CHANNELS[1] * (((side + 1) // 2 + 1) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS[0], 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(last, CLASSES),
    )


def initial_parameters(side: int, seeds: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """The network's parameters as torch initializes them with each seed, stacked: each (R, …). The global random state is
    not changed."""
    nets = []
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.default_generator.manual_seed(seed)
            nets.append([p.detach() for p in small_net(side).parameters()])
    return [torch.stack(same).to(device) for same in zip(*nets, strict=True)]


def forward(weights: list[torch.Tensor], x: torch.Tensor, half: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits (R, B, 10) of R networks for their own images x (R, B, 1, side, side), and the outputs of all layers before ReLU.

    With `half`, weights, images and the output of each layer are rounded to fp16, and so are their gradients.
    """
    store = rounded if half else lambda tensor: tensor
    w1, b1, w2, b2, w3, b3 = (store(weight) for weight in weights)
    trainings, batch = x.shape[:2]
    h, outputs = store(x).squeeze(2).transpose(0, 1), []
    for w, b in ((w1, b1), (w2, b2)):  # one convolution for all trainings: each is a group of channels
        h = store(F.conv2d(h, w.flatten(0, 1), b.flatten(), stride=2, padding=1, groups=trainings))
        outputs.append(h)
        h = h.relu()
    h = h.unflatten(1, (trainings, -1)).flatten(2).transpose(0, 1)
    outputs.append(store(torch.baddbmm(b3.unsqueeze(1), h, w3.transpose(1, 2))))
    return outputs[-1], outputs


def losses(logits: torch.Tensor, y: torch.Tensor, half: bool) -> torch.Tensor:
    """Mean cross entropy (R,) of logits (R, B, 10) and labels (R, B). With `half`, each of its steps is stored in fp16."""
    store = rounded if half else lambda tensor: tensor
    chosen = store(logits.log_softmax(2)).gather(2, y.unsqueeze(2)).squeeze(2)
    return store(-chosen.mean(1))


def loss_gradients(
    weights: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, recipe: Recipe, scale: torch.Tensor, loss_factor: float
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The gradients of scale · loss_factor · loss as the recipe computes them: of the weights, and of the layers' outputs.

    scale  (R,), the scale of each training
    """
    leaves = [weight.detach().requires_grad_() for weight in weights]
    logits, outputs = forward(leaves, x, recipe.half)
    loss = losses(logits, y, recipe.loss) * loss_factor
    if recipe.loss:
        loss = rounded(loss)
    gradients = torch.autograd.grad((loss * scale).sum(), [*leaves, *outputs])
    return list(gradients[: len(leaves)]), list(gradients[len(leaves) :])


class Trainings:
    """One recipe trained from several seeds together: SGD with momentum, the rate falling linearly to 0 over `steps`.

    Each seed has its own initial weights and its own order of the images. `lost` is the mean share of weights that did not
    change although their update was not zero, `zeros` that of gradients that were zero; both are measured at every tenth step.
    """

    def __init__(
        self, recipe: Recipe, data: DataSet, seeds: Sequence[int], batch: int, rate: float, steps: int, loss_factor: float = 1.0
    ) -> None:
        self.recipe, self.data, self.seeds, self.batch = recipe, data, list(seeds), batch
        self.rate, self.steps, self.loss_factor = rate, steps, loss_factor
        device = data.train_x.device
        weights = initial_parameters(data.train_x.shape[-1], self.seeds, device)
        self.weights = weights if recipe.master else [rounded(weight) for weight in weights]
        self.buffers = [torch.zeros_like(weight) for weight in weights]
        self.scaler = BatchedScaler(len(self.seeds), device) if recipe.scale is None else None
        self.skipped = torch.zeros(len(self.seeds), dtype=torch.int64, device=device)
        self.iteration, self.lost, self.zeros = 0, 0.0, 0.0
        self._measured, self._order = 0, torch.empty(0, 0)

    @property
    def scale(self) -> torch.Tensor:
        """The scale (R,) of each training now."""
        if self.scaler is not None:
            return self.scaler.scale
        return torch.full((len(self.seeds),), self.recipe.scale, device=self.weights[0].device)

    def batch_of(self, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (R, B, 1, side, side) and labels (R, B) of a step. Each seed reshuffles in every epoch."""
        epoch, index = divmod(iteration, len(self.data.train_x) // self.batch)
        if index == 0 or not self._order.numel():
            orders = [
                torch.randperm(len(self.data.train_x), generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
                for seed in self.seeds
            ]
            self._order = torch.stack(orders).to(self.data.train_x.device)
        chosen = self._order[:, index * self.batch : (index + 1) * self.batch]
        return self.data.train_x[chosen], self.data.train_y[chosen]

    def gradients(self, x: torch.Tensor, y: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Scaled gradients of the weights and of the layers' outputs at the current weights."""
        return loss_gradients(self.weights, x, y, self.recipe, self.scale, self.loss_factor)

    @torch.no_grad()
    def step(self) -> None:
        """One step of every training."""
        with torch.enable_grad():
            gradients, _ = self.gradients(*self.batch_of(self.iteration))
        rate = self.rate * (1 - self.iteration / self.steps) / self.loss_factor
        if self.recipe.master:
            gradients = [g / _each(self.scale, g) for g in gradients]
            buffers = [b * MOMENTUM + g for b, g in zip(self.buffers, gradients, strict=True)]
            weights = [w - rate * b for w, b in zip(self.weights, buffers, strict=True)]
        else:  # everything stays in fp16, the gradients stay scaled, and the rate is divided by the scale
            buffers = [rounded(rounded(b * MOMENTUM) + g) for b, g in zip(self.buffers, gradients, strict=True)]
            rate /= self.recipe.scale
            weights = [rounded(w - rate * b) for w, b in zip(self.weights, buffers, strict=True)]
        if self.iteration % 10 == 0:
            self._measure(gradients, weights, buffers)
        if self.scaler is not None:
            bad = ~torch.stack([g.flatten(1).isfinite().all(1) for g in gradients]).all(0)
            weights = [torch.where(_each(bad, new), old, new) for new, old in zip(weights, self.weights, strict=True)]
            buffers = [torch.where(_each(bad, new), old, new) for new, old in zip(buffers, self.buffers, strict=True)]
            self.skipped += bad
            self.scaler.update(bad)
        self.weights, self.buffers = weights, buffers
        self.iteration += 1

    def _measure(self, gradients: list[torch.Tensor], new: list[torch.Tensor], buffers: list[torch.Tensor]) -> None:
        numbers = sum(weight.numel() for weight in new)
        unchanged = [((w == n) & (b != 0)).sum() for w, n, b in zip(self.weights, new, buffers, strict=True)]
        zero = [(g == 0).sum() for g in gradients]
        self._measured += 1
        self.lost += (torch.stack(unchanged).sum() / numbers - self.lost) / self._measured
        self.zeros += (torch.stack(zero).sum() / numbers - self.zeros) / self._measured

    def run(self) -> "Trainings":
        """Take all steps."""
        while self.iteration < self.steps:
            self.step()
        return self

    @torch.no_grad()
    def accuracy(self, x: torch.Tensor, y: torch.Tensor, top: int = 1) -> list[float]:
        """Share of x (N, 1, side, side) whose class is among the `top` likeliest, in the recipe's own arithmetic."""
        right = torch.zeros(len(self.seeds), device=x.device)
        for images, labels in zip(x.split(1000), y.split(1000), strict=True):
            logits, _ = forward(self.weights, images.expand(len(self.seeds), *images.shape), self.recipe.half)
            right += (logits.topk(top).indices == labels[:, None]).any(2).sum(1)
        return (right / len(x)).tolist()

    @torch.no_grad()
    def mean_loss(self, x: torch.Tensor, y: torch.Tensor) -> list[float]:
        """Mean cross entropy of each network on x (N, 1, side, side), computed in float32 from the recipe's logits."""
        images = x.expand(len(self.seeds), *x.shape)
        logits, _ = forward(self.weights, images, self.recipe.half)
        return losses(logits, y.expand(len(self.seeds), -1), half=False).tolist()


def _each(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`values` (R,) reshaped to broadcast over `like` (R, …)."""
    return values.view(-1, *(1,) * (like.dim() - 1))
