"""The faces, the lecture's Dataset over them, and the experiment face-landmarks."""

import csv
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, SubsetRandomSampler
from torchvision import tv_tensors
from torchvision.transforms import v2

from hpml_lab.core.system.errors import LabError
from hpml_lab.loading.experiments.face_landmarks import (
    DamagedRow,
    FormerCall,
    MovedPoints,
    centers,
    damage,
    dots,
    faces,
    point_distances,
)
from hpml_lab.loading.lessons.landmarks import FaceLandmarksDataset


@pytest.fixture
def table(tmp_path):
    return faces.write_faces(tmp_path / "faces", 12, seed=3)


def read(table, **options):
    return FaceLandmarksDataset(table, table.parent, **options)


def rewrite(table, change):
    with open(table, newline="") as file:
        rows = list(csv.reader(file))
    change(rows)
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows(rows)


# ---- the faces ---------------------------------------------------------------------------------------------


def test_faces_depend_on_the_seed_alone_and_differ_from_each_other(tmp_path):
    one, again, more, other = (
        faces.write_faces(tmp_path / name, count, seed)
        for name, count, seed in (("a", 3, 0), ("b", 3, 0), ("c", 4, 0), ("d", 3, 1))
    )
    for name in [f"face_{i:04d}.jpg" for i in range(3)]:
        pictures = [(path.parent / name).read_bytes() for path in (one, again, more, other)]
        assert pictures[0] == pictures[1] == pictures[2] != pictures[3]
    assert one.read_text() == again.read_text() != other.read_text()
    assert more.read_text().startswith(one.read_text().rstrip("\r\n"))
    assert len({(one.parent / f"face_{i:04d}.jpg").read_bytes() for i in range(3)}) == 3


def test_every_landmark_of_many_faces_lies_inside_its_image():
    for number in range(300):
        rng = np.random.default_rng((7, number))
        width, height = (int(side) for side in rng.integers(112, 161, 2))
        picture, points = faces.draw_face(rng, width, height)
        assert picture.size == (width, height) and picture.mode == "RGB" and points.shape == (17, 2)
        assert (points >= 0).all() and (points <= (width - 1, height - 1)).all(), number


def test_landmarks_sit_on_their_features():
    """Between the corners of an eye is its white, brighter than the skin under the nose; at a mouth's corners is none."""
    for number in range(40):
        picture, points = faces.draw_face(np.random.default_rng(number), 160, 160)
        light = np.asarray(picture.convert("L"), dtype=float)
        where = dict(zip(faces.NAMES, points, strict=True))

        def brightest(a, b, light=light):
            line = np.round(np.linspace(a, b, 40)).astype(int)
            return light[line[:, 1], line[:, 0]].max()

        x, y = np.round((where["nose, tip"] + where["lip, upper"]) / 2).astype(int)
        for side in ("left", "right"):
            assert brightest(where[f"eye, {side} outer"], where[f"eye, {side} inner"]) > light[y, x] + 5, number
        assert brightest(where["lip, upper"], where["lip, lower"]) < light[y, x] + 5, number


def test_pairs_name_the_same_feature_on_both_sides():
    names = {frozenset((faces.NAMES[a], faces.NAMES[b])) for a, b in faces.PAIRS}
    assert frozenset(("eye, left outer", "eye, right outer")) in names and len(names) == 6
    assert all("left" in faces.NAMES[a] and "right" in faces.NAMES[b] for a, b in faces.PAIRS)


