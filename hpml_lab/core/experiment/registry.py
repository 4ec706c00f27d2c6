"""The one shape of every experiment, and the registry through which everything else knows them."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from hpml_lab.core.experiment.catalogue import listed, load_module, require_size
from hpml_lab.core.experiment.fits import Fits, free_bytes, is_out_of_memory, out_of_memory
from hpml_lab.core.experiment.result import Result, load_record
from hpml_lab.core.experiment.result_json import UNREADABLE, read_record
from hpml_lab.core.experiment.results_folder import keep
from hpml_lab.core.experiment.topics import import_topics
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.imports import whole_imports
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.core.system.random_states import seed_everything
from hpml_lab.core.system.readers import reader
from hpml_lab.core.timing.compilation import kernels_of_this_processor
from hpml_lab.core.timing.laps import held_up, stretches
from hpml_lab.core.timing.threads import one_thread

SEED = 0


class Params(SimpleNamespace):
    """What an experiment is given: `size` ("quick" or "full"), `device` (a core.system.device.Device), that size's values."""


def default_size() -> str:
    """The size that a notebook runs at: the environment variable `HPML_SIZE`, or quick."""
    return os.environ.get("HPML_SIZE") or "quick"


@dataclass(frozen=True)
class Experiment:
    """One row of the catalogue: call it, optionally with "quick" or "full", to get a Result."""

    slug: str
    lecture: str
    notebook: str
    function: Callable[[Params], Result]
    draw: Callable[[Result], Any] | None
    quick: dict[str, Any]
    full: dict[str, Any]
    uses: tuple[str, ...]
    fits: Fits | None = None
    same_picture: bool = False

    @property
    def title(self) -> str:
        """The first line of the experiment's docstring."""
        return self.function.__doc__.strip().splitlines()[0].rstrip(".")

    @property
    def caption(self) -> str:
        """The docstring of the drawing: the figure's caption and its alternative text."""
        return " ".join(self.draw.__doc__.split()) if self.draw else ""

    @property
    def topic(self) -> str:
        """The package that it belongs to, such as `tuning`."""
        return self.notebook.split("_", 1)[1]

    def figure(self, result: Result):
        """Draw a result of this experiment, this run's or a recorded one; None if it draws nothing."""
        if self.draw is None:
            return None
        with style.in_style():
            return self.draw(result)

    def reference(self) -> Result | None:
        """The run recorded in `data/reference/`, or None if none was recorded. Raises LabError for one that is damaged."""
        path = REFERENCE / f"{self.slug}.json"
        return self.load(path) if path.is_file() else None

    def load(self, path: Path | str) -> Result:
        """Read a saved result of this experiment. Raises LabError for a file that is damaged or of an older version."""
        return load_record(Path(path), self)

    def __call__(self, size: str | None = None, device: str | None = None) -> Result:
        """Run the experiment, seeded and on one CPU thread, and record where it ran. A notebook's run is kept in its folder.

        size    "quick" or "full"; by default the environment variable `HPML_SIZE`, or quick
        device  by default the best device here, or `HPML_DEVICE`
        """
        size = size or default_size()
        require_size(size)
        machine.require_torch()
        chosen = choose_device(device)
        gpu = chosen.torch if chosen.torch.type == "cuda" else None
        params, notes = Params(size=size, device=chosen, **getattr(self, size)), []
        if gpu and size == "full" and self.fits:
            scaled, note = self.fits.to(params, free_bytes(gpu))
            size, notes = (f"full, {scaled}", [note]) if scaled else (size, [])
        seed_everything(SEED)
        start, before = time.perf_counter(), allocations(gpu)
        try:
            # One that measures the whole processor asks for its threads itself.
            with one_thread(), current_device(gpu), whole_imports(), kernels_of_this_processor(), stretches() as stretched:
                result = self.function(params)
        except RuntimeError as error:
            if gpu is None or not is_out_of_memory(error):
                raise
            raise out_of_memory(gpu) from error
        result.experiment = self
        result.slug, result.size, result.seed = self.slug, size, SEED
        result.seconds = time.perf_counter() - start
        result.when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        result.notes = [*notes, *result.notes, *busy_note(stretched)]
        several = "two-gpus" in self.uses and torch.cuda.device_count() > 1  # used by ranks, in processes of their own
        here = str(chosen) if several or allocations(gpu) > before else "cpu"
        result.device = result.device or here
        result.machine = dict(machine.describe(gpu.index if gpu else 0))
        if result.device != "cpu":
            from hpml_lab.core.timing.clock import launch_seconds  # with torch's benchmark module, which a list does not need

            with current_device(gpu):
                result.machine["launch_us"] = round(1e6 * launch_seconds(gpu), 1)
        keep(result)
        return result


