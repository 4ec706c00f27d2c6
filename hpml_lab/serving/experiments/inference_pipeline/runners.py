"""How both models are applied to one batch: one after the other, at the same time, or as one CUDA graph.

A runner maps (n, 1, SIDE, SIDE) on the CPU -> (heat, mask) on the CPU. One thread uses it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import captured
from hpml_lab.core.timing.timeline import Span, span
from hpml_lab.serving.experiments.slice_stages import SIDE

Models = tuple[torch.nn.Module, torch.nn.Module]  # detector, segmenter
Outputs = tuple[Tensor, Tensor]  # heat, mask


@contextmanager
def without_tf32() -> Iterator[None]:
    """Let cuDNN multiply float32 in float32, so that batches of two sizes differ by rounding only; a CPU always does."""
    # By torch's older setting: after the newer one, of convolutions alone, reading or setting this one raises an error.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


class InTurn:
    """The detector, then the segmenter, in one thread and one CUDA stream."""

    def __init__(self, models: Models, device: torch.device, largest: int = 1, spans: list[Span] | None = None) -> None:
        self.detector, self.segmenter = models
        self.device, self.spans = device, spans
        # Page-locked, so that a copy to the GPU need not wait for the host; the copy back is what waits for the GPU.
        self._pinned = torch.empty(largest, 1, SIDE, SIDE, pin_memory=True) if device.type == "cuda" else None

    @torch.inference_mode()
    def __call__(self, x: Tensor) -> Outputs:
        heat, mask = self.apply(self.on_device(x))
        return heat.cpu(), mask.cpu()

    def on_device(self, x: Tensor) -> Tensor:
        """The batch on the GPU; on a CPU the batch itself."""
        if self._pinned is None:
            return x
        return self._pinned[: len(x)].copy_(x).to(self.device, non_blocking=True)

    def apply(self, x: Tensor) -> Outputs:
        with self.timed("detector"):
            heat = self.detector(x)
        with self.timed("segmenter"):
            mask = self.segmenter(x)
        return heat, mask

    def timed(self, lane: str):
        """Notes when a model ran, if the runner was given a list of spans."""
        if self.spans is None:
            return nullcontext()
        if self.device.type == "cuda":
            return _gpu_span(self.spans, lane, self.device)
        return span(self.spans, lane, lane)

    def close(self) -> None:
        """End threads, if there are any."""


class AtOnce(InTurn):
    """Both models at the same time: in two threads on a CPU, in two streams on a GPU."""

    def __init__(self, models: Models, device: torch.device, largest: int = 1, spans: list[Span] | None = None) -> None:
        super().__init__(models, device, largest, spans)
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._threads = None if self._side else ThreadPoolExecutor(1, thread_name_prefix="segmenter")

    def apply(self, x: Tensor) -> Outputs:
        if self._side is None:
            mask = self._threads.submit(self._segment, x)
            with self.timed("detector"):
                heat = self.detector(x)
            return heat, mask.result()
        main = torch.cuda.current_stream(self.device)
        self._side.wait_stream(main)  # the input must be there
        with torch.cuda.stream(self._side), self.timed("segmenter"):
            mask = self.segmenter(x)
        with self.timed("detector"):
            heat = self.detector(x)
        main.wait_stream(self._side)  # who reads the mask in the main stream finds it whole
        x.record_stream(self._side)  # its memory may not be used again before the side stream is done with it,
        mask.record_stream(main)  # and the mask's not before the main stream is
        return heat, mask

    @torch.inference_mode()  # a mode is a thread's own
    def _segment(self, x: Tensor) -> Tensor:
        with self.timed("segmenter"):
            return self.segmenter(x)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


class Graphed(AtOnce):
    """Both models in two streams, captured as one CUDA graph for each batch size 1, 2, 4, … `largest`: Python launches once.

    A batch between two sizes is filled up; what the filling computes is left out.
    """

    @torch.inference_mode()
    def __init__(self, models: Models, device: torch.device, largest: int = 1) -> None:
        if device.type != "cuda":
            raise LabError(f"a CUDA graph cannot be captured on {device}.", "Use the other runners here.")
        super().__init__(models, device, largest)
        self._graphs: dict[int, tuple[Tensor, Callable[[], None], list[Outputs]]] = {}
        size = 1
        while True:
            size = min(size, largest)
            x, outputs = torch.zeros(size, 1, SIDE, SIDE, device=device), []
            self._graphs[size] = x, captured(lambda x=x, outputs=outputs: outputs.append(self.launch(x)), device), outputs
            if size == largest:
                break
            size *= 2

    def launch(self, x: Tensor) -> Outputs:
        """Both models as they are captured: a fork into the side stream and a join."""
        return super().apply(x)

    def on_device(self, x: Tensor) -> Tensor:
        return self._pinned[: len(x)].copy_(x)

    def apply(self, x: Tensor) -> Outputs:
        static, replay, outputs = self._graphs[min(size for size in self._graphs if size >= len(x))]
        static[: len(x)].copy_(x, non_blocking=True)
        replay()
        heat, mask = outputs[-1]  # the earlier ones are the warm-up's
        return heat[: len(x)], mask[: len(x)]


class _gpu_span:
    """A span between two events of the current stream, on the host's clock."""

    def __init__(self, spans: list[Span], lane: str, device: torch.device) -> None:
        self.spans, self.lane, self.device = spans, lane, device

    def __enter__(self) -> None:
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.begin.record(torch.cuda.current_stream(self.device))

    def __exit__(self, *_error: object) -> None:
        self.end.record(torch.cuda.current_stream(self.device))
        self.spans.append(self)  # `resolved` makes a Span of it once the GPU is done


def resolved(spans: list, device: torch.device) -> list[Span]:
    """The spans with GPU events turned into times of the host's clock; call it when the work is done."""
    if device.type != "cuda":
        return list(spans)
    torch.cuda.synchronize(device)
    now = torch.cuda.Event(enable_timing=True)
    now.record(torch.cuda.current_stream(device))
    now.synchronize()
    clock = CLOCK()
    return [
        each
        if isinstance(each, Span)
        else Span(each.lane, each.lane, *(clock - event.elapsed_time(now) / 1e3 for event in (each.begin, each.end)))
        for each in spans
    ]
