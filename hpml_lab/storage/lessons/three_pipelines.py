"""Three input pipelines of the lecture, from a file to what training takes: AlexNet's, ResNet-50's and SSD's.

Each is {step: function}, in order: what one step returns the next one takes. Values are those of the papers and of
torchvision's reference scripts. Pictures stay bytes: a GPU makes floats of them and normalizes them, the same for all three.
"""

from collections.abc import Callable
from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from hpml_lab.storage.lessons.decoders import pil_image

Pipeline = dict[str, Callable[[Any], Any]]
GREY = (123, 117, 104)  # the mean of ImageNet's pixels: the color of a larger canvas


def alexnet() -> Pipeline:
    """2012: files that were resized to 256 × 256 beforehand. A sample is a path."""
    return {"decode": pil_image, "crop": v2.RandomCrop(224), "flip": v2.RandomHorizontalFlip()}


def resnet() -> Pipeline:
    """2015: files as they were photographed, resized anew in each epoch, and in other colors. A sample is a path."""
    return {
        "decode": pil_image,
        "crop": v2.RandomResizedCrop(224, antialias=True),
        "flip": v2.RandomHorizontalFlip(),
        "color": v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
    }


def ssd() -> Pipeline:
    """2016: detection, so boxes move along. A sample is a path and boxes (K, 4): left, top, right, bottom in pixels."""
    return {
        "decode": with_boxes,
        "color": v2.RandomPhotometricDistort(),
        "paste": v2.RandomZoomOut(fill=GREY),  # onto a larger canvas, in half of all cases: small objects
        "crop": v2.Compose(
            [
                v2.RandomIoUCrop(),  # a window that keeps enough of some box
                v2.SanitizeBoundingBoxes(labels_getter=None),  # without the boxes that it left out
                v2.Resize((300, 300), antialias=True),
            ]
        ),
        "flip": v2.RandomHorizontalFlip(),
    }


def with_boxes(sample: tuple[str, torch.Tensor]) -> tuple[Any, tv_tensors.BoundingBoxes]:
    """The picture of a file, and its boxes as a tensor that torchvision's transforms know."""
    path, boxes = sample
    image = pil_image(path)
    return image, tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(image.height, image.width))
