"""What a copy sees of the script before anything is changed in it; loaded next to `in_the_script`, as that is."""

import functools
import os
import statistics
import sys
import threading
import weakref

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

LIBRARIES = ("-packages/", "/lib/python", "/lib64/python")  # also those of a user, of another prefix, of PYTHONPATH
OURS = os.path.dirname(__file__)
SYNCHRONIZES = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
OF_TENSORS = ("torch/_tensor.py", "torch/_tensor_str.py")  # the script's calls all the same, when it prints one
OF_LOADERS = "torch/utils/data/_utils/fetch.py"
LOOKED_STEPS = 4  # after the first: an even number, so that what every second step does is half a time a step


class Look:
    """Where the script makes loaders and optimizers, with which options, and at which lines each step waits for a tensor."""

    def __init__(self, turns, options_of) -> None:
        self._turns, self._waits = turns, {}
        self._of_steps: list[dict] = []  # waits of each step that is done
        self.found: dict = {"loaders": [], "optimizers": [], "zero_grad": [], "debugging": False, "roots": [], "biases": []}
        self._constructors(options_of)
        for cls in (Optimizer, nn.Module):
            self._clearing(cls)
        for name in ("backward", "gradcheck", "gradgradcheck"):
            self._debugging(name)
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
            self.found["loaders"].append({**_call("__init__"), "num_workers": given.get("num_workers")})
            return {}

        options_of(DataLoader, of_loader)
        init, found = Optimizer.__init__, self.found["optimizers"]

        def of_optimizer(optimizer, params, defaults):
            init(optimizer, params, defaults)
            found.append({**_call("__init__"), "class": type(optimizer).__name__, "foreach": defaults.get("foreach")})

        Optimizer.__init__ = of_optimizer

    def _clearing(self, cls: type) -> None:
        clear, seen = cls.zero_grad, self.found["zero_grad"]

        @functools.wraps(clear)
        def cleared(owner, set_to_none=True):
            if (place := {**_call("zero_grad"), "set_to_none": bool(set_to_none)}) not in seen:
                seen.append(place)
            clear(owner, set_to_none)

        cls.zero_grad = cleared

    def _debugging(self, name: str) -> None:
        """Whether a tool watches the backward passes, or is one."""
        function = getattr(torch.autograd, name)

        @functools.wraps(function)
        def called(*arguments, **options):
            on = torch.is_anomaly_enabled() or torch._C._autograd._profiler_enabled()
            self.found["debugging"] |= name != "backward" or on
            return function(*arguments, **options)

        setattr(torch.autograd, name, called)

    def _count(self, name: str) -> None:
        method = getattr(torch.Tensor, name)

        @functools.wraps(method)
        def counted(tensor, *arguments, **options):
            of_network = tensor.device.type in {root["device"] for root in self.found["roots"]}
            if of_network and os.getpid() == self._turns._process and not _in_a_loader():
                if frame := _own_frame(lambda code: code.co_filename.endswith(OF_TENSORS)):
                    key = (os.path.abspath(frame.f_code.co_filename), frame.f_lineno, name, threading.get_ident())
                    self._waits[key] = self._waits.get(key, 0) + 1
            return method(tensor, *arguments, **options)

        setattr(torch.Tensor, name, counted)

    def _root(self, root, arguments) -> None:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in root.modules())
        self.found["roots"].append(
            {
                "images": convolves and any(tensor.ndim == 4 for tensor in tensors),
                "device": next(root.parameters()).device.type,
                "autocast": torch.is_autocast_enabled(next(root.parameters()).device.type),
                "compiled": type(root).__name__ == "OptimizedModule" or root._compiled_call_impl is not None,
                "draws": False,
                "dtypes": sorted({str(parameter.dtype) for parameter in root.parameters()}),
            }
        )
        if not self.found["roots"][-1]["compiled"]:  # what is compiled takes no hooks from elsewhere
            self._watch_call(root, self.found["roots"][-1])

    def _watch_call(self, root, seen: dict) -> None:
        """Whether the call that follows draws random numbers, and what batch norm gets just as a module with a bias made it.

        By hooks of no module, which the script could not save with its network any more; they are gone after the call.
        """
        paths, before = {id(module): path for path, module in root.named_modules()}, _generators()
        made: dict = {}  # {of a tensor: a weak reference, how often it was changed in place by then, and who made it}

        def enter(module, given) -> None:
            for tensor in given if isinstance(module, nn.modules.batchnorm._BatchNorm) else ():
                made_by, version, name = made.get(id(tensor), (lambda: None, 0, ""))
                if made_by() is tensor and tensor._version == version and name not in self.found["biases"]:
                    self.found["biases"].append(name)

        def leave(module, given, output) -> None:
            norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
            if getattr(module, "bias", None) is not None and not norm and isinstance(output, torch.Tensor):
                name = f"{type(root).__name__}.{paths.get(id(module), '')}"
                made[id(output)] = (weakref.ref(output), output._version, name)
            if module is root:
                seen["draws"] = before != _generators()
                for handle in handles:
                    handle.remove()

        hooks = nn.modules.module
        handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]

    def _report(self) -> None:
        steps = self._turns.steps - 1
        if steps == len(self._of_steps):  # the first step, or another optimizer's
            return
        mine = threading.get_ident()  # waits of other threads do not hold up the training
        self._of_steps.append({key[:3]: count for key, count in self._waits.items() if key[3] == mine})
        self._waits = {}
        if steps >= LOOKED_STEPS:
            # What a script does once, such as an evaluation in its first steps, is in no median.
            places = dict.fromkeys(place for waits in self._of_steps for place in waits)
            often = {place: statistics.median(waits.get(place, 0) for waits in self._of_steps) for place in places}
            waits = [{"file": f, "line": n, "by": by, "a_step": count} for (f, n, by), count in often.items() if count]
            found = {**self.found, "waits": waits}
            self._turns.say(look=found | {"threads": torch.get_num_threads()})
            self._turns._leave()


def _generators() -> list[bytes]:
    """The states of the generators that a network draws from."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return [state.numpy().tobytes() for state in states]


def _call(name: str) -> dict:
    """Where the script itself calls the function, by the end of the call; "" and 0 where a library does."""
    frame = _own_frame(lambda code: code.co_name == name)
    place = [*frame.f_code.co_positions()][frame.f_lasti // 2] if frame else ()
    if not place or None in place:  # Python keeps none with -X no_debug_ranges
        return {"file": "", "line": 0, "column": 0}
    return {"file": os.path.abspath(frame.f_code.co_filename), "line": place[1], "column": place[3]}


def _in_a_loader() -> bool:
    """Whether a sample is being made: its tensors have nothing to do with the network's."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(OF_LOADERS):
        frame = frame.f_back
    return frame is not None


def _own_frame(through):
    """The innermost frame of the script's own code, None if a library is in between that is not to be looked through."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", OURS)):
            if not any(part in os.path.realpath(name) for part in LIBRARIES):
                return frame
            if not through(frame.f_code):
                break
        frame = frame.f_back
    return None
