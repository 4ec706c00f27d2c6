"""How a result shows itself in a notebook, in the report and in a terminal, everywhere in the same order.

Picture and caption, key figures, claims, tables, checks, notes, and a small line with the machine. HTML uses inline styles
and words besides colors, because GitHub and notebooks that JupyterLab does not trust drop style sheets.
"""

import base64
import html
from collections.abc import Sequence
from typing import Any

from hpml_lab.core.experiment.findings import Claim, Table
from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.core.show.prose import prose_html

SHOWN_ROWS = 8  # longer tables are folded, and cut short in a terminal
MOST_ROWS = 120  # of a table in a card


# ---- HTML ------------------------------------------------------------------------------------------------------------


def table_html(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Headings and rows as an HTML table: words to the left, numbers to the right.

    The table says once that cells stand to the right: said by each cell, it was a twentieth of the stored notebooks.
    """
    words = [any(isinstance(row[i], str) for row in rows) for i in range(len(headings))]

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ("left" if left else "right" if tag == "th" else "" for left in words)
        styles = (f' style="text-align:{side}"' if side else "" for side in sides)
        shown = (
            f"<{tag}{style}>{prose_html(cell)}</{tag}>" if cell else "<td></td>"
            for cell, style in zip(cells, styles, strict=True)
        )
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(line("td", [number(value) for value in row]) for row in rows)
    return f'<table style="text-align:right"><thead>{line("th", headings)}</thead><tbody>{body}</tbody></table>'


def folded(summary: str, content: str, unfolded: bool = False) -> str:
    """`content` behind a line that opens it; nothing for no content."""
    if not content:
        return ""
    return (
        f'<details{" open" if unfolded else ""}><summary style="cursor:pointer;padding:.3em 0">{summary}</summary>'
        f"{content}</details>"
    )


def claim_html(claim: Claim) -> str:
    """One claim; that it fails is said in words, and its text keeps the color of the theme."""
    color = style.GREEN if claim.holds else style.RED
    word = "" if claim.holds else f"<b>{'Fails' if claim.exact else 'Does not hold here'}:</b> "
    figure = f" <code>{html.escape(claim.measured)}</code>" if claim.measured else ""
    kind = "" if claim.exact else f" <small>(depends on {html.escape(claim.depends_on)})</small>"
    return (
        f'<p style="border-left:4px solid {color};padding-left:.6em;margin:.3em 0">'
        f"{word}{prose_html(claim.text)}.{figure}{kind}</p>"
    )


def claims_html(claims: Sequence[Claim]) -> str:
    """Failing claims in full, the others behind one line that counts them."""
    holding = [claim for claim in claims if claim.holds]
    failing = "".join(claim_html(claim) for claim in claims if not claim.holds)
    return failing + folded(f"<b>{counted(claims)}</b>", "".join(map(claim_html, holding)))


def counted(claims: Sequence[Claim], noun: str = "claim") -> str:
    """ "8 of 9 claims hold"."""
    count = sum(claim.holds for claim in claims)
    return f"{count} of {plural(len(claims), noun)} {'holds' if len(claims) == 1 else 'hold'}"


def plural(count: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def tables_html(tables: Sequence[Table]) -> str:
    """Each table under its title; a long one is folded, and one whose columns are not shown is left out."""
    parts = []
    for table in tables:
        if table.columns:
            title = f"{html.escape(table.title)} ({plural(len(table.rows), 'row')})"
            body = table_html(list(table.columns.values()), table.cells()[:MOST_ROWS])
            if len(table.rows) > MOST_ROWS:
                body += f"<p>These are the first {MOST_ROWS}; the result's <code>tables</code> have all.</p>"
            parts.append(folded(title, body, unfolded=len(table.rows) <= SHOWN_ROWS))
    return "".join(parts)


def card(result: Any) -> str:
    """All of a result but its pictures."""
    headings, rows = result.comparison()
    caption = result.experiment.caption
    parts = [f"<p><em>{prose_html(caption)}</em></p>" if caption else ""]
    parts.append(table_html(headings, rows) if rows else "")
    parts.append(claims_html(result.claims))
    parts.append(tables_html(result.tables))
    failing = [check for check in result.checks if not check.holds]
    parts.append(folded(counted(result.checks, "self-check"), "".join(map(claim_html, result.checks)), bool(failing)))
    parts.append(recorded_html(result.reference(), result))
    parts += [f"<p>{prose_html(note)}</p>" for note in result.all_notes()]
    parts.append(f"<p><small>{html.escape(result.where)}</small></p>")
    return "\n".join(part for part in parts if part)


def recorded_html(recorded: Any, here: Any = None) -> str:
    """The recorded run's claims, failing ones in full, its tables and its notes, behind one line; nothing without one.

    here  the run beside it: a table that reads as one of its own is only named, and its notes are not repeated
    """
    if recorded is None:
        return ""
    held = f": {counted(recorded.claims)}" if recorded.claims else ""
    read = [_as_read(table) for table in here.tables] if here else []
    equal = [table.title for table in recorded.tables if table.rows and _as_read(table) in read]
    others = [table for table in recorded.tables if table.title not in equal]
    words = f"<p>Row by row as above: {html.escape('; '.join(equal))}.</p>" if equal else ""
    notes = "".join(f"<p>{prose_html(note)}</p>" for note in recorded.notes if not here or note not in here.notes)
    return folded(f"Recorded run{held}", claims_html(recorded.claims) + tables_html(others) + words + notes)


def _as_read(table: Table) -> tuple[str, list[list[str]]]:
    return table.title, [list(table.columns.values()), *([number(value) for value in row] for row in table.cells())]


# ---- pictures --------------------------------------------------------------------------------------------------------


def data_uri(figure: Any) -> str:
    """A figure as the address of an image, for a page that is one file."""
    return f"data:image/png;base64,{base64.b64encode(style.png(figure)).decode()}"


# ---- terminal --------------------------------------------------------------------------------------------------------


def table_text(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Headings and rows in aligned columns: words to the left, numbers to the right."""
    lines = [list(headings), *([number(value) for value in row] for row in rows)]
    words = [any(isinstance(row[i], str) for row in rows) for i in range(len(headings))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(line, widths, words, strict=True)
        ).rstrip()
        for line in lines
    )


def claim_text(claim: Claim) -> str:
    kind = "" if claim.exact else f" (depends on {claim.depends_on})"
    return f"  {claim.mark}: {claim.text}{f' [{claim.measured}]' if claim.measured else ''}{kind}"


def text(result: Any) -> str:
    """The whole result for a terminal."""
    parts = [f"{result.slug}: {result.experiment.title}"]
    headings, rows = result.comparison()
    if rows:
        parts.append(table_text(headings, rows))
    if result.claims:
        ordered = sorted(result.claims, key=lambda claim: claim.holds)  # failing ones first
        parts.append("\n".join([counted(result.claims), *map(claim_text, ordered)]))
    for table in result.tables:
        if table.columns:
            cut = table.cells()[:SHOWN_ROWS]
            more = (
                f"\n… {plural(len(table.rows) - len(cut), 'more row')} in the JSON file" if len(table.rows) > len(cut) else ""
            )
            parts.append(f"{table.title}\n{table_text(list(table.columns.values()), cut)}{more}")
    failing = [claim_text(check) for check in result.checks if not check.holds]
    if result.checks:
        parts.append("\n".join([counted(result.checks, "self-check"), *failing]))
    parts += [f"Note: {note}" for note in result.all_notes()]
    parts.append(result.where)
    return "\n\n".join(parts)
