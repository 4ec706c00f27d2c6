"""The reading cells of the notebooks, and what results they read: found in the source, without running a notebook."""

import ast
import importlib
from dataclasses import dataclass
from typing import Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from hpml_lab.core.system.paths import NOTEBOOKS


@dataclass(frozen=True)
class ReadingCell:
    """A cell `reading(name, …)`; `made` is the call that made the result of this name, such as ("nets", "xor").

    imports  the notebook's import statements: all that the cell may use beside the result
    """

    notebook: str
    cell: Any
    name: str
    made: tuple[str, str] | None
    imports: str

    @property
    def experiment(self) -> Any:
        """The experiment whose result it reads."""
        topic, function = self.made
        return getattr(importlib.import_module(f"hpml_lab.{topic}"), function)


def reading_cells() -> list[ReadingCell]:
    """All reading cells, in the order of the notebooks."""
    return [found for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")) for found in cells_of(path.stem, nbformat.read(path, 4))]


def cells_of(name: str, notebook: Any) -> list[ReadingCell]:
    """The reading cells of one notebook."""
    made, found = {}, []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    trees = [ast.parse(TransformerManager().transform_cell(cell.source)) for cell in code]
    lines = [node for tree in trees for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = "\n".join(map(ast.unparse, lines))
    for cell, tree in zip(code, trees, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                made[node.targets[0].id] = _call(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reading":
                result = ast.unparse(node.args[0])
                found.append(ReadingCell(name, cell, result, made.get(result), imports))
    return found


def _call(value: ast.expr) -> tuple[str, str] | None:
    """("nets", "xor") of `nets.xor()`, or of `nets.xor.reference()`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "reference":
        value = ast.Call(value.func.value, [], [])
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Name):
        return value.func.value.id, value.func.attr
    return None
