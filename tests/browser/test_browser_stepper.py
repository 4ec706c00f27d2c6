"""In a real JupyterLab: notebook 02 runs from top to bottom, and the picture follows the stepper's slider."""

import os
import shutil
from pathlib import Path

import pytest

from hpml_lab.core.system.paths import ROOT

pytest.importorskip("playwright", reason="the Python package playwright is not installed")
from lab import CHROMIUM, browser, cell_errors, decoded_width, lab_server, open_notebook, run_all_cells  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.environment("JupyterLab in Chromium", files=("hpml_lab/autograd/views",)),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]


def test_the_autograd_slider_moves_the_picture(tmp_path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "work" / "notebooks")  # a run must not touch the stored outputs
    shots = Path(os.environ.get("HPML_SCREENSHOTS", tmp_path / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    with lab_server(tmp_path / "work", tmp_path / "state") as (address, token), browser(tmp_path / "profile") as context:
        page = open_notebook(context, address, token, "notebooks/02_autograd.ipynb")
        run_all_cells(page)
        assert cell_errors(page) == []

        picture = page.locator("img.widget-image").first
        picture.scroll_into_view_if_needed()
        picture.wait_for()
        assert decoded_width(picture) > 300
        handle = page.get_by_role("slider").first
        readout = page.locator(".widget-readout").first

        seen = {picture.get_attribute("src")}
        handle.focus()
        page.keyboard.press("Home")
        for key in ("ArrowRight", "ArrowRight", "End"):
            source, value = picture.get_attribute("src"), readout.inner_text()
            page.keyboard.press(key)
            page.wait_for_function("([old]) => document.querySelector('img.widget-image').src !== old", arg=[source])
            assert decoded_width(picture) > 300
            assert readout.inner_text() != value
            seen.add(picture.get_attribute("src"))
        assert len(seen) >= 4, "each step has a picture of its own"

        box, source = handle.bounding_box(), picture.get_attribute("src")
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        page.mouse.move(box["x"] - 120, box["y"] + 5, steps=8)
        page.mouse.up()
        page.wait_for_function("([old]) => document.querySelector('img.widget-image').src !== old", arg=[source])
        page.screenshot(path=shots / "autograd-stepper.png")
        assert page.errors == []
        assert context.refused == [], "nothing is fetched from elsewhere"
