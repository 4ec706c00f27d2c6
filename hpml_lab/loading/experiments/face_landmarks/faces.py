"""Faces with landmarks, drawn here: seeded, varied, nothing downloaded.

Left and right are the viewer's. A face is drawn in coordinates of its own (x to the right, y downward, the head about 2 × 2.6
wide and high) and brought into the picture by one affine map, which moves the landmarks too.
"""

import csv
import math
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hpml_lab.core.system.errors import LabError

# Name and position of each landmark in an average face.
LANDMARKS = {
    "jaw, left": (-0.98, 0.25),
    "chin": (0.0, 1.30),
    "jaw, right": (0.98, 0.25),
    "brow, left outer": (-0.66, -0.42),
    "brow, left inner": (-0.22, -0.44),
    "brow, right inner": (0.22, -0.44),
    "brow, right outer": (0.66, -0.42),
    "eye, left outer": (-0.60, -0.15),
    "eye, left inner": (-0.24, -0.15),
    "eye, right inner": (0.24, -0.15),
    "eye, right outer": (0.60, -0.15),
    "nose, bridge": (0.0, -0.12),
    "nose, tip": (0.0, 0.33),
    "mouth, left": (-0.34, 0.72),
    "mouth, right": (0.34, 0.72),
    "lip, upper": (0.0, 0.66),
    "lip, lower": (0.0, 0.82),
}
NAMES = tuple(LANDMARKS)
# Rows to exchange when the face is mirrored.
PAIRS = tuple((i, NAMES.index(name.replace("left", "right"))) for i, name in enumerate(NAMES) if "left" in name)

SKINS = ((255, 224, 196), (241, 194, 150), (224, 172, 125), (198, 134, 86), (141, 85, 50), (92, 58, 40))
HAIRS = ((30, 24, 22), (72, 46, 30), (130, 82, 44), (204, 164, 92), (150, 60, 36), (176, 176, 180))
OVER = 4  # drawn so many times too large, then averaged: anti-aliasing


def _ellipse(cx: float, cy: float, rx: float, ry: float, start: float = 0.0, end: float = 360.0) -> np.ndarray:
    """Points of an ellipse's arc in the face's coordinates, (49, 2); 0° is right, 90° is down."""
    angles = np.radians(np.linspace(start, end, 49))
    return np.stack([cx + rx * np.cos(angles), cy + ry * np.sin(angles)], axis=1)


