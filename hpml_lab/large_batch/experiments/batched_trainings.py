"""One small net trained from several seeds at once, as one batched program, each seed with an optimizer of its own.

Forward and backward are batched matrix products with a leading axis of seeds: a step costs as many calls for eight seeds as
for one. Each seed has its own start and its own shuffle, and nothing is summed over seeds, so every training is the one that an
ordinary loop would give. The optimizer of a seed sees its parameters as an ordinary list, one tensor for each W and b: a norm
over a layer, or over all layers, is the norm of one net. So every optimizer works, of hpml_lab.optim, torch.optim or a library.

    trainings = BatchedTrainings(images(16_384), seeds=range(8), batch=1024, make_optimizer=lambda p: SGD(p, momentum=0.9))
    trainings.run(64, rate=warmed_up(0.16, warm=16, steps=64))
    trainings.accuracy()  # of each seed, on the test images

W of a layer is (S, out, in) and its b (S, out), for S seeds; a batch is (S, B, in).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from hpml_lab.core.system.errors import LabError
from hpml_lab.data import mnist_or_digits
from hpml_lab.large_batch.lessons.rate_scaling import Rate

CLASSES = 10
HIDDEN = (100, 100, 100)
MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]  # the parameters W₁, b₁, W₂, b₂, … of one net


@dataclass(frozen=True)
class ImageRows:
    """Images as rows (N, inputs) with mean 0 and standard deviation 1 over all pixels, and labels (N,) in int64."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    notes: list[str] = field(default_factory=list)  # of a result, if these are not the images that were asked for


