"""The closing page of the workbook: ten habits, the experiment that shows each, the reader's figure and the recorded one."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.experiment.result import read_record
from hpml_lab.core.experiment.results_folder import results_folder
from hpml_lab.core.show.numbers import number
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import REFERENCE

NOWHERE = "not run yet"


@dataclass(frozen=True)
class Habit:
    """Something to do in every project, and where the workbook shows what it is worth.

    notebook, cell  the section that shows it, by the cell with its heading
    figures         its key figures: the first one that a run has is shown
    reads           what that figure is, in words
    """

    text: str
    slug: str
    notebook: str
    cell: str
    figures: tuple[str, ...]
    reads: str

    @property
    def link(self) -> str:
        """The section's address from another notebook. By its cell: JupyterLab does not find headings with a "·" in them."""
        return f"{self.notebook}.ipynb#cell-id={self.cell}"


HABITS = (
    Habit(
        "Profile, change one thing, assess; then again.",
        "profile-loop",
        "10_profiling",
        "profile-loop",
        ("slow trainer / best trainer",),
        "a slow trainer's step compared with its best one's",
    ),
    Habit(
        "Check that the fast version computes the same. What is wrong may run without a warning.",
        "gradient-aggregation",
        "13_distributed",
        "gradient-aggregation-text",
        ("mean of means is off, 2 uneven ranks",),
        "how far an average over two uneven ranks is off",
    ),
    Habit(
        "Stop the clock when the work is done, not when the call returns.",
        "async-timing",
        "10_profiling",
        "async-timing",
        ("GPU: naive share of loss.item()", "simulation: naive share of loss.item()"),
        "share of a step that a naive clock gives to `loss.item()`",
    ),
    Habit(
        "Time in turns, next to the same code twice. A gain inside that noise is no gain.",
        "conv-bias-bn",
        "11_tuning",
        "conv-bias-bn",
        ("step without bias",),
        "a step without 20 useless biases, with interval and noise",
    ),
    Habit(
        "Let waiting and computing overlap, and stop where the slower side sets the pace.",
        "num-workers",
        "08_loading",
        "num-workers",
        ("8 workers",),
        "an epoch with 8 workers compared with none",
    ),
    Habit(
        "Count launches and bytes. Where they are the cost, fewer are faster.",
        "fused-optimizers",
        "11_tuning",
        "fused-optimizers",
        ("many tensors, fused over the for-loop",),
        "one fused Adam step compared with a loop over the tensors",
    ),
    Habit(
        "Take the number format that the hardware is built for, and protect what it cannot hold.",
        "amp-training",
        "12_precision",
        "amp-training",
        ("AMP over fp32",),
        "a mixed-precision step compared with float32 (on a GPU without TF32)",
    ),
    Habit(
        "One run proves little: judge by seeds, and give every entrant its own best setting.",
        "xor",
        "03_nets",
        "cell-40",
        ("seeds right after 5000 epochs",),
        "seeds that have learned XOR half way through the lecture's training",
    ),
    Habit(
        "List what a tool has changed before you believe its name.",
        "dynamic-quantization",
        "16_quantization",
        "dynamic-quantization-text",
        ("layers of ResNet-18 that change",),
        "layers that the lecture's call quantizes",
    ),
    Habit(
        "Save everything that the next step depends on, and try what happens after a failure.",
        "elastic",
        "14_sharding",
        "elastic-text",
        ("steps repeated after the kill",),
        "steps that are done again after a rank was killed",
    ),
)


@dataclass(frozen=True)
class Seen:
    """What a run says about a habit: the figure, and where it ran."""

    figure: str
    where: str


@dataclass(frozen=True)
class TakeHome:
    """The habits with the reader's and the recorded figures; where there is none, None."""

    habits: tuple[Habit, ...]
    own: tuple[Seen | None, ...]
    recorded: tuple[Seen | None, ...]

    def __repr__(self) -> str:
        """The habits alone: the same on every machine."""
        return "\n".join(f"{place:2}. {habit.text} ({habit.slug})" for place, habit in enumerate(self.habits, 1))

    def _repr_html_(self) -> str:
        names = ("", "habit", "shown by", "your figure", "recorded run")
        head = "".join(f'<th style="text-align:left">{name}</th>' for name in names)
        rows = zip(self.habits, self.own, self.recorded, strict=True)
        body = "".join(_row(place, *row) for place, row in enumerate(rows, 1))
        note = (
            f"<p>Still to come from you: {self.missing} of the {len(self.habits)} figures. Run the notebooks, or "
            "<code>hpml-lab run SLUG</code>, and then this cell again.</p>"
            if self.missing
            else ""
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    @property
    def missing(self) -> int:
        """How many habits have no figure of the reader's."""
        return sum(figure is None for figure in self.own)


def take_home(results: Path | str | None = None) -> TakeHome:
    """Ten habits, each next to the experiment that shows it, the figure from your own runs and the recorded one.

    results  the folder with your results; by default the one in which notebooks keep theirs
    """
    folder = Path(results) if results is not None else results_folder()
    own = tuple(None if folder is None else _seen(folder / f"{habit.slug}.json", habit) for habit in HABITS)
    return TakeHome(HABITS, own, tuple(_seen(REFERENCE / f"{habit.slug}.json", habit) for habit in HABITS))


def _seen(path: Path, habit: Habit) -> Seen | None:
    """The first of the habit's figures that the saved run has; None without a readable run, or if it measured none of them."""
    try:
        record = read_record(path)
        figures = {figure["label"]: figure for figure in record["key_figures"]}
        found = next((figures[label] for label in habit.figures if figures.get(label, {}).get("here") is not None), None)
        where = f"{machine.label(record['machine'], record['device'])}, {record['size']}"
        return None if found is None else Seen(_words(found), where)
    except (LabError, KeyError, TypeError, AttributeError):
        return None


def _words(figure: dict[str, Any]) -> str:
    """A key figure with its unit."""
    value = number(figure["here"])
    return " ".join(part for part in (value, figure.get("unit", "")) if part)


def _row(place: int, habit: Habit, own: Seen | None, recorded: Seen | None) -> str:
    link = f'<a href="{html.escape(habit.link)}">{habit.slug}</a> <small>in notebook {habit.notebook[:2]}</small>'
    shown = f"{link}<br><small>{prose_html(habit.reads)}</small>"
    cells = (str(place), html.escape(habit.text), shown, _figure(own) or NOWHERE, _figure(recorded) or "none recorded")
    return "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top">{cell}</td>' for cell in cells) + "</tr>"


def _figure(seen: Seen | None) -> str:
    return "" if seen is None else f"<b>{html.escape(seen.figure)}</b><br><small>{html.escape(seen.where)}</small>"
