"""A set of real photographs that needs no network, crops of the two that scikit-learn ships, and the ways to load it."""

import random
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Params
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.storage.lessons import dali_pipelines
from hpml_lab.storage.lessons.decoders import pil_image, tensor_image, training_set

CLASSES = ("china", "flower")  # the two photographs, 640 × 427 pixels each
SIDES = (256, 420)  # of a crop, in pixels
QUALITY = (75, 95)
PIL, TENSOR = "PIL, transforms on PIL", "decode_image, transforms on tensors"
AGAIN = (f"{PIL}, again", "0 workers")  # the placebo
DALI, MIXED = "DALI, CPU", "DALI, decoding on the GPU"


def make_photographs(folder: Path | str, images: int, seed: int = 0) -> Path:
    """Write `images` JPEG files to `folder`/china and `folder`/flower, in turns, and return `folder`.

    Each is another crop, flipped or not, of its own size and quality: the same files for the same seed. The folder appears
    whole or not at all. Raises LabError where there is something already, or no room.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_image

    folder = Path(folder)
    if folder.exists():
        raise LabError(f"{folder} is there already.", "Name a folder that is not there yet, or remove it.")
    photographs = [Image.fromarray(load_sample_image(f"{name}.jpg")) for name in CLASSES]
    draw = random.Random(f"photographs {seed}")
    partial = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        for name in CLASSES:
            (partial / name).mkdir()
        for number in range(images):
            photograph = photographs[number % len(CLASSES)]
            width, height = (draw.randint(SIDES[0], min(SIDES[1], whole)) for whole in photograph.size)
            left, top = draw.randint(0, photograph.width - width), draw.randint(0, photograph.height - height)
            crop = photograph.crop((left, top, left + width, top + height))
            if draw.random() < 0.5:
                crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            crop.save(partial / CLASSES[number % len(CLASSES)] / f"{number:05}.jpg", quality=draw.randint(*QUALITY))
        partial.chmod(0o755)
        partial.rename(folder)
    except OSError as error:
        raise LabError(f"{folder} could not be written ({error.strerror or error}).", "Free space, or take another.") from error
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial)
    return folder


def epoch_to_device(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], device: torch.device) -> float:
    """Seconds until every batch of an epoch is on `device`."""
    start = CLOCK()
    for images, _ in batches:
        images.to(device, non_blocking=True)
    synchronize(device)
    return CLOCK() - start


@allow_oversubscription()  # a DataLoader warns when it is made
def loading_ways(params: Params, folder: Path) -> dict[tuple[str, str], Any]:
    """{(pipeline, workers): an iterable over an epoch's batches} for everything that this machine can run."""
    ways: dict[tuple[str, str], Any] = {}
    for name, decoder in ((PIL, pil_image), (TENSOR, tensor_image)):
        for workers in params.workers:
            ways[name, plural(workers, "worker")] = DataLoader(
                training_set(folder, decoder, params.side),
                params.batch,
                shuffle=True,
                num_workers=workers,
                persistent_workers=workers > 0,
                pin_memory=params.device.is_cuda,
                timeout=60 if workers else 0,
            )
    if (PIL, "0 workers") in ways:
        ways[AGAIN] = ways[PIL, "0 workers"]
    if dali_pipelines.available():
        for gpu in gpus_of(params):
            for threads in params.threads:
                pipeline = dali_pipelines.training_pipeline(folder, params.batch, params.side, threads, gpu=gpu)
                ways[DALI if gpu is None else MIXED, plural(threads, "thread")] = dali_pipelines.DaliBatches(pipeline)
    return ways


def gpus_of(params: Params) -> tuple[int | None, ...]:
    """Where DALI's pipelines run: on the CPU (None), and on the GPU where the experiment does."""
    return (None, params.device.torch.index or 0) if params.device.is_cuda else (None,)
