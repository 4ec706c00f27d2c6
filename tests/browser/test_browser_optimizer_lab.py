"""In a real JupyterLab: the optimizer lab fits a laptop's screen, follows sliders, clicks and keys, and can be used by all; so
can sliders over a formula.

`HPML_SCREENSHOTS` names a folder to keep the pictures in. How fast it follows is measured by tests/bench_lab.py.
"""

import os
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("playwright", reason="the Python package playwright is not installed")
from lab import CHROMIUM, browser, cell_errors, lab_server, open_notebook, run_all_cells  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.environment(
        "JupyterLab in Chromium",
        files=(
            "hpml_lab/landscape/optimizer_lab",
            "hpml_lab/core/show/formula_figure.py",
            "hpml_lab/core/show/formula_figure.mjs",
        ),
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]

CODE = """from hpml_lab.adaptive import lab
from hpml_lab.sharding import zero_sliders
display(zero_sliders())
shown = lab('beale', ['gradient_descent', 'momentum', 'adam'])
shown"""
WIDTH, HEIGHT = 1366, 768


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The page of a notebook that shows the lab, and its browser context."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "work").mkdir()
    cells = [nbformat.v4.new_code_cell(code) for code in (CODE, "print(shown.chosen.follow, shown.chosen.start)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "work" / "lab.ipynb")
    with (
        lab_server(folder / "work", folder / "state") as (address, token),
        browser(folder / "profile", WIDTH, HEIGHT) as context,
    ):
        page = open_notebook(context, address, token, "lab.ipynb")
        run_all_cells(page)
        assert cell_errors(page) == []
        page.locator(".hpml-lab[data-map='120']").wait_for()
        page.locator(".hpml-lab").evaluate("el => el.scrollIntoView({ block: 'start' })")
        yield page, context


def canvas(page, panel):
    """The panel whose label begins so; the lab's own label names its panels, too."""
    return page.locator(f".hpml-lab canvas[aria-label^='{panel}']")


def pixels(page, panel):
    """The pixels of a panel as one text."""
    return canvas(page, panel).evaluate("canvas => canvas.toDataURL()")


def changed(page, act, panel="Paths on the surface"):
    """Do `act` and wait until the panel shows something else."""
    before = pixels(page, panel)
    act()
    page.wait_for_function(
        """([label, old]) => document.querySelector('.hpml-lab').shadowRoot
             .querySelector(`canvas[aria-label^="${label}"]`).toDataURL() !== old""",
        arg=[panel, before],
    )


def screenshot(page, name):
    if shots := os.environ.get("HPML_SCREENSHOTS"):
        Path(shots).mkdir(parents=True, exist_ok=True)
        page.locator(".hpml-lab").evaluate("el => el.scrollIntoView({ block: 'start' })")
        page.wait_for_timeout(300)
        page.screenshot(path=Path(shots) / f"{name}.png")


def caption(page):
    return page.locator(".hpml-lab caption").inner_text()


def wait_for_caption(page, text):
    page.wait_for_function(
        "text => document.querySelector('.hpml-lab').shadowRoot.querySelector('caption').innerText.includes(text)", arg=text
    )


def test_controls_surface_loss_and_one_step_are_visible_together(opened):
    page, _ = opened
    for part in ("select", "canvas[aria-label^='Paths']", "canvas[aria-label^='Loss']", "canvas[aria-label^='Map']", "table"):
        box = page.locator(f".hpml-lab {part}").first.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= HEIGHT, part
        assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH, part
    screenshot(page, "optimizer-lab")


def test_sliders_move_the_paths(opened):
    page, _ = opened
    for name in ("Adam: rate α", "Adam: decay β₁", "Adam: decay β₂"):
        handle, value = page.get_by_label(name, exact=True), page.get_by_label(f"{name}, exact value")
        before = value.input_value()
        handle.focus()
        changed(page, lambda: page.keyboard.press("ArrowRight"))
        assert value.input_value() != before, name
        changed(page, lambda value=value, before=before: (value.fill(before), value.press("Enter")))
        assert value.input_value() == before, name
    box = page.get_by_label("Adam: rate α", exact=True).bounding_box()

    def drag():
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 8)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 8, steps=6)
        page.mouse.up()

    changed(page, drag)


