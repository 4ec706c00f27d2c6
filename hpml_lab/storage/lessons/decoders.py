"""Decoders of photographs: PIL's and torchvision's, the transforms of a training, and how far two sets of pictures differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.system.readers import IMAGE, bytes_of, reader
from hpml_lab.data.images import image_of
from hpml_lab.storage.lessons import dali_pipelines as graphs

UNREADABLE = ("an image that can be read", "Restore the file, or get another copy of it.")


@reader(*UNREADABLE)
def pil_image(path: Path | str) -> Any:
    """A file as PIL's RGB image."""
    return image_of(path, whole=True)


@reader(*UNREADABLE)
def tensor_image(path: Path | str) -> torch.Tensor:
    """A file as uint8 (3, H, W), by torchvision's own decoder; deprecated since 0.29, whose users are sent to TorchCodec.

    A JPEG file, that is: with another one that is damaged, such as a PNG, that decoder ends the process. PIL decodes these.
    """
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2.functional import pil_to_tensor

    content = bytearray(bytes_of(path, IMAGE))
    if not content.startswith(b"\xff\xd8"):
        return pil_to_tensor(image_of(path, whole=True))
    return decode_jpeg(torch.frombuffer(content, dtype=torch.uint8), mode=ImageReadMode.RGB)


def training_set(folder: Path | str, decoder: Callable[[str], Any], side: int) -> Any:
    """The photographs with the transforms of a training: random crop resized to `side`, flip, normalize."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = [
        v2.RandomResizedCrop(side, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(graphs.MEAN, graphs.STD),
    ]
    return ImageFolder(str(folder), v2.Compose(steps), loader=decoder)


def resized(folder: Path | str, decoder: Callable[[str], Any], side: int) -> tuple[list[torch.Tensor], list[int]]:
    """Every photograph decoded and resized to `side` × `side`, uint8 (side, side, 3), with nothing random; and the labels."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms.v2 import functional

    pictures = ImageFolder(str(folder), loader=decoder)
    images = [functional.to_image(functional.resize(image, [side, side], antialias=True)) for image, _ in pictures]
    return [image.permute(1, 2, 0) for image in images], pictures.targets
