"""Record a whole lab on the template, which notebook 21 shows beside the reader's own: `python tests/record_lab.py`.

Times of a busy machine would be shown to everybody: on one nothing is run, and a lab after which one is busy is not kept.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from hpml_lab.cli import main
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.core.timing.quiet import disturbance
from hpml_lab.your_script import run_lab
from hpml_lab.your_script.tools.lab_report import FILE

SCRIPT = ["lab_training.py", "--quick", "--epochs", "10"]  # enough epochs to learn the digits, and seconds each
SECONDS = 300.0  # of a step, so that each of its runs has its turn


def record(folder: Path) -> None:
    """Run all steps on the template, and write the report into a folder. Ends without one on a machine that is busy."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        main(["template", "--of", "lab", "."])
        for when in ("before", "after"):
            if busy := disturbance():
                sys.exit(f"nothing is recorded: {when} the lab, {busy}.")
            if when == "before":
                run_lab(SCRIPT, "lab", seconds=SECONDS, say=print)
        content = Path("lab", FILE).read_bytes()
    folder.mkdir(exist_ok=True)
    print(atomic_write(folder / FILE, content))


if __name__ == "__main__":
    record(REFERENCE / "lab")
