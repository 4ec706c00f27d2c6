"""Run notebooks and store their outputs, cleaned, for people who only read: `make outputs [ARGS=notebooks/01_tensors.ipynb]`.

Stored are pictures, with 256 colors at most, tables and text; not stderr, widget state, timings of cells or paths, which
differ from run to run. What a reader should answer first is collapsed, under a line that does not tell it.

Times of a busy machine would be shown to everybody: on one nothing is run, and a notebook in whose run the machine was busy, or
in which a sentence that reads a figure does not hold, is not stored.
"""

import base64
import io
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

from hpml_lab.core.judge.prediction import LID
from hpml_lab.core.timing.quiet import disturbance

os.environ["HPML_RESULTS"] = ""  # nor are they a reader's results: the closing page of notebook 20 shows the recorded ones
os.environ["HPML_LIVE"] = "0"  # stored are results, not the curves that grow on the way
NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def small_png(data: str) -> str:
    """A base64 PNG with a palette of 256 colors and opacities, a quarter of its size."""
    buffer = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    picture.quantize(256, method=Image.Quantize.FASTOCTREE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def put_lid(cell: nbformat.NotebookNode) -> None:
    """Begin collapsed outputs with a line of their own: JupyterLab shows the first one, which would be the answer, or HTML.

    It is gone once the reader runs the cell. As HTML it comes before all else that JupyterLab might show, and nbval, which
    does not compare HTML, does not miss it.
    """
    if cell.metadata.get("jupyter", {}).get("outputs_hidden") and cell.outputs:
        cell.outputs.insert(0, nbformat.v4.new_output("display_data", {"text/html": LID}))


MOST_NOISE = 35  # percent: the widest band of noise that a stored run may show
NOISE = re.compile(r"noise ±([\d.]+) %")
FAILS = re.compile(r'<p data-reading="fails".*?</p>', flags=re.DOTALL)
BUSY = "While this ran, other programs had the cores"


def this_runs(cell: nbformat.NotebookNode) -> str:
    """The HTML of a cell's outputs without that of recorded runs, which are of other machines."""
    pages = ["".join(out.get("data", {}).get("text/html", "")) for out in cell.outputs]
    return "".join(re.sub(r"<summary[^>]*>Recorded run.*</details>", "", page, flags=re.DOTALL) for page in pages)


def bands(cell: nbformat.NotebookNode) -> list[float]:
    """The bands of noise, in percent, of the comparisons that a cell's run shows."""
    return [float(found) for found in NOISE.findall(this_runs(cell))]


def why_not(notebook: nbformat.NotebookNode) -> list[str]:
    """What would mislead a reader of these outputs: sentences that do not hold, and a machine that was busy."""
    pages = [this_runs(cell) for cell in notebook.cells if cell.cell_type == "code"]
    wrong = [re.sub("<[^>]+>", "", found) for page in pages for found in FAILS.findall(page)]
    return wrong + [BUSY for page in pages if BUSY in page]


def store_outputs(path: Path) -> list[str]:
    """Execute the notebook at `path` in its own folder and write it back with clean outputs; raises if a cell does.

    Returns why it was not written, where its outputs would mislead.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
            for out in cell.outputs:
                # The model that this view names is gone with the kernel; the picture next to it stays.
                out.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
                if "image/png" in out.get("data", {}):
                    out.data["image/png"] = small_png(out.data["image/png"])
                    if frames := out.metadata.get("image/png", {}).get("frames"):
                        frames["pictures"] = [small_png(frame) for frame in frames["pictures"]]
            put_lid(cell)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.validate(notebook)
    if wrong := why_not(notebook):
        return wrong
    nbformat.write(notebook, path)
    return []


def main(paths: list[Path]) -> int:
    """Store these notebooks, or all; 1 if one was not stored."""
    code = 0
    for path in paths or sorted(NOTEBOOKS.glob("*.ipynb")):
        if found := disturbance():
            print(f"{path.name} is not run: {found}. Wait until this machine is quiet.")
            return 1
        if wrong := store_outputs(path):
            code = 1
            print("\n    ".join([f"{path.name} is not stored:", *wrong]))
        else:
            print(f"stored {path.name} ({path.stat().st_size / 1024:.0f} KiB)", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
