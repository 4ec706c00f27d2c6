"""The one shape of every experiment, and the registry through which everything else knows them."""

import difflib
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hpml_lab.core import machine, style
from hpml_lab.core.device import choose_device
from hpml_lab.core.errors import LabError
from hpml_lab.core.result import Result
from hpml_lab.core.topics import import_topics
from hpml_lab.core.threads import one_thread

SIZES = ("quick", "full")
SEED = 0


class Size(SimpleNamespace):
    """What an experiment is handed: `name` (quick or full), `device` (core.device.Device) and that size's parameters."""


@dataclass(frozen=True)
class Experiment:
    """One row of the catalogue: call it with "quick" or "full" to get a Result."""

    slug: str
    lecture: str
    notebook: str
    function: Callable[[Size], Result]
    draw: Callable[[Result], Any] | None
    quick: dict[str, Any]
    full: dict[str, Any]
    lecture_says: dict[str, str]
    uses: tuple[str, ...]

    @property
    def title(self) -> str:
        """The first line of the experiment's docstring."""
        return self.function.__doc__.strip().splitlines()[0].rstrip(".")

    @property
    def caption(self) -> str:
        """The docstring of the drawing: the figure's caption and its alternative text."""
        return " ".join(self.draw.__doc__.split()) if self.draw else ""

    def figure(self, result: Result):
        """Draw a result of this experiment, this run's or a recorded one."""
        if self.draw is None:
            return None
        with style.in_style():
            return self.draw(result)

    def __call__(self, size: str = "quick", device: str | None = None) -> Result:
        """Run at `size` on `device` (default: the best one here, or `HPML_DEVICE`), seeded, on one CPU thread, and record
        where it ran."""
        if size not in SIZES:
            raise LabError(f"{size!r} is not a size.", f"Use {' or '.join(SIZES)}.")
        machine.require_torch()
        chosen = choose_device(device)
        random.seed(SEED)
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        start = time.perf_counter()
        with one_thread():  # what measures the whole processor asks for its threads itself
            result = self.function(Size(name=size, device=chosen, **getattr(self, size)))
        result.slug, result.size, result.device, result.seed = self.slug, size, str(chosen), SEED
        result.seconds = time.perf_counter() - start
        result.when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        result.machine = dict(machine.describe())
        return result


_REGISTRY: dict[str, Experiment] = {}


def experiment(
    slug: str,
    *,
    lecture: str,
    notebook: str,
    draw: Callable[[Result], Any] | None = None,
    quick: dict[str, Any] | None = None,
    full: dict[str, Any] | None = None,
    lecture_says: dict[str, str] | None = None,
    uses: Iterable[str] = (),
) -> Callable[[Callable[[Size], Result]], Experiment]:
    """Register a function `(size) -> Result` as the experiment `slug`.

    lecture       the lectures it comes from, "L0 L2"
    notebook      the notebook that teaches it, "01_tensors"
    draw          (Result) -> Figure; its docstring is the caption and the alternative text
    quick, full   the parameters of the two sizes, side by side; the function reads them as attributes of `size`
    lecture_says  the lecture's figures, by the names that the result's `quantities` bear
    uses          what it shows more with, as the doctor names it: "cuda", "graphviz", …
    """

    def register(function: Callable[[Size], Result]) -> Experiment:
        made = Experiment(slug, lecture, notebook, function, draw, quick or {}, full or {}, lecture_says or {}, tuple(uses))
        if _REGISTRY.setdefault(slug, made) is not made:
            raise ValueError(f"two experiments are called {slug!r}")
        return made

    return register


def all_experiments() -> list[Experiment]:
    """All experiments, in the order of the notebooks and, within one, of the file that defines them."""
    import_topics("experiments")
    return sorted(_REGISTRY.values(), key=lambda one: one.notebook)


def find(slug: str) -> Experiment:
    """The experiment called `slug`; an unknown name raises LabError with the nearest known ones."""
    if slug not in _REGISTRY:
        all_experiments()
    if slug not in _REGISTRY:
        near = difflib.get_close_matches(slug, _REGISTRY, n=3, cutoff=0.5)
        raise LabError(
            f"no experiment is called {slug!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "`hpml-lab list` shows them all.",
        )
    return _REGISTRY[slug]
