"""Many trainings of one net as a single batched program: forward, backward and step with a leading axis of settings.

The nets of the lecture are small: when one trains alone, its step is mostly the overhead of starting operations, and its data
loader takes longer than its arithmetic. Here all settings (optimizers × learning rates) × seeds of a net step together:

- `parameters` is one tensor (settings K, seeds R, numbers of one net n); W and b of each layer are views of it, and so are
  the tensors that the optimizers see. The gradients have the same layout.
- Forward and backward are written by hand with batched matrix products. They are in transposed form, activations
  (K, R, width, batch), in which every operand is used as it is stored in memory.
- A batch is a slice of the epoch's shuffled images, gathered on the device a few batches at a time. Each seed has its own
  shuffle and its own start; all settings of a seed share both, so that only the optimizer differs between them.
- The optimizers are the workbook's own classes: one instance per class, one parameter group per setting.

No setting influences another: each has its own matrix products. What trains with a setting changes its result by rounding at
most: for another number of matrices a library may choose another kernel, which sums in another order. Programs of the same
shape agree bitwise on one CPU thread. Nothing in the loop waits for the device.

    program = Program(NETS["net 3"], [Setting("Adam", lr=0.001), Setting("SGD", lr=0.1)], seeds=range(4), x=x, y=y)
    program.run(1000)
    loss, accuracy = program.evaluate(x_test, y_test)        # (K, R) each

A schedule sets rates between two calls of `run`, or before each step: `run(1000, before_step=lambda t: program.set_lr(0, …))`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_lab import optim as classes

CLASSES = 10
_START_LOCK = threading.Lock()  # layers draw from the generator of the process, which all threads share
GATHER = 16  # batches gathered at once: few kernel launches on a GPU, and still small enough for a CPU's caches


# ---- what is trained -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullyConnected:
    """A fully connected net: hidden layers as (width, "sigmoid" or "relu"), then a linear layer and softmax."""

    hidden: tuple[tuple[int, str], ...] = ()

    def module(self, inputs: int) -> nn.Sequential:
        """The same net as ordinary torch layers, x (N, inputs) → logits (N, 10)."""
        layers: list[nn.Module] = []
        for width, activation in self.hidden:
            layers += [nn.Linear(inputs, width), {"sigmoid": nn.Sigmoid, "relu": nn.ReLU}[activation]()]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, CLASSES))

    def start(self, inputs: int, seed: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
        """The net as torch's layers initialize it with `seed`; the random state of the process stays as it was."""
        with _START_LOCK, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.module(inputs).to(dtype)  # drawn in float32, so that all precisions start at the same point

    def scaled(self, factor: float) -> "FullyConnected":
        """The same net with hidden layers `factor` times as wide (at least 4)."""
        return FullyConnected(tuple((max(4, round(width * factor)), kind) for width, kind in self.hidden))

    @property
    def title(self) -> str:
        """Its layers in words: "100 sigmoid, softmax"."""
        layers = [f"{width} {'ReLU' if kind == 'relu' else kind}" for width, kind in self.hidden]
        return ", ".join([*layers, "softmax"])


NETS = {
    "net 1": FullyConnected(),
    "net 2": FullyConnected(((100, "sigmoid"),)),
    "net 3": FullyConnected(((300, "sigmoid"), (100, "relu"), (50, "sigmoid"))),
}

# The optimizers by the lecture's names: the class, and the arguments that define the variant.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {}),
    "Momentum": ("SGD", {"momentum": 0.9}),
    "Nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Adagrad": ("Adagrad", {}),
    "Adadelta": ("Adadelta", {"rho": 0.9, "eps": 1e-6}),
    "Adam": ("Adam", {"betas": (0.9, 0.999), "eps": 1e-8}),
    "RMSprop": ("RMSprop", {"alpha": 0.99, "eps": 1e-8}),
}