def busy_note(stretched: Sequence[float]) -> list[str]:
    """What a result says of a machine whose cores other programs had, from what `stretches` saw."""
    said = held_up(median(stretched)) if stretched else ""
    return [f"While this ran, {said}. Run it again on a quiet machine before you read its times."] if said else []


def allocations(gpu: torch.device | None) -> int:
    """How many blocks this process has asked a GPU's memory for so far: more after an experiment tells that it used it."""
    return torch.cuda.memory_stats(gpu).get("allocation.all.allocated", 0) if gpu else 0


def current_device(gpu: torch.device | None) -> contextlib.AbstractContextManager:
    """A block in which what names no GPU means this one, such as the clock that waits for it."""
    return torch.cuda.device(gpu) if gpu else contextlib.nullcontext()


_REGISTRY: dict[str, Experiment] = {}


def experiment(
    slug: str,
    *,
    lecture: str,
    notebook: str,
    draw: Callable[[Result], Any] | None = None,
    quick: dict[str, Any] | None = None,
    full: dict[str, Any] | None = None,
    uses: Iterable[str] = (),
    fits: Fits | None = None,
    same_picture: bool = False,
) -> Callable[[Callable[[Params], Result]], Experiment]:
    """Register a function `(params) -> Result` as the experiment `slug`.

    lecture       the lectures it comes from, "L0 L2", or "own"
    notebook      the notebook that teaches it, "01_tensors"
    draw          (Result) -> Figure; its docstring is the caption and the alternative text
    quick, full   the parameters of the two sizes; the function reads them as attributes of `params`
    uses          what it shows more with, as the doctor names it: "cuda", "graphviz", …
    fits          how full size is made to fit into a GPU's memory, where it takes more than a few GB
    same_picture  whether the picture is the same on every machine and at both sizes: a recorded run's is then not shown
    """

    def register(function: Callable[[Params], Result]) -> Experiment:
        made = Experiment(slug, lecture, notebook, function, draw, quick or {}, full or {}, tuple(uses), fits, same_picture)
        if _REGISTRY.setdefault(slug, made) is not made:
            raise ValueError(f"two experiments are called {slug!r}")
        return made

    return register


def all_experiments() -> list[Experiment]:
    """All experiments that load here, in the order of the notebooks and of the headings in each.

    A topic's `__all__` lists its experiments in the order of its notebook's headings.
    """
    import_topics("experiments")

    def position(row: Experiment) -> tuple[str, int]:
        names, name = getattr(sys.modules.get(f"hpml_lab.{row.topic}"), "__all__", []), row.function.__name__
        return row.notebook, names.index(name) if name in names else len(names)

    return sorted(_REGISTRY.values(), key=position)


def topics_that_do_not_load() -> dict[str, str]:
    """{topic: why} for the topics whose experiments cannot be imported on this system."""
    return dict(import_topics("experiments"))


def find(slug: str) -> Experiment:
    """The experiment called `slug`, of which only its own module is imported.

    Raises LabError for an unknown name, with the nearest known ones, and for an experiment that does not load here.
    """
    if slug not in _REGISTRY:
        load_module(listed(slug, _REGISTRY).module)
    return _REGISTRY[slug]


@reader(*UNREADABLE)
def load_result(path: Path | str) -> Result:
    """Read a saved result of any experiment. Raises LabError for a file that is damaged or of an unknown experiment."""
    return find(str(read_record(Path(path)).get("slug"))).load(path)
