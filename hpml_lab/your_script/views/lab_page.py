"""A lab's report as one page: for each step the question, the prediction, what was measured, and the reader's sentence."""

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hpml_lab.core.experiment import Table
from hpml_lab.core.experiment.render import data_uri, table_html
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import stacked_bars, timed_bars
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.timing.clock import Ceiling
from hpml_lab.core.timing.roofline import roofline
from hpml_lab.your_script.tools.lab_report import LabReport, LabStep
from hpml_lab.your_script.tools.lab_steps import TASKS

TEMPLATE = "lab_page.html.j2"


def epochs_figure(table: Table) -> Any:
    """Seconds of each epoch: waiting for batches, training, and what is neither."""
    figure = style.new_figure(6, 1.2 + 0.3 * len(table.rows))
    axes = figure.subplots()
    parts = {
        "load": [row.load for row in table.rows],
        "train": [row.train for row in table.rows],
        "the rest": [max(0.0, row.total - row.load - row.train) for row in table.rows],
    }
    stacked_bars(axes, [f"epoch {row.epoch}" for row in table.rows], parts)
    axes.set(xlabel="seconds")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=3)
    return figure


def gains_figure(table: Table) -> Any:
    """The speed-up of each change; what is within noise is gray."""
    rows = [row for row in table.rows if row.speed_up is not None]
    figure = style.new_figure(6, 1.2 + 0.3 * len(rows))
    axes = figure.subplots()
    timed_bars(axes, [row.change for row in rows], [row.speed_up for row in rows], [row.verdict for row in rows])
    axes.axvline(1, color=style.GREY, linestyle="--")
    axes.set(xlabel="speed-up")
    return figure


def scales_figure(table: Table) -> Any:
    """The learned scales of each batch norm: from the smallest to the largest, with the median."""
    figure = style.new_figure(6, 1.2 + 0.2 * len(table.rows))
    axes = figure.subplots()
    places = range(len(table.rows), 0, -1)  # the first layer on top
    axes.hlines(places, [row.smallest for row in table.rows], [row.largest for row in table.rows], color=style.GREY)
    axes.plot([row.median for row in table.rows], places, "o", color=style.CYCLE[0], label="median")
    axes.axvline(1, color=style.GREY, linestyle="--", label="at the start")
    axes.set_yticks(places, [row.layer for row in table.rows], fontsize=8)
    axes.set(xlabel="|scale|")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=2)
    return figure


def split_figure(table: Table) -> Any:
    """The parts of a training step, for each number of ranks and each batch."""
    figure = style.new_figure(6, 1.2 + 0.3 * len(table.rows))
    axes = figure.subplots()
    names = {"forward": "forward", "backward": "backward", "waiting": "all-reduce, not hidden", "optimizer": "optimizer"}
    parts = {label: [max(0.0, getattr(row, name)) for row in table.rows] for name, label in names.items()}
    stacked_bars(axes, [f"{row.ranks} × {row.batch}" for row in table.rows], parts)
    axes.set(xlabel="ms", ylabel="ranks × batch of a rank")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=4)
    return figure


def roofline_figure(table: Table) -> Any:
    """Forward pass and training step under the measured limits of the device: memory on the slope, arithmetic on the level."""
    limits = Ceiling(table.rows[0].bandwidth, table.rows[0].peak, threads=1)
    points = {f"{row.part} of {row.batch}": (row.intensity, row.rate) for row in table.rows}
    return roofline(points, ceilings=limits).figure


FIGURES: dict[str, Callable[[Table], Any]] = {  # of a table's rows
    "EpochRow": epochs_figure,
    "GainRow": gains_figure,
    "ScaleRow": scales_figure,
    "StepRow": split_figure,
    "RoofRow": roofline_figure,
}


def lab_page(report: LabReport) -> str:
    """The page as HTML, in one file."""
    environment = Environment(
        loader=PackageLoader("hpml_lab.your_script.views", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["prose"] = lambda text: Markup(prose_html(text))
    steps = [(task, report.step(name)) for name, task in TASKS.items()]

    def tables(step: LabStep) -> list[tuple[str, Markup, str]]:
        return [_shown(table) for table in report.tables_of(step)]

    return environment.get_template(TEMPLATE).render(report=report, steps=steps, tables=tables)


def _shown(table: Table) -> tuple[str, Markup, str]:
    """Title, table and picture; "" where there is no picture of such rows."""
    draw = FIGURES.get(type(table.rows[0]).__name__) if table.rows else None
    picture = ""
    if draw is not None:
        with style.in_style():
            picture = data_uri(draw(table))
    return table.title, Markup(table_html(list(table.columns.values()), table.cells())), picture
