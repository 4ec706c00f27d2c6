"""The programs that some experiment uses, as a table: how each tells its version, and what is missing without it."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.start.tools.asking import run_tool
from hpml_lab.start.tools.finding import MISSING, OK, REINSTALL, Answers, Finding


def _package(name: str) -> str:
    return f"Debian, Ubuntu: sudo apt-get install {name}; macOS: brew install {name}; conda install {name}"


@dataclass(frozen=True)
class Tool:
    """A program of the system; calling it probes for it.

    command  prints its version
    absent   what is found if it is missing
    means    what the workbook then shows less of
    fix      how to install it
    """

    name: str
    command: str
    absent: str
    means: str
    fix: str

    def __call__(self, answers: Answers) -> Finding:
        said = run_tool(self.command.split())
        if said is None:
            return Finding(self.name, MISSING, self.absent, self.means, self.fix)
        version = re.search(r"\d+(\.\d+)+", said)
        return Finding(self.name, OK, version[0] if version else said.partition("\n")[0][:40])


TOOLS = (
    Tool("graphviz", "dot -V", "no `dot`", "Graphs are drawn with the workbook's own, plainer layout.", _package("graphviz")),
    Tool("fio", "fio --version", "not installed", "The disk is measured by the workbook's own reader only.", _package("fio")),
    Tool("py-spy", "py-spy --version", "not installed", "A running process cannot be profiled.", REINSTALL),
    Tool(
        "perf",
        "perf --version",
        "not installed",
        "The processor's counters are not read, and no flame graph has Python's and C's functions in one.",
        "Debian: sudo apt-get install linux-perf; Ubuntu: sudo apt-get install linux-tools-generic",
    ),
    Tool(
        "nsys",
        "nsys --version",
        "not installed",
        "On a GPU, the ranges of a step come from torch.profiler alone.",
        "install Nsight Systems from https://developer.nvidia.com/nsight-systems",
    ),
)


def compiler(answers: Answers) -> Finding:
    """The C++ compiler that torch.compile calls: $CXX, else g++ (clang++ on macOS)."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    tool = Tool(
        "compiler",
        f"{name} --version",
        "no working C++ compiler",
        "torch.compile cannot build its kernels.",
        "Debian, Ubuntu: sudo apt-get install g++; macOS: xcode-select --install; conda install cxx-compiler",
    )
    found = tool(answers)
    return Finding("compiler", OK, f"{Path(name.split()[0]).name} {found.value}") if found.state == OK else found
