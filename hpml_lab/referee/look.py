"""What a copy sees of the script before anything is changed in it; loaded next to `in_the_script`, as that is."""

import functools
import os
import statistics
import sys
import sysconfig
import threading

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

LIBRARIES = tuple({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")})
OURS = os.path.dirname(__file__)
SYNCHRONIZES = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
OF_TENSORS = ("torch/_tensor.py", "torch/_tensor_str.py")
LOOKED_STEPS = 4  # after the first: an even number, so that what every second step does is half a time a step
CONTEXT_BYTES = 600_000_000  # what CUDA takes for a process, before its first tensor


class Look:
    """Where the script makes loaders and optimizers, with which options, and at which lines each step waits for a tensor."""

    def __init__(self, turns, options_of) -> None:
        self._turns, self._waits = turns, {}
        self._of_steps: list[dict] = []  # waits of each step that is done
        self.found: dict = {"loaders": [], "optimizers": [], "zero_grad": [], "anomaly": [], "roots": [], "biases": []}
        self._constructors(options_of)
        self._clearing()
        for name in SYNCHRONIZES:
            self._count(name)
        turns.at_roots.append(self._root)
        turns.at_first_step.append(lambda optimizer: self._waits.clear())
        after = turns._after_step
        turns._after_step = lambda *given: (after(*given), self._report())[0]

    def _constructors(self, options_of) -> None:
        def of_loader(given):
            if isinstance(given.get("dataset"), IterableDataset):
                return {}
            names = ("batch_size", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
            self.found["loaders"].append({**_place(), **{name: given.get(name) for name in names}})
            return {}

        options_of(DataLoader, of_loader)
        init, found = Optimizer.__init__, self.found["optimizers"]

        def of_optimizer(optimizer, params, defaults):
            init(optimizer, params, defaults)
            found.append({**_place(), "class": type(optimizer).__name__} | {k: defaults.get(k) for k in ("foreach", "fused")})

        Optimizer.__init__ = of_optimizer

    def _clearing(self) -> None:
        clear, seen = Optimizer.zero_grad, self.found["zero_grad"]

        @functools.wraps(clear)
        def cleared(optimizer, set_to_none=True):
            if (place := {**_place(), "set_to_none": bool(set_to_none)}) not in seen:
                seen.append(place)
            clear(optimizer, set_to_none)

        Optimizer.zero_grad = cleared

    def _count(self, name: str) -> None:
        method = getattr(torch.Tensor, name)

        @functools.wraps(method)
        def counted(tensor, *arguments, **options):
            if os.getpid() == self._turns._process and threading.current_thread() is threading.main_thread():
                if (place := _place(through=OF_TENSORS))["file"]:
                    key = (place["file"], place["line"], name)
                    self._waits[key] = self._waits.get(key, 0) + 1
            return method(tensor, *arguments, **options)

        setattr(torch.Tensor, name, counted)

    def _root(self, root, arguments) -> None:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        self.found["roots"].append(
            {
                "class": type(root).__name__,
                "images": any(tensor.ndim == 4 for tensor in tensors),
                "device": next(root.parameters()).device.type,
                "autocast": torch.is_autocast_enabled(next(root.parameters()).device.type),
                "compiled": type(root).__name__ == "OptimizedModule" or root._compiled_call_impl is not None,
                "dtypes": sorted({str(parameter.dtype) for parameter in root.parameters()}),
            }
        )
        self.found["anomaly"] = torch.is_anomaly_enabled()
        norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        for module in root.modules():
            pairs = zip([*module.named_children()], [*module.named_children()][1:], strict=False)
            for (name, before), (_, after) in pairs:
                if isinstance(after, norms) and getattr(before, "bias", None) is not None and not isinstance(before, norms):
                    self.found["biases"].append(f"{type(module).__name__}.{name}")

    def _report(self) -> None:
        steps = self._turns.steps - 1
        if steps == len(self._of_steps):  # the first step, or another optimizer's
            return
        self._of_steps.append(self._waits)
        self._waits = {}
        if steps >= LOOKED_STEPS:
            # What a script does once, such as an evaluation in its first steps, is in no median.
            places = dict.fromkeys(place for waits in self._of_steps for place in waits)
            often = {place: statistics.median(waits.get(place, 0) for waits in self._of_steps) for place in places}
            waits = [{"file": f, "line": n, "by": by, "a_step": count} for (f, n, by), count in often.items() if count]
            found = {**self.found, "waits": waits}
            found |= {"threads": torch.get_num_threads(), "cuda": torch.cuda.is_available(), "gpu_bytes": _gpu_bytes()}
            found |= {"profiler": bool(torch._C._autograd._profiler_enabled())}
            self._turns.say(look=found)
            self._turns._leave()


def _gpu_bytes() -> list[int]:
    """What this copy takes of the GPU's memory, and what it could have taken; nothing where no GPU is in use."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return []
    own = torch.cuda.max_memory_reserved() + CONTEXT_BYTES
    return [own, torch.cuda.mem_get_info()[0] + own]


def _place(through: tuple = ("",)) -> dict:
    """The file and the line of the script's own code that is being run, "" and 0 if there is none.

    through  how files of libraries end whose calls are the script's all the same: those of tensors, when it prints one
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", OURS)):
            if not os.path.realpath(name).startswith(LIBRARIES):
                return {"file": os.path.abspath(name), "line": frame.f_lineno}
            if not name.endswith(through):
                break
        frame = frame.f_back
    return {"file": "", "line": 0}
