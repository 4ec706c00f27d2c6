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


FIGURES: dict[str, Callable[[Table], Any]] = {"EpochRow": epochs_figure, "GainRow": gains_figure}  # of a table's rows


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
