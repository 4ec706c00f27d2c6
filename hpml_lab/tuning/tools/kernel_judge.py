"""Judges of kernels in Triton: what a kernel loads and stores comes first, then what it computes."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from hpml_lab.core.judge.mistake import CannotCheck, Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.system.errors import LabError
from hpml_lab.tuning.tools.guarded_memory import MemoryFault, guarded_launch, own_copy
from hpml_lab.tuning.tools.triton_kernel import TritonKernel, interpreted_library, require_triton

UNTOUCHED = -12345.0  # what a kernel's result holds before it runs
FAULTS = {
    "loads-outside": "Every load needs a mask that turns off the lanes without an element, and an offset that counts from the"
    " start of its own tensor, in elements.",
    "stores-outside": "What a store hits there belongs to something else: look at its mask, and at its offset.",
    "stores-twice": "On a GPU both run at the same time, and either may win. Which elements belong to program i alone?",
    "loads-twice": "A kernel that is bound by memory takes as long as its bytes: keep what you have loaded in a variable.",
}
BLOCK_SIZE = (
    "A block's size must be known when the kernel is compiled, and be a power of two: tl.arange(0, BLOCK). The mask turns off"
    " the lanes that are too many."
)


def launch(kernel: Callable[..., None], programs: int, *arguments: Any, **constants: Any) -> None:
    """One launch: guarded in the interpreter for tensors of the CPU, compiled for those of a GPU."""
    if arguments[0].device.type == "cpu":
        return guarded_launch(kernel, (programs,), *arguments, loads_once=True, **constants)
    compiled = TritonKernel(own_copy(kernel)).on(arguments[0].device)
    return compiled[(programs,)](*arguments, **constants, enable_fp_fusion=False)


def result_of(rows: int, columns: int, device: torch.device, gap: int = 0) -> Tensor:
    """Memory for a kernel's result, with `gap` elements between two rows.

    In the interpreter it holds UNTOUCHED; a GPU would take its time to fill it.
    """
    y = torch.empty(rows, columns + gap, device=device)[:, :columns]
    return y.fill_(UNTOUCHED) if device.type == "cpu" else y


def expect_kernel(
    run: Callable[..., Tensor],
    kernel: Callable[..., None],
    rubric: Rubric,
    cases: Mapping[str, tuple[Any, ...]],
    tolerance: float = 2e-5,
    but: Collection[str] = (),
) -> None:
    """Judge a kernel: its memory accesses first, then what it stores.

    run             (kernel, *case) -> the tensor that the kernel has filled
    tolerance, but  as for a rubric

    Raises CannotCheck where there is no Triton.
    """
    try:
        require_triton()
    except LabError as error:
        raise CannotCheck(str(error)) from error
    with interpreted_library():
        for case, given in cases.items():
            try:
                untouched = (run(kernel, *given) == UNTOUCHED).nonzero()
            except MemoryFault as fault:
                raise Mistake(fault.kind, f"For {case}, {fault}. {FAULTS[fault.kind]}") from fault
            except Exception as error:
                if "power of 2" in str(error) or "tl.constexpr" in str(error):
                    raise Mistake("block-size", BLOCK_SIZE) from error
                error.add_note(case)
                raise
            if len(untouched):
                where = f"y{untouched[0].tolist()}" + f" and {len(untouched) - 1} more" * (len(untouched) > 1)
                raise Mistake(
                    "not-stored", f"For {case}, no program stores {where}. Every element of y belongs to some program."
                )
        rubric.expect(kernel, cases, tolerance=tolerance, but=but)
