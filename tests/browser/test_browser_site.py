"""The web pages of `make site`: built from stored outputs alone, whole, and usable in Chromium by everyone.

`HPML_SITE` names a folder to build in and to keep, as CI does; `HPML_SCREENSHOTS` one to keep pictures in.
"""

import html.parser
import importlib.util
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageStat

from hpml_lab.core.experiment.registry import all_experiments
from hpml_lab.core.judge.exercises import all_exercises
from hpml_lab.core.judge.prediction import LID
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT

pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install -e '.[site]'")
from lab import CHROMIUM, browser, served  # noqa: E402

HOMEPAGE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Homepage"]
MEGABYTES = 40
CHECKED = ("index", "lectures", "habits", "notebooks/00_start", "notebooks/02_autograd", "notebooks/05_adaptive")
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1366, "height": 768}
# Without torch, which would be found here, and not in an environment that has only the extra `site`.
BUILD = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path('docs/build.py', run_name='__main__')"


def in_chromium(test):
    """Mark a test that needs a browser."""
    for reason, absent in {
        "no Chromium here; on Debian: apt-get install chromium": CHROMIUM is None,
        "playwright is not installed": importlib.util.find_spec("playwright") is None,
    }.items():
        test = pytest.mark.skipif(absent, reason=reason)(test)
    test = pytest.mark.environment(
        "Chromium over the built pages",
        files=("docs", "hpml_lab/landscape/optimizer_lab", "hpml_lab/core/show/formula_figure.mjs"),
    )(test)
    return pytest.mark.browser(test)


