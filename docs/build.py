"""Build the workbook's web pages: `make site`, or `python docs/build.py FOLDER`; open FOLDER/html/index.html.

The pages are made from text: the notebooks with their stored outputs, the README, and the decorators of the experiments. No
kernel runs, and Sphinx with its few extensions is all that a build needs. Where the package can be imported, it writes the
modules that move the optimizer lab and the sliders over formulas; elsewhere these stay pictures.
"""

import html
import json
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

from docutils.nodes import make_id
from PIL import Image, ImageOps
from sphinx.cmd.build import main as sphinx_build

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

from colab import BRANCH  # noqa: E402
from habits import habits_page  # noqa: E402

from hpml_lab.core.experiment.catalogue import catalogue  # noqa: E402  (the sources, read as text: no torch)

URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
COLAB = URLS["Repository"].replace("https://github.com", "https://colab.research.google.com/github") + f"/blob/{BRANCH}"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\((\d\d_\w+)\.ipynb#cell-id=([\w.-]+)\)")
LINK_IN_HTML = re.compile(r'"(\d\d_\w+)\.ipynb#cell-id=([\w.-]+)"')
PAGES = (
    *(f"docs/{name}.md" for name in ("install", "terminal", "gpu", "syllabus", "instructors", "labs", "engineers")),
    *("docs/architecture.md", "CONTRIBUTING.md", "data/README.md"),
)
AS_THEY_ARE = (*PAGES, "data/optimizer-lab.webp", "data/exercise.webp", "hpml_lab/sharding/lessons/train.py")
MOVING = ("optimizer_lab", "formula", "frames")  # what a widget leaves for a page: its settings, its name, or all its pictures
NOTHING_YET = re.compile(r"No prediction yet|[a-z0-9-]+: not yet\b")  # what a reader has done, of whom a page knows nothing
YOUR_TURN = {"code_prompt_show": "Your turn: show where to start", "code_prompt_hide": "Your turn"}
HIDE = {"code_prompt_hide": "Hide the result"}
CARD = (1200, 630)  # pixels of the picture that a chat shows of a link


# ---- notebooks -------------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """A stored notebook, each cell with its source as one string and a list of tags."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
        cell["metadata"].setdefault("tags", [])
    return notebook


def label(notebook: str, cell: str) -> str:
    """The name by which all pages link to a cell."""
    return f"{notebook}--{cell}"


def page(path: Path) -> str:
    """A notebook for the site: cells that can be linked to, exercises and what stands below a guess folded."""
    notebook, cells = read(path), []
    for cell in notebook["cells"]:
        tags, metadata = cell["metadata"]["tags"], cell["metadata"]
        if cell["cell_type"] == "markdown":
            linked = LINK.sub(lambda link: f"(#{label(*link.groups())})", cell["source"])
            cell["source"] = f"({label(path.stem, cell['id'])})=\n{linked}"
            if not cells:
                discussed = f"{URLS['Repository']}/discussions?discussions_q={path.stem}"
                cell["source"] += f"\n\n[Open in Colab]({COLAB}/{path.name}) · [Discuss this notebook]({discussed})"
        elif "exercise-check" in tags:  # one fold with its stub; that nothing was answered yet is no news to a reader
            cells[-1]["source"] += f"\n\n\n{cell['source']}"
            continue
        elif "exercise" in tags:
            tags.append("hide-input")
            metadata["mystnb"] = YOUR_TURN
        elif "reading" in tags:  # sentences: how they are checked is of no use to who only reads
            tags.append("remove-input")
        else:
            collapsed = metadata.get("jupyter", {}).get("outputs_hidden") and cell["outputs"]
            lid = "".join(cell["outputs"].pop(0)["data"]["text/html"]) if collapsed else ""
            explains = path == NOTEBOOKS[0]  # shows what a verdict looks like
            outputs = [out for out in cell["outputs"] if explains or not NOTHING_YET.match(_text(out))]
            cell["outputs"] = list(map(_for_a_page, outputs))
            if lid and cell["outputs"]:
                tags.append("hide-output")
                metadata["mystnb"] = {"code_prompt_show": lid} | HIDE
        cells.append(cell)
    return json.dumps(notebook | {"cells": cells}, ensure_ascii=False)


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("data", {}).get("text/plain", ""))


def _for_a_page(output: dict[str, Any]) -> dict[str, Any]:
    """An output whose links lead to pages, and whose picture, if it is stored with what moves it, is in a place for site.js."""
    data = output.get("data", {})
    if "text/html" in data:
        text = "".join(data["text/html"])
        data["text/html"] = LINK_IN_HTML.sub(lambda link: f'"{link[1]}.html#{make_id(label(*link.groups()))}"', text)
    about = output.get("metadata", {}).get("image/png", {})
    kind = next((kind for kind in MOVING if about.get(kind)), None)
    if kind is None:
        return output
    png = "".join(data["image/png"]).strip()
    picture = f'<img src="data:image/png;base64,{png}" alt="{html.escape(about["alt"])}">'
    needs = f'data-{kind.replace("_", "-")}="{html.escape(json.dumps(about[kind]))}"'
    return output | {"data": {"text/html": f'<div class="moving" {needs}>{picture}</div>', "text/plain": _text(output)}}


