"""The ways to load photographs: PIL or torchvision in a DataLoader, and DALI where it is installed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment.registry import Params
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.measure.counting import synchronize
from hpml_lab.core.measure.timeline import CLOCK
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.storage.experiments.dali.photographs import CLASSES
from hpml_lab.storage.lessons import dali_pipelines
from hpml_lab.storage.lessons.decoders import pil_image, tensor_image, training_set

PIL, TENSOR = "PIL, transforms on PIL", "decode_image, transforms on tensors"
AGAIN = (f"{PIL}, again", "0 workers")  # the placebo
DALI, MIXED = "DALI, CPU", "DALI, decoding on the GPU"


def epoch_to_device(
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]], device: torch.device
) -> tuple[float, list[int], tuple]:
    """Seconds until every batch of an epoch is on `device`, how many pictures of each class came, and a picture's shape."""
    counts = torch.zeros(len(CLASSES), dtype=torch.long)
    start = CLOCK()
    for images, labels in batches:
        images = images.to(device, non_blocking=True)
        counts += torch.bincount(labels.long().cpu(), minlength=len(CLASSES))
    synchronize(device)
    return CLOCK() - start, counts.tolist(), tuple(images.shape[1:])


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
