"""Decoders and pipelines: the same pictures and labels by every way, boxes that stay on their objects, frames by number."""

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from sklearn.datasets import load_sample_image

from hpml_lab.core.experiment import Result
from hpml_lab.core.show.png import pixels_of, png_text
from hpml_lab.core.system.errors import LabError
from hpml_lab.storage import dali, decoded_pictures
from hpml_lab.storage.experiments import dali as experiment
from hpml_lab.storage.experiments.dali import LEVELS_DALI, LEVELS_TENSOR, LoadingRate, picture_difference, video
from hpml_lab.storage.experiments.dali.photographs import DALI, PIL, TENSOR, loading_ways, make_photographs
from hpml_lab.storage.lessons import dali_pipelines
from hpml_lab.storage.lessons.decoders import pil_image, resized, tensor_image
from hpml_lab.storage.tools import boxes

SMALL = dict(images=12, batch=4, side=64, rounds=2, workers=(0, 1), threads=(1,), boxes=5, frames=30)
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")  # see tensor_image
needs_dali = pytest.mark.skipif(
    not dali_pipelines.available(), reason="DALI is not installed: .venv/bin/uv pip install -e '.[dali]'"
)
needs_av = pytest.mark.skipif(not video.available(), reason="PyAV is not installed: .venv/bin/uv pip install av")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return make_photographs(tmp_path_factory.mktemp("set") / "photographs", 12)


def test_the_experiment_is_sound_and_says_what_is_left_out(sound, ran):
    result = ran("dali")
    sound(result)
    ways = {(row.pipeline, row.workers) for row in result.rows(LoadingRate)}
    assert not any("again" in pipeline for pipeline, _ in ways), "the placebo is no row"
    assert {(PIL, "0 workers"), (PIL, "1 worker"), (TENSOR, "0 workers"), (TENSOR, "1 worker")} <= ways
    assert len(decoded_pictures(result).figure.axes) == 2 * len(result.arrays["pictures"]) + 1  # and the color bar
    assert any("DALI is not installed" in note for note in result.notes) != dali_pipelines.available()
    assert (DALI in result.arrays["pictures"]) == dali_pipelines.available()


