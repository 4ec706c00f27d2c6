"""Decoders and pipelines: the same pictures and labels by every way, boxes that stay on their objects, frames by number."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.errors import LabError
from hpml_lab.core.png import pixels_of, png_text
from hpml_lab.loading import boxes, dali, dali_pipelines, decoded_pictures, video
from hpml_lab.loading.decoders import picture_difference, pil_image, resized, tensor_image
from hpml_lab.loading.experiments import dali as experiment
from hpml_lab.loading.experiments.dali import LEVELS_DALI, LEVELS_TENSOR, LoadingRate
from hpml_lab.loading.photograph_loaders import DALI, PIL, TENSOR, loading_ways
from hpml_lab.loading.photographs import make_photographs

SMALL = dict(images=12, batch=4, side=64, rounds=1, workers=(0, 1), threads=(1,), boxes=5, frames=30)
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")  # see tensor_image
needs_dali = pytest.mark.skipif(
    not dali_pipelines.available(), reason="DALI is not installed: .venv/bin/uv pip install -e '.[dali]'"
)
needs_av = pytest.mark.skipif(not video.available(), reason="PyAV is not installed: pip install av")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return make_photographs(tmp_path_factory.mktemp("set") / "photographs", 12)


def test_the_experiment_is_sound_and_says_what_is_left_out(sound):
    result = replace(dali, quick=SMALL)("quick", device="cpu")
    sound(result)
    ways = {(row.pipeline, row.workers) for row in result.rows(LoadingRate)}
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


def test_a_loader_that_gives_another_label_is_found_out(monkeypatch):
    real = experiment.epoch_to_device

    def wrong(batches, device):
        took, counts, shape = real(batches, device)
        return took, [counts[0] + 1, counts[1] - 1], shape

    monkeypatch.setattr(experiment, "epoch_to_device", wrong)
    result = replace(dali, quick=SMALL)("quick", device="cpu")
    assert [claim.text[:9] for claim in result.claims if claim.exact and not claim.holds] == ["Every way"]


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
    assert boxes.bright_extent(torch.zeros(3, 8, 8, dtype=torch.uint8)).isnan().all()


def test_boxes_that_are_left_behind_break_the_claim(monkeypatch):
    assert max(boxes.flip_gaps(10)[0]) == 0
    monkeypatch.setattr(boxes, "move_together", lambda image, box: (image.flip(-1), box))
    moved, alone = boxes.flip_gaps(10)
    assert max(moved) == max(alone) > boxes.PIXEL
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
        video.write_video(tmp_path / "a.mp4", 3)


@needs_av
def test_clips_begin_at_the_frame_that_was_asked_for(tmp_path):
    path = video.write_video(tmp_path / "a.mp4", 40)
    for first in range(36):
        assert [video.number_in(frame) for frame in video.read_video(path, first, 4)] == list(range(first, first + 4))
    with pytest.raises(LabError, match="no 4 frames from number 37"):
        video.read_video(path, 37, 4)


@needs_dali
def test_dali_gives_every_epoch_whole_and_in_order(photographs):
    by_pil, labels = resized(photographs, pil_image, 64)
    batches = dali_pipelines.Batches(dali_pipelines.plain_pipeline(photographs, 5, 64, 1))
    for _ in range(3):  # a reader that does not pad begins its second epoch in the middle
        pairs = list(batches)
        assert [len(numbers) for _, numbers in pairs] == [5, 5, 2]
        assert [int(number) for _, numbers in pairs for number in numbers] == labels
        assert picture_difference(by_pil, [image for images, _ in pairs for image in images])[1] <= LEVELS_DALI


@needs_dali
def test_dalis_boxes_stay_on_their_objects():
    assert max(boxes.dali_gaps(30)) <= boxes.PIXEL


@pytest.mark.cuda
@needs_dali
def test_mixed_decoding_gives_the_pictures_of_the_cpu(photographs):
    by_pil, labels = resized(photographs, pil_image, 64)
    pairs = list(dali_pipelines.Batches(dali_pipelines.plain_pipeline(photographs, 5, 64, 1, gpu=0)))
    assert [int(number) for _, numbers in pairs for number in numbers] == labels
    assert picture_difference(by_pil, [image.cpu() for images, _ in pairs for image in images])[1] <= LEVELS_DALI