def test_keys_go_through_the_steps(opened):
    page, _ = opened
    page.get_by_label("step", exact=True).focus()
    page.keyboard.press("Home")
    wait_for_caption(page, "before the first step")
    page.get_by_role("button", name="forward").click()
    wait_for_caption(page, "step 1,")
    first = page.locator(".hpml-lab table").inner_text()
    assert "m = β₁ m + (1 − β₁) g" in first and "s.m = beta1 * s.m + (1 - beta1) * g" in first
    canvas(page, "Paths on the surface").focus()
    for key, step in (("ArrowRight", 2), ("ArrowUp", 3), ("ArrowLeft", 2), ("PageUp", 12)):
        page.keyboard.press(key)
        wait_for_caption(page, f"step {step},")


def test_a_click_sets_the_start_the_step_or_the_setting(opened):
    page, _ = opened
    starts = [page.get_by_label(f"start {name}", exact=True) for name in "xy"]
    before = [start.input_value() for start in starts]
    changed(page, lambda: canvas(page, "Paths on the surface").click(position={"x": 200, "y": 150}))
    assert all(start.input_value() != old for start, old in zip(starts, before, strict=True))
    old = caption(page)
    canvas(page, "Loss by step").click(position={"x": 150, "y": 30})
    page.wait_for_function(
        "old => document.querySelector('.hpml-lab').shadowRoot.querySelector('caption').innerText !== old", arg=old
    )
    rate = page.get_by_label("Adam: rate α, exact value")
    old = rate.input_value()
    changed(page, lambda: canvas(page, "Map of settings").click(position={"x": 120, "y": 60}))
    assert rate.input_value() != old


def test_pointing_at_the_map_shows_that_settings_path_until_the_pointer_leaves(opened):
    page, _ = opened
    rate = page.get_by_label("Adam: rate α, exact value")
    page.mouse.move(5, 5)
    old, before = rate.input_value(), pixels(page, "Paths on the surface")
    changed(page, lambda: canvas(page, "Map of settings").hover(position={"x": 200, "y": 100}))
    assert rate.input_value() == old
    changed(page, lambda: page.mouse.move(5, 5))
    assert pixels(page, "Paths on the surface") == before


def test_a_moved_start_gives_another_map(opened):
    page, _ = opened
    page.wait_for_function("() => document.querySelector('.hpml-lab').dataset.map === '120'")
    changed(page, lambda: canvas(page, "Paths on the surface").click(position={"x": 60, "y": 200}), "Map of settings")


def test_rules_without_state_have_no_state_panel(opened):
    page, _ = opened
    state = canvas(page, "State by step")
    assert state.is_visible()
    page.get_by_label("move", exact=True).select_option("gradient_descent")
    state.wait_for(state="hidden")
    assert page.get_by_label("gradient descent: rate α", exact=True).is_visible()
    page.get_by_label("move", exact=True).select_option("adam")
    state.wait_for(state="visible")


def test_the_kernel_knows_what_the_page_shows(opened):
    page, _ = opened
    page.get_by_label("move", exact=True).select_option("momentum")
    page.get_by_label("start x", exact=True).fill("1.5")
    page.keyboard.press("Enter")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1 }")
    for _ in range(60):  # the page reports once it is at rest
        page.wait_for_timeout(500)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
        text = page.locator(".jp-OutputArea-output").last.inner_text()
        if "momentum [1.5" in text:
            break
    assert "momentum [1.5" in text


def test_sliders_over_a_formula_move_their_picture(opened):
    page, _ = opened
    figure = page.locator(".hpml-formula")
    said = {figure.get_by_role("img").get_attribute("aria-label")}
    for name, key in (("parameters", "Home"), ("ranks", "End")):
        figure.get_by_role("slider", name=name).focus()
        page.keyboard.press(key)
        said.add(figure.get_by_role("img").get_attribute("aria-label"))
    figure.get_by_role("combobox").select_option("float32")
    said.add(figure.get_by_role("img").get_attribute("aria-label"))
    assert len(said) == 4


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_and_the_page_follows_the_theme(opened, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page, context = opened
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.wait_for_function("dark => document.body.dataset.jpThemeLight === dark", arg=str("Light" in theme).lower())
    page.wait_for_timeout(500)
    assert page.locator(".hpml-lab").evaluate("el => el.style.colorScheme") == theme.split()[1].lower()
    for shown in (".hpml-lab", ".hpml-formula"):
        found = axe.Axe().run(page, context=shown)
        assert [(rule["id"], node["html"]) for rule in found.response["violations"] for node in rule["nodes"]] == []
    screenshot(page, f"optimizer-lab-{theme.split()[1].lower()}")
    assert page.errors == []
    assert context.refused == [], "nothing is fetched from elsewhere"