class Page(html.parser.HTMLParser):
    """What a page is asked for below: its anchors, links, images and headings."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded, self.images, self.text = set(), [], [], [], path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script") or tag == "link" and values.get("rel") != "canonical":
            self.loaded += [values[name] for name in ("src", "href") if values.get(name)]
        if tag == "img":
            self.images.append(values)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages. Sphinx's warnings are errors."""
    folder = Path(os.environ.get("HPML_SITE") or tmp_path_factory.mktemp("site"))
    done = subprocess.run(
        [sys.executable, "-c", BUILD.replace("runpy.run_path", f"sys.argv[1:] = [{str(folder)!r}]; runpy.run_path")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}


def test_there_is_a_page_for_each_notebook_and_all_are_small(site, pages):
    notebooks = {f"notebooks/{path.stem}.html" for path in NOTEBOOKS.glob("*.ipynb")}
    assert notebooks | {"index.html", "lectures.html", "docs/engineers.html"} < pages.keys()
    assert pages["index.html"].text.count("toctree-l1") == len(notebooks) + 12, "each page has one heading of the first level"
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MEGABYTES * 1e6


def test_every_link_and_anchor_arrives(site, pages):
    lost = []
    for name, page in pages.items():
        for link in [*page.links, *page.loaded]:
            address, anchor = urldefrag(link)
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            path = target.resolve().relative_to(site.resolve()).as_posix()
            if not target.is_file() or anchor and path.endswith(".html") and unquote(anchor) not in pages[path].anchors:
                lost.append((name, link))
    assert lost == []


def test_a_page_asks_no_other_host_for_anything(pages):
    assert [
        (name, source) for name, page in pages.items() for source in page.loaded if urlsplit(source).scheme not in ("", "data")
    ] == []


def test_each_picture_has_a_text(pages):
    images = [image for name, page in pages.items() if name.startswith("notebooks/") for image in page.images]
    assert len(images) > 200 and [image for image in images if len(image.get("alt") or "") < 20] == []


def test_no_formula_is_left_as_source(pages):
    formulas = [formula for page in pages.values() for formula in re.findall(r"<math.*?</math>", page.text, flags=re.DOTALL)]
    assert len(formulas) > 400 and [formula for formula in formulas if re.search(r"\\[a-zA-Z]", formula)] == []


def test_a_brace_below_a_formula_needs_no_font_that_stretches_it():
    mathml = runpy.run_path(str(ROOT / "docs" / "conf.py"))["mathml"]
    drawn = mathml(r"\underbrace{a + \sum_i b_i}_{\text{sum}} + \underbrace{c}_{d}")
    assert "&#x23DF;" not in drawn and drawn.count("border: 1px solid") == 2 and ">sum<" in drawn


def test_what_should_be_answered_first_is_folded_and_its_line_tells_nothing(pages):
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        collapsed = [cell for cell in cells if cell["metadata"].get("jupyter", {}).get("outputs_hidden")]
        folds = re.findall(
            r"(<details[^>]*>)\s*<summary[^>]*>(.*?)</summary>", pages[f"notebooks/{path.stem}.html"].text, re.DOTALL
        )
        lids = [(start, re.sub(r"<[^>]+>", "", line).split("\n")) for start, line in folds if LID in line]
        assert len(lids) == len(collapsed), path.stem
        assert [start for start, _ in lids if " open" in start] == []
        assert {word.strip() for _, line in lids for word in line} <= {"", LID, "Hide the result"}


def test_exercises_are_folded_with_their_stub_and_without_a_verdict(pages):
    text = "".join(page.text for name, page in pages.items() if name.startswith("notebooks/"))
    assert text.count("Your turn: show") == len(all_exercises())
    assert ": not yet</b>" not in text.replace(pages["notebooks/00_start.html"].text, ""), "00 shows what a verdict looks like"


def test_an_answer_is_folded_and_its_markdown_is_rendered(pages):
    folded = re.compile(r"<details><summary>Answer</summary>\n(.*?)</details>", flags=re.DOTALL)
    answers = [answer for page in pages.values() for answer in folded.findall(page.text)]
    stored = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb"))
    assert len(answers) == stored.count("<details><summary>Answer</summary>") > 10
    assert [answer for answer in answers if not answer.startswith("<") or re.search(r"\*\*|\$|\]\(", answer)] == []


def test_the_lectures_page_knows_each_experiment_as_the_registry_does():
    build = runpy.run_path(str(ROOT / "docs" / "build.py"))
    read = [(example.slug, " ".join(example.lectures), example.title) for example in build["examples"]()]
    assert read == [(row.slug, row.lecture, row.title) for row in all_experiments()]
    figures = {example.slug: example.figures() for example in build["examples"]()}
    assert ["learning rate α", "0.01", "0.01", "0.01"] in figures["adagrad"]


def test_forty_habits_have_their_figures_from_the_cards(pages):
    table = re.search(r'<table class="[^"]*\bhabits\b.*?</table>', pages["habits.html"].text, flags=re.DOTALL)[0]
    rows = [re.findall(r"<td.*?</td>", row, flags=re.DOTALL) for row in table.split("<tr")]
    rows = [[html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in rows if len(row) == 6]
    assert len(rows) == 40
    for name, _, here, recorded, device, same in rows:
        assert device and recorded != "–" and same in ("bitwise", "nearly", "yes", "no", "–"), name
        assert all(
            re.search(r"faster|slower|as fast|as long|within noise|less than", cell) or cell == "–" for cell in (here, recorded)
        ), name
    assert any("less than" in row[3] or "within noise" in row[3] for row in rows), "a habit that gains nothing says so"


def test_forty_habits_show_each_interval_that_their_records_have():
    """A claim of the record that has the key figure's ratio and an interval: the habit shows both, and its verdict."""
    docs = runpy.run_path(str(ROOT / "docs" / "build.py"))
    lines = [line for line in docs["habits_page"](docs["examples"]()).splitlines() if line.startswith("| [")]
    shown = [line.split(" | ")[3] for line in lines]
    page = runpy.run_path(str(ROOT / "docs" / "habits.py"))
    for habit, cell in zip(page["HABITS"], shown, strict=True):
        record = json.loads((REFERENCE / f"{habit.slug}.json").read_text(encoding="utf-8"))
        labels = {habit.figure + unit for unit in page["UNITS"]}
        [ratio] = [figure["here"] for figure in record["key_figures"] if figure["label"] in labels]
        ratio = float(str(ratio).split("×")[0])
        ratios = pytest.approx(ratio, rel=0.006), pytest.approx(1 / ratio, rel=0.006)  # a claim writes three digits
        measured = "; ".join(claim["measured"] for claim in record["claims"] if not claim["exact"])
        with_interval = re.findall(r"([\d.]+)×?(?: \w+)? \([^()]*[\d.]+ to [\d.]+", measured)
        if any(float(number) in ratios for number in with_interval):
            assert re.search(r"[\d.]+ to [\d.]+", cell), f"{habit.what}: name the claim of {measured}"
    assert min(sum(" to " in line.split(" | ")[column] for line in lines) for column in (2, 3)) > 35, "here and recorded"
    named = {re.match(r"\| \[(.+?)\]", line)[1]: cell for line, cell in zip(lines, shown, strict=True)}
    assert "within noise" in named["threads for Python"] and "as fast" in named["fuse pointwise operators"]


def test_a_gain_has_the_interval_of_a_claim_with_its_ratio_or_no_verdict():
    gain = runpy.run_path(str(ROOT / "docs" / "habits.py"))["gain"]
    assert (gain("1.013", "x, speed-up"), gain("0.95", "x")) == ("1.013× as fast", "0.95× as fast")
    assert (gain("14 580", "x, times"), gain("34.2", "x, times slower")) == ("14 580× as fast", "34.2× as long")
    assert gain("1.2× faster (1.1 to 1.3)", "x") == "1.2× faster (1.1 to 1.3)" and gain("–", "x") == "–"
    noise = "0.951× (within noise; 0.821 to 1.05; noise ±40 %)"
    assert gain("0.9512", "x, speed-up", f"SGD 9.8× faster (8.6 to 11; noise ±11 %); {noise}") == noise
    assert gain("1.142", "x, times", "5.22× faster (5.19 to 5.24; noise ±0.16 %)") == "1.142× as fast", "of another row"
    assert gain("37.82", "x, times slower", "0.0264× (slower; 0.0246 to 0.0308; noise ±17 %)").startswith("0.0264× (slower;")
    assert gain("6.215", "x, speed-up", "3.92× faster (3.92 to 3.93); 8 workers: 6.22 (6.21 to 6.23)") == (
        "6.22× as fast (6.21 to 6.23)"
    )


def test_each_notebook_opens_in_colab_and_has_a_place_to_be_discussed(pages):
    build = runpy.run_path(str(ROOT / "docs" / "build.py"))
    for path in build["NOTEBOOKS"]:
        text = pages[f"notebooks/{path.stem}.html"].text
        assert f"{build['COLAB']}/{path.name}" in text and f"/discussions?discussions_q={path.stem}" in text


def test_the_readmes_pictures_move_and_are_small(site):
    named = re.findall(r"\]\((data/[\w-]+\.webp)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(named) == 2
    for name in named:
        picture = Image.open(ROOT / name)
        assert picture.n_frames > 10 and (ROOT / name).stat().st_size < 1e6, f"{name}: make pictures"
        assert list(site.glob(f"_images/{Path(name).stem}*.webp")), f"{name} is not on the first page"
        shades = []
        for frame in (0, picture.n_frames - 1):
            picture.seek(frame)
            shades.append(ImageStat.Stat(picture.convert("L")).stddev[0])
        assert shades[0] > shades[1] / 2, f"{name}: where nothing moves its first picture stands, and it is empty"


def test_a_link_to_a_page_has_a_title_a_text_and_a_picture_of_its_own(site, pages):
    """What a chat or a search shows of it; a notebook's picture is its first figure."""
    seen = {}
    for name, page in pages.items():
        if name in ("genindex.html", "search.html"):
            continue
        tags = dict(re.findall(r'<meta (?:property|name)="([\w:]+)" content="([^"]*)"', page.text))
        assert len(tags["og:title"]) > 3 and tags["og:title"] in html.unescape(tags["og:title"]), name
        assert len(tags["og:description"]) > 60 and tags["description"] == tags["og:description"], name
        assert tags["og:url"] == HOMEPAGE + name and len(tags["og:image:alt"]) > 20, name
        assert tags["og:image"].startswith(HOMEPAGE), name
        picture = site / unquote(tags["og:image"].removeprefix(HOMEPAGE))
        card = Image.open(picture)
        assert (card.size, card.format, card.convert("RGB").getpixel((0, 0))) == ((1200, 630), "PNG", (255, 255, 255)), name
        assert picture.stat().st_size < 1e6, name
        seen[name] = tags["og:description"]
    assert len(set(seen.values())) == len(seen), "each page has its own description"


def test_the_sitemap_lists_every_page(site, pages):
    listed = [place.text for place in ElementTree.parse(site / "sitemap.xml").getroot().iter() if place.tag.endswith("loc")]
    assert sorted(listed) == sorted(HOMEPAGE + name for name in pages)


def test_text_and_metadata_name_one_address(pages):
    assert HOMEPAGE in (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f'<link rel="canonical" href="{HOMEPAGE}notebooks/05_adaptive.html"' in pages["notebooks/05_adaptive.html"].text


# ---- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(site, tmp_path_factory):
    """(name, color scheme, viewport) -> the page in Chromium; its `errors` are what its scripts raised."""

    with served(site) as address, browser(tmp_path_factory.mktemp("profile"), 1366, 768) as context:
        page = context.new_page()
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))

        def show(name, scheme="light", viewport=None):
            page.set_viewport_size(viewport or LAPTOP)
            page.emulate_media(color_scheme=scheme)
            page.goto(f"{address}/{name}.html", wait_until="load")
            if shots := os.environ.get("HPML_SCREENSHOTS"):
                Path(shots).mkdir(parents=True, exist_ok=True)
                page.screenshot(path=Path(shots) / f"site-{Path(name).name}-{scheme}-{page.viewport_size['width']}.png")
            return page

        yield show
        assert page.errors == []
        assert context.refused == [], "nothing is asked of another host"


@in_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", CHECKED)
def test_axe_finds_nothing(opened, name, scheme):
    page = opened(name, scheme)
    axe = importlib.util.find_spec("axe_playwright_python").submodule_search_locations[0]
    page.evaluate((Path(axe) / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        """async () => (await axe.run(document, { resultTypes: ["violations"],
             runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] })).violations.map(
             rule => [rule.id, rule.nodes.length, rule.nodes[0].html.slice(0, 200)])"""
    )
    assert found == []


@in_chromium
@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
@pytest.mark.parametrize("name", [*CHECKED, "notebooks/08_loading"])
def test_no_page_is_wider_than_its_window(opened, name, viewport):
    page = opened(name, viewport=viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@in_chromium
@pytest.mark.parametrize("name", ["habits", "lectures", "docs/syllabus", "docs/labs"])
def test_a_table_of_text_is_read_on_a_phone_without_scrolling_sideways(opened, name):
    page = opened(name, viewport=PHONE)
    cells = page.locator("table.docutils td:visible").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect().right)"
    )
    assert len(cells) > 30 and max(cells) <= PHONE["width"]


@in_chromium
def test_the_habits_are_one_printed_sheet(opened):
    printed = opened("habits").pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


@in_chromium
def test_a_moving_picture_stops_and_stands_for_who_asked_for_less_motion(opened):
    page = opened("index")
    button = page.get_by_role("button", name="Stop").first
    button.click()
    assert page.locator("canvas + button.play").count() == 1 and page.get_by_role("button", name="Play").count() == 1
    page.emulate_media(reduced_motion="reduce")
    page.reload(wait_until="load")
    page.get_by_role("button", name="Play").nth(1).wait_for()
    assert page.locator('img[src$=".webp"]').count() == 0
    page.emulate_media(reduced_motion="no-preference")


@in_chromium
@pytest.mark.parametrize("name", ["notebooks/02_autograd", "notebooks/13_distributed"])
def test_a_stepper_moves(opened, name):
    page = opened(name)
    stepper = page.locator("[data-frames]").first
    picture, slider = stepper.locator("img"), stepper.get_by_role("slider")
    seen = set()
    slider.focus()
    for key in ("Home", "ArrowRight", "End"):
        page.keyboard.press(key)
        seen.add((picture.get_attribute("src"), stepper.locator("output").inner_text()))
    assert len(seen) == 3


@in_chromium
@pytest.mark.parametrize("name", ["notebooks/13_distributed", "notebooks/14_sharding"])
def test_every_control_over_a_formula_moves_its_picture(opened, name):
    page = opened(name)
    place = page.locator("[data-formula]").first
    picture, said = place.get_by_role("img").first, set()
    place.locator("img").wait_for(state="detached")  # the stored picture, until the controls are there
    for slider in place.get_by_role("slider").all():
        slider.focus()
        for key in ("End", "ArrowLeft"):
            page.keyboard.press(key)
            said.add(picture.get_attribute("aria-label"))
    for choices in place.get_by_role("combobox").all():
        choices.select_option(index=choices.locator("option").count() - 1)
        said.add(picture.get_attribute("aria-label"))
    assert len(said) == 2 * place.get_by_role("slider").count() + place.get_by_role("combobox").count()


@in_chromium
@pytest.mark.parametrize("name", ["13_distributed", "14_sharding", "22_decoding", "23_model_parallel"])
def test_no_words_of_a_picture_over_a_formula_lie_over_others(opened, name):
    page = opened(f"notebooks/{name}")
    pictures = page.locator("[data-formula] svg")
    pictures.first.wait_for()
    for picture in pictures.all():
        texts = picture.locator("text").evaluate_all(
            """texts => texts.map(text => [text.textContent, text.getBoundingClientRect()]).map(
                 ([words, box]) => [words, box.left, box.right, box.top, box.bottom])"""
        )
        assert len(texts) > 5
        over = [  # a box is higher than its letters, by 6 pixels
            (one[0], other[0])
            for one, other in itertools.combinations(texts, 2)
            if min(one[2], other[2]) - max(one[1], other[1]) > 1 and min(one[4], other[4]) - max(one[3], other[3]) > 6
        ]
        assert over == []


@in_chromium
@pytest.mark.parametrize("name", ["index", "notebooks/04_descent", "notebooks/05_adaptive"])
def test_the_path_follows_a_slider_of_the_optimizer_lab(opened, name):
    page = opened(name)
    lab = page.locator("[data-optimizer-lab]").first
    slider, surface = lab.get_by_role("slider", name="rate α").first, lab.locator("canvas").first
    slider.scroll_into_view_if_needed()
    before = surface.evaluate("canvas => canvas.toDataURL()")
    box = slider.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - box["width"] / 4, y, steps=4)
    page.mouse.up()
    page.wait_for_function("([canvas, old]) => canvas.toDataURL() !== old", arg=[surface.element_handle(), before])
    assert lab.locator("img").count() == 0, "the picture that stands for it is gone"