def test_a_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    real, calls = faces.draw_face, []

    def fails(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(faces, "draw_face", fails)
    with pytest.raises(LabError, match="No space left on device"):
        faces.write_faces(tmp_path / "new", 5)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(faces, "draw_face", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        faces.write_faces(tmp_path / "new", 5)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(table):
    before = sorted(os.listdir(table.parent))
    with pytest.raises(LabError, match="not an empty folder"):
        faces.write_faces(table.parent, 2)
    assert sorted(os.listdir(table.parent)) == before


# ---- the data set ------------------------------------------------------------------------------------------


def test_a_sample_is_the_file_and_the_tables_row(table):
    data = read(table)
    assert len(data) == 12 and data.skipped == []
    with open(table, newline="") as file:
        row = list(csv.reader(file))[5]
    sample = data[4]
    assert isinstance(sample["image"], tv_tensors.Image) and isinstance(sample["landmarks"], tv_tensors.KeyPoints)
    expected = np.asarray(Image.open(table.parent / row[0]).convert("RGB"))
    assert np.array_equal(sample["image"].permute(1, 2, 0).numpy(), expected)
    assert sample["landmarks"].canvas_size == expected.shape[:2]
    assert sample["landmarks"].ravel().tolist() == pytest.approx([float(cell) for cell in row[1:]], abs=1e-4)


def test_the_well_known_table_of_68_landmarks_is_read(tmp_path):
    values = [f"{10 + part}.0,{5 + part / 2}" for part in range(68)]
    names = ",".join(f"part_{part}_{axis}" for part in range(68) for axis in "xy")
    Image.new("RGB", (120, 80), "gray").save(tmp_path / "person.jpg")
    Image.new("L", (120, 80)).save(tmp_path / "grey.png")  # the well-known set is RGB; a reader should not care
    (tmp_path / "face_landmarks.csv").write_text(
        f"image_name,{names}\nperson.jpg,{','.join(values)}\ngrey.png,{','.join(values)}\n"
    )
    data = FaceLandmarksDataset(tmp_path / "face_landmarks.csv", tmp_path)
    assert len(data) == 2
    for sample in data:
        assert sample["image"].shape == (3, 80, 120) and sample["landmarks"].shape == (68, 2)
        assert sample["landmarks"][67].tolist() == [77.0, 38.5]


def test_landmarks_of_a_face_that_the_edge_cuts_are_read_and_move_with_the_image(tmp_path):
    """The well-known table has some: they lie a few pixels outside, where its tool guessed them."""
    Image.new("RGB", (400, 420)).save(tmp_path / "cut.jpg")
    (tmp_path / "t.csv").write_text("image_name,part_0_x,part_0_y,part_1_x,part_1_y\ncut.jpg,-10,129,248,-6\n")
    sample = FaceLandmarksDataset(tmp_path / "t.csv", tmp_path, v2.RandomHorizontalFlip(p=1.0))[0]
    assert sample["landmarks"].tolist() == [[409.0, 129.0], [151.0, -6.0]]


def test_a_sample_is_found_by_any_kind_of_index(table):
    data = read(table)
    loader = DataLoader(data, batch_size=None, sampler=SubsetRandomSampler(torch.tensor([3])))
    for sample in (data[np.int64(3)], data[-9], next(iter(loader))):
        assert torch.equal(sample["landmarks"], data[3]["landmarks"])


def test_a_name_that_no_file_can_have_is_a_damaged_row(table):
    rewrite(table, lambda rows: rows[3].__setitem__(0, "face\0.jpg"))
    with pytest.raises(LabError, match=r"face_landmarks\.csv, line 4, face\0\.jpg: the image cannot be read"):
        read(table)


def cut_short(table):
    path = table.parent / "face_0002.jpg"
    path.write_bytes(path.read_bytes()[:600])


DAMAGES = {
    "part_1_x is missing": lambda table: rewrite(table, lambda rows: rows[3].__setitem__(3, " ")),
    "part_1_y is 'left', which is not a number": lambda table: rewrite(table, lambda rows: rows[3].__setitem__(4, "left")),
    "part_0_x is nan, which is not a position": lambda table: rewrite(table, lambda rows: rows[3].__setitem__(1, "nan")),
    "33 numbers where the first line names 34": lambda table: rewrite(table, lambda rows: rows[3].pop()),
    "35 numbers where the first line names 34": lambda table: rewrite(table, lambda rows: rows[3].append("3")),
    "there is no such image in faces": lambda table: (table.parent / "face_0002.jpg").unlink(),
    "the file is truncated": cut_short,
    "its content is of no known format": lambda table: (table.parent / "face_0002.jpg").write_bytes(b"no image"),
    r"landmark 16 at \(-60, ": lambda table: rewrite(table, lambda rows: rows[3].__setitem__(33, "-60")),
}


@pytest.mark.parametrize("said", DAMAGES)
def test_damage_gives_one_error_that_names_file_and_line(table, said):
    DAMAGES[said](table)
    with pytest.raises(LabError, match=rf"face_landmarks\.csv, line 4, face_0002\.jpg: .*{said}"):
        for _ in read(table):
            pass


@pytest.mark.parametrize("said", DAMAGES)
def test_the_policy_skip_leaves_out_the_damaged_row_and_reports_it(table, said):
    whole = [sample["landmarks"] for sample in read(table)]
    DAMAGES[said](table)
    data = read(table, on_damage="skip")
    assert len(data) == 11 and len(data.skipped) == 1 and "line 4, face_0002.jpg" in data.skipped[0]
    kept = [sample["landmarks"] for sample in data]
    assert all(torch.equal(a, b) for a, b in zip(kept, whole[:2] + whole[3:], strict=True))


def test_a_file_that_vanishes_later_is_named_too(table):
    data = read(table)
    (table.parent / "face_0007.jpg").unlink()
    with pytest.raises(LabError, match=r"line 9, face_0007\.jpg: there is no such image"):
        data[7]


def test_an_error_in_a_worker_still_names_the_file(table):
    (table.parent / "face_0001.jpg").write_bytes((table.parent / "face_0001.jpg").read_bytes()[:700])
    loader = DataLoader(read(table), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=300)
    with pytest.raises(Exception, match=r"line 3, face_0001\.jpg: the image cannot be read"):
        list(loader)


@pytest.mark.parametrize("first", ["", "a,b,c\n", "image_name,part_0_x\n", "image_name,part_0_x,part_0_y,part_1_x\n"])
def test_a_file_that_is_no_landmark_table_is_said_so(tmp_path, first):
    (tmp_path / "table.csv").write_text(first)
    with pytest.raises(LabError, match=r"table\.csv, line 1: not the first line of a landmark table"):
        FaceLandmarksDataset(tmp_path / "table.csv", tmp_path)


def test_a_missing_table_and_an_unknown_policy_are_refused(tmp_path, table):
    with pytest.raises(LabError, match=r"none\.csv is not there"):
        FaceLandmarksDataset(tmp_path / "none.csv", tmp_path)
    with pytest.raises(LabError, match='Use "raise" or "skip"'):
        read(table, on_damage="ignore")


def test_a_table_saved_by_a_spreadsheet_is_read(table):
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes())  # a byte order mark
    assert len(read(table)) == 12


def test_an_empty_line_is_no_row_and_shifts_no_line_number(table):
    rewrite(table, lambda rows: rows.insert(2, []))
    (table.parent / "face_0001.jpg").unlink()
    with pytest.raises(LabError, match=r"line 4, face_0001\.jpg"):
        read(table)


# ---- image and points together -----------------------------------------------------------------------------


def test_the_measure_finds_a_dot_where_it_was_drawn():
    points = torch.tensor([[20.0, 30.0], [41.25, 15.5]])
    assert torch.allclose(centers(dots(points, 60, 70)), points, atol=1e-3)


def test_the_measure_sees_points_that_do_not_move_with_the_image():
    class ImageOnly(v2.Transform):
        def transform(self, inpt, params):
            return v2.functional.horizontal_flip(inpt) if isinstance(inpt, tv_tensors.Image) else inpt

    points = torch.tensor([[20.0, 30.0], [40.0, 15.0]])
    gap = point_distances(ImageOnly(), points, 60, 70)
    assert gap.together == pytest.approx(69 - 2 * 20, abs=0.01) and gap.image_alone == pytest.approx(gap.together)


def test_each_kind_of_damage_is_done(table):
    kinds = damage(table.parent, table)
    assert len(kinds) == 8 and sorted(kinds.values()) == list(range(2, 10))
    data = read(table, on_damage="skip")
    assert len(data) == 4 and len(set(text.split(": ", 1)[1] for text in data.skipped)) == 8


def test_the_experiment_is_sound(sound, ran):
    result = ran("face-landmarks")
    sound(result)
    assert result.here("skipped after damage") == 8 and result.here("landmarks of an image") == 17
    moved = result.rows(MovedPoints)
    assert all(row.together < 1 and row.image_alone > 10 for row in moved)
    assert [row.sizes.split(" → ")[1] for row in moved] == ["120 × 96", "480 × 384", "180 × 144", "240 × 192"]
    damaged = result.rows(DamagedRow)
    assert [row.line for row in damaged] == list(range(2, 10)) and all(f"line {row.line}," in row.message for row in damaged)
    [former] = result.rows(FormerCall)
    assert "as_matrix" in former.call and former.error.startswith("AttributeError")
    panels = result.figure().axes
    assert len(panels) == 4
    for axes in panels:
        points = [dots for dots in axes.collections if len(dots.get_offsets()) == 17]
        assert len(points) == len(axes.images) == 4
