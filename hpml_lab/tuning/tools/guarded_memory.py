"""Runs a Triton kernel in the interpreter, and looks at each load and store before it is made.

    y = torch.empty_like(x)
    guarded_launch(kernel, (programs,), x, y, x.numel(), BLOCK=1024)     # as kernel[(programs,)](x, y, x.numel(), BLOCK=1024)

A wrong address reads or destroys what lies there, on a GPU and in the interpreter alike, and often nobody notices. Here it is
an error that names program, tensor and offset. So is a second program that stores where one has stored: on a GPU they run at
the same time. A lane that a mask turns off, with no value given instead (`other=`), has any value on a GPU; here it is NaN.
"""

import contextlib
import functools
import inspect
import linecache
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpml_lab.core.system.signatures import annotations_of, signature_of
from hpml_lab.tuning.tools.triton_kernel import interpreted_library, require_triton

APART = 1 << 22  # bytes between two tensors, and before the first


class MemoryFault(RuntimeError):
    """A wrong load or store: `kind` is "loads-outside", "stores-outside", "stores-twice" or, if asked, "loads-twice"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def guarded_launch(
    kernel: Callable[..., None], programs: tuple[int, ...], *arguments: Any, loads_once: bool = False, **constants: Any
) -> None:
    """Run all programs of `kernel`, one after the other, on tensors of the CPU.

    kernel      a function in Triton's language, decorated with triton.jit or not
    loads_once  whether a program that loads an element twice is a fault: it asks the memory for what it had already

    Raises MemoryFault before a wrong load or store, LabError without Triton, TypeError for arguments that the kernel does not
    take, and what the kernel itself raises.
    """
    require_triton()
    from triton.runtime import interpreter

    function = own_copy(kernel)
    try:
        given = signature_of(function).bind(*arguments, **constants).arguments
    except TypeError as error:
        raise TypeError(f"{function.__name__}(): {error}") from None
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    if not tensors:
        raise TypeError(f"{function.__name__}() has no argument for a tensor")
    copies = _far_apart(tensors)
    launch = interpreter.InterpretedFunction(function)
    launch.rewriter.rewrite_ast = functools.partial(_rewritten, function, launch.rewriter.rewrite_ast)
    try:
        with _guard(interpreter.interpreter_builder, copies, loads_once), interpreted_library(), np.errstate(all="ignore"):
            launch[programs](**{**given, **copies})
    except interpreter.InterpreterError as error:
        raise (error.__cause__ or error) from None
    finally:
        interpreter.InterpretedFunction.rewritten_fn.pop(function, None)
    for name, tensor in tensors.items():
        tensor.copy_(copies[name])


def own_copy(kernel: Any) -> types.FunctionType:
    """The kernel's function, which sees Triton as `tl`. The interpreter adds names to its globals: not to the reader's."""
    import triton
    import triton.language as tl

    kernel = inspect.unwrap(kernel)
    function = getattr(kernel, "fn", getattr(kernel, "source", kernel))
    names = {**function.__globals__, "tl": tl, "triton": triton}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__annotations__ = annotations_of(function)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _rewritten(function: types.FunctionType, rewrite: Callable[[], types.FunctionType]) -> types.FunctionType:
    """The function as the interpreter rewrites it; as it is if it was made by exec and other code stands at its line."""
    line = linecache.getline(function.__code__.co_filename, function.__code__.co_firstlineno).lstrip()
    rewritten = rewrite() if line.startswith(("def ", "@")) else function
    rewritten.__annotations__ = function.__annotations__  # an annotation in quotation marks would get a second pair
    return rewritten


def _offsets(tensor: Tensor) -> np.ndarray:
    """How far each element is from the first, in elements."""
    offsets = np.zeros(1, np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
    return offsets


def _far_apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies in one large block of memory, so far apart that an address next to one is in none of the others."""
    bytes_of = {name: (1 + int(_offsets(tensor).max(initial=0))) * tensor.element_size() for name, tensor in tensors.items()}
    memory = torch.empty(sum(bytes_of.values()) + (len(tensors) + 1) * (APART + 64), dtype=torch.uint8)  # pages come when used
    copies, start = {}, APART
    for name, tensor in tensors.items():
        copy = memory[start : start + bytes_of[name]].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        copies[name] = copy.copy_(tensor)
        start += -(-bytes_of[name] // 64) * 64 + APART
    return copies


@contextlib.contextmanager
def _guard(builder: Any, tensors: dict[str, Tensor], loads_once: bool) -> Iterator[None]:
    """Look at what the interpreter's builder is to load and store until the block ends."""
    names, sizes = list(tensors), [tensor.element_size() for tensor in tensors.values()]
    offsets = [_offsets(tensor) for tensor in tensors.values()]
    starts = np.array([tensor.data_ptr() for tensor in tensors.values()])
    addresses = np.sort(np.concatenate([starts[i] + sizes[i] * own for i, own in enumerate(offsets)]))
    stored_by, loaded_by = np.full((2, len(addresses)), -1)
    plain_load, plain_store = builder.create_masked_load, builder.create_masked_store

    def program() -> int:
        (x, y, z), (nx, ny, _) = builder.grid_idx, builder.grid_dim
        return x + nx * (y + ny * z)

    def place(found: np.ndarray) -> tuple[str, int]:
        """Where some addresses are, such as "x + 5 to x + 7", and the offset of that tensor's last element."""
        i = max(int(np.searchsorted(starts - APART // 2, found[0])) - 1, 0)
        first, last = ((int(end) - int(starts[i])) // sizes[i] for end in (found.min(), found.max()))
        return f"{names[i]} + {first}" + (f" to {names[i]} + {last}" if last > first else ""), int(offsets[i].max())

    def positions(verb: str, pointers: Any, mask: Any) -> np.ndarray:
        """Which elements the pointers of the lanes that are on belong to."""
        wanted = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)].astype(np.int64)
        found = np.searchsorted(addresses, wanted).clip(max=len(addresses) - 1)
        outside = wanted[addresses[found] != wanted]
        if outside.size:
            where, last = place(outside)
            raise MemoryFault(f"{verb}-outside", f"program {program()} {verb} at {where}; the last element is at + {last}")
        return found

    def load(pointers: Any, mask: Any, other: Any, *policy: Any) -> Any:
        found = positions("loads", pointers, mask)
        again = found[loaded_by[found] == program()]
        if loads_once and again.size:
            raise MemoryFault("loads-twice", f"program {program()} loads twice at {place(addresses[again])[0]}")
        loaded_by[found] = program()
        result = plain_load(pointers, mask, other, *policy)
        if other is None and np.issubdtype(result.data.dtype, np.floating):
            result.data = np.where(mask.data, result.data, np.array(np.nan, result.data.dtype))
        return result

    def store(pointers: Any, value: Any, mask: Any, *policy: Any) -> Any:
        found = positions("stores", pointers, mask)
        twice = found[(stored_by[found] >= 0) & (stored_by[found] != program())]
        if twice.size:
            both = f"programs {stored_by[twice[0]]} and {program()}"
            raise MemoryFault("stores-twice", f"{both} both store at {place(addresses[twice])[0]}")
        stored_by[found] = program()
        return plain_store(pointers, value, mask, *policy)

    builder.create_masked_load, builder.create_masked_store = load, store
    try:
        yield
    finally:
        del builder.create_masked_load, builder.create_masked_store  # those of its class are there again
