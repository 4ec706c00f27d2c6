"""`hpml-lab notebooks DIR` and `hpml-lab template DIR`: files to work on, written out of an installed package."""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from hpml_lab.cli.shared import FINE, print_error, require_writable

# {name: (its topic, its files)}
TEMPLATES = {
    "train": ("sharding", ("train.py", "train.slurm", "deepspeed.json")),
    "lab": ("your_script", ("lab_training.py",)),
    "text": ("your_script", ("lab_training.py", "text_training.py")),
}
# What a file of the package imports, and what its copy imports: the copy beside it.
IN_THE_PACKAGE, BESIDE = b"from hpml_lab.your_script.lessons import lab_training", b"import lab_training"


def add_parser(commands) -> None:
    notebooks = commands.add_parser("notebooks", help="write the notebooks into a folder")
    template = commands.add_parser(
        "template", help="write a training script to copy into a folder: train.py, with train.slurm and deepspeed.json"
    )
    template.add_argument(
        "--of",
        choices=tuple(TEMPLATES),
        default="train",
        help="train: for ranks and machines (default); lab: lab_training.py, for `hpml-lab lab`; text: the same for text",
    )
    for parser, command in ((notebooks, write_notebooks), (template, write_template)):
        parser.add_argument("folder", type=Path, metavar="DIR", help="where to; what is there already is kept")
        parser.set_defaults(command=command)


def write_notebooks(chosen: argparse.Namespace) -> int:
    from hpml_lab.core.system.paths import NOTEBOOKS

    found = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    written = _write(found, chosen.folder)
    print(f"{len(written)} notebooks written to {chosen.folder}/")
    print(f"To start: jupyter lab {chosen.folder / found[0].name}")
    return FINE


def write_template(chosen: argparse.Namespace) -> int:
    topic, names = TEMPLATES[chosen.of]
    lessons = Path(importlib.import_module(f"hpml_lab.{topic}.lessons").__path__[0])
    written = _write([lessons / name for name in names], chosen.folder)
    print(f"{', '.join(written) or 'Nothing'} written to {chosen.folder}/")
    return FINE


def _write(files: Sequence[Path], folder: Path) -> list[str]:
    """Copy the files that `folder` does not have yet, and name those that it has on stderr; returns what was written."""
    from hpml_lab.core.system.files import atomic_write

    require_writable(folder, "another DIR")
    kept = [path.name for path in files if (folder / path.name).exists()]
    for path in files:
        if path.name not in kept:
            atomic_write(folder / path.name, path.read_bytes().replace(IN_THE_PACKAGE, BESIDE))
    if kept:
        there = "was there already and is kept as it is" if len(kept) == 1 else "were there already and are kept as they are"
        print_error(f"{len(kept)} {there}: {', '.join(kept)}.")
    return [path.name for path in files if path.name not in kept]
