"""The lecture's two training loops in today's API, fp32 and mixed precision; the slide's slip; what ran in which dtype."""

import ast
import difflib
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


def train_fp32(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> list[torch.Tensor]:
    """One step a batch in float32; the loss of each."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        prediction = model(data)
        loss = F.cross_entropy(prediction, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def train_amp(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    device: torch.device,
    dtype: torch.dtype,
    scaler: torch.amp.GradScaler,
    on: bool = True,
) -> list[torch.Tensor]:
    """One step a batch with mixed precision; the loss of each. `on=False` and a disabled scaler make it the loop in float32."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype, enabled=on):
            prediction = model(data)
            loss = F.cross_entropy(prediction, label)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return losses


def train_slide(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> list[torch.Tensor]:
    """The left column of the lecture's slide as it is printed: `optimizer.step()` stands in it twice."""
    losses = []
    for data, label in batches:
        optimizer.zero_grad()
        prediction = model(data)
        loss = F.cross_entropy(prediction, label)
        loss.backward()
        optimizer.step()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def body(function: Callable) -> list[str]:
    """The lines of a function's body without its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    first = ast.parse(source).body[0].body[1]  # what follows the docstring
    return textwrap.dedent("\n".join(source.splitlines()[first.lineno - 1 :])).splitlines()


def aligned(left: Callable, right: Callable) -> list[tuple[str, str]]:
    """The bodies of two functions line beside line; where one has no counterpart stands "". Indentation does not count."""
    a, b = body(left), body(right)
    pairs = []
    matcher = difflib.SequenceMatcher(None, [line.strip() for line in a], [line.strip() for line in b], autojunk=False)
    for _, i1, i2, j1, j2 in matcher.get_opcodes():
        many = max(i2 - i1, j2 - j1)
        pairs += zip(a[i1:i2] + [""] * (many - i2 + i1), b[j1:j2] + [""] * (many - j2 + j1), strict=True)
    return pairs


def side_by_side(left: Callable, right: Callable) -> str:
    """The bodies of two functions in two columns; `>` marks the lines that differ in more than their indentation."""
    pairs = aligned(left, right)
    width = max(len(line) for line, _ in pairs)
    return "\n".join(f"{a:<{width}}  {'>' if a.strip() != b.strip() else ' '} {b}".rstrip() for a, b in pairs)


def scaler_for(device: torch.device, dtype: torch.dtype) -> torch.amp.GradScaler:
    """A gradient scaler where the dtype needs one: fp16 does; bf16 has float32's range, and its scaler lets everything pass."""
    return torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)


class _Dtypes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        found = [x.dtype for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        if found:
            self.seen.append((func.overloadpacket.__name__, found[0]))
        return out


def dtypes(work: Callable[[], object]) -> list[tuple[str, torch.dtype]]:
    """The operators that `work()` runs, in order, after autocast's casts, each with the dtype of its result."""
    with _Dtypes() as mode:
        work()
    return mode.seen


# The kernel behind each call of the probe, by which it is recognised in what was run.
PROBE = {
    "linear": ("addmm", lambda x, w: F.linear(x, w, w[0])),
    "matmul": ("mm", lambda x, w: x @ w),
    "conv2d": ("convolution", lambda x, w: F.conv2d(x[None, None], w[None, None, :3, :3])),
    "relu": ("relu", lambda x, w: (x @ w).relu()),
    "add": ("add", lambda x, w: (x @ w) + (x @ w)),
    "softmax": ("_softmax", lambda x, w: (x @ w).softmax(1)),
    "layer_norm": ("native_layer_norm", lambda x, w: F.layer_norm(x @ w, (len(w),))),
    "exp": ("exp", lambda x, w: (x @ w).exp()),
    "sum": ("sum", lambda x, w: (x @ w).sum()),
    "mse_loss": ("mse_loss", lambda x, w: F.mse_loss(x @ w, x)),
    "cross_entropy": (
        "_log_softmax",
        lambda x, w: F.cross_entropy(x @ w, torch.zeros(len(x), dtype=torch.int64, device=x.device)),
    ),
}
# What each device's list sends to float32. Products are sent to 16 bits; the rest takes what it is given, here the result
# of a product.
FLOAT32 = {"cpu": {"mse_loss", "cross_entropy"}, "cuda": {"softmax", "layer_norm", "exp", "sum", "mse_loss", "cross_entropy"}}


def autocast_table(device: torch.device, dtype: torch.dtype) -> list[dict[str, str]]:
    """For each operator of the probe under autocast: the dtype of its result, and the dtype by the device's list."""
    x, w = torch.randn(2, 8, 8, device=device)
    rows = []
    for name, (kernel, call) in PROBE.items():
        with torch.autocast(device.type, dtype=dtype):
            seen = dtypes(lambda call=call: call(x, w))
        ran = [found for operator, found in seen if operator == kernel]
        says = torch.float32 if name in FLOAT32[device.type] else dtype
        rows.append({"operator": name, "result": _short(ran[-1]), "by the list": _short(says)})
    return rows


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def then_and_now() -> list[dict[str, str]]:
    """What the lectures' spellings do today: the line, what came of it, and today's line."""
    rows = []
    for line, work, today in (
        ("torch.cuda.amp.GradScaler()", lambda: torch.cuda.amp.GradScaler(), 'torch.amp.GradScaler("cuda")'),
        ("torch.cuda.amp.autocast()", lambda: torch.cuda.amp.autocast(), 'torch.autocast("cuda")'),
        ('amp.initialize(…, opt_level="O2")', _apex, "torch.autocast and torch.amp.GradScaler"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                work()
                said = [f"{w.category.__name__}: {w.message}" for w in caught if w.category is FutureWarning]
                outcome = said[0] if said else "works"
            except Exception as error:  # Apex is absent here, and elsewhere too old or too new
                outcome = f"{type(error).__name__}: {error}"
        rows.append({"lecture": line, "today": outcome.splitlines()[0].split(". ")[0], "instead": today})
    return rows


def _apex() -> None:
    from apex import amp

    model = nn.Linear(2, 2)
    amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level="O2")
