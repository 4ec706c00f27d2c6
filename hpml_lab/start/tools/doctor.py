"""The doctor: what this machine is, what each notebook can and cannot show on it, and how to fix the rest."""

import ast
import importlib.util
import json
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_lab.core.system.paths import NOTEBOOKS
from hpml_lab.start.tools import optional_programs, probes_gpu, probes_machine, probes_software
from hpml_lab.start.tools.asking import ask
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, Answers, Finding
from hpml_lab.start.tools.platform_settings import PlatformSetting, platform_settings

if TYPE_CHECKING:
    import torch

PARTNERS = ("python", "torch", "torchvision")  # these must fit together
ESSENTIAL = (*PARTNERS, "workbook")  # without one of these nothing starts
OF_A_GPU = ("nsys",)  # tools that show nothing more where there is no GPU

# Each looks at one thing; `uses` of an experiment names findings. None imports torch: what needs it runs in a process of its
# own (torch_probe.py), so that they work where torch is missing, old or broken. In the order in which they are shown.
PROBES: dict[str, Callable[[Answers], Finding]] = {
    "python": probes_software.python,
    "torch": probes_software.torch,
    "torchvision": probes_software.torchvision,
    "packages": probes_software.packages,
    "workbook": probes_software.workbook,
    "driver": probes_gpu.driver,
    "cuda": probes_gpu.cuda,
    "cudnn": probes_gpu.cudnn,
    "two-gpus": probes_gpu.two_gpus,
    "device": probes_gpu.device,
    "cores": probes_machine.cores,
    "memory": probes_machine.memory,
    "shm": probes_machine.shm,
    "disk": probes_machine.disk,
    "namespaces": probes_machine.namespaces,
    "compiler": optional_programs.compiler,
    **{tool.name: tool for tool in optional_programs.TOOLS},
    "dali": probes_software.dali,
    "deepspeed": probes_software.deepspeed,
    "torchao": probes_software.torchao,
    "torch-pruning": probes_software.torch_pruning,
    "pydicom": probes_software.pydicom,
    "h5py": probes_software.h5py,
    "onnxruntime": probes_software.onnxruntime,
    "litserve": probes_software.litserve,
    "mnist": probes_software.mnist,
}


@dataclass(frozen=True)
class Notebook:
    """What a notebook can show here.

    experiments  how many it has
    lacks        {tool: slugs of the experiments that show less without it}
    packages     those that it imports and that are not installed
    damaged      its file is not a notebook any more: cut off, or with merge markers in it
    """

    name: str
    state: str
    experiments: int
    lacks: dict[str, list[str]] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    damaged: bool = False

    @property
    def less(self) -> int:
        """How many of its experiments show less here than they could."""
        return len({slug for slugs in self.lacks.values() for slug in slugs})

    @property
    def value(self) -> str:
        """The state in words."""
        if self.damaged:
            return "cannot be opened: its file is damaged; get it again (git checkout)"
        if self.packages:
            return f"cannot be started: {', '.join(self.packages)} not installed"
        if self.state == MISSING:
            return "cannot be started before what is missing above is fixed"
        if not self.less:
            return f"shows everything (experiments: {self.experiments})"
        return f"{self.less} of {self.experiments} experiments show less without {', '.join(self.lacks)}"


@dataclass(frozen=True)
class Report:
    """All findings about the machine, what follows for each notebook, and the platform's settings."""

    findings: list[Finding]
    notebooks: list[Notebook]
    settings: list[PlatformSetting] = field(default_factory=list)

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def compatible(self) -> bool:
        """True if Python, torch and torchvision work together."""
        return all(self[name].state != MISSING for name in PARTNERS)

    @property
    def ready(self) -> bool:
        """True if every notebook can be started."""
        return all(self[name].state != MISSING for name in ESSENTIAL) and all(n.state != MISSING for n in self.notebooks)

    def as_json(self) -> str:
        """The report for programs."""
        record = {
            "ready": self.ready,
            "findings": [asdict(finding) for finding in self.findings],
            "notebooks": [
                asdict(notebook) | {"value": notebook.value, "fix": {tool: self[tool].fix for tool in notebook.lacks}}
                for notebook in self.notebooks
            ],
            "settings": [asdict(setting) for setting in self.settings],
        }
        return json.dumps(record, indent=1, ensure_ascii=False)

    def as_text(self, width: int = 100) -> str:
        """The report for a terminal of `width` characters; fixes stay on one line, to be copied."""

        def indented(text: str) -> list[str]:
            return textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)

        lines = ["This machine"]
        for finding in self.findings:
            lines.append(f"  {finding.state:8} {finding.name:14} {finding.value}")
            lines += indented(finding.means)
            lines += [f"{INDENT}fix: {finding.fix}"] if finding.fix else []
        lines += ["", "What each notebook can show here"]
        for notebook in self.notebooks:
            lines.append(f"  {notebook.state:8} {notebook.name:14} {notebook.value}")
            for tool, slugs in notebook.lacks.items():
                lines += indented(f"without {tool}: {', '.join(slugs)}")
                lines.append(f"{INDENT}fix: {self[tool].fix}")
        lines += ["", "Platform settings: check them before you measure"]
        for setting in self.settings:
            lines.append(f"  {setting.name:23} {setting.found}")
            lines += indented(setting.costs)
            lines.append(f"{INDENT}command: {setting.command}")
        lines += ["", "Every notebook can be started." if self.ready else "Not ready: fix what is missing, from the top."]
        return "\n".join(lines)


INDENT = " " * 26


def imported_by(notebook: Path) -> list[str]:
    """Top-level names of the packages that the cells of a notebook import without catching the failure."""
    names = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        try:
            body = ast.parse("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))).body
        except SyntaxError:
            continue  # a half-written answer is not the doctor's concern
        for line in body:
            if isinstance(line, ast.Import):
                names += [alias.name for alias in line.names]
            elif isinstance(line, ast.ImportFrom) and not line.level:
                names.append(line.module)
    return sorted({name.split(".")[0] for name in names})


def notebooks(findings: list[Finding], answers: Answers) -> list[Notebook]:
    """For each notebook, whether it can be started here, and which of its experiments show less because a tool is missing."""
    state = {finding.name: finding.state for finding in findings}
    rows = answers["experiments"].get("all", [])
    files = {path.stem: path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
    startable = all(state[name] != MISSING for name in ESSENTIAL)
    answer = []
    for name in sorted({*files, *(row["notebook"] for row in rows)}):
        mine = [row for row in rows if row["notebook"] == name]
        lacks: dict[str, list[str]] = {}
        for row in mine:
            for tool in row["uses"]:
                if state[tool] != OK and not (tool in OF_A_GPU and state["cuda"] != OK):
                    lacks.setdefault(tool, []).append(row["slug"])
        try:
            imported, damaged = imported_by(files[name]) if name in files else [], False
        except (ValueError, KeyError, TypeError):  # one damaged notebook is a finding, and the doctor goes on
            imported, damaged = [], True
        absent = [package for package in imported if importlib.util.find_spec(package) is None]
        worst = MISSING if damaged or absent or not startable else LIMITED if lacks else OK
        answer.append(Notebook(name, worst, len(mine), lacks, absent, damaged))
    return answer


def examine(device: "torch.device | str | None" = None) -> Report:
    """Run every probe. `device` is the device that was asked for, None for the workbook's choice."""
    answers = ask(None if device is None else str(device))
    findings = [probe(answers) for probe in PROBES.values()]
    return Report(findings, notebooks(findings, answers), platform_settings())
