"""Adam as one kernel in Triton: all parameters of a model in one launch, each number read once and written once.

    g ← g + λ p                            weight decay λ
    m ← β₁ m + (1 − β₁) g                  mean of the gradient
    v ← β₂ v + (1 − β₂) g²                 mean of its square
    p ← p − (α / (1 − β₁ᵗ)) m / (√v / √(1 − β₂ᵗ) + ε)

An element is 7 numbers of memory: p, g, m, v are read, p, m, v are written, 28 bytes. The arithmetic hides behind that, so
no Adam can be faster than 28 bytes an element over the bandwidth of the memory.

A model is many tensors of all sizes. A table in the device's memory says where they lie; each program of the kernel looks
up its tensor there and takes BLOCK elements of it. Importing this module needs Triton: without it, `import` raises LabError.
"""

import math
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.errors import LabError
from hpml_lab.tuning.compiled import Kernel, require_triton

require_triton()
import triton.language as tl  # noqa: E402

BLOCK, WARPS = 1024, 4  # elements a program, and groups of 32 threads: 8 elements a thread, two 16-byte loads of each array
COLUMNS = 6  # of the table: where p, g, m, v lie; elements that whole, aligned blocks cover; elements
BYTES = 28  # that one element needs


@Kernel
def adam_kernel(
    table, block_tensor, block_start, step_size, beta1, beta2, rest1, rest2, root, eps, decay,
    DECAY: tl.constexpr, MAXIMIZE: tl.constexpr, GPU: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program, BLOCK elements of one tensor.

    step_size = α/(1 − β₁ᵗ), rest1 = 1 − β₁, rest2 = 1 − β₂, root = √(1 − β₂ᵗ), decay = λ
    """
    program = tl.program_id(0)
    start = tl.load(block_start + program)
    row = table + tl.load(block_tensor + program) * COLUMNS
    at = start + tl.arange(0, BLOCK)  # 64 bits: a tensor may have more than 2³¹ elements
    p_at = tl.load(row + 0).to(tl.pointer_type(tl.float32)) + at
    g_at = tl.load(row + 1).to(tl.pointer_type(tl.float32)) + at
    m_at = tl.load(row + 2).to(tl.pointer_type(tl.float32)) + at
    v_at = tl.load(row + 3).to(tl.pointer_type(tl.float32)) + at
    whole = start + BLOCK <= tl.load(row + 4)
    inside = at < tl.load(row + 5)

    if whole:  # no mask, and every address of a block's start is a multiple of 16 bytes: loads of 4 numbers at once
        p = tl.load(tl.multiple_of(p_at, 16))
        g = tl.load(tl.multiple_of(g_at, 16))
        m = tl.load(tl.multiple_of(m_at, 16))
        v = tl.load(tl.multiple_of(v_at, 16))
    else:
        p = tl.load(p_at, mask=inside)
        g = tl.load(g_at, mask=inside)
        m = tl.load(m_at, mask=inside)
        v = tl.load(v_at, mask=inside)

    if MAXIMIZE:
        g = -g
    if DECAY:
        g = tl.fma(p, decay, g)  # fma(a, b, c) is a·b + c, rounded once
    if GPU:  # torch's kernels round differently on the two devices; this one follows both
        m = tl.fma(beta1, m, tl.fma(-beta1, g, g))
        v = tl.fma(beta2, v, tl.fma(-beta2, g * g, g * g))
    else:
        m = tl.fma(rest1, g - m, m) if rest1 < 0.5 else tl.fma(rest1 - 1.0, g - m, g)
        v = tl.fma(rest2 * g, g, beta2 * v)
    p = p - tl.div_rn(step_size * m, tl.div_rn(tl.sqrt_rn(v), root) + eps)

    if whole:
        tl.store(tl.multiple_of(p_at, 16), p)
        tl.store(tl.multiple_of(m_at, 16), m)
        tl.store(tl.multiple_of(v_at, 16), v)
    else:
        tl.store(p_at, p, mask=inside)
        tl.store(m_at, m, mask=inside)
        tl.store(v_at, v, mask=inside)


class Table:
    """The table of all tensors of one launch, and which program takes which part of which tensor.

    tensors  for each parameter its p, g, m, v
    """

    def __init__(self, tensors: list[tuple[Tensor, ...]]) -> None:
        device = tensors[0][0].device
        self.addresses = addresses(tensors)
        sizes = torch.tensor([one[0].numel() for one in tensors])
        places = torch.tensor(self.addresses)
        whole = torch.where((places % 16 == 0).all(1), sizes // BLOCK * BLOCK, 0)
        self.rows = torch.cat([places, whole[:, None], sizes[:, None]], 1).to(device)
        blocks = -(-sizes // BLOCK)
        first = (blocks.cumsum(0) - blocks).repeat_interleave(blocks)
        self.programs = int(blocks.sum())
        self.tensor = torch.arange(len(tensors)).repeat_interleave(blocks).to(device)
        self.start = ((torch.arange(self.programs) - first) * BLOCK).to(device)


def addresses(tensors: list[tuple[Tensor, ...]]) -> list[list[int]]:
    """Where the tensors lie in memory; a gradient may lie elsewhere in every step."""
    return [[one.data_ptr() for one in four] for four in tensors]


class TritonAdam(torch.optim.Optimizer):
    """Adam in one launch a step; the options are those of torch.optim.Adam, as far as it has them.

    params        float32 parameters on one device; on the CPU Triton's interpreter runs the kernel: right, and slow
    lr, betas, eps, weight_decay, maximize   as in torch.optim.Adam; lr is a number

    The state has torch's names: step, exp_avg (m), exp_avg_sq (v). Raises LabError for other dtypes, sparse gradients and
    layouts with holes.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if not (lr >= 0 and eps >= 0 and weight_decay >= 0 and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
            raise ValueError(f"{lr=}, {betas=}, {eps=}, {weight_decay=}: two betas in [0, 1), the rest ≥ 0")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))
        self._tables: dict[tuple[int, ...], Table] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of all parameters that have a gradient: one launch for each group and number of steps taken before."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None and p.numel()]
            for p in params:
                if not self.state[p]:
                    suitable(p)
                    zeros = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                    self.state[p].update(step=torch.tensor(0.0), **zeros)
            if params:
                torch._foreach_add_([self.state[p]["step"] for p in params], 1)
            together: dict[tuple[int, torch.device], list[Tensor]] = {}
            for p in params:
                together.setdefault((int(self.state[p]["step"]), p.device), []).append(p)
            for (step, device), those in together.items():
                self._launch(group, step, device, those)
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After a copy or a pickle the tensors lie elsewhere: the tables are made again. LabError for a rule of others."""
        for group in state["param_groups"]:  # load_state_dict comes here too, and would go on by another rule without a word
            if group.get("amsgrad") or (group.get("decoupled_weight_decay") and group["weight_decay"]):
                raise LabError(
                    "this is the state of an Adam with amsgrad or decoupled weight decay, which the kernel does not have.",
                    "Load it into torch.optim.Adam or AdamW.",
                )
        super().__setstate__(state)
        self._tables = {}

    def _launch(self, group: dict[str, Any], step: int, device: torch.device, params: list[Tensor]) -> None:
        state = self.state
        tensors = [(p, gradient(p), state[p]["exp_avg"], state[p]["exp_avg_sq"]) for p in params]
        key = tuple(map(id, params))
        table = self._tables.get(key)
        if table is None or table.addresses != addresses(tensors):
            table = self._tables[key] = Table(tensors)
        beta1, beta2 = group["betas"]
        step_size, root = corrected(group["lr"], beta1, beta2, step, device)
        scalars = map(single, (step_size, beta1, beta2, 1 - beta1, 1 - beta2, root, group["eps"], group["weight_decay"]))
        with torch.cuda.device_of(params[0]):
            adam_kernel.on(device)[(table.programs,)](
                table.rows, table.tensor, table.start, *scalars,
                DECAY=group["weight_decay"] != 0, MAXIMIZE=group["maximize"], GPU=device.type == "cuda",
                COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
            )  # fmt: skip


def suitable(p: Tensor) -> None:
    """Raise LabError for a parameter that the kernel cannot take: it walks through memory, in float32."""
    if p.dtype != torch.float32 or p.device.type not in ("cpu", "cuda"):
        raise LabError(
            f"the kernel takes float32 on the CPU or a CUDA GPU, not {p.dtype} on {p.device.type}.", "Use model.float()."
        )
    if not (p.layout == torch.strided and torch.empty_like(p).stride() == p.stride()):
        raise LabError("a parameter's elements do not lie in memory without holes.", "Use p.contiguous().")


def gradient(p: Tensor) -> Tensor:
    """The gradient of p in p's own order of elements in memory."""
    g = p.grad
    if g.layout != torch.strided:
        raise LabError("the kernel takes no sparse gradients.", "Use torch.optim.SparseAdam.")
    return g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)


def corrected(lr: float, beta1: float, beta2: float, step: int, device: torch.device) -> tuple[float, float]:
    """α/(1 − β₁ᵗ) and √(1 − β₂ᵗ), as torch computes them: in double precision for the CPU, in single for a GPU."""
    if device.type == "cpu":
        return lr / (1 - beta1**step), math.sqrt(1 - beta2**step)
    ahead = 256  # steps: reading from the GPU waits for it, so it is done seldom
    first, second = (powers(beta, step // ahead * ahead, ahead, device)[step % ahead] for beta in (beta1, beta2))
    return float(torch.tensor(lr) / (1 - first)), float((1 - second).sqrt())


def single(number: float) -> float:
    """`number` rounded to float32, as a kernel on a GPU gets it; the interpreter would go on with all its digits."""
    return struct.unpack("f", struct.pack("f", number))[0]


@lru_cache(maxsize=8)
def powers(beta: float, start: int, count: int, device: torch.device) -> Tensor:
    """βᵗ in float32 by the GPU's own `pow`, for t = start … start + count − 1, on the CPU."""
    steps = torch.arange(start, start + count, device=device, dtype=torch.float32)
    return torch.pow(torch.full_like(steps, beta), steps).cpu()
