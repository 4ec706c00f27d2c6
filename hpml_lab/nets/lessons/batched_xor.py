"""Hundreds of XOR nets trained at once, as one batched tensor program.

The parameters of S nets are four tensors with a leading seed axis, so one operation works on all nets, and an epoch takes
as many calls for S nets as for one. The nets stay independent: every sum runs over samples (n), inputs (d) or hidden
units (h), never over seeds (s), and SGD and Adam update each element by itself.

W1 (S, H, 2), b1 (S, H), W2 (S, 1, H), b2 (S, 1): the parameters of S XorNets, stacked.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from hpml_lab.core.show.progress import progress
from hpml_lab.core.timing.threads import one_thread
from hpml_lab.nets.lessons.networks import XorNet

INPUTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
TARGETS = torch.tensor([[0.0], [1.0], [1.0], [0.0]])  # (4, 1)

# name: (activation, its derivative in terms of its value a)
ACTIVATIONS = {"sigmoid": (torch.sigmoid, lambda a: a * (1 - a)), "tanh": (torch.tanh, lambda a: 1 - a * a)}

Parameters = list[torch.Tensor]
MakeOptimizer = Callable[[Parameters], torch.optim.Optimizer]


def stack_of_nets(
    seeds: Iterable[int], *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Parameters:
    """[W1, b1, W2, b2] of one XorNet per seed, initialized as torch.nn.Linear does after torch.manual_seed(seed)."""
    nets = []
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.manual_seed(seed)
            nets.append([parameter.detach() for parameter in XorNet().parameters()])
    return [torch.stack(tensors).to(device, dtype) for tensors in zip(*nets, strict=True)]


def batched_forward(
    parameters: Sequence[torch.Tensor], x: torch.Tensor, activation: str = "sigmoid"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden values a (S, N, H) and logits z (S, N) of all nets for the same x (N, 2); p = σ(z).

    a = activation(W₁x + b₁), z = W₂a + b₂
    """
    W1, b1, W2, b2 = parameters
    a = ACTIVATIONS[activation][0](torch.einsum("nd,shd->snh", x, W1) + b1[:, None, :])
    z = (a * W2).sum(-1) + b2
    return a, z


def batched_gradients(
    parameters: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor, activation: str = "sigmoid"
) -> Parameters:
    """The gradient of each net's mean BCE loss, written out by the chain rule; x (N, 2), y (N,).

    ∂L/∂z = (p - y)/N, ∂L/∂W₂ = Σₙ ∂L/∂z · a, ∂L/∂b₂ = Σₙ ∂L/∂z
    ∂L/∂h = ∂L/∂z · W₂ · activation′(h), ∂L/∂W₁ = Σₙ ∂L/∂h · x, ∂L/∂b₁ = Σₙ ∂L/∂h, where h = W₁x + b₁
    """
    a, z = batched_forward(parameters, x, activation)
    dz = (torch.sigmoid(z) - y) / len(x)
    dh = dz[:, :, None] * parameters[2] * ACTIVATIONS[activation][1](a)
    return [torch.einsum("snh,nd->shd", dh, x), dh.sum(1), (dz[:, :, None] * a).sum(1, keepdim=True), dz.sum(1, keepdim=True)]


@dataclass
class BatchedHistory:
    """The training of S nets, evaluated at R epochs.

    epochs      (R,) the epochs, 0 first
    right       (R, S) whether all four predictions (p > 0.5) were right
    loss        (R, S) mean BCE loss
    parameters  [W1, b1, W2, b2] after the last epoch
    snapshots   {epoch: [W1, b1, W2, b2]} at the requested epochs
    """

    epochs: torch.Tensor
    right: torch.Tensor
    loss: torch.Tensor
    parameters: Parameters
    snapshots: dict[int, Parameters] = field(default_factory=dict)

    def fraction_right(self, epoch: int) -> float | None:
        """The fraction of nets that were right at `epoch`; None if the nets were not evaluated then."""
        at = (self.epochs == epoch).nonzero()
        return self.right[at.item()].double().mean().item() if len(at) else None

    def first_right(self) -> list[int | None]:
        """For each net the first epoch at which it was right; None if it never was."""
        ever = self.right.any(0).tolist()
        first = self.right.int().argmax(0)  # of equal values argmax gives the first
        return [int(epoch) if found else None for epoch, found in zip(self.epochs[first], ever, strict=True)]


@one_thread()
def train_batched(
    seeds: Iterable[int],
    epochs: int,
    make_optimizer: MakeOptimizer,
    *,
    activation: str = "sigmoid",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    every: int = 10,
    snapshots: Sequence[int] = (),
) -> BatchedHistory:
    """Train one net per seed for `epochs` steps of full-batch descent, and evaluate all nets every `every` epochs.

    make_optimizer  a function of the four stacked parameters that returns the optimizer for all nets
    """
    parameters = stack_of_nets(seeds, device=device, dtype=dtype)
    x, y = INPUTS.to(device, dtype), TARGETS[:, 0].to(device, dtype)
    optimizer = make_optimizer(parameters)
    evaluated, right, loss, taken = [], [], [], {}
    for epoch in progress(range(epochs + 1), f"{len(parameters[0])} XOR nets"):
        if epoch:
            for parameter, gradient in zip(parameters, batched_gradients(parameters, x, y, activation), strict=True):
                parameter.grad = gradient
            optimizer.step()
        if epoch % every == 0:
            z = batched_forward(parameters, x, activation)[1]
            evaluated.append(epoch)
            # Both stay on the device, so that the loop does not wait for them.
            right.append(((torch.sigmoid(z) > 0.5) == (y > 0.5)).all(1))
            loss.append(F.binary_cross_entropy_with_logits(z, y.expand_as(z), reduction="none").mean(1))
        if epoch in snapshots:
            taken[epoch] = [parameter.clone().cpu() for parameter in parameters]
    return BatchedHistory(torch.tensor(evaluated), torch.stack(right).cpu(), torch.stack(loss).cpu(), parameters, taken)


@one_thread()
def train_one(
    seed: int,
    epochs: int,
    make_optimizer: Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> XorNet:
    """The lecture's training loop for one net: forward, BCELoss, zero_grad, backward, step.

    The weights are initialized on the CPU and then moved, so that every device starts from the same weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = XorNet().to(device, dtype)
    x, y = INPUTS.to(device, dtype), TARGETS.to(device, dtype)
    optimizer, criterion = make_optimizer(net.parameters()), torch.nn.BCELoss()
    for _ in range(epochs):
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net
