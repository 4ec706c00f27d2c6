"""Dense and sparse gradients of an embedding: what optimizers keep, how long a step takes, and what an unseen row undergoes.

With `nn.Embedding(…, sparse=True)` the gradient holds only the rows of the batch, and an optimizer that supports it visits no
others. Without, the gradient has a row for each word, nearly all of them 0, and the optimizer computes with all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn, optim

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up

Make = Callable[[list[nn.Parameter]], optim.Optimizer]
MOMENTUM = partial(optim.SGD, lr=0.1, momentum=0.9)
BASE, SPARSE_ADAM, SPARSE_MOMENTUM = "Adam", "SparseAdam", "SGD with momentum, sparse"
# name: (optimizer, sparse gradient, dense copies of the weight in its state; None where the state is sparse)
OPTIMIZERS: dict[str, tuple[Make, bool, int | None]] = {
    BASE: (partial(optim.Adam, lr=0.1), False, 2),
    "Adagrad": (partial(optim.Adagrad, lr=0.1), False, 1),
    "SGD with momentum": (MOMENTUM, False, 1),
    "SGD": (partial(optim.SGD, lr=0.1), False, 0),
    SPARSE_ADAM: (partial(optim.SparseAdam, lr=0.1), True, 2),
    "Adagrad, sparse": (partial(optim.Adagrad, lr=0.1), True, 1),
    SPARSE_MOMENTUM: (MOMENTUM, True, None),
    "SGD, sparse": (partial(optim.SGD, lr=0.1), True, 0),
}
ALSO_DENSE: dict[str, tuple[Make, bool, int | None]] = {
    "AdamW": (partial(optim.AdamW, lr=0.1), False, 2),
    "RMSprop": (partial(optim.RMSprop, lr=0.1), False, 1),
}
MORE_STEPS = 10


@dataclass
class EmbeddingStep(Row):
    """Training steps of one embedding with one optimizer."""

    vocabulary: int = column("vocabulary")
    optimizer: str = column("optimizer")
    sparse: bool = column("sparse gradient")
    gradient_bytes: int = column("gradient", "bytes")
    copies: float = column("state", "× weight")
    state_bytes: int = column("state", "bytes")
    later_bytes: int = column(f"state after {MORE_STEPS} steps", "bytes")
    step_ms: float | None = column("step", "ms", None)
    gain: float | None = column("times as fast as Adam", default=None)
    interval: str | None = column("90 % interval", default=None)
    verdict: str | None = column("verdict", default=None)


@dataclass
class UnseenRow(Row):
    """What steps on other words change in a row that was in the batch once, and in one that never was."""

    optimizer: str = column("optimizer")
    moves: bool = column("a row seen once moves on")
    statistics: bool | None = column("its statistics change", default=None)
    never_seen_moves: bool = column("a row never seen moves", default=False)
    path: float = column("its whole path", "first steps", 1.0)
    by_step: list[float] = field(default_factory=list)


@dataclass
class SparseRefusal(Row):
    """What an optimizer says to a gradient of the other kind."""

    optimizer: str = column("optimizer")
    gradient: str = column("gradient")
    outcome: str = column("outcome")


class EmbeddingTraining:
    """An embedding of its own, and an optimizer; `step()` trains on the same ids each time."""

    def __init__(self, make: Make, sparse: bool, weight: torch.Tensor) -> None:
        self.layer = nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=sparse)
        self.optimizer = make([self.layer.weight])

    def step(self, ids: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """One step; `gradient` is that of the looked-up rows, by default 1 everywhere."""
        self.optimizer.zero_grad()
        rows = self.layer(ids)
        rows.backward(torch.ones_like(rows) if gradient is None else gradient)
        # Said explicitly: torch warns of unchecked sparse tensors otherwise, and its own optimizers make such.
        with torch.sparse.check_sparse_tensor_invariants(False):
            self.optimizer.step()

    def statistics(self) -> list[torch.Tensor]:
        """The state's tensors, without the counter of steps."""
        state = self.optimizer.state.get(self.layer.weight, {})
        return [value for value in state.values() if isinstance(value, torch.Tensor) and value.ndim]


