"""The report's page: machines, predictions, claims that did not hold, key figures by notebook, and every result in full."""

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hpml_lab.core.experiment import Claim, Result, catalogue, results_folder
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.experiment.render import counted, data_uri
from hpml_lab.core.show.numbers import number
from hpml_lab.core.show.prose import prose_html
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.report.guesses import Guess, read_guesses, summary
from hpml_lab.report.machines import machine_cards
from hpml_lab.report.notebook_texts import title
from hpml_lab.report.reasons import reasons

TEMPLATE = "report.html.j2"
TOO_LONG = 46  # characters of a lecture's remark that a key figure's cell still shows


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

    @property
    def not_held(self) -> list[Claim]:
        return [claim for claim in [*self.result.claims, *self.result.checks] if not claim.holds]


@dataclass(frozen=True)
class Chapter:
    """A notebook's entries, their key figures in one table, and the machines of the recorded runs by letter."""

    name: str
    title: str
    entries: list[Entry]
    figures: list[dict[str, Any]]
    recorded: dict[str, str]


def write_report(folder: Path | str, page: Path | str | None = None) -> tuple[Path, list[tuple[str, str]]]:
    """Write `page` (default: `<folder>/report.html`) from the results in `folder`.

    Returns the page and what was left out, as (file name, why). Raises LabError for a folder without a readable result.
    """
    folder = Path(folder)
    results_folder.require_folder(folder)
    entries, left_out = [], []
    for path in sorted(folder.glob("*.json")):
        words = path.name.partition(".")[0]
        if f"{words}.json" in (results_folder.PREDICTIONS, results_folder.EXERCISES):  # those that were set aside, too
            if path.name != f"{words}.json" or results_folder.is_damaged(path):
                left_out.append((path.name, f"its {words} cannot be read. Correct it by hand, or delete it."))
            continue
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
    target = Path(page or folder / "report.html")
    # "replace": half of a surrogate pair, which JSON may hold and UTF-8 has no bytes for, must not cost the page.
    atomic_write(target, _page(entries, left_out, read_guesses(folder)).encode("utf-8", "replace"))
    return target, left_out


def _entry(result: Result) -> Entry:
    pictures = [EmbeddedFigure(data_uri(figure), caption) for figure, caption in result.pictures()]
    return Entry(result, Markup(result.html()), pictures)  # html() escapes what it is given


def _page(entries: list[Entry], left_out: list[tuple[str, str]], guesses: list[Guess]) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = lambda text: Markup(re.sub(r"\*([^*]+)\*", r"<em>\1</em>", prose_html(text)))
    order = {row.slug: index for index, row in enumerate(catalogue.catalogue())}
    entries = sorted(entries, key=lambda entry: order[entry.result.slug])
    claims = [claim for entry in entries for claim in entry.result.claims]
    return environment.get_template(TEMPLATE).render(
        chapters=[_chapter(name, list(some)) for name, some in groupby(entries, key=lambda entry: entry.notebook)],
        machines=machine_cards([entry.result for entry in entries]),
        failing=[entry for entry in entries if not entry.result],
        not_held=[(entry.result, claim, reasons(entry.result, claim)) for entry in entries for claim in entry.not_held],
        guesses=guesses,
        guessed=summary(guesses) if guesses else "",
        left_out=left_out,
        total=len(entries),
        known=len(order),
        held=sum(claim.holds for claim in claims),
        claimed=len(claims),
    )


def _chapter(name: str, entries: list[Entry]) -> Chapter:
    letters: dict[str, str] = {}
    figures = []
    for entry in entries:
        reference = entry.result.reference()
        for heading, lecture, here, value in entry.result.side_by_side():
            letter = ""
            if value is not None:
                label = f"{reference.ran_on}, {reference.size}"
                letter = letters.setdefault(label, chr(ord("a") + len(letters)))
            if here is not None or value is not None:
                figures.append(
                    {
                        "slug": entry.result.slug,
                        "label": heading,
                        "lecture": _short(lecture),
                        "here": number(here),
                        "recorded": "" if value is None else number(value),
                        "letter": letter,
                    }
                )
    return Chapter(name, title(name), entries, figures, {letter: label for label, letter in letters.items()})


def _short(lecture: Any) -> str:
    """The lecture's figure for a narrow column; the result below has all of it."""
    words = "" if lecture is None else number(lecture)
    return words if len(words) <= TOO_LONG else f"{words[:TOO_LONG].rsplit(' ', 1)[0]} …"
