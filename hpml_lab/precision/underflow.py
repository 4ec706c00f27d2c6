"""What becomes of small gradients in 16-bit floats: rounding as an operation, and histograms of magnitudes.

fp16 keeps 11 significant bits between 2^-14 and 65504. Below 2^-14 its numbers lie 2^-24 apart (they are called subnormal),
and what is at most 2^-25 becomes zero.
"""

import torch

from hpml_lab.precision.formats import FP16

EDGES = range(-60, 17)  # of the histograms, as powers of two


class _Rounded(torch.autograd.Function):
    """Round the value on its way forward and its gradient on its way back."""

    @staticmethod
    def forward(context, x: torch.Tensor) -> torch.Tensor:
        return x.half().float()

    @staticmethod
    def backward(context, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.half().float()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """x with each element at the nearest fp16 number, kept in float32; its gradient is rounded in the same way.

    An operation in float32 on such numbers, followed by `rounded`, is the operation of a tensor core: the product of two
    fp16 numbers is exact in float32 (11 + 11 ≤ 24 bits), the sum is kept in float32, and the result is rounded once.
    """
    return _Rounded.apply(x)


def histogram(values: torch.Tensor) -> list[float]:
    """Share of all `values` whose magnitude lies in [2^k, 2^(k+1)), one number for each k of EDGES; zeros are in none."""
    magnitudes = values.detach().flatten().double().abs()
    _, power = torch.frexp(magnitudes[(magnitudes > 0) & magnitudes.isfinite()])  # m = f · 2^power, 0.5 ≤ f < 1
    places = (power.long() - 1 - EDGES[0]).clamp(0, len(EDGES) - 1)
    return (torch.bincount(places, minlength=len(EDGES)) / max(1, magnitudes.numel())).tolist()


def scale_trace(
    device: torch.device, x: torch.Tensor, y: torch.Tensor, *, steps: int, start: float, interval: int
) -> list[dict[str, float | bool]]:
    """Train a small net with autocast in fp16 and torch's own GradScaler; one row a step: the scale it used, whether a
    gradient overflowed, whether any weight changed.

    x (N, inputs) and y (N,) are one batch that is used again and again; `start` is the scaler's first
    scale, `interval` its growth interval.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device.type, init_scale=start, growth_interval=interval)
    rows = []
    for step in range(steps):
        before = [weight.detach().clone() for weight in model.parameters()]
        used = scaler.get_scale()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        overflow = not all(weight.grad.isfinite().all() for weight in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
        rows.append({"step": step, "scale": used, "overflow": overflow, "changed": changed, "next": scaler.get_scale()})
    return rows


def torchs_own() -> list[dict[str, object]]:
    """Linear layer, convolution and ReLU, forward and backward: torch's own fp16 on this CPU beside float32 with rounding.

    Two sets of inputs: multiples of 1/16, whose sums are exact in float32, so that only the rounding at the end is seen; and
    random numbers, where the order of a sum decides its last bits. The distance is the largest of all elements, in spacings
    of fp16 at the largest element of the tensor.
    """
    generator = torch.Generator().manual_seed(0)
    rows = []
    for inputs in ("sixteenths", "random"):

        def draw(*shape: int, exact: bool = inputs == "sixteenths") -> torch.Tensor:
            if exact:
                return torch.randint(-16, 17, shape, generator=generator) / 16
            return torch.randn(shape, generator=generator).half().float()

        for name, call, shapes in (
            ("linear", torch.nn.functional.linear, ((32, 72), (10, 72))),
            ("conv2d", lambda x, w: torch.nn.functional.conv2d(x, w, stride=2, padding=1), ((4, 8, 8, 8), (16, 8, 3, 3))),
            ("relu", lambda x, w: (x * w).relu(), ((32, 10), (32, 10))),
        ):
            x, w = (draw(*shape) for shape in shapes)
            up = draw(*call(x, w).shape)
            true = _both_ways(call, x.half(), w.half(), up.half())
            emulated = _both_ways(lambda a, b, call=call: rounded(call(rounded(a), rounded(b))), x, w, up)
            apart = [
                (a.float() - b).abs().max().item() / FP16.spacing(b.abs().max().item())
                for a, b in zip(true, emulated, strict=True)
            ]
            rows.append({"layer": name, "inputs": inputs, "apart, spacings": max(apart)})
    return rows


def _both_ways(call, x: torch.Tensor, w: torch.Tensor, up: torch.Tensor) -> list[torch.Tensor]:
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    out = call(x, w)
    return [out.detach(), *torch.autograd.grad(out, (x, w), up)]
