"""NVIDIA DALI's pipelines in today's API: read, decode, crop, flip, normalize, on the CPU or with the decoding on a GPU.

A pipeline is a Python function that is called once and draws a graph of operators; DALI's own threads then run the graph.
`@pipeline_def` and `fn.…` replace the classes in the lecture (`Pipeline` with `ops.FileReader`, `ops.nvJPEGDecoder`).
DALI is an optional extra of this workbook. Its CPU pipelines also work without a GPU (`device_id=None`).
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hpml_lab.core.system.errors import LabError

FIX = "On Linux, in the project's folder: .venv/bin/uv pip install -e '.[dali]' (about 500 MB)."
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's images, for values in 0 … 1


def available() -> bool:
    """Whether DALI is installed."""
    return importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None


def parts_of_dali() -> tuple[Any, Any, Any]:
    """DALI's `pipeline_def`, `fn` and `types`; LabError where it is not installed."""
    if not available():
        raise LabError("DALI is not installed.", FIX)
    from nvidia.dali import fn, pipeline_def, types

    return pipeline_def, fn, types


def decoded(files: Any, gpu: int | None) -> Any:
    """DALI's node that decodes JPEG files to RGB; "mixed" begins on the CPU and ends on the GPU (nvJPEG)."""
    _, fn, types = parts_of_dali()
    device = "cpu" if gpu is None else "mixed"
    # By default the GPU enlarges the color channels by copying pixels; the CPU smooths them, and so do PIL and torchvision.
    return fn.decoders.image(files, device=device, output_type=types.RGB, jpeg_fancy_upsampling=True)


def training_pipeline(folder: Path | str, batch: int, side: int, threads: int, *, gpu: int | None = None, seed: int = 0) -> Any:
    """The lecture's pipeline: FileReader → decode → random crop, resized to `side` → flip → normalize.

    gpu  a CUDA device's number: decoding ends there, and the rest runs there. None keeps everything on the CPU.
    Give it to `DaliBatches`.
    """
    pipeline_def, fn, types = parts_of_dali()

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=gpu, seed=seed)
    def graph():
        files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, pad_last_batch=True, name="files")
        images = fn.random_resized_crop(decoded(files, gpu), size=(side, side))
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return images, labels

    return graph()


def plain_pipeline(folder: Path | str, batch: int, side: int, threads: int, *, gpu: int | None = None) -> Any:
    """Nothing random: in the order of the files' names, decoded and resized to `side` × `side`, uint8 (side, side, 3)."""
    pipeline_def, fn, types = parts_of_dali()

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=gpu)
    def graph():
        files, labels = fn.readers.file(file_root=str(folder), pad_last_batch=True, name="files")
        # A triangular filter that widens as the picture shrinks is what PIL and torchvision call bilinear with antialiasing.
        return fn.resize(decoded(files, gpu), size=(side, side), interp_type=types.INTERP_TRIANGULAR), labels

    return graph()


class DaliBatches:
    """A pipeline's (images, labels) batch by batch, an epoch at a time, the last batch partial, as a DataLoader gives them.

    The readers pad the last batch: else it is filled from the next epoch, which then begins in the middle.
    """

    def __init__(self, pipeline: Any) -> None:
        from nvidia.dali.plugin.base_iterator import LastBatchPolicy
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator

        policy = LastBatchPolicy.PARTIAL
        self._pairs = DALIClassificationIterator(pipeline, reader_name="files", last_batch_policy=policy, auto_reset=True)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for [pair] in self._pairs:
            yield pair["data"], pair["label"].squeeze(-1)


def boxed_pipeline(image: bytes, boxes: torch.Tensor, labels: torch.Tensor, crops: int, *, seed: int = 0) -> Any:
    """The lecture's pipeline of SSD, `crops` times with the same image: paste onto a larger canvas, crop, flip, with boxes.

    Of each pair of operators (`fn.paste` and `fn.bbox_paste`, `fn.flip` and `fn.bb_flip`) both get the same random numbers.
    `fn.random_bbox_crop` chooses a window that keeps enough of every box, and cuts the boxes with it.

    boxes  (K, 4) as left, top, right, bottom in parts of the image, 0 … 1
    """
    pipeline_def, fn, types = parts_of_dali()
    import numpy as np

    encoded, corners, kinds = np.frombuffer(image, np.uint8), boxes.numpy(), labels.numpy().astype(np.int32)

    @pipeline_def(batch_size=crops, num_threads=1, device_id=None, seed=seed)
    def graph():
        files, given, named = fn.external_source(source=lambda _: (encoded, corners, kinds), num_outputs=3, batch=False)
        images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
        px, py = (fn.random.uniform(range=[0.0, 1.0]) for _ in "xy")
        ratio = fn.random.uniform(range=[1.0, 2.0])  # of the canvas to the image
        images = fn.paste(images, paste_x=px, paste_y=py, ratio=ratio, fill_value=[0, 0, 0])
        given = fn.bbox_paste(given, paste_x=px, paste_y=py, ratio=ratio, ltrb=True)
        crop_begin, crop_size, given, named = fn.random_bbox_crop(  # the lecture's prospective_crop
            given,
            named,
            bbox_layout="xyXY",
            thresholds=[0.5, 0.8],  # the part of every box that has to stay …
            threshold_type="overlap",
            aspect_ratio=[0.7, 1.4],
            scaling=[0.4, 1.0],
            allow_no_crop=False,
            total_num_attempts=400,  # … or, after so many windows, the best so far: by default DALI would try forever
        )
        images = fn.slice(images, crop_begin, crop_size)
        coin = fn.random.coin_flip()
        return fn.flip(images, horizontal=coin), fn.bb_flip(given, horizontal=coin, ltrb=True), named

    return graph()


def video_pipeline(path: Path | str, frames: int, gpu: int, *, step: int | None = None, flow: bool = False) -> Any:
    """The lecture's video reader: clips of `frames` frames, each `step` after the one before (default: `frames`), on the GPU.

    A clip is uint8 (frames, H, W, 3). With `flow` the lecture's second example: two outputs, of each clip its optical flow,
    float32 (frames - 1, H / 4, W / 4, 2), in pixels to the right and down to the next frame, and its first frame. The flow is
    computed by an engine that GPUs have since Turing (2018). There is no decoder of this reader for a CPU.
    """
    pipeline_def, fn, _ = parts_of_dali()

    @pipeline_def(batch_size=1, num_threads=1, device_id=gpu)
    def graph():
        # With file names and no labels the reader has one output, the frames.
        clips = fn.readers.video(
            device="gpu", filenames=[str(path)], sequence_length=frames, step=frames if step is None else step, name="video"
        )
        if not flow:
            return clips
        return fn.optical_flow(clips, output_grid=4), fn.element_extract(clips, element_map=[0])

    return graph()


def clips_by_dali(path: Path | str, frames: int, gpu: int, *, step: int, flow: bool = False) -> list[torch.Tensor]:
    """All clips of `video_pipeline` in order, or their optical flows, on the CPU."""
    pipeline = video_pipeline(path, frames, gpu, step=step, flow=flow)
    pipeline.build()
    found = []
    for _ in range(pipeline.epoch_size("video")):
        batch, *_ = pipeline.run()
        found.append(torch.from_numpy(batch.as_cpu().at(0)))
    return found
