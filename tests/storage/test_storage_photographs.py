"""The set of photographs: seeded, varied, two classes; written whole or not at all."""

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.storage.experiments.dali.photographs import CLASSES, make_photographs


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return make_photographs(tmp_path_factory.mktemp("set") / "photographs", 12)


def test_the_photographs_are_two_classes_of_varied_sizes_and_the_same_for_the_same_seed(photographs, tmp_path):
    from PIL import Image

    files = sorted(photographs.rglob("*.jpg"))
    assert [len(list((photographs / name).iterdir())) for name in CLASSES] == [6, 6]
    assert len({Image.open(file).size for file in files}) > 6
    again, other = make_photographs(tmp_path / "again", 12), make_photographs(tmp_path / "other", 12, seed=1)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in sorted(again.rglob("*.jpg"))]
    assert [file.read_bytes() for file in files] != [file.read_bytes() for file in sorted(other.rglob("*.jpg"))]


def test_photographs_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    from PIL import Image

    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(LabError, match="No space left"):
        make_photographs(tmp_path / "set", 3)
    assert list(tmp_path.iterdir()) == []


def test_photographs_do_not_overwrite_what_is_there(tmp_path):
    with pytest.raises(LabError, match="is there already"):
        make_photographs(tmp_path, 3)
