"""What goes wrong around static quantization, each tried: PT2E's exported graphs, the compiler, and torch's eager mode."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.attempt import EXPECTED, attempt
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.compilation import QUICKLY
from hpml_lab.quantization.lessons.static_int8 import eager_mode_int8, exported, int8_weights, lecture_qat, prepared

WORKS = "works"


@dataclass
class StaticTrap(Row):
    """One thing that a reader would try, what happens, and what to do instead."""

    done: str = column("what is done")
    outcome: str = column("what happens here")
    instead: str = column("what to do")


class TwoConvolutions(nn.Module):
    """Two convolutions, each followed by a ReLU: by the same module twice, as in many published nets, or by one each."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)
        self.relu, self.last, self.shared = nn.ReLU(), nn.ReLU(), shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.b(self.relu(self.a(x)))
        return self.relu(x) if self.shared else self.last(x)


def outcome(work: Callable[[], object]) -> str:
    return attempt(work, (*EXPECTED, AssertionError, ValueError))


def small_input(batch: int = 2) -> torch.Tensor:
    return torch.linspace(-1, 1, batch * 2 * 6 * 6).reshape(batch, 2, 6, 6)


def prepare_twice_called(shared: bool, strict: bool) -> str:
    """Export and prepare TwoConvolutions."""
    return outcome(lambda: prepared(exported(TwoConvolutions(shared).eval(), small_input(), strict=strict)))


def call_with_batch(size: int, any_batch: bool) -> str:
    """Call a graph that was exported for a batch of 3 with `size` images."""
    graph = exported(TwoConvolutions(False).eval(), small_input(3), any_batch=any_batch)
    return outcome(lambda: graph(small_input(size)))


def compile_without_compiler() -> str:
    """Compile one operation where torch finds no C++ compiler."""
    from torch._inductor import config

    with collect_warnings(), config.patch({**QUICKLY, "cpp.cxx": ("no-g++",)}):
        return outcome(lambda: torch.compile(lambda x: x.sin() + 1)(torch.ones(5)))


def pt2e_traps(graph: nn.Module) -> dict[str, StaticTrap]:
    """The traps of PT2E, tried with small nets and the converted `graph`."""
    state = graph.state_dict().values()
    floats = sum(value.nbytes for value in state if value.dtype == torch.float32 and value.ndim == 4)
    integers = sum(value.nbytes for value in int8_weights(graph))
    return {
        "shared": StaticTrap(
            "export as by default, strict=False, a net that calls one ReLU twice; prepare",
            prepare_twice_called(shared=True, strict=False),
            "strict=True, or a ReLU for each place",
        ),
        "strict": StaticTrap("the same with strict=True", prepare_twice_called(shared=True, strict=True), ""),
        "apart": StaticTrap("the same, strict=False, with two ReLUs", prepare_twice_called(shared=False, strict=False), ""),
        "eval": StaticTrap(
            "eval() of the converted net", outcome(graph.eval), "pt2e.move_exported_model_to_eval, before converting"
        ),
        "train": StaticTrap("train() of the converted net", outcome(graph.train), "pt2e.move_exported_model_to_train"),
        "batch": StaticTrap(
            "2 images for a net exported with 3", call_with_batch(2, any_batch=False), "dynamic_shapes with a Dim for the batch"
        ),
        "any batch": StaticTrap("the same with dynamic_shapes", call_with_batch(2, any_batch=True), ""),
        "state": StaticTrap(
            "save the state_dict of the converted net",
            f"{floats:,} bytes of float weights next to {integers:,} of int8",
            "count, and keep, the int8 weights and scales",
        ),
    }


def compiler_traps() -> dict[str, StaticTrap]:
    """What inductor needs on the CPU."""
    what = "torch.compile on a machine without a C++ compiler"
    return {"compiler": StaticTrap(what, compile_without_compiler(), "Debian, Ubuntu: apt-get install g++ python3-dev")}


def eager_mode_traps(net: nn.Module, calibration: torch.Tensor) -> dict[str, StaticTrap]:
    """The lecture's three lines, and a converted net without stubs."""
    unwrapped = eager_mode_int8(net, calibration, stubs=False)
    return {
        "lecture": StaticTrap(
            "the lecture's prepare_qat, on a net in eval mode", outcome(lambda: lecture_qat(net)), "model.train() before"
        ),
        "training": StaticTrap("the same in training mode", outcome(lambda: lecture_qat(net, training=True)), ""),
        "stubs": StaticTrap(
            "call a converted net that has no stubs",
            outcome(lambda: unwrapped(calibration)),
            "QuantStub and DeQuantStub around it",
        ),
    }
