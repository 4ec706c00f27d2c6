"""CT scans: what is stored, what turns it into Hounsfield units and millimeters, and synthetic patients with known nodules."""

from dataclasses import dataclass

import numpy as np

from hpml_lab.core.system.errors import LabError

# Hounsfield units: water is 0, air -1000.
AIR, LUNG, FAT, MUSCLE, BLOOD, SOLID, BONE = -1000, -850, -90, 45, 30, 40, 400
NOISE = 25.0  # standard deviation in HU
SLOPE, INTERCEPT = 1.0, -1024.0  # what most scanners write: stored values begin at 0
LARGEST = 4095  # 12 bits, as scanners store
VESSELS, STEPS, STEP = 24, 90, 1.0  # of each vessel, and mm a step
SMALLEST = (8, 32, 32)  # voxels of a chest that still has lungs


@dataclass(frozen=True)
class Scan:
    """One CT scan: HU = slope · stored + intercept; index · spacing is the distance from the center of the first voxel.

    stored   int16, (slices, rows, columns)
    spacing  millimeters between the centers of voxels: z, y, x
    nodules  (n, 4) float64: center z, y, x and radius in millimeters; (0, 4) for a healthy patient
    Raises LabError for values that cannot be a scan.
    """

    name: str
    stored: np.ndarray
    spacing: tuple[float, float, float]
    slope: float
    intercept: float
    nodules: np.ndarray

    def __post_init__(self) -> None:
        nodules = np.asarray(self.nodules, dtype=np.float64)
        fix = f"Look at the source of scan {self.name!r}."
        if self.stored.ndim != 3 or 0 in self.stored.shape:
            raise LabError(f"a scan has slices, rows and columns; this one's shape is {self.stored.shape}.", fix)
        if self.stored.dtype != np.int16:
            raise LabError(f"stored values are int16; these are {self.stored.dtype}.", fix)
        if len(self.spacing) != 3 or not all(np.isfinite(mm) and mm > 0 for mm in self.spacing):
            raise LabError(f"a spacing has three positive lengths in mm; this one is {self.spacing}.", fix)
        if not (np.isfinite(self.slope) and self.slope > 0 and np.isfinite(self.intercept)):
            raise LabError(f"slope {self.slope} and intercept {self.intercept} give no Hounsfield units.", fix)
        if nodules.ndim != 2 or nodules.shape[1] != 4 or not np.isfinite(nodules).all() or (nodules[:, 3:] <= 0).any():
            raise LabError("nodules are rows of z, y, x and a positive radius, all finite and in mm.", fix)
        half = np.array(self.spacing) / 2
        if (nodules[:, :3] < -half).any() or (nodules[:, :3] > self.extent - half).any():
            raise LabError("a nodule's center is outside the volume.", f"{fix} Are its coordinates z, y, x in mm?")
        object.__setattr__(self, "nodules", nodules)
        # Floats, always: with whole numbers NumPy computes HU in int16, which overflows.
        object.__setattr__(self, "slope", float(self.slope))
        object.__setattr__(self, "intercept", float(self.intercept))
        object.__setattr__(self, "spacing", tuple(float(mm) for mm in self.spacing))

    @property
    def extent(self) -> np.ndarray:
        """Size of the volume in mm: z, y, x."""
        return np.array(self.stored.shape) * np.array(self.spacing)


@dataclass(frozen=True)
class _Ball:
    """An ellipsoid; lengths in mm from the middle of the volume, z, y, x."""

    center: np.ndarray
    half: np.ndarray  # semi-axes

    def reach(self, z: np.ndarray, y: np.ndarray, x: np.ndarray, margin: float = 0.0) -> np.ndarray:
        """Below 1 inside; with a margin, in the ellipsoid grown by so many mm."""
        along = ((at - c) / (h + margin) for at, c, h in zip((z, y, x), self.center, self.half, strict=True))
        return sum(part * part for part in along)


