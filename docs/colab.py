"""Copies of the notebooks for Colab and Kaggle, which differ by one tagged cell: `make colab` writes `build/colab/`."""

import re
import sys
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
BRANCH = "colab"  # where .github/workflows/publish.yml puts the copies, and the pages' links lead
CELL = """\
# Installs the workbook next to what the platform has; nothing that runs already is replaced.
%pip install -q "hpml-lab[notebooks] @ git+{repository}"
import os, sys
import torch

if "google.colab" in sys.modules:  # the pictures that follow a slider are widgets of another package
    from google.colab import output

    output.enable_custom_widget_manager()
# With a GPU the lecture's own sizes, as far as they fit into its memory: a result says how far it was scaled.
os.environ["HPML_SIZE"] = "full" if torch.cuda.is_available() else "quick\""""


def write_copies(folder: Path) -> list[Path]:
    """Write a copy of every notebook, without outputs, with the cell that installs the workbook in front of its imports."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        first = next(number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code")
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.update(outputs=[], execution_count=None)
                if "reading" in cell.metadata.get("tags", []):
                    cell.metadata["cellView"] = "form"  # Colab's word for a hidden source
            else:  # the copies lie elsewhere than the project's files
                cell.source = re.sub(r"\]\(\.\./([^)]+)\)", rf"]({urls['Repository']}/blob/main/\1)", cell.source)
        install = nbformat.v4.new_code_cell(CELL.format(repository=urls["Repository"]), metadata={"tags": ["colab"]})
        install["id"] = "colab-install"
        notebook.cells.insert(first, install)
        nbformat.write(notebook, folder / path.name)
        written.append(folder / path.name)
    return written


if __name__ == "__main__":
    print(f"{len(write_copies(Path(sys.argv[1])))} notebooks in {sys.argv[1]}")
