"""The two moving pictures of the README, from the real things: `make pictures`, or `python docs/pictures.py SITE`.

The optimizer lab is filmed on its page of a built site, a check in a JupyterLab that is started for it. Needs Chromium.
"""

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from lab import browser, lab_server, open_notebook, run_all_cells, served  # noqa: E402

LARGEST_BYTES = 1_000_000
WIDTH, HEIGHT = 900, 370
IMPORTS = "import torch\nfrom hpml_lab.core import check"
WRONG = """\
def sgd_step(parameters, lr):
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad"""
MISSING = "p.grad = None"
CHECK = 'check("sgd-step", sgd_step)'


class Film:
    """Pictures of the upper part of an element of a page, where it is now, each with the milliseconds that it is shown."""

    def __init__(self, element: Any, height: int) -> None:
        element.scroll_into_view_if_needed()
        self.page, self.clip = element.page, element.bounding_box() | {"height": height}
        self.frames: list[Image.Image] = []
        self.milliseconds: list[int] = []

    def take(self, milliseconds: int = 120) -> None:
        self.frames.append(Image.open(io.BytesIO(self.page.screenshot(clip=self.clip))).convert("RGB"))
        self.milliseconds.append(milliseconds)

    def write(self, path: Path) -> None:
        """Write an animated WebP that repeats."""
        first, *rest = self.frames
        first.save(path, save_all=True, append_images=rest, duration=self.milliseconds, loop=0, quality=70, method=6)
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise SystemExit(f"{path} has {size} bytes, more than {LARGEST_BYTES}: take fewer pictures.")
        print(
            f"{path.relative_to(ROOT)}: {len(self.frames)} pictures, {sum(self.milliseconds) / 1000:.0f} s, {size / 1e3:.0f} kB"
        )


def film_the_lab(context: Any, address: str) -> Film:
    """The learning rate of the optimizer lab is moved up and down, and the paths follow."""
    page = context.new_page()
    page.goto(f"{address}/notebooks/05_adaptive.html", wait_until="load")
    lab = page.locator("[data-optimizer-lab]").first
    lab.locator("canvas").first.wait_for()
    slider = lab.get_by_role("slider", name="rate α").first
    slider.focus()
    film = Film(lab, height=424)  # without the table of the step
    film.take(1000)
    for key, times in (("ArrowRight", 12), ("ArrowLeft", 18), ("ArrowRight", 6)):
        for _ in range(times):
            page.keyboard.press(key)
            film.take()
    return film


def film_a_check(context: Any, address: str, token: str) -> Film:
    """A wrong answer is typed and checked, its mistake repaired, and checked again."""
    page = open_notebook(context, address, token, "exercise.ipynb")
    page.locator(".jp-Spinner").first.wait_for(state="hidden")  # the first picture is what a reader without motion sees
    cells = page.locator(".jp-NotebookPanel-notebook .jp-Cell")
    stub, film = cells.nth(1), Film(page.locator(".jp-NotebookPanel-notebook"), HEIGHT)

    def check_it(milliseconds: int) -> None:
        run_all_cells(page)
        page.wait_for_timeout(300)
        film.take(milliseconds)

    film.take(800)
    check_it(3500)
    stub.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")  # the editor indents
    for letter in MISSING:
        page.keyboard.type(letter)
        film.take()
    check_it(3000)
    return film


def main(site: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with served(site) as address, browser(scratch / "profile", 1366, 900) as context:
            film_the_lab(context, address).write(ROOT / "data" / "optimizer-lab.webp")
        (scratch / "work").mkdir()
        cell = nbformat.v4.new_code_cell
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}  # else JupyterLab asks which
        notebook = nbformat.v4.new_notebook(cells=[cell(IMPORTS), cell(WRONG), cell(CHECK)], metadata=kernel)
        nbformat.write(notebook, scratch / "work" / "exercise.ipynb")
        with (
            lab_server(scratch / "work", scratch) as (address, token),
            browser(scratch / "other", WIDTH, HEIGHT + 110) as context,
        ):
            film_a_check(context, address, token).write(ROOT / "data" / "exercise.webp")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site" / "html")
