"""What five Newton–Schulz steps cost: FLOPs counted against those of a layer's forward and backward pass, and times.

A layer of m × n weights needs 6 m n B FLOP for a batch of B rows, the steps 5 (4 m² n + 2 m³), m being the smaller side, which
is at most 30 m² n: a share of 5 m / B at most.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.experiment import Params, Row, column
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.large_batch.experiments.batched_trainings import CLASSES, ordinary_net
from hpml_lab.large_batch.experiments.muon.hidden_layers import ADAMW, MUON, HiddenByMuon
from hpml_lab.large_batch.lessons.orthogonalization import STEPS, newton_schulz, newton_schulz_flops

# (what, rows, columns, batch): a batch of a language model counts its tokens. The last two are the examples of Jordan et al.
LAYERS = (
    ("here, small batch", 100, 100, 64),
    ("here, large batch", 100, 100, 256),
    ("four times as wide as high", 768, 3072, 524_288),
    ("NanoGPT speedrun", 768, 768, 524_288),
    ("Llama 405B", 16_384, 16_384, 16_000_000),
)


@dataclass
class FlopShare(Row):
    """The FLOPs of the steps for one layer, and of training it on one batch."""

    layer: str = column("layer")
    rows: int = column("rows")
    columns: int = column("columns")
    batch: int = column("batch B")
    steps: int = column("five steps", "FLOP")
    training: int = column("forward and backward", "FLOP")
    share: float = column("share", "%")
    bound: float = column("at most 5 m / B", "%")


@dataclass
class MuonStepTime(Row):
    """A training step with AdamW for all parameters, and with Muon for the hidden layers."""

    width: int = column("width")
    batch: int = column("batch")
    adamw: float = column("AdamW", "ms")
    muon: float = column("Muon", "ms")
    slowdown: float = column("Muon / AdamW")
    interval: str = column("interval")
    verdict: str = column("Muon's step is")
    share: float = column("FLOPs of the steps / of the hidden layers", "%")
    text: str = ""  # all of it, as a key figure


def counted_flops(work: Callable[[], object]) -> int:
    """The FLOPs of the matrix products of one `work()`, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def flop_share(layer: str, rows: int, columns: int, batch: int) -> FlopShare:
    """Counted on tensors of the device "meta", which have shapes and no elements, so that any size can be counted."""
    W = torch.empty(rows, columns, device="meta", requires_grad=True)
    x = torch.empty(batch, columns, device="meta", requires_grad=True)
    training = counted_flops(lambda: F.linear(x, W).sum().backward())
    steps = counted_flops(lambda: newton_schulz(W.detach()))
    return FlopShare(
        layer, rows, columns, batch, steps, training, 100 * steps / training, 100 * STEPS * min(rows, columns) / batch
    )


def step_time(params: Params, width: int, batch: int) -> MuonStepTime:
    """Both training steps in turns, with torch's own classes; AdamW takes part twice, which is the placebo."""
    device = params.device.torch
    made = torch.Generator().manual_seed(0)
    x = torch.randn(batch, width, generator=made).to(device)
    y = torch.randint(CLASSES, (batch,), generator=made).to(device)

    def training(name: str) -> Callable[[], None]:
        net = ordinary_net(width, (width, width, width), seed=0).to(device)
        parameters, AdamW = list(net.parameters()), torch.optim.AdamW
        optimizer = AdamW(parameters) if name == ADAMW else HiddenByMuon(parameters, torch.optim.Muon, AdamW)

        def step() -> None:
            for p in parameters:
                p.grad = None
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

        return step

    gpu = device if params.device.is_cuda else None
    times = interleaved({name: training(name) for name in (ADAMW, MUON)}, samples=params.samples, placebo=ADAMW, gpu=gpu)
    found, sizes = speed_up(times, ADAMW, MUON), (width, batch)
    slowdown, ms = found.slowdown, [1e3 * times[name].seconds for name in (ADAMW, MUON)]
    share = 100 * newton_schulz_flops(width, width) / (6 * width * width * batch)
    return MuonStepTime(*sizes, *ms, slowdown.ratio, slowdown.interval, found.verdict, share, found.slowdown_text)