@dataclass(frozen=True)
class Setting:
    """One optimizer with its hyperparameters, by a name of OPTIMIZERS: Setting("Momentum", lr=0.1, weight_decay=1e-4)."""

    optimizer: str
    hyper: tuple[tuple[str, Any], ...]

    def __init__(self, optimizer: str, **hyper: Any) -> None:
        merged = {**OPTIMIZERS[optimizer][1], **hyper}
        object.__setattr__(self, "optimizer", optimizer)
        object.__setattr__(self, "hyper", tuple(sorted(merged.items())))

    @property
    def kind(self) -> str:
        """The name of the optimizer's class."""
        return OPTIMIZERS[self.optimizer][0]

    @property
    def lr(self) -> float:
        return dict(self.hyper)["lr"]

    def build(self, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """The optimizer of this setting alone, for an ordinary training loop."""
        return getattr(classes, self.kind)(parameters, **dict(self.hyper))


# ---- the program -----------------------------------------------------------------------------------------------------


def _sigmoid_backward(d: torch.Tensor, a: torch.Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(d, a, grad_input=d)  # d a (1 − a) in one pass over memory


def _relu_backward(d: torch.Tensor, a: torch.Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(d, a, 0, grad_input=d)  # d where a > 0, else 0


ACTIVATE = {"sigmoid": torch.sigmoid_, "relu": torch.relu_}
BACKWARD = {"sigmoid": _sigmoid_backward, "relu": _relu_backward}


class Program:
    """K settings × R seeds of one net, trained together on x (N, inputs) and y (N,) int64 with batches of `batch` images.

    The last images of an epoch that do not fill a batch are left out; the next epoch shuffles again. dtype and device are those
    of x.
    """

    def __init__(
        self,
        net: FullyConnected,
        settings: Sequence[Setting],
        seeds: Sequence[int],
        x: torch.Tensor,
        y: torch.Tensor,
        batch: int = 128,
    ) -> None:
        self.net, self.settings, self.seeds, self.batch = net, list(settings), list(seeds), batch
        self.x, self.y, self.iteration = x, y, 0
        self.per_epoch = len(x) // batch
        if self.per_epoch == 0:
            raise ValueError(f"a batch of {batch} images needs at least {batch} images; there are {len(x)}")
        starts = [[p.detach() for p in net.start(x.shape[1], seed, x.dtype).parameters()] for seed in self.seeds]
        flat = torch.stack([torch.cat([p.flatten() for p in start]) for start in starts]).to(x.device)
        self.parameters = flat.repeat(len(self.settings), 1, 1)  # (K, R, n)
        self.gradients = torch.zeros_like(self.parameters)
        self.shapes = [p.shape for p in starts[0]]
        self.weights, self.biases = self._views(self.parameters)
        self._weight_grads, self._bias_grads = self._views(self.gradients)
        self._one_hot = torch.eye(CLASSES, dtype=x.dtype, device=x.device)[y]
        self._loaded: tuple[int, int] | None = None
        self._order_of: int | None = None
        rows = min(GATHER, self.per_epoch) * batch
        self._images = torch.empty(len(self.seeds), rows, x.shape[1], dtype=x.dtype, device=x.device)
        self._targets = torch.empty(len(self.seeds), rows, CLASSES, dtype=x.dtype, device=x.device)
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self._group: dict[int, dict[str, Any]] = {}
        for kind in dict.fromkeys(setting.kind for setting in self.settings):
            of_kind = self._of_kind(kind)
            groups = [{"params": [self._leaf(k)], **dict(self.settings[k].hyper)} for k in of_kind]
            optimizer = getattr(classes, kind)(groups, foreach=False)  # a group is one tensor: foreach has nothing to combine
            self.optimizers[kind] = optimizer
            self._group.update(zip(of_kind, optimizer.param_groups, strict=True))

    def _of_kind(self, kind: str) -> list[int]:
        """The settings whose optimizer is of the class `kind`."""
        return [k for k, setting in enumerate(self.settings) if setting.kind == kind]

    # Views: a layer's W is (K, R, out, in), its b (K, R, out).

    def _views(self, flat: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        pieces = flat.split([shape.numel() for shape in self.shapes], dim=2)
        shaped = [piece.unflatten(2, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        return shaped[0::2], shaped[1::2]

    def _leaf(self, k: int) -> torch.Tensor:
        """All seeds of setting `k` as the one tensor (R, n) that its optimizer steps; a step is elementwise."""
        leaf = self.parameters[k].requires_grad_()
        leaf.grad = self.gradients[k]
        return leaf

    def lr(self, k: int) -> float:
        """The current learning rate of setting `k`."""
        return self._group[k]["lr"]

    def set_lr(self, k: int, lr: float) -> None:
        """Set the learning rate of setting `k`, from its next step on."""
        self._group[k]["lr"] = lr

    # Batches: the shuffle depends only on seed and epoch, so a training can resume at any iteration.

    def order(self, seed: int, epoch: int) -> torch.Tensor:
        """The order (N,) in which `seed` sees the images in `epoch`, drawn on the CPU: the same on every device."""
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        return torch.randperm(len(self.x), generator=generator)

    def _next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (R, batch, inputs) and one-hot labels (R, batch, 10) of this iteration, as slices."""
        epoch, index = divmod(self.iteration, self.per_epoch)
        if self._order_of != epoch:
            self._orders = torch.stack([self.order(seed, epoch) for seed in self.seeds]).to(self.x.device)
            self._order_of = epoch
        block, index = divmod(index, GATHER)
        if self._loaded != (epoch, block):
            rows = slice(block * GATHER * self.batch, min((block + 1) * GATHER, self.per_epoch) * self.batch)
            for r, order in enumerate(self._orders):
                chosen = order[rows]
                torch.index_select(self.x, 0, chosen, out=self._images[r, : len(chosen)])
                torch.index_select(self._one_hot, 0, chosen, out=self._targets[r, : len(chosen)])
            self._loaded = epoch, block
        rows = slice(index * self.batch, (index + 1) * self.batch)
        return self._images[:, rows], self._targets[:, rows]

    # One step.

    def _forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Activations (K, R, width, B) of every layer for images (R, B, inputs); the last are the logits."""
        k, r = len(self.settings), len(self.seeds)
        kinds = [kind for _, kind in self.net.hidden]
        activations: list[torch.Tensor] = []
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = w.new_empty(k, r, w.shape[2], images.shape[1])
            if layer == 0:  # all settings of a seed multiply the same images: they are read, not copied
                for seed, x in enumerate(images):
                    torch.bmm(w[:, seed], x.T.expand(k, -1, -1), out=z[:, seed])
            else:
                torch.bmm(w.flatten(0, 1), activations[-1].flatten(0, 1), out=z.flatten(0, 1))
            z.add_(b.unsqueeze(3))
            activations.append(ACTIVATE[kinds[layer]](z) if layer < len(kinds) else z)
        return activations

    def _backward(self, images: torch.Tensor, targets: torch.Tensor) -> None:
        """Write the gradient of each mean cross entropy over the batch into `gradients`."""
        activations = self._forward(images)
        d = activations.pop().softmax(2).sub_(targets.transpose(1, 2)).div_(images.shape[1])  # ∂J/∂z = (p − y) / B
        for layer in range(len(self.weights) - 1, -1, -1):
            torch.sum(d, 3, out=self._bias_grads[layer])
            if layer == 0:
                for seed, x in enumerate(images):
                    torch.bmm(d[:, seed], x.expand(len(d), -1, -1), out=self._weight_grads[0][:, seed])
                break
            a, flat = activations[layer - 1], d.flatten(0, 1)
            torch.bmm(flat, a.flatten(0, 1).transpose(1, 2), out=self._weight_grads[layer].flatten(0, 1))
            d = torch.bmm(self.weights[layer].flatten(0, 1).transpose(1, 2), flat).view_as(a)
            BACKWARD[self.net.hidden[layer - 1][1]](d, a)

    @torch.no_grad()
    def run(self, steps: int, before_step: Callable[[int], None] | None = None) -> None:
        """Take `steps` steps of every setting and seed; `before_step(iteration)` is called before each, from 0."""
        for _ in range(steps):
            if before_step is not None:
                before_step(self.iteration)
            self._backward(*self._next_batch())
            for optimizer in self.optimizers.values():
                optimizer.step()
            self.iteration += 1

    # Evaluation.

    @torch.no_grad()
    def evaluate(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean cross entropy and accuracy (K, R) on x (M, inputs), y (M,). Both stay on the device."""
        k, r = len(self.settings), len(self.seeds)
        widest = max(shape[0] for shape in self.shapes)
        rows = max(64, (1 << 24) // (k * r * widest))  # bounds the memory of the activations
        loss, right = x.new_zeros(k, r), x.new_zeros(k, r)
        for images, labels in zip(x.split(rows), y.split(rows), strict=True):
            logits = self._forward(images.expand(r, -1, -1))[-1]
            index = labels.expand(k, r, 1, -1)
            loss += (logits.logsumexp(2) - logits.gather(2, index).squeeze(2)).sum(2)
            right += (logits.argmax(2) == labels).sum(2)
        return loss / len(x), right / len(x)

    def module(self, k: int, r: int) -> nn.Sequential:
        """Setting `k` with its r-th seed as an ordinary net with a copy of its parameters."""
        net = self.net.module(self.x.shape[1]).to(self.x)
        pieces = self.parameters[k, r].split([shape.numel() for shape in self.shapes])
        for parameter, piece in zip(net.parameters(), pieces, strict=True):
            parameter.data.copy_(piece.view_as(parameter))
        return net

    # Stopping and resuming.

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bitwise identical continuation needs: parameters, the optimizers' states, the iteration."""
        states = {kind: optimizer.state_dict() for kind, optimizer in self.optimizers.items()}
        return {"iteration": self.iteration, "parameters": self.parameters.detach(), "optimizers": states}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where a program with the same net, settings, seeds and data stopped."""
        self.parameters.copy_(state["parameters"])
        for kind, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][kind])
        self._group = {
            k: group
            for kind, optimizer in self.optimizers.items()
            for k, group in zip(self._of_kind(kind), optimizer.param_groups, strict=True)
        }
        self.iteration, self._loaded, self._order_of = state["iteration"], None, None


def flat_inputs(data, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Train and test images of a DataSet as rows (N, H·W), normalized as in the study that the lecture cites.

    From each pixel its mean over the training set is subtracted; all are divided by one standard deviation over all pixels.
    """
    train, test = (images.flatten(1).to(dtype) for images in (data.train_x, data.test_x))
    mean = train.mean(0)
    spread = (train - mean).std()
    return (train - mean) / spread, (test - mean) / spread