def stored_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements; of a sparse one those of its values and of their indices."""
    if tensor.layout == torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    return tensor.nbytes


def needed_bytes(vocabulary: int, width: int) -> int:
    """What `embedding_steps` needs at once: weights, dense gradients and states of all, and the temporaries of a step."""
    tensors = sum(1 + (not sparse) + (copies or 0) for _, sparse, copies in OPTIMIZERS.values()) + 4
    return 4 * vocabulary * width * tensors


def embedding_steps(
    weight: torch.Tensor, batch: int, samples: int, gpu: torch.device | None
) -> tuple[list[EmbeddingStep], dict[str, SpeedUp]]:
    """Bytes and times of a training step with each of OPTIMIZERS; all see the same ids."""
    made = torch.Generator().manual_seed(0)
    batches = [torch.randint(len(weight), (batch,), generator=made).to(weight.device) for _ in range(MORE_STEPS)]
    gradient = torch.randn(batch, weight.shape[1], generator=made).to(weight.device)
    rows, works = {}, {}
    for name, (make, sparse, _) in OPTIMIZERS.items():
        training, state = EmbeddingTraining(make, sparse, weight), []
        for ids in batches:
            training.step(ids, gradient)
            state.append(sum(map(stored_bytes, training.statistics())))
        gradient_bytes = stored_bytes(training.layer.weight.grad)
        rows[name] = EmbeddingStep(len(weight), name, sparse, gradient_bytes, state[0] / weight.nbytes, state[0], state[-1])
        if name != SPARSE_MOMENTUM:  # takes longer with each step
            works[name] = partial(training.step, batches[0], gradient)
    times = interleaved(works, samples=samples, placebo=BASE, gpu=gpu)
    gains = {name: speed_up(times, BASE, name) for name in works if name != BASE}
    for name in works:
        rows[name].step_ms = times[name].seconds * 1e3
        for key, value in gains[name].columns.items() if name in gains else ():
            setattr(rows[name], key, value)
    return list(rows.values()), gains


def unseen_rows(steps: int) -> list[UnseenRow]:
    """Train 6 rows: words 0 and 1 in the first step only, words 2 and 3 in all later ones, 4 and 5 never."""
    seen_once, others = torch.tensor([0, 1]), torch.tensor([2, 3])
    start = torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2)

    def row(name: str, make: Make, sparse: bool) -> UnseenRow:
        training = EmbeddingTraining(make, sparse, start)
        weight, path = training.layer.weight, []

        def snapshot() -> list[torch.Tensor]:
            tensors = (t.to_dense() if t.is_sparse else t for t in training.statistics())
            return [tensor[:2].clone() for tensor in tensors]

        training.step(seen_once)
        first, after_first, statistics = abs(weight[0, 0] - start[0, 0]).item(), weight[:2].detach().clone(), snapshot()
        for _ in range(steps):
            path.append(abs(weight[0, 0] - start[0, 0]).item() / first)
            training.step(others)
        changed = any(not torch.equal(a, b) for a, b in zip(statistics, snapshot(), strict=True)) if statistics else None
        moved = not torch.equal(weight[:2].detach(), after_first)
        return UnseenRow(name, moved, changed, not torch.equal(weight[4:].detach(), start[4:]), path[-1], path)

    return [row(name, make, sparse) for name, (make, sparse, _) in (OPTIMIZERS | ALSO_DENSE).items()]


def sparse_refusals() -> list[SparseRefusal]:
    """Hand optimizers a sparse gradient, and SparseAdam a dense one."""
    tries: Sequence[tuple[str, Make, bool]] = [
        *((kind.__name__, kind, True) for kind in (optim.Adam, optim.AdamW, optim.NAdam, optim.RMSprop, optim.Adadelta)),
        ("SGD with weight_decay", partial(optim.SGD, lr=0.1, weight_decay=0.1), True),
        ("Adagrad with weight_decay", partial(optim.Adagrad, weight_decay=0.1), True),
        *((name, make, True) for name, (make, sparse, _) in OPTIMIZERS.items() if sparse),
        (SPARSE_ADAM, optim.SparseAdam, False),
    ]
    ids = torch.tensor([1, 4, 4])
    return [
        SparseRefusal(
            name.removesuffix(", sparse"),
            "sparse" if sparse else "dense",
            attempt(lambda make=make, sparse=sparse: EmbeddingTraining(make, sparse, torch.ones(6, 2)).step(ids)),
        )
        for name, make, sparse in tries
    ]
