"""Shows a lesson's code in the notebook: the source of a function, class or module, with its file and line."""

import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hpml_lab.core.system.paths import ROOT


@dataclass(frozen=True)
class Source:
    """Code as it stands in a file; a notebook highlights it in the colors of its theme."""

    code: str
    file: str
    line: int
    language: str = "python"

    def __repr__(self) -> str:
        return f"{self.file}, line {self.line}\n\n{self.code}"

    def _repr_markdown_(self) -> str:
        return f"`{self.file}`, line {self.line}\n\n```{self.language}\n{self.code}\n```"


def source(lesson: Any) -> Source:
    """The code of a function, class or module, or of a text file's path, such as a JSON configuration.

    Raises TypeError for what has no source of its own, such as a number or a built-in.
    """
    if isinstance(lesson, Path):
        language = {".json": "json", ".sh": "bash", ".slurm": "bash"}.get(lesson.suffix, "text")
        return Source(lesson.read_text(encoding="utf-8").rstrip(), _shown(lesson), 1, language)
    lesson = inspect.unwrap(lesson)
    lines, first = inspect.getsourcelines(lesson)
    code = textwrap.dedent("".join(lines)).rstrip()
    return Source(code, _shown(Path(inspect.getfile(lesson))), 1 if isinstance(lesson, ModuleType) else first)


def _shown(path: Path) -> str:
    """The path from the project's root, or below the folder of installed packages."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "/".join(path.parts[-3:])
