"""The notebooks as one course: each leads on to the next, and every link between them arrives."""

import json
import re

import pytest

from hpml_lab.core.system.paths import NOTEBOOKS

LINK = re.compile(r"\]\((\d\d_\w+\.ipynb)(?:#cell-id=([\w.-]+))?\)")
COURSE = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def cells(name):
    return json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]


def text(name):
    return "\n".join("".join(cell["source"]) for cell in cells(name) if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("name", COURSE)
def test_every_link_to_a_notebook_arrives(name):
    links = LINK.findall(text(name))
    assert len(links) == text(name).count(".ipynb"), (
        f"{name} names .ipynb files outside of links: write each as [text](NN_topic.ipynb#cell-id=CELL)"
    )
    for target, cell in links:
        assert target in COURSE, f"{name} leads to {target}, which is not there: correct the link"
        assert not cell or cell in {own["id"] for own in cells(target)}, (
            f"{name} leads to the cell {cell} of {target}, which is not there: write the id of one of its cells"
        )


@pytest.mark.parametrize("name, following", list(zip(COURSE, COURSE[1:], strict=False)))
def test_a_notebook_ends_with_the_way_to_the_next(name, following):
    last = "".join(cells(name)[-1]["source"])
    assert following in [target for target, _ in LINK.findall(last)], f"{name}: link {following} in the last cell"


@pytest.mark.parametrize("name", COURSE[1:])
def test_a_notebook_that_is_named_is_linked_the_first_time(name):
    own, found = name[:2], text(name)
    for number in sorted(set(re.findall(r"(?i)\bnotebook (\d\d)\b", found)) - {own}):
        named = re.search(rf"(?i)\[?notebook {number}\b", found)
        assert named[0].startswith("["), (
            f"{name} names notebook {number} without a link: make the first mention one, [notebook {number}](…)"
        )
