"""Pictures in a result's file: as base64 PNG, because as lists of numbers two of them make it 5 MB long."""

import base64
import io

import numpy as np
import torch


def to_png(picture: torch.Tensor) -> str:
    """A picture, uint8 (H, W, 3), as base64 PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.numpy()).save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def from_png(text: str) -> np.ndarray:
    """The same picture as an array, uint8 (H, W, 3)."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
