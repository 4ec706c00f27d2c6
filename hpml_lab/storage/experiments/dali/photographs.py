"""A set of real photographs that needs no network: seeded crops of the two that scikit-learn ships, stored as JPEG."""

import random
import shutil
import tempfile
from pathlib import Path

from hpml_lab.core.system.errors import LabError

CLASSES = ("china", "flower")  # the two photographs, 640 × 427 pixels each
SIDES = (256, 420)  # of a crop, in pixels
QUALITY = (75, 95)


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
