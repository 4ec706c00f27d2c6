"""How a result shows itself: as text in a terminal, as a table, claims and figure in a notebook and in the report."""

import base64
import html
import re
from typing import Any

from hpml_lab.core import machine, style
from hpml_lab.core.result import Result


def number(value: Any) -> str:
    """A cell of a table: four significant digits for floats, thin groups for large integers."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009") if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _frame(rows: list[dict[str, Any]]):
    import pandas

    return pandas.DataFrame([{key: number(item) for key, item in row.items()} for row in rows]).fillna("–")


def beside(result: Result) -> list[dict[str, Any]]:
    """The lecture's figures, this run's and the reference's, side by side: one row a quantity."""
    lecture, reference = result.experiment.lecture_says, result.reference()
    rows = []
    for name in dict.fromkeys([*lecture, *result.quantities]):
        row = {"quantity": name, "lecture": lecture.get(name), "here": result.quantities.get(name)}
        if reference:
            row[f"reference: {machine.label(reference.machine)}"] = reference.quantities.get(name)
        rows.append(row)
    return rows


def _reference_note(result: Result) -> str | None:
    if result.machine.get("gpu") or "cuda" not in result.experiment.uses:
        return None
    reference = result.reference()
    if reference is None:
        return "No GPU reference has been recorded for this experiment yet."
    return f"The reference is another machine's: {reference.where()}."


def notes(result: Result) -> list[str]:
    """What this machine could not do, and whose the reference is."""
    extra = _reference_note(result)
    return [*result.notes, extra] if extra else list(result.notes)


def text(result: Result) -> str:
    """The whole result for a terminal."""
    parts = [f"{result.slug}: {result.experiment.title}", result.where()]
    if result.rows:
        parts.append(_frame(result.rows).to_string(index=False))
    if result.quantities or result.experiment.lecture_says:
        parts.append(_frame(beside(result)).to_string(index=False))
    for claim in result.claims:
        kind = "exact" if claim.exact else "measured"
        figure = f" [{claim.measured}]" if claim.measured else ""
        parts.append(f"  {claim.mark} ({kind}): {claim.text}{figure}")
    parts += [f"  note: {note}" for note in notes(result)]
    return "\n".join(parts)


def table_html(rows: list[dict[str, Any]]) -> str:
    """Rows as an HTML table: words to the left, figures to the right."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def cell(tag: str, shown: str, words: bool) -> str:
        return f'<{tag} style="text-align:{"left" if words else "right"}">{html.escape(shown)}</{tag}>'

    words = {name: any(isinstance(row.get(name), str) for row in rows) for name in columns}
    head = "".join(cell("th", name, words[name]) for name in columns)
    body = [f"<tr>{''.join(cell('td', number(row.get(name)), words[name]) for name in columns)}</tr>" for row in rows]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def prose_html(text: str) -> str:
    """A sentence with its `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def claims_html(result: Result) -> str:
    """The claims as a list; a mark in words beside the colour."""
    items = []
    for claim in result.claims:
        colour = style.GREEN if claim.holds else style.RED
        kind = "" if claim.exact else " <small>(measured: depends on the machine)</small>"
        figure = f" <code>{html.escape(claim.measured)}</code>" if claim.measured else ""
        items.append(f'<li><b style="color:{colour}">{claim.mark}</b>: {prose_html(claim.text)}{figure}{kind}</li>')
    return f"<ul>{''.join(items)}</ul>" if items else ""


def html_of(result: Result) -> str:
    """Table, side-by-side figures, claims and notes, without the picture."""
    parts = [table_html(result.rows)]
    if result.quantities or result.experiment.lecture_says:
        parts.append(table_html(beside(result)))
    parts.append(claims_html(result))
    parts += [f"<p>⚠ {prose_html(note)}</p>" for note in notes(result)]
    parts.append(f"<p><small>{html.escape(result.where())}</small></p>")
    return "\n".join(parts)


def picture(png: bytes, caption: str) -> dict[str, str]:
    """The output bundle of a figure: a PNG that every viewer shows, and its caption as the text that nbval compares."""
    return {"image/png": base64.b64encode(png).decode(), "text/plain": f"Figure: {caption}"}


def show_figure(figure: Any, caption: str) -> None:
    """Display a figure in a notebook with its caption under it, which is also its alternative text."""
    from IPython.display import display

    # JupyterLab ignores the alt text of PNG outputs, so the caption is written out as well.
    display(picture(style.png(figure), caption), metadata={"image/png": {"alt": caption}}, raw=True)
    display({"text/html": f"<p><em>{prose_html(caption)}</em></p>", "text/plain": caption}, raw=True)


def show(result: Result) -> None:
    """Display a result in a notebook: table and claims, its figure, and the reference's figure where one was recorded."""
    from IPython.display import display

    display({"text/html": html_of(result), "text/plain": repr(result)}, raw=True)
    if (figure := result.figure()) is not None:
        show_figure(figure, result.experiment.caption)
        reference = result.reference()
        if reference is not None:
            label = f"Recorded on another machine, {reference.where()}: {result.experiment.caption}"
            show_figure(reference.figure(), label)
