"""One HTML page of what was run: your figures next to the lecture's and the reference's. The file is all it needs."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import all_experiments, load_result
from hpml_lab.core.files import atomic_write
from hpml_lab.core.render import counted, data_uri
from hpml_lab.core.result import Result

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure as a data URI, with its caption, which is its alternative text too."""

    source: str
    caption: str


@dataclass(frozen=True)
class Entry:
    """One result, ready for the page."""

    result: Result
    body: Markup
    pictures: list[EmbeddedFigure]

    @property
    def notebook(self) -> str:
        return self.result.experiment.notebook

    @property
    def verdict(self) -> str:
        """How many claims hold, in words."""
        return counted(self.result.claims) if self.result.claims else "no claims"


def write_report(folder: Path, page: Path | None = None) -> tuple[Path, list[tuple[str, str]]]:
    """Write `page` (default: `<folder>/report.html`) from the results in `folder`.

    Returns the page and what was left out, as (file name, why). Raises LabError for a folder without a readable result.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise LabError(f"{folder} is not a folder.", "Name the folder that `hpml-lab run SLUG --out DIR` filled.")
    entries, left_out = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            entries.append(_entry(load_result(path)))
        except LabError as error:
            left_out.append((path.name, str(error)))
        except Exception as error:  # JSON of the right form with wrong content fails somewhere in the drawing
            left_out.append((path.name, f"it is not a result of this workbook ({type(error).__name__}: {error})."))
    if not entries:
        why = "; ".join(f"{name}: {why}" for name, why in left_out)
        raise LabError(
            f"{folder} has no readable result{f' ({why})' if why else ''}.", f"Make one: hpml-lab run all --out {folder}"
        )
    target = page or folder / "report.html"
    atomic_write(target, _page(entries, left_out))
    return target, left_out


def _entry(result: Result) -> Entry:
    pictures = [EmbeddedFigure(data_uri(figure), caption) for figure, caption in result.pictures()]
    return Entry(result, Markup(result.html()), pictures)  # html() escapes what it is given


def _page(entries: list[Entry], left_out: list[tuple[str, str]]) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    order = {experiment.slug: index for index, experiment in enumerate(all_experiments())}
    entries = sorted(entries, key=lambda entry: order[entry.result.slug])
    notebooks = [(name, list(some)) for name, some in groupby(entries, key=lambda entry: entry.notebook)]
    failing = [entry for entry in entries if not entry.result]
    template = environment.get_template(TEMPLATE)
    return template.render(notebooks=notebooks, failing=failing, left_out=left_out, total=len(entries))
