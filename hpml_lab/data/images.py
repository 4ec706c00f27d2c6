"""Files that hold an image."""

from pathlib import Path

from PIL import Image

from hpml_lab.core.system.readers import IMAGE, open_file


def image_of(path: Path | str, whole: bool) -> Image.Image:
    """The image in a file as RGB, decoded where `whole`; else only its header has been read."""
    with open_file(path, IMAGE) as content, Image.open(content) as file:
        return file.convert("RGB") if whole else file