def test_more_workers_than_cores_are_meant(photographs):
    size = SimpleNamespace(workers=(10_000,), side=64, batch=4, threads=(), device=SimpleNamespace(is_cuda=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert len(loading_ways(size, photographs)) == 2


def test_pictures_come_back_from_a_results_text_as_they_were(photographs):
    picture = resized(photographs, pil_image, 64)[0][0]
    assert picture.float().std() > 10 and (pixels_of(png_text(picture.numpy())) == picture.numpy()).all()


@pytest.mark.parametrize("workers", [0, 1])
def test_every_way_gives_each_photographs_label_once_an_epoch(photographs, workers):
    size = SimpleNamespace(workers=(workers,), side=64, batch=5, threads=(1,), device=SimpleNamespace(is_cuda=False))
    for loader in loading_ways(size, photographs).values():
        batches = list(loader)
        assert torch.bincount(torch.cat([labels for _, labels in batches]).long()).tolist() == [6, 6]
        assert {tuple(images.shape[1:]) for images, _ in batches} == {(3, 64, 64)}


def test_another_resizing_is_found_out(photographs):
    by_pil, labels = resized(photographs, pil_image, 64)
    by_tensor, same = resized(photographs, tensor_image, 64)
    assert labels == same and picture_difference(by_pil, by_tensor)[0] <= LEVELS_TENSOR
    shifted = [picture.roll(1, dims=1) for picture in by_pil]
    assert picture_difference(by_pil, shifted)[0] > LEVELS_TENSOR and picture_difference(by_pil, shifted)[1] > LEVELS_DALI


def test_the_extent_of_a_rectangle_is_its_box():
    for seed in range(20):
        image, box = boxes.box_scene(seed)
        assert torch.equal(boxes.bright_extent(image), box)
    assert boxes.bright_extent(torch.zeros(3, 8, 8, dtype=torch.uint8)).isinf().all()


def test_boxes_that_are_left_behind_break_the_claim(monkeypatch):
    assert max(experiment.flip_gaps(10)) == 0
    lost = iter([1, *[0] * 9])
    monkeypatch.setattr(boxes, "move_together", lambda image, box: (image * next(lost), box))
    assert max(experiment.flip_gaps(10)) > experiment.PIXEL, "a rectangle that is gone fills no box"
    monkeypatch.setattr(boxes, "move_together", lambda image, box: (image.flip(-1), box))
    assert max(experiment.flip_gaps(10)) > experiment.PIXEL
    result = replace(dali, quick=SMALL)("quick", device="cpu")
    assert [claim.text[:32] for claim in result.claims if claim.exact and not claim.holds] == [
        "After a random crop and flip by "
    ]


def test_numbers_in_frames_can_be_read():
    assert [video.number_in(video.numbered(number)) for number in range(256)] == list(range(256))


@pytest.mark.skipif(dali_pipelines.available(), reason="DALI is installed here")
def test_without_dali_the_fix_is_named(photographs):
    with pytest.raises(LabError, match="DALI is not installed"):
        dali_pipelines.plain_pipeline(photographs, 4, 64, 1)


@pytest.mark.skipif(video.available(), reason="PyAV is installed here")
def test_without_pyav_the_fix_is_named(tmp_path):
    with pytest.raises(LabError, match="PyAV is not installed"):
        video.write_video(tmp_path / "a.mp4", [video.numbered(0)])


@needs_av
def test_clips_begin_at_the_frame_that_was_asked_for(tmp_path):
    path = video.write_video(tmp_path / "a.mp4", [video.numbered(number) for number in range(40)])
    for first in range(36):
        assert [video.number_in(frame) for frame in video.read_video(path, first, 4)] == list(range(first, first + 4))
    with pytest.raises(LabError, match="no 4 frames from number 37"):
        video.read_video(path, 37, 4)


class Node:
    """What an operator of DALI returns while a graph is drawn: the operator's name and its arguments."""

    def __init__(self, operator, inputs, options):
        self.operator, self.inputs, self.options = operator, inputs, options


class Operators:
    """DALI's `fn`: it takes only the arguments that the documentation of DALI 2.4 lists for each operator used here."""

    READER = (
        "device name dont_use_mmap pad_last_batch random_shuffle shard_id num_shards stick_to_shard seed prefetch_queue_depth"
    )
    DECODER = "device output_type jpeg_fancy_upsampling use_fast_idct hw_decoder_load adjust_orientation cache_size dtype"
    KNOWN = {
        "readers.file": f"{READER} file_root file_list files labels shuffle_after_epoch",
        "readers.video": f"{READER} filenames sequence_length step stride labels dtype image_type pad_sequences",
        "decoders.image": DECODER,
        "slice": "device axes axis_names normalized_anchor normalized_shape start end shape dtype",
        "paste": "device fill_value min_canvas_size n_channels paste_x paste_y ratio",
        "bbox_paste": "device ltrb paste_x paste_y ratio",
        "random.uniform": "device range values shape dtype seed",
        "optical_flow": "device enable_external_hints enable_temporal_hints hint_grid image_type output_grid preset",
        "element_extract": "device element_map",
        "random_resized_crop": "device size random_area random_aspect_ratio interp_type antialias num_attempts",
        "resize": "device size resize_x resize_y interp_type antialias mode dtype",
        "crop_mirror_normalize": "device crop mirror mean std scale shift dtype output_layout pad_output",
        "random.coin_flip": "device probability dtype shape",
        "random_bbox_crop": "bbox_layout thresholds threshold_type aspect_ratio scaling allow_no_crop total_num_attempts",
        "flip": "device horizontal vertical depthwise",
        "bb_flip": "device horizontal vertical ltrb",
        "external_source": "source num_outputs batch device layout dtype ndim cycle name parallel",
    }
    OUTPUTS = {"readers.file": 2, "random_bbox_crop": 4, "external_source": 3}

    def __init__(self, drawn, path=""):
        self._drawn, self._path = drawn, path

    def __getattr__(self, name):
        return Operators(self._drawn, f"{self._path}.{name}".lstrip("."))

    def __call__(self, *inputs, **options):
        assert set(options) <= set(self.KNOWN[self._path].split()), (self._path, options)
        node = Node(self._path, inputs, options)
        self._drawn.append(node)
        count = self.OUTPUTS.get(self._path, 1)
        return node if count == 1 else tuple(node for _ in range(count))


@pytest.fixture
def drawn(monkeypatch):
    """A module that stands for DALI: the operators that a graph is drawn of, and last what `pipeline_def` was given."""
    nodes = []

    def pipeline_def(**options):
        assert {"batch_size", "num_threads", "device_id"} <= set(options) <= {"batch_size", "num_threads", "device_id", "seed"}
        return lambda function: lambda: SimpleNamespace(outputs=function(), options=options)

    types = SimpleNamespace(RGB="RGB", FLOAT="FLOAT", INTERP_TRIANGULAR="TRIANGULAR")
    monkeypatch.setattr(dali_pipelines, "available", lambda: True)
    fake = SimpleNamespace(fn=Operators(nodes), pipeline_def=pipeline_def, types=types)
    monkeypatch.setitem(sys.modules, "nvidia.dali", fake)
    return nodes


@pytest.mark.parametrize("gpu, device", [(None, "cpu"), (1, "mixed")])
def test_the_graphs_are_drawn_with_arguments_that_dali_has(drawn, tmp_path, gpu, device):
    pipeline = dali_pipelines.training_pipeline(tmp_path, 8, 224, 2, gpu=gpu)
    assert [node.operator for node in drawn] == [
        "readers.file",
        "decoders.image",
        "random_resized_crop",
        "random.coin_flip",
        "crop_mirror_normalize",
    ]
    assert pipeline.options == {"batch_size": 8, "num_threads": 2, "device_id": gpu, "seed": 0} and len(pipeline.outputs) == 2
    assert drawn[0].options["pad_last_batch"] and drawn[1].options["device"] == device
    drawn.clear()
    dali_pipelines.plain_pipeline(tmp_path, 8, 224, 2, gpu=gpu)
    assert [node.operator for node in drawn] == ["readers.file", "decoders.image", "resize"]
    drawn.clear()
    boxed = dali_pipelines.boxed_pipeline(b"png", torch.rand(1, 4), torch.tensor([1]), 3)
    flip, box_flip, _ = boxed.outputs
    assert flip.options["horizontal"] is box_flip.options["horizontal"], "one coin for both"
    paste, box_paste = (next(node for node in drawn if node.operator == name) for name in ("paste", "bbox_paste"))
    assert all(paste.options[name] is box_paste.options[name] for name in ("paste_x", "paste_y", "ratio")), (
        "one canvas for both"
    )
    assert paste.options["paste_x"] is not paste.options["paste_y"]


def test_the_video_reader_is_asked_for_clips_on_the_gpu(drawn, tmp_path):
    pipeline = dali_pipelines.video_pipeline(tmp_path / "a.mp4", 4, 1, step=7)
    [node] = drawn
    assert pipeline.outputs is node and pipeline.options["device_id"] == 1, "without labels there is one output"
    assert (node.operator, node.options["device"], node.options["filenames"]) == (
        "readers.video",
        "gpu",
        [str(tmp_path / "a.mp4")],
    )
    assert (node.options["sequence_length"], node.options["step"]) == (4, 7)
    dali_pipelines.video_pipeline(tmp_path / "a.mp4", 4, 0)
    assert drawn[-1].options["step"] == 4


def test_the_flow_is_that_of_the_clips_and_their_first_frame_comes_along(drawn, tmp_path):
    flow, first = dali_pipelines.video_pipeline(tmp_path / "a.mp4", 4, 0, flow=True).outputs
    [clips] = flow.inputs
    assert clips.operator == "readers.video" and first.inputs == (clips,) and first.options == {"element_map": [0]}
    assert flow.operator == "optical_flow" and flow.options["output_grid"] == 4


class Reader:
    """A built video pipeline as DALI runs it: clip by clip, each a list of tensors on a GPU."""

    def __init__(self, path, frames, gpu, *, step, off=0):
        self.starts, self.frames, self.off, self.built = iter(range(0, 30 - frames + 1, step)), frames, off, False

    def build(self):
        self.built = True

    def epoch_size(self, name):
        assert self.built and name == "video"
        return len(range(0, 30 - self.frames + 1, 7))

    def run(self):
        first = next(self.starts) + self.off
        clip = torch.stack([video.numbered(number) for number in range(first, first + self.frames)]).numpy()
        return (SimpleNamespace(as_cpu=lambda: SimpleNamespace(at=lambda index: [clip][index])),)


@pytest.mark.parametrize("off", [0, 1])
def test_the_clips_of_both_video_readers_are_compared_frame_by_frame(monkeypatch, tmp_path, off):
    def read_video(path, first, frames):
        return torch.stack([video.numbered(number) for number in range(first, first + frames)])

    monkeypatch.setattr(video, "available", lambda: True)
    monkeypatch.setattr(video, "write_video", lambda path, frames: len(frames))
    monkeypatch.setattr(video, "read_video", read_video)
    monkeypatch.setattr(dali_pipelines, "video_pipeline", lambda *given, step, flow: Reader(*given, step=step, off=off))
    monkeypatch.setattr(dali_pipelines, "available", lambda: True)
    result = Result()
    gpu = SimpleNamespace(is_cuda=True, torch=torch.device("cuda"))
    experiment._check_video(result, tmp_path / "a.mp4", SimpleNamespace(frames=30, device=gpu))
    [claim] = result.claims
    assert claim.holds == (off == 0) and claim.measured == "4 clips by PyAV and by DALI on the GPU"


def test_without_pyav_it_is_said_which_readers_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(video, "available", lambda: False)
    notes = {}
    for installed in (False, True):
        monkeypatch.setattr(dali_pipelines, "available", lambda installed=installed: installed)
        result = Result()
        gpu = SimpleNamespace(is_cuda=True, torch=torch.device("cuda"))
        experiment._check_video(result, tmp_path / "a.mp4", SimpleNamespace(frames=30, device=gpu))
        assert not result.claims
        [notes[installed]] = result.notes
    assert "DALI's too" in notes[True] and "DALI" not in notes[False]


@needs_dali
def test_dali_gives_every_epoch_whole_and_in_order(photographs):
    by_pil, labels = resized(photographs, pil_image, 64)
    batches = dali_pipelines.DaliBatches(dali_pipelines.plain_pipeline(photographs, 5, 64, 1))
    for _ in range(3):  # a reader that does not pad begins its second epoch in the middle
        pairs = list(batches)
        assert [len(numbers) for _, numbers in pairs] == [5, 5, 2]
        assert [int(number) for _, numbers in pairs for number in numbers] == labels
        assert picture_difference(by_pil, [image for images, _ in pairs for image in images])[1] <= LEVELS_DALI


@needs_dali
def test_dalis_boxes_stay_on_their_objects():
    assert max(experiment.dali_gaps(30)) <= experiment.PIXEL


@pytest.mark.cuda
@needs_dali
def test_mixed_decoding_gives_the_pictures_of_the_cpu(photographs):
    by_pil, labels = resized(photographs, pil_image, 64)
    pairs = list(dali_pipelines.DaliBatches(dali_pipelines.plain_pipeline(photographs, 5, 64, 1, gpu=0)))
    assert [int(number) for _, numbers in pairs for number in numbers] == labels
    assert picture_difference(by_pil, [image.cpu() for images, _ in pairs for image in images])[1] <= LEVELS_DALI


@pytest.mark.cuda
@needs_dali
def test_the_mixed_pipeline_leaves_its_batches_on_the_gpu(photographs):
    pairs = list(dali_pipelines.DaliBatches(dali_pipelines.training_pipeline(photographs, 5, 64, 1, gpu=0)))
    assert {images.device.type for images, _ in pairs} == {"cuda"}
    assert sorted(int(label) for _, labels in pairs for label in labels) == [0] * 6 + [1] * 6
    assert all(images.shape[1:] == (3, 64, 64) and images.abs().max() < 4 for images, _ in pairs), "normalized"


@pytest.mark.cuda
@needs_dali
@needs_av
def test_dalis_reader_gives_the_frames_that_pyav_gives(tmp_path):
    path = video.write_video(tmp_path / "a.mp4", [video.numbered(number) for number in range(30)])
    clips = dali_pipelines.clips_by_dali(path, 4, 0, step=7)
    assert [[video.number_in(frame) for frame in clip] for clip in clips] == [[n, n + 1, n + 2, n + 3] for n in (0, 7, 14, 21)]


def moving_picture(frames, right=2, down=1, height=192, width=320):
    """Frames, uint8 (height, width, 3), of a photograph that moves by so many pixels from each frame to the next."""
    whole = torch.from_numpy(load_sample_image("china.jpg").copy())  # 427 × 640
    moved = [whole.roll((down * number, right * number), (0, 1)) for number in range(frames)]
    return [frame[120 : 120 + height, 160 : 160 + width].contiguous() for frame in moved]


@pytest.mark.cuda
@needs_dali
@needs_av
def test_the_engines_optical_flow_is_the_motion_that_is_known(tmp_path):
    path = video.write_video(tmp_path / "a.mp4", moving_picture(8))
    for flow in dali_pipelines.clips_by_dali(path, 4, 0, step=4, flow=True):
        assert flow.shape == (3, 48, 80, 2)
        assert flow.flatten(0, 2).median(dim=0).values.tolist() == pytest.approx([2, 1], abs=0.5)