def draw_face(rng: np.random.Generator, width: int = 128, height: int = 128) -> tuple[Image.Image, np.ndarray]:
    """One face: the picture (RGB, `width` × `height` pixels) and its landmarks (17, 2) as x, y in pixels.

    Skin, hair, shape, pose, expression, background and position are drawn from `rng`. A landmark (0, 0) is the center of the
    picture's upper left pixel.
    """
    skin = np.array(SKINS[rng.integers(len(SKINS))]) + rng.integers(-10, 11)
    hair = tuple(HAIRS[rng.integers(len(HAIRS))])
    iris = tuple(int(c) for c in rng.integers(30, 120, 3))
    lips = tuple(int(c) for c in np.clip(skin * (0.80, 0.50, 0.52), 0, 255))
    shade = tuple(int(c) for c in np.clip(skin * 0.80, 0, 255))
    skin = tuple(int(c) for c in np.clip(skin, 0, 255))
    # Shape, expression and pose, all small enough that every landmark stays inside the picture.
    stretch = np.array([rng.uniform(0.88, 1.04), rng.uniform(0.92, 1.04)])
    eye_gap, eye_open = rng.uniform(-0.04, 0.05), rng.uniform(0.06, 0.14)
    smile, mouth_open, brow_up = rng.uniform(-0.08, 0.14), rng.uniform(0.0, 0.12), rng.uniform(-0.06, 0.08)
    long_hair, roll, turn = rng.random() < 0.45, math.radians(rng.uniform(-16, 16)), rng.uniform(-0.14, 0.14)
    scale = min(width, height) * rng.uniform(0.27, 0.33)
    center = np.array([width, height]) / 2 + rng.uniform(-0.05, 0.05, 2) * (width, height)

    position = {name: np.array(point) for name, point in LANDMARKS.items()}
    for name, point in position.items():
        side = np.sign(point[0])
        if name.startswith(("eye", "brow")):
            point[0] += side * eye_gap
        if name.startswith("brow"):
            point[1] -= brow_up
    position["mouth, left"][1] -= smile
    position["mouth, right"][1] -= smile
    position["lip, lower"][1] += mouth_open
    inner = [name for name in NAMES if not name.startswith(("jaw", "chin"))]
    for name in inner:  # a head that turns moves what is in front sideways, the nose's tip most
        position[name][0] += turn * (1.5 if name == "nose, tip" else 1.0)

    turned = np.array([[math.cos(roll), -math.sin(roll)], [math.sin(roll), math.cos(roll)]])

    def to_pixels(points: np.ndarray) -> np.ndarray:
        return (np.asarray(points) * stretch - (0, 0.1)) @ turned.T * scale + center

    def canvas(points: np.ndarray) -> list[tuple[float, float]]:
        return [tuple(point) for point in ((to_pixels(points) + 0.5) * OVER - 0.5).tolist()]

    picture = _background(rng, width * OVER, height * OVER)
    draw = ImageDraw.Draw(picture)
    stroke = lambda size: max(1, round(size * scale * OVER))  # noqa: E731 - a width in the face's units
    if long_hair:
        draw.polygon(canvas(_ellipse(0, 0.25, 1.22, 1.45)), fill=hair)
    draw.polygon(canvas([(-0.35, 0.9), (0.35, 0.9), (0.42, 1.9), (-0.42, 1.9)]), fill=shade)  # neck
    for side in (-1, 1):
        draw.polygon(canvas(_ellipse(side * 1.0, 0.0, 0.14, 0.24)), fill=shade)  # ears
    draw.polygon(canvas(_ellipse(0, 0, 1.0, 1.30)), fill=skin)
    draw.polygon(
        canvas(np.concatenate([_ellipse(0, 0, 1.05, 1.36, 190, 350), _ellipse(turn, -0.35, 0.86, 0.50, 340, 200)])), fill=hair
    )
    for side in ("left", "right"):
        outer, inside = position[f"eye, {side} outer"], position[f"eye, {side} inner"]
        (cx, cy), rx = (outer + inside) / 2, abs(outer - inside)[0] / 2
        draw.polygon(canvas(_ellipse(cx, cy, rx, eye_open)), fill=(250, 250, 250))
        draw.polygon(canvas(_ellipse(cx, cy, eye_open * 0.85, eye_open * 0.85)), fill=iris)
        draw.polygon(canvas(_ellipse(cx, cy, eye_open * 0.4, eye_open * 0.4)), fill=(15, 15, 18))
        brow_outer, brow_inner = position[f"brow, {side} outer"], position[f"brow, {side} inner"]
        arch = (brow_outer + brow_inner) / 2 - (0, 0.07)
        draw.line(canvas([brow_outer, arch, brow_inner]), fill=hair, width=stroke(0.07), joint="curve")
    bridge, tip = position["nose, bridge"], position["nose, tip"]
    draw.line(canvas([bridge, tip + (0.14, 0.0), tip]), fill=shade, width=stroke(0.05), joint="curve")
    left, right = position["mouth, left"], position["mouth, right"]
    upper, lower = position["lip, upper"], position["lip, lower"]
    draw.polygon(canvas(_curves(left, upper, right, lower)), fill=lips)
    if mouth_open > 0.04:
        middle = (upper + lower) / 2
        draw.polygon(canvas(_ellipse(*middle, 0.17, mouth_open * 0.4)), fill=(70, 20, 24))
    picture = picture.resize((width, height), Image.Resampling.BOX)
    return picture, to_pixels([position[name] for name in NAMES])


def _curves(left: np.ndarray, upper: np.ndarray, right: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The outline of a mouth: parabolas through the corners and the middles of the two lips."""
    t = np.linspace(0, 1, 17)[:, None]

    def through(a, middle, b):
        return (1 - t) ** 2 * a + 2 * t * (1 - t) * (2 * middle - (a + b) / 2) + t**2 * b

    return np.concatenate([through(left, upper, right), through(right, lower, left)])


def _background(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A slanted ramp between two muted colors."""
    first, second = rng.integers(60, 225, 3), rng.integers(60, 225, 3)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    slant = rng.uniform(0, 1)
    ramp = (slant * across + (1 - slant) * down)[..., None]
    return Image.fromarray(((1 - ramp) * first + ramp * second).astype(np.uint8))


def header(count: int) -> list[str]:
    """The first line of the landmark table: image_name, part_0_x, part_0_y, part_1_x, … (`count` landmarks)."""
    return ["image_name", *(f"part_{i}_{axis}" for i in range(count) for axis in "xy")]


def write_faces(folder: Path | str, count: int, seed: int = 0) -> Path:
    """Write `count` faces as JPEG and their table `face_landmarks.csv` into the new `folder`; returns the table's path.

    Sizes vary from 112 to 160 pixels. The folder appears whole or not at all; LabError where it exists and is not empty.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError(f"{folder} exists and is not an empty folder.", "Choose another one, or delete it first.")
    part = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
        with open(part / "face_landmarks.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(header(len(NAMES)))
            for number in range(count):
                rng = np.random.default_rng((seed, number))  # one face does not depend on how many there are
                width, height = (int(side) for side in rng.integers(112, 161, 2))
                picture, points = draw_face(rng, width, height)
                name = f"face_{number:04d}.jpg"
                picture.save(part / name, quality=92)
                table.writerow([name, *(f"{value:.2f}" for value in points.ravel())])
        os.chmod(part, 0o755)  # mkdtemp makes folders that only the owner can enter
        os.replace(part, folder)
        part = None
    except OSError as error:
        raise LabError(
            f"The faces could not be written to {folder} ({error.strerror or error}).",
            "Free some space or choose another folder.",
        ) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return folder / "face_landmarks.csv"
