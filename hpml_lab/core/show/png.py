"""Pictures as PNG: the fast encoder of the package, and pictures as base64 text, in a result's file or beside a widget.

As lists of numbers, two pictures would make a result's file 5 MB long.
"""

import base64
import io
import struct
import zlib
from typing import Any

import numpy as np


def encode_png(pixels: np.ndarray) -> bytes:
    """`pixels` (height, width, 3 or 4), uint8, as PNG; a fourth channel is the opacity.

    Each row is stored as its difference to the row above, which in a drawing is mostly zeros: half of Pillow's time, which
    tries five filters a row.
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, channels * width)
    rows = np.empty((height, 1 + channels * width), np.uint8)
    rows[:, 0] = 2  # the filter "Up"
    rows[0, 1:] = flat[0]  # the row above the first counts as zeros
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6 if channels == 4 else 2, 0, 0, 0)  # 8 bits a channel, no interlace
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def decode_png(data: bytes) -> np.ndarray:
    """The pixels of a PNG, uint8 (height, width, 3)."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def png_text(pixels: np.ndarray) -> str:
    """Pixels as base64 text, for a result's `arrays`."""
    return base64.b64encode(encode_png(pixels)).decode()


def pixels_of(text: str) -> np.ndarray:
    """The pixels that `png_text` was given."""
    return decode_png(base64.b64decode(text))


def with_picture(bundle: Any, words: str, png: bytes, about: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a widget displays (`bundle`), with its picture and its words where no kernel runs.

    about  the picture's alternative text, and what a web page needs to move it
    """
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    return {**data, "text/plain": words, "image/png": base64.b64encode(png).decode()}, {**metadata, "image/png": about}
