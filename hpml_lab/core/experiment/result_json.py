"""Saved results as files: plain JSON, checked once when it is read.

What is read is data: the names in it are those of an experiment, found in its registry, and of row classes, found in theirs
(`findings.Row`), and none is looked up in a namespace of code. All values have the types that the classes declare, so that
what shows a loaded result can rely on them.
"""

import contextlib
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.experiment.findings import Row, Table
from hpml_lab.core.system.readers import RECORD, reader, text_of
from hpml_lab.core.system.sealed import DIGEST, sealed_record, unsealed_record

FORMAT = 2  # of the JSON file; raise it when a change makes old files unreadable
UNREADABLE = ("a readable result", "Delete it and run the experiment again.")


@reader(*UNREADABLE)
def read_record(path: Path) -> dict[str, Any]:
    """The saved record as plain JSON, without its format number; LabError if it cannot be read."""
    record = json.loads(text_of(path, RECORD))
    if DIGEST in record:  # the recorded runs of before have none
        record = unsealed_record(record)
    if record.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    return record


def written_record(fields: dict[str, Any]) -> str:
    """The content of the file for a result's `fields`."""
    record = fields | {"tables": [_table_record(table) for table in fields["tables"]]}
    return json.dumps(sealed_record({"format": FORMAT, **_plain(record)}), indent=1, allow_nan=False) + "\n"


def result_fields(record: dict[str, Any], hints: dict[str, Any], module: str) -> dict[str, Any]:
    """The fields of a result, made from the record that `read_record` gave.

    hints   {field: type} of all that the record must have
    module  the experiment's: its rows are of classes of the same package
    Raises whatever what is missing, unknown or of another type makes it raise: who reads a record is a `reader`.
    """
    if absent := hints.keys() - record.keys():
        raise ValueError(f"it has no {', '.join(sorted(absent))}")
    fields = _restored(record)
    tables = [_table(table, module) for table in typed(list[dict], fields.pop("tables"), "tables")]
    return {"tables": tables, **{name: typed(hints[name], value, name) for name, value in fields.items()}}


_hints = functools.cache(typing.get_type_hints)


def typed(hint: Any, value: Any, name: str = "the record") -> Any:
    """`value` as `hint` declares it: a dataclass is made from its fields and a tuple from a list, all others stay as they are.

    hint   Any, None, a plain type, a dataclass, a TypedDict (it may have further keys; what is absent is None), or a union,
           list, sequence, tuple or dict of these
    name   what the value is called in the ValueError that is raised if it has another type
    """
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for option in of:
            with contextlib.suppress(ValueError):
                return typed(option, value, name)
    elif dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return hint(**{key: typed(_hints(hint)[key], item, f"{name}.{key}") for key, item in value.items()})
    elif typing.is_typeddict(hint) and isinstance(value, dict):
        return value | {key: typed(of_key, value.get(key), f"{name}.{key}") for key, of_key in _hints(hint).items()}
    elif origin in (list, Sequence) and isinstance(value, list):
        return [typed(of[0], item, name) for item in value]
    elif origin is tuple and isinstance(value, list) and (of[-1] is ... or len(of) == len(value)):
        return tuple(typed(of[0] if of[-1] is ... else of[i], item, name) for i, item in enumerate(value))
    elif origin is dict and isinstance(value, dict):
        return {key: typed(of[1], item, f"{name}.{key}") for key, item in value.items()}
    elif type(value) is hint or hint is float and type(value) is int and float(value) is not None:
        return value
    words = hint.__name__ if isinstance(hint, type) and not of else str(hint).replace("typing.", "")
    raise ValueError(f"{name} has the type {type(value).__name__}, not {words}")


def _table(table: Any, module: str) -> Table:
    """A table with the rows of the class that it names."""
    title, rows = typed(str, table["title"], "a table's title"), typed(list, table["rows"], "a table's rows")
    if not rows:
        return Table(title, [])
    kind = Row.kind(typed(str, table["row_type"], "row_type"), module)
    absent = {field.name for field in dataclasses.fields(kind)}.difference(*rows)
    return Table(title, [typed(kind, row, kind.__name__) for row in rows], frozenset(absent))


def _table_record(table: Table) -> dict[str, Any]:
    """A table with the name of its row type, so that loading gives typed rows back."""
    row_type = type(table.rows[0]).__name__ if table.rows else ""
    return {"title": table.title, "row_type": row_type, "rows": [asdict(row) for row in table.rows]}


# JSON has no word for these; in a file they are written as {"number": "inf"}, which every reader of JSON takes.
_NOT_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _plain(value: Any) -> Any:
    """`value` in JSON's own types: arrays become lists, NumPy's scalars Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _plain(asdict(value))
    if hasattr(value, "tolist"):  # a NumPy array or scalar, or a tensor
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return {"number": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"}:
            return _NOT_FINITE[value["number"]]
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value