def images(count: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, *, side: int = 28) -> ImageRows:
    """The first `count` training images and all test images of MNIST, or of digits where MNIST cannot be read.

    side  pixels along each edge at most: of larger images, means of neighboring pixels; a note says so
    """
    data, notes = mnist_or_digits(device)
    parts = data.train_x[:count], data.test_x
    if (times := data.train_x.shape[-1] // side) > 1:
        parts = tuple(nn.functional.avg_pool2d(part, times) for part in parts)
        notes = [*notes, f"quick: images of {side} × {side} pixels, each the mean of {times} × {times}. full: all pixels."]
    train, test = (part.flatten(1).to(dtype) for part in parts)
    mean, spread = train.mean(), train.std()
    return ImageRows(data.name, (train - mean) / spread, data.train_y[:count], (test - mean) / spread, data.test_y, notes)


def ordinary_net(inputs: int, hidden: Sequence[int], seed: int) -> nn.Sequential:
    """The net as torch's own layers, initialized with `seed`; the random state of the process stays as it was."""
    widths = [inputs, *hidden, CLASSES]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers = [layer for a, b in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class BatchedTrainings:
    """A net with ReLU between its layers, trained from each of S seeds on batches of `batch` images.

    The last images of an epoch that do not fill a batch are left out; the next epoch shuffles again. dtype and device are those
    of the images.

    make_optimizer  called once for each seed with its parameters
    losses          (steps so far, S): the mean cross entropy of each batch
    """

    def __init__(
        self, data: ImageRows, seeds: Iterable[int], batch: int, make_optimizer: MakeOptimizer, hidden: Sequence[int] = HIDDEN
    ) -> None:
        self.data, self.seeds, self.batch, self.steps = data, list(seeds), batch, 0
        self.per_epoch = len(data.x) // batch
        if self.per_epoch == 0:
            raise LabError(f"a batch of {batch} needs at least {batch} images; there are {len(data.x)}.", "Take a smaller one.")
        nets = [ordinary_net(data.x.shape[1], hidden, seed).to(data.x) for seed in self.seeds]
        with torch.no_grad():
            self.parameters = [torch.stack(same) for same in zip(*(net.parameters() for net in nets), strict=True)]
        self._gradients = [torch.zeros_like(p) for p in self.parameters]
        self.optimizers = [make_optimizer(self.of_seed(s)) for s in range(len(self.seeds))]
        self._losses: list[torch.Tensor] = []

    def of_seed(self, s: int) -> list[torch.Tensor]:
        """The parameters of the s-th seed: views, whose .grad are views of the batched gradients."""
        views = [p[s].requires_grad_() for p in self.parameters]
        for view, gradient in zip(views, self._gradients, strict=True):
            view.grad = gradient[s]
        return views

    @property
    def losses(self) -> torch.Tensor:
        return torch.stack(self._losses) if self._losses else self.data.x.new_zeros(0, len(self.seeds))

    def order(self, seed: int, epoch: int) -> torch.Tensor:
        """The order (N,) in which `seed` sees the images in `epoch`, drawn on the CPU: the same on every device."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        return torch.randperm(len(self.data.x), generator=generator)

    def _next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (S, B, inputs) and labels (S, B) of this step."""
        epoch, index = divmod(self.steps, self.per_epoch)
        if index == 0:
            self._orders = torch.stack([self.order(seed, epoch) for seed in self.seeds]).to(self.data.x.device)
        chosen = self._orders[:, index * self.batch : (index + 1) * self.batch]
        return self.data.x[chosen], self.data.y[chosen]

    def _forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The inputs of every layer, and the logits last: a = relu(a Wᵀ + b).

        x  images (S, B, inputs), or (B, inputs) if they are the same for all seeds: one product for all seeds' first layers
        """
        activations = [x]
        for W, b in zip(self.parameters[0::2], self.parameters[1::2], strict=True):
            a = activations[-1]
            if a.ndim == 2:
                z = nn.functional.linear(a, W.flatten(0, 1), b.flatten()).unflatten(1, b.shape).transpose(0, 1)
            else:
                z = torch.baddbmm(b[:, None], a, W.transpose(1, 2))
            activations.append(z.relu_() if len(activations) < len(self.parameters) // 2 else z)
        return activations

    def _backward(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Write the gradient of each seed's mean cross entropy, and keep the loss.

        ∂L/∂z = (p − onehot(y)) / B, ∂L/∂W = (∂L/∂z)ᵀ a, ∂L/∂b = Σ ∂L/∂z, ∂L/∂a = ∂L/∂z W
        """
        *inputs, logits = self._forward(x)
        log_p = logits.log_softmax(2)
        self._losses.append(-log_p.gather(2, y[..., None]).mean((1, 2)))
        dz = log_p.exp_().scatter_add_(2, y[..., None], -log_p.new_ones(()).expand(*y.shape, 1)).div_(y.shape[1])
        for layer in reversed(range(len(inputs))):
            torch.bmm(dz.transpose(1, 2), inputs[layer], out=self._gradients[2 * layer])
            torch.sum(dz, 1, out=self._gradients[2 * layer + 1])
            if layer:
                dz = torch.bmm(dz, self.parameters[2 * layer]).mul_(inputs[layer] > 0)

    def set(self, **options: float) -> None:
        """Set options such as lr or momentum in every group of every seed's optimizer, from its next step on."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group.update(options)

    @torch.no_grad()
    def run(self, steps: int, rate: Rate | None = None, after_step: Callable[[int], None] | None = None) -> "BatchedTrainings":
        """Take `steps` steps of every seed.

        rate        the learning rate of step t, counted from 0 over all calls
        after_step  called with t after the step
        """
        for t in range(self.steps, self.steps + steps):
            if rate is not None:
                self.set(lr=rate(t))
            self._backward(*self._next_batch())
            for optimizer in self.optimizers:
                optimizer.step()
            self.steps += 1
            if after_step is not None:
                after_step(t)
        return self

    @torch.no_grad()
    def accuracy(self) -> list[float]:
        """The share of the test images that each seed's net classifies correctly."""
        right = self.data.x.new_zeros(len(self.seeds))
        for x, y in zip(self.data.test_x.split(2048), self.data.test_y.split(2048), strict=True):
            right += (self._forward(x)[-1].argmax(2) == y).sum(1)
        return (right / len(self.data.test_x)).tolist()

    @torch.no_grad()
    def test_losses(self, data: ImageRows | None = None) -> list[float]:
        """The mean cross entropy of each seed's net on the test images, of `data` if that is given."""
        data, total = data or self.data, self.data.x.new_zeros(len(self.seeds))
        for x, y in zip(data.test_x.split(2048), data.test_y.split(2048), strict=True):
            log_p = self._forward(x)[-1].log_softmax(2)
            total -= log_p.gather(2, y[None, :, None].expand(len(self.seeds), -1, 1)).sum((1, 2))
        return (total / len(data.test_x)).tolist()