def synthetic(
    seed: int,
    shape: tuple[int, int, int] = (64, 192, 192),
    spacing: tuple[float, float, float] = (2.5, 1.0, 1.0),
    radius: tuple[float, float] = (3.0, 7.0),
    *,
    sick: bool | None = None,
) -> Scan:
    """A synthetic patient: a chest with lungs, vessels, heart, windpipe, spine and ribs, and known nodules.

    One seed is one patient: its anatomy is in fractions of the volume's size in mm, so that it does not depend on the number
    of voxels. Half of the patients are sick, with one to three nodules whose radii in mm are uniform in `radius`; `sick`
    decides it instead. As in DICOM, z points to the head, y to the back, and x to the patient's left side.
    Raises LabError for a volume that cannot hold a chest, or no nodule of this radius.
    """
    if len(shape) != 3 or any(size < least for size, least in zip(shape, SMALLEST, strict=True)):
        raise LabError(f"shape {shape} is too small for a chest.", f"Take at least {SMALLEST} voxels.")
    if len(spacing) != 3 or not all(np.isfinite(mm) and mm > 0 for mm in spacing):
        raise LabError(f"spacing {spacing} is not three positive lengths.", "Give mm between voxel centers: z, y, x.")
    if not 0 < radius[0] <= radius[1]:
        raise LabError(f"radius {radius} is not a range in mm.", "Give the smallest and the largest radius.")
    try:
        draw = np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise LabError(f"{seed!r} is not a seed.", "A seed is a whole number from 0 on.") from error
    half = np.array(shape) * np.array(spacing) / 2
    z, y, x = (
        (((np.arange(n) - (n - 1) / 2) * mm).astype(np.float32)).reshape([-1 if axis == i else 1 for i in range(3)])
        for axis, (n, mm) in enumerate(zip(shape, spacing, strict=True))
    )
    lungs, heart = _organs(draw, half)
    walks = _vessels(draw, half, lungs)
    nodules = _nodules(draw, half, lungs, heart, radius, sick)

    hu = np.empty(shape, np.float32)
    hu[:] = _outline(y, x, half)
    _ribs(hu, z, y, x, half)
    held = np.minimum(lungs[0].reach(z, y, x), lungs[1].reach(z, y, x)) < 1
    held &= heart.reach(z, y, x) > 1
    hu[held] = LUNG
    windpipe = np.broadcast_to((x**2 + (y + 0.08 * half[1]) ** 2 < (0.065 * half[2]) ** 2) & (z > 0.55 * half[0]), shape)
    hu[windpipe] = AIR
    _stamp(hu, walks, held, half, spacing)
    for *center, r in nodules:
        _solid(hu, center, r, (z, y, x), spacing)
    _blur(hu)
    hu += np.random.default_rng([seed, 1]).standard_normal(shape, dtype=np.float32) * np.float32(NOISE)
    hu -= INTERCEPT
    stored = np.clip(np.rint(hu, out=hu), 0, LARGEST, out=hu).astype(np.int16)
    nodules[:, :3] += half - np.array(spacing) / 2  # from the middle of the volume to the center of the first voxel
    return Scan(f"patient-{seed:04d}", stored, tuple(spacing), SLOPE, INTERCEPT, nodules)


def _organs(draw: np.random.Generator, half: np.ndarray) -> tuple[list[_Ball], _Ball]:
    """Both lungs, and the heart, which takes a part of the left one (at larger x, as radiologists look at it)."""
    lungs = []
    for side in (-1, 1):
        wide, deep, high = draw.uniform(0.94, 1.06, 3)
        lungs.append(_Ball(np.array([0, 0, side * 0.42]) * half, np.array([0.92 * high, 0.46 * deep, 0.34 * wide]) * half))
    heart = _Ball(np.array([-0.35, -0.14, 0.14]) * half, np.array([0.42, 0.22, 0.26]) * half * draw.uniform(0.9, 1.1))
    return lungs, heart


def _outline(y: np.ndarray, x: np.ndarray, half: np.ndarray) -> np.ndarray:
    """A slice without organs: air, a rim of fat, muscle, and the spine at the back."""
    _, deep, wide = half
    slice_ = np.full(np.broadcast_shapes(y.shape, x.shape), AIR, np.float32)
    slice_[(x / (0.88 * wide)) ** 2 + (y / (0.68 * deep)) ** 2 < 1] = FAT
    slice_[(x / (0.83 * wide)) ** 2 + (y / (0.62 * deep)) ** 2 < 1] = MUSCLE
    slice_[(x / (0.10 * wide)) ** 2 + ((y - 0.47 * deep) / (0.10 * deep)) ** 2 < 1] = BONE
    return slice_


def _ribs(hu: np.ndarray, z: np.ndarray, y: np.ndarray, x: np.ndarray, half: np.ndarray) -> None:
    """Arcs of bone around the lungs, one each 22 mm, lower in front (at smaller y)."""
    _, deep, wide = half
    outer = (x / (0.82 * wide)) ** 2 + (y / (0.61 * deep)) ** 2
    rows, columns = np.nonzero(((outer > 0.90) & (outer < 1))[0])
    front = z[:, 0] - 0.25 * (y[0, rows, 0] + deep)[None]
    hu[:, rows, columns] = np.where(front % 22.0 < 8.0, np.float32(BONE), hu[:, rows, columns])


