"""LAMB in two kernels in Triton for all parameters of a model; torch has none.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²             as in Adam
    u = (m / (1 − β₁ᵗ)) / (√v / √(1 − β₂ᵗ) + ε) + λ p           direction
    p ← p − α (‖p‖ / ‖u‖) u                                     ‖·‖ over the whole tensor

A norm needs every element of its tensor, so no program may take the step before all have finished with the direction.
Programs of one launch cannot wait for each other: this takes two, and u goes through memory. Each element moves 10 numbers, 40
bytes: the first kernel reads p, g, m, v and writes m, v, u, the second reads p, u and writes p.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from hpml_lab.optim.machinery.layerwise import trust_ratio
from hpml_lab.tuning.lessons.triton_adam import BLOCK, COLUMNS, WARPS, TritonAdam, dense_gradient, rounded_to_float32
from hpml_lab.tuning.tools.triton_kernel import TritonKernel, require_triton

require_triton()
import triton.language as tl  # noqa: E402


@TritonKernel
def direction_kernel(
    table, gradients, block_tensor, block_start, directions, squares, beta2, rest1, rest2, correction, root, eps, decay,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: m, v and u of BLOCK elements of one tensor, and the sums of p² and u² over them.

    rest = 1 − β (of a float32's 0.999 it would be wrong in the fifth digit), correction = 1 − β₁ᵗ, root = √(1 − β₂ᵗ), decay = λ
    """
    program = tl.program_id(0).to(tl.int64)
    start, tensor = tl.load(block_start + program), tl.load(block_tensor + program)
    row = table + tensor * COLUMNS
    lane = tl.arange(0, BLOCK)
    inside = start + lane < tl.load(row + 3)
    p_address = tl.load(row + 0).to(tl.pointer_type(tl.float32)) + start + lane
    m_address = tl.load(row + 1).to(tl.pointer_type(tl.float32)) + start + lane
    v_address = tl.load(row + 2).to(tl.pointer_type(tl.float32)) + start + lane
    g_address = tl.load(gradients + tensor).to(tl.pointer_type(tl.float32)) + start + lane
    p = tl.load(p_address, mask=inside, other=0.0)  # what is off adds 0 to both sums
    g = tl.load(g_address, mask=inside, other=0.0)
    m = tl.load(m_address, mask=inside, other=0.0)
    v = tl.load(v_address, mask=inside, other=0.0)
    m = m + rest1 * (g - m)
    v = beta2 * v + rest2 * g * g
    u = m / correction / (tl.sqrt(v) / root + eps) + decay * p
    tl.store(m_address, m, mask=inside)
    tl.store(v_address, v, mask=inside)
    tl.store(directions + program * BLOCK + lane, u)
    tl.store(squares + 2 * program, tl.sum(p * p, 0))
    tl.store(squares + 2 * program + 1, tl.sum(u * u, 0))


@TritonKernel
def step_kernel(table, block_tensor, block_start, directions, ratios, lr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """One program: p ← p − α r u for the same BLOCK elements."""
    program = tl.program_id(0).to(tl.int64)
    start, tensor = tl.load(block_start + program), tl.load(block_tensor + program)
    lane = tl.arange(0, BLOCK)
    inside = start + lane < tl.load(table + tensor * COLUMNS + 3)
    p_address = tl.load(table + tensor * COLUMNS).to(tl.pointer_type(tl.float32)) + start + lane
    u = tl.load(directions + program * BLOCK + lane, mask=inside)
    p = tl.load(p_address, mask=inside) - lr * tl.load(ratios + tensor) * u
    tl.store(p_address, p, mask=inside)


class TritonLAMB(TritonAdam):
    """hpml_lab.optim.LAMB with its default options, in two launches per step and group; errors as of TritonAdam."""

    launches = 2

    def __init__(self, params: Iterable[Any], lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _launch(self, group: dict[str, Any], step: int, device: torch.device, params: list[Tensor]) -> None:
        gradients, table = [dense_gradient(p) for p in params], self._table(params)
        beta1, beta2 = group["betas"]
        directions = torch.empty(table.programs, BLOCK, device=device)
        squares = torch.empty(table.programs, 2, device=device)
        options = dict(COLUMNS=COLUMNS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False)
        numbers = (beta2, 1 - beta1, 1 - beta2, 1 - beta1**step, (1 - beta2**step) ** 0.5, group["eps"], group["weight_decay"])
        with torch.cuda.device_of(params[0]):
            direction_kernel.on(device)[(table.programs,)](
                table.rows,
                table.gradients(gradients),
                table.tensor,
                table.start,
                directions,
                squares,
                *map(rounded_to_float32, numbers),
                **options,
            )
            p_norm, u_norm = torch.zeros(len(params), 2, device=device).index_add_(0, table.tensor, squares).sqrt().unbind(1)
            ratios = trust_ratio(p_norm, u_norm)
            step_kernel.on(device)[(table.programs,)](
                table.rows, table.tensor, table.start, directions, ratios, group["lr"], **options
            )
