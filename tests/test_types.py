"""The short API as editors and type checkers see it: the engineers' Python block is right, and signatures are the true ones."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_lab.core.system.paths import ROOT

GIVEN = Path(__file__).with_name("given.py")  # what the reader of the block has already
TRUE_TYPES = {
    "tune": "batch_size: int | None, *, step: ((Any) -> object) | None, restore: Iterable[Any] | None, step_seconds: float",
    "measure": "(work: () -> object, *, samples: int, threads: int, bytes: float, flops: float) -> Timing",
    "compare": "(a: () -> object, b: () -> object, *, samples: int, threads: int) -> Comparison",
    "Monitor.__init__": "(self: Monitor, rate: float, live: bool, process_id: int | None",
    "Adam.__init__": "eps: float, weight_decay: float, amsgrad: bool, *, foreach: bool | None, maximize: bool",
    "launch": " | str, method: str | None, deadline_seconds: float",  # a device: mypy does not read torch
    "tuned": "Tuned",
}
WRONG = [
    'tune(dataset, "64")',
    'Adam(net.parameters(), amsgrad="yes")',
    "from hpml_lab.loading import tunee",
    "from hpml_lab.optim import NoSuchOptimizer",
]


def run(module: str, *options: str, folder: Path) -> str:
    return subprocess.run([sys.executable, "-m", module, *options], cwd=folder, capture_output=True, text=True).stdout


def pyright(folder: Path) -> list[tuple[int, str]]:
    """(line, message) by the engine of Pylance, which reads torch too."""
    settings = {"include": ["program.py"], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    printed = run("basedpyright", "--pythonpath", sys.executable, "--outputjson", folder=folder)
    return [(row["range"]["start"]["line"], row["message"]) for row in json.loads(printed)["generalDiagnostics"]]


def mypy(folder: Path) -> list[tuple[int, str]]:
    """(line, message); torch's own types are left out, because mypy would read them for 20 seconds."""
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n", encoding="utf-8")
    printed = run("mypy", "program.py", folder=folder)
    return [(int(line) - 1, text) for line, text in re.findall(r"^program\.py:(\d+): \w+: (.*)$", printed, flags=re.M)]


def plain(message: str) -> str:
    """A revealed type without defaults and without modules, which checkers write in different ways."""
    message = re.sub(r"\b[a-z_][\w.]*\.(?=\w)|\bdef ", "", message)
    return re.sub(r" ?=( \([^)]*\)| [^,)]*)?(?=[,)])", "", message)


@pytest.mark.environment(
    "basedpyright and mypy",
    files=(
        "docs/engineers.md",
        "tests/given.py",
        "hpml_lab/core/timing",
        "hpml_lab/core/system/launcher.py",
        "hpml_lab/loading/tools",
        "hpml_lab/optim",
        "hpml_lab/profilers",
    ),
)
@pytest.mark.parametrize("checker, package", [(pyright, "basedpyright"), (mypy, "mypy")])
def test_the_block_for_engineers_is_right_and_wrong_uses_are_found(checker, package, tmp_path):
    pytest.importorskip(package)
    text = (ROOT / "docs" / "engineers.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, flags=re.S)[1]
    names = ", ".join(re.findall(r"^(?:def )?(\w+)[:(]", GIVEN.read_text(encoding="utf-8"), flags=re.M))
    reveal = [f"reveal_type({name})" for name in TRUE_TYPES]
    given = ["from torch.utils.data import DataLoader", f"from given import {names}"]
    program = "\n".join([*given, block, *reveal, *WRONG])
    shutil.copy(GIVEN, tmp_path)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    lines = program.splitlines()
    found: dict[str, str] = {}
    for line, message in checker(tmp_path):
        found[lines[line]] = found.get(lines[line], "") + plain(message)
    unexpected = {line: said for line, said in found.items() if line not in (*reveal, *WRONG)}
    assert not unexpected, f"{package} finds these lines of docs/engineers.md wrong: repair them, or the annotations they use"
    silent = [line for line in [*reveal, *WRONG] if line not in found]
    assert not silent, f"{package} says nothing of these lines, so what they use has lost its annotations: {silent}"
    for line, true in zip(reveal, TRUE_TYPES.values(), strict=True):
        assert true in found[line], f"{package} reads another signature: if it is the one you mean, write it into TRUE_TYPES"
