"""`hpml-lab list` reads the sources: the same rows as the registry's, in their order, without torch."""

import subprocess
import sys

from hpml_lab.core.experiment.catalogue import catalogue
from hpml_lab.core.experiment.registry import all_experiments


def test_the_sources_say_what_the_registry_knows():
    registered = [(row.slug, row.notebook, row.lecture, row.title) for row in all_experiments() if row.topic != "test"]
    assert [(row.slug, row.notebook, row.lecture, row.title) for row in catalogue()] == registered


def test_the_list_needs_no_torch():
    code = "import sys; from hpml_lab.cli import main; main(['list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    head, *rows = done.stdout.splitlines()
    assert done.returncode == 0 and head.split() == ["slug", "notebook", "lectures", "reference", "title"]
    at = head.index("reference")
    assert {row[at : at + 3].strip() for row in rows} == {"yes", "no"} and len(rows) == len(catalogue())
