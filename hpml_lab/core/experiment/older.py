"""What a recorded run lacks of what today's code shows: a page would have empty rows there, or twins that never meet."""

import re
from collections.abc import Iterable
from typing import Any

# Runs recorded on a GPU whose claims were corrected or worded anew since; tests/test_stored_runs.py finds them.
REWORDED = {
    *("amp-training", "async-timing", "batch-size", "bottleneck-classes", "checkpointing", "conv-bias-bn", "cudnn-benchmark"),
    *("debug-apis", "dynamic-graph", "dynamic-quantization", "fused-optimizers", "pinned-memory", "pointwise-fusion"),
    *("tensor-basics", "zero-grad"),
}
REWORDED_ON = "2026-12-01"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def lacking(record: Any, run: Any) -> list[str]:
    """Claims, key figures and columns that a new run has and a recorded one has not, in words that name them.

    Numbers in names do not count: they are of the run's size. What is compared is what both runs could make: where the record
    is of another kind of device, the fields of its rows alone, because some claims and figures are of one kind, and a column
    can be empty on the other. A claim that goes on in the record says more there: of a part that only full size runs.
    """
    found, alike = [], _kind(record.device) == _kind(run.device)
    if alike:
        ours = [figure.label for figure in run.key_figures if figure.here is not None or figure.lecture is not None]
        found += [f"key figure “{name}”" for name in _missing(ours, [figure.label for figure in record.key_figures])]
        ours, there = ([claim.text for claim in one.claims] for one in (run, record))
        found += [f"claim “{name}”" for name in _missing(ours, there) if not any(text.startswith(name) for text in there)]
    columns: dict[str, set[str]] = {}
    for table in record.tables:
        if table.rows:  # a table leaves out a column that is empty in it
            known = columns.setdefault(type(table.rows[0]).__name__, set())
            known.update(table.columns, () if alike else vars(table.rows[0]).keys() - table.absent)
    for table in run.tables:
        there = columns.get(type(table.rows[0]).__name__) if table.rows else None
        if there is not None:
            found += [f"column “{heading}”" for field, heading in table.columns.items() if field not in there]
    return list(dict.fromkeys(found))


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _missing(names: Iterable[str], there: Iterable[str]) -> list[str]:
    known = {NUMBER.sub("#", name) for name in there}
    return [name for name in names if NUMBER.sub("#", name) not in known]


def older_note(missing: list[str], reworded: bool = False) -> list[str]:
    """The notes of a card whose recorded run is older than the code."""
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    notes = [f"The recorded run is older than today's code. It lacks: {'; '.join(missing[:3])}{more}."] if missing else []
    again = "The recorded run makes claims that today's code words otherwise or no longer makes; a GPU has not run it since."
    return [*notes, again] if reworded else notes