def stored(kind: str) -> list[dict[str, Any]]:
    """The stored outputs of all notebooks with this kind of MOVING."""
    outputs = [output for path in NOTEBOOKS for cell in read(path)["cells"] for output in cell.get("outputs", [])]
    return [output for output in outputs if _about(output, kind)]


def _about(output: dict[str, Any], kind: str) -> Any:
    return output.get("metadata", {}).get("image/png", {}).get(kind)


MODULES = """
import importlib, json, sys
from hpml_lab.landscape import lab_module
surfaces, names = json.loads(sys.argv[1])
topics = {name: importlib.import_module("hpml_lab." + name.split(".")[0]) for name in names}
modules = {name: getattr(topics[name], name.split(".")[1])().module() for name in names}
print(json.dumps({"lab": lab_module(surfaces)} | modules))
"""


def modules() -> dict[str, str]:
    """The JavaScript of what moves by a formula, by its name; nothing where the package cannot be imported."""
    surfaces = sorted({_about(lab, "optimizer_lab")["surface"] for lab in stored("optimizer_lab")})
    asked = json.dumps([surfaces, sorted({_about(figure, "formula") for figure in stored("formula")})])
    command = [sys.executable, "-X", "utf8", "-c", MODULES, asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")
    if done.returncode:
        print(f"The optimizer lab stays a picture: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout) if done.returncode == 0 else {}


# ---- the lectures' examples --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """An experiment as the registry knows it, where its section is, and the card that is stored there."""

    slug: str
    lectures: list[str]
    title: str
    link: str
    card: str

    def key_figures(self) -> list[list[str]]:
        """[label, lecture, here, recorded] of each key figure."""
        found = re.match(r"(?:<p>.*?</p>\s*)?<table[^>]*>(.*?)</table>", self.card, flags=re.DOTALL)
        heading, *rows = [_cells(row) for row in found[1].split("</tr>") if "<t" in row] if found else [[]]
        column = {name.split()[0].rstrip(":"): index for index, name in enumerate(heading) if name}
        wanted = ("lecture", "here", "reference")
        return [[row[0], *(row[column[name]] if name in column else "–" for name in wanted)] for row in rows]

    def figures(self) -> list[list[str]]:
        """The key figures that the lecture gives; the first one if it gives none."""
        rows = self.key_figures()
        return [row for row in rows if row[1] not in ("–", "not given")] or rows[:1]

    def found(self, pattern: str) -> str:
        """The first group of `pattern` where it is first found in the card, or nothing."""
        found = re.search(pattern, self.card)
        return html.unescape(found[1]) if found else ""


def _cells(row: str) -> list[str]:
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells]


def examples() -> list[Example]:
    """All experiments, in the order of the notebooks and of their headings."""
    known, found = {row.slug: (row.lecture, row.title) for row in catalogue()}, []
    for path in NOTEBOOKS:
        cells = read(path)["cells"]
        for cell in cells:
            heading = re.match(r"## .*`([a-z0-9-]+)`", cell["source"])
            if cell["cell_type"] == "markdown" and heading and heading[1] in known:
                lectures, title = known[heading[1]]
                call = f".{heading[1].replace('-', '_')}()"
                outputs = [out for run in cells if call in run["source"] for out in run.get("outputs", [])]
                cards = ["".join(out["data"]["text/html"]) for out in outputs if "text/html" in out.get("data", {})]
                found.append(Example(heading[1], lectures.split(), title, label(path.stem, cell["id"]), (cards or [""])[-1]))
    return found


def lectures_page(readme: str) -> str:
    """For each lecture its examples, and the figures of the lecture, of the run stored here and of the recorded run."""
    all_examples = examples()
    here = mode(filter(None, (example.found(r"<small>(\w+ on [^<]*?) \(torch") for example in all_examples)))
    names = dict(re.findall(r"\*\*(L\d)\*\*\s+([^;.]+)[;.]", readme)) | {"own": "in no lecture"}
    parts = [
        "# The lectures, example by example",
        "Each example of the five lectures leads to the experiment that runs it again. The figures are the lecture's, those of"
        f" the run that is stored in these pages (*here*: {here}), and those of a recorded run. A dash stands for what the"
        " lecture does not give or the machine cannot show. An example of several lectures is listed under each.",
    ]
    for lecture, name in names.items():
        lines = ["| example and experiment | figure | lecture | here | recorded |", "|---|---|---|--:|--:|"]
        for example in all_examples:
            if lecture in example.lectures:
                claims = example.found(r"(\d+ of \d+ claims? holds?)")
                recorded = example.found(r">reference[^<]*?: ([^<]*?) \(torch")
                details = "; ".join(
                    [*([f"{claims} here"] if claims else []), *([f"recorded on {recorded}"] if recorded else [])]
                )
                first = f"{example.title}<br>[`{example.slug}`](#{example.link}) {details}"
                for row in example.figures() or [["–"] * 4]:
                    lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in [first, *row]) + " |")
                    first = ""
        parts += [f"## {lecture}: {' '.join(name.split())}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


# ---- the README as the first page --------------------------------------------------------------------------------------


def first_page(readme: str) -> str:
    """The README, with doors to its parts below the first picture, and the optimizer lab itself above the notebooks."""
    start, *sections = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    before, picture, after = re.split(r"^(!\[.*\)$)", start, maxsplit=1, flags=re.MULTILINE)
    doors = [re.match(r"## For (\w+)\n", section) for section in sections]
    doors = [f'<a href="#{make_id(f"for {door[1]}")}">For {door[1]}</a>' for door in doors if door]
    nav = f'<nav class="doors" aria-label="For whom">{"".join(doors)}</nav>'
    notebooks = next(number for number, section in enumerate(sections) if section.startswith("## The notebooks"))
    sections[notebooks] += "[The lectures, example by example](lectures.md) · [Forty habits, in numbers](habits.md)\n\n"
    if largest := max(stored("optimizer_lab"), key=lambda lab: len(_about(lab, "optimizer_lab")["panels"]), default=None):
        sections.insert(notebooks, f"## Try it\n\n{_for_a_page(largest)['data']['text/html']}\n\n")
    pages = [
        "lectures",
        "habits",
        *(f"notebooks/{path.stem}" for path in NOTEBOOKS),
        *(name.removesuffix(".md") for name in PAGES),
    ]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])
    return "\n".join([before, picture, "", nav, after, "".join(sections), toctree])


