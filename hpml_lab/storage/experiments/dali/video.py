"""A short video: written, and read from any frame on, by PyAV, which brings FFmpeg's decoders along.

torchvision no longer reads videos; its replacement TorchCodec needs an FFmpeg of the system. PyAV is optional here.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.system.errors import LabError

FIX = "In the project's folder: .venv/bin/uv pip install av (about 100 MB)."
SIDE, STRIPE = 64, 8  # pixels; the frame's number stands in stripes, which survive lossy compression
BITS = SIDE // STRIPE


def available() -> bool:
    """Whether PyAV is installed."""
    return importlib.util.find_spec("av") is not None


def _av() -> Any:
    if not available():
        raise LabError("PyAV is not installed.", FIX)
    import av

    return av


def numbered(number: int) -> torch.Tensor:
    """A frame, uint8 (64, 64, 3), whose stripes are the bits of its number, up to 255: bright for 1."""
    bits = torch.tensor([number >> bit & 1 for bit in range(BITS)], dtype=torch.uint8)
    return (bits * 200 + 20).repeat_interleave(STRIPE).view(1, SIDE, 1).expand(SIDE, SIDE, 3).contiguous()


def number_in(frame: torch.Tensor) -> int:
    """The number that a frame (64, 64, 3) shows."""
    bright = frame.float().mean(dim=(0, 2)).view(BITS, STRIPE).mean(dim=1) > 120
    return sum(1 << bit for bit, set_ in enumerate(bright.tolist()) if set_)


def write_video(path: Path | str, frames: Sequence[torch.Tensor], rate: int = 25) -> Path:
    """Write frames, uint8 (H, W, 3), as MPEG-4 with a key frame every 12th: only there can decoding begin."""
    av = _av()
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.gop_size = 12
        for frame in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame.numpy(), format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return Path(path)


def read_video(path: Path | str, first: int, frames: int) -> torch.Tensor:
    """`frames` frames from number `first` on, uint8 (frames, H, W, 3). Raises LabError where the video is shorter.

    Seeking goes back to the key frame before; what lies between is decoded and dropped.
    """
    av = _av()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        ticks = 1 / (stream.average_rate * stream.time_base)  # of the stream's clock, a frame
        container.seek(int(first * ticks), stream=stream, backward=True)
        found = []
        for frame in container.decode(stream):
            if round(frame.pts / ticks) >= first:
                found.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
            if len(found) == frames:
                return torch.stack(found)
    raise LabError(f"{Path(path).name} has no {frames} frames from number {first} on.", "Ask for fewer, or begin earlier.")
