"""The doctor: what this machine is, what each notebook can and cannot show on it, and the one-line mend."""

import ast
import importlib.util
import json
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hpml_lab.core.paths import NOTEBOOKS
from hpml_lab.start.probes import LIMITED, MISSING, OK, PROBES, Finding, Told, ask

PARTNERS = ("python", "torch", "torchvision")  # these must fit together
ESSENTIAL = (*PARTNERS, "workbook")  # without one of these nothing starts


@dataclass(frozen=True)
class Notebook:
    """What a notebook can show here.

    experiments  how many it has
    lacks        {tool: slugs of the experiments that show less without it}
    packages     those that it imports and that are not installed
    damaged      its file is no notebook any more: cut off, or with the marks of a merge in it
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
            return "cannot be started before what is missing above is mended"
        if not self.less:
            return f"shows everything (experiments: {self.experiments})"
        return f"{self.less} of {self.experiments} experiments show less without {', '.join(self.lacks)}"


@dataclass(frozen=True)
class Report:
    """All findings about the machine, and what follows for each notebook."""

    findings: list[Finding]
    notebooks: list[Notebook]

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def fits(self) -> bool:
        """True where Python, torch and torchvision work together."""
        return all(self[name].state != MISSING for name in PARTNERS)

    @property
    def ready(self) -> bool:
        """True where every notebook can be started."""
        return all(self[name].state != MISSING for name in ESSENTIAL) and all(n.state != MISSING for n in self.notebooks)

    def as_json(self) -> str:
        """The report for programs."""
        record = {
            "ready": self.ready,
            "findings": [asdict(one) for one in self.findings],
            "notebooks": [
                asdict(one) | {"value": one.value, "fix": {tool: self[tool].fix for tool in one.lacks}}
                for one in self.notebooks
            ],
        }
        return json.dumps(record, indent=1, ensure_ascii=False)

    def as_text(self, width: int = 100) -> str:
        """The report for a terminal of `width` characters; mends stay on one line, to be copied."""
        lines = ["This machine"]
        for one in self.findings:
            lines.append(f"  {one.state:8} {one.name:12} {one.value}")
            lines += textwrap.wrap(one.means, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)
            lines += [f"{INDENT}fix: {one.fix}"] if one.fix else []
        lines += ["", "What each notebook can show here"]
        for one in self.notebooks:
            lines.append(f"  {one.state:8} {one.name:12} {one.value}")
            for tool, slugs in one.lacks.items():
                lines += textwrap.wrap(
                    f"without {tool}: {', '.join(slugs)}",
                    width,
                    initial_indent=INDENT,
                    subsequent_indent=INDENT,
                    break_on_hyphens=False,
                )
                lines.append(f"{INDENT}fix: {self[tool].fix}")
        lines += ["", "Every notebook can be started." if self.ready else "Not ready: mend what is missing, from the top."]
        return "\n".join(lines)


INDENT = " " * 24


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
            continue  # a half-written answer is not the doctor's business
        for line in body:
            if isinstance(line, ast.Import):
                names += [alias.name for alias in line.names]
            elif isinstance(line, ast.ImportFrom) and not line.level:
                names.append(line.module)
    return sorted({name.split(".")[0] for name in names})


def notebooks(findings: list[Finding], told: Told) -> list[Notebook]:
    """For each notebook, whether it can be started here and which of its experiments show less for want of a tool."""
    state = {one.name: one.state for one in findings}
    rows = told["experiments"].get("all", [])
    files = {path.stem: path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
    startable = all(state[name] != MISSING for name in ESSENTIAL)
    answer = []
    for name in sorted({*files, *(row["notebook"] for row in rows)}):
        mine = [row for row in rows if row["notebook"] == name]
        lacks: dict[str, list[str]] = {}
        for row in mine:
            for tool in row["uses"]:
                if state[tool] != OK:
                    lacks.setdefault(tool, []).append(row["slug"])
        try:
            imported, damaged = imported_by(files[name]) if name in files else [], False
        except (ValueError, KeyError, TypeError):  # one damaged notebook is a finding, not the doctor's end
            imported, damaged = [], True
        absent = [one for one in imported if importlib.util.find_spec(one) is None]
        worst = MISSING if damaged or absent or not startable else LIMITED if lacks else OK
        answer.append(Notebook(name, worst, len(mine), lacks, absent, damaged))
    return answer


def examine(device: str | None = None) -> Report:
    """Run every probe. `device` is the device that was asked for, None for the workbook's own choice."""
    told = ask(device)
    findings = [probe(told) for probe in PROBES]
    return Report(findings, notebooks(findings, told))