# ---- all of it ---------------------------------------------------------------------------------------------------------


def prepare(source: Path) -> None:
    """Write Sphinx's sources; files that would not change are left, so that a second build takes only what did."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files = {"index.md": first_page(readme), "lectures.md": lectures_page(readme), "habits.md": habits_page(examples())}
    files |= {f"notebooks/{path.name}": page(path) for path in NOTEBOOKS}
    contents = {name: text.encode() for name, text in files.items()}
    contents |= {name: (ROOT / name).read_bytes() for name in AS_THEY_ARE}
    for name, content in contents.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def write_sitemap(pages: Path) -> None:
    """List every page, also those that this build left as they were (of which sphinx-sitemap knows nothing)."""
    names = sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.html"))
    listed = "".join(f"<url><loc>{URLS['Homepage']}{name}</loc></url>\n" for name in names)
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{listed}</urlset>\n'
    (pages / "sitemap.xml").write_text(text, encoding="utf-8")


def write_cards(pages: Path) -> None:
    """Lay the picture of each page's link on a white card: a chat cuts other shapes, leaves out flat ones, and may be dark."""
    (pages / "_images").mkdir(exist_ok=True)
    for path in pages.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        found = re.search(rf'(<meta property="og:image" content="{URLS["Homepage"]})([^"]+)"', text)
        if found is None or Image.open(picture := pages / found[2]).size == CARD:
            continue
        drawn = ImageOps.pad(Image.open(picture).convert("RGBA"), (CARD[0] - 80, CARD[1] - 80), color="white")
        card = Image.new("RGBA", CARD, "white")
        card.alpha_composite(drawn, (40, 40))
        name = f"_images/card-{picture.stem}.png"
        card.convert("RGB").save(pages / name, optimize=True)
        path.write_text(text.replace(found[0], f'{found[1]}{name}"'), encoding="utf-8")


def main(folder: Path) -> int:
    """Build into `folder`; Sphinx's exit code, which is not 0 after a warning."""
    start = time.perf_counter()
    prepare(folder / "source")
    code = sphinx_build(["-qW", "--keep-going", "-j", "auto", "-c", str(DOCS), str(folder / "source"), str(folder / "html")])
    for name, module in modules().items():
        (folder / "html" / "_static" / f"{name}.mjs").write_text(module, encoding="utf-8")
    write_sitemap(folder / "html")
    write_cards(folder / "html")
    size = sum(path.stat().st_size for path in (folder / "html").rglob("*") if path.is_file()) / 1e6
    print(f"{folder / 'html' / 'index.html'}: {size:.0f} MB in {time.perf_counter() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"))