def _vessels(draw: np.random.Generator, half: np.ndarray, lungs: list[_Ball]) -> np.ndarray:
    """Random walks from the middle of the chest outward: (vessels, steps, 3) mm from the middle, z, y, x."""
    side = draw.choice([-1.0, 1.0], VESSELS)
    start = draw.normal(0, [0.12, 0.10, 0.02], (VESSELS, 3)) * half
    start[:, 2] += side * 0.18 * half[2]
    turns = draw.normal(0, 0.16, (VESSELS, STEPS, 3))
    turns[:, 0] = draw.normal(0, [0.7, 0.7, 0.2], (VESSELS, 3))
    turns[:, 0, 2] += side
    heading = turns.cumsum(1)
    heading /= np.linalg.norm(heading, axis=2, keepdims=True)
    return start[:, None] + (heading * STEP).cumsum(1)


def _stamp(hu: np.ndarray, walks: np.ndarray, held: np.ndarray, half: np.ndarray, spacing: tuple[float, ...]) -> None:
    """Draw the vessels inside the lungs, thick at first and thin at the end."""
    mm = np.array(spacing)
    index = np.rint((walks + half) / mm - 0.5).astype(np.intp)
    for part, thick in zip(np.array_split(index, 3, axis=1), (2.2, 1.6, 1.1), strict=True):
        reach = np.floor(thick / mm).astype(int)
        offsets = np.stack(np.meshgrid(*(np.arange(-n, n + 1) for n in reach), indexing="ij"), -1).reshape(-1, 3)
        offsets = offsets[((offsets * mm) ** 2).sum(1) <= thick**2]
        voxels = (part.reshape(-1, 1, 3) + offsets).reshape(-1, 3)
        voxels = voxels[((voxels >= 0) & (voxels < hu.shape)).all(1)]
        z, y, x = voxels[held[tuple(voxels.T)]].T
        hu[z, y, x] = BLOOD


def _nodules(
    draw: np.random.Generator, half: np.ndarray, lungs: list[_Ball], heart: _Ball, radius: tuple[float, float],
    sick: bool | None,
) -> np.ndarray:  # fmt: skip
    """Balls in the lungs, apart from wall, heart and each other: (n, 4) center in mm from the middle, and radius."""
    chance, count = draw.random() < 0.5, int(draw.integers(1, 4))
    count *= chance if sick is None else sick
    found: list[np.ndarray] = []
    for _ in range(2000 * count):
        r = draw.uniform(*radius)
        center = draw.uniform(-0.9, 0.9, 3) * half
        margin = r + 2.0
        inside = any((lung.half > margin).all() and lung.reach(*center, -margin) < 1 for lung in lungs)
        apart = all(np.linalg.norm(center - other[:3]) > r + other[3] + 4.0 for other in found)
        if inside and apart and heart.reach(*center, margin) > 1:
            found.append(np.array([*center, r]))
            if len(found) == count:
                break
    if count and not found:
        raise LabError(
            f"no nodule with a radius of {radius[0]:g} to {radius[1]:g} mm fits into lungs of this size.",
            "Take more or larger voxels, or smaller nodules.",
        )
    return np.array(found).reshape(-1, 4)


def _solid(hu: np.ndarray, center: list[float], r: float, axes: tuple[np.ndarray, ...], spacing: tuple[float, ...]) -> None:
    """A ball with an edge one millimeter wide, where a voxel is partly lung."""
    box, near = [], []
    for axis, (at, c, mm) in enumerate(zip(axes, center, spacing, strict=True)):
        along = at.ravel()
        first, last = np.searchsorted(along, [c - r - mm, c + r + mm])
        box.append(slice(first, last))
        near.append((along[first:last] - c).reshape([-1 if axis == i else 1 for i in range(3)]))
    share = np.clip(r - np.sqrt(near[0] ** 2 + near[1] ** 2 + near[2] ** 2) + 0.5, 0, 1)
    part = hu[tuple(box)]
    part += share * (SOLID - part)


def _blur(hu: np.ndarray) -> None:
    """The scanner's blur in each slice, in place: 1/4, 1/2, 1/4 along rows and columns, a standard deviation of 0.7 voxels."""
    for axis in (1, 2):
        line = np.moveaxis(hu, axis, 0)
        sums = line[:-1] + line[1:]  # of neighbors; the outermost voxels stay
        line[1:-1] = (sums[:-1] + sums[1:]) / 4
