"""Writes the commit into what is built, so that an installed package knows what it was made of. Run by hatchling."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Commit(BuildHookInterface):
    """Ships the file `commit`; an editable installation has none, because a checkout can be asked."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from hpml_lab.core.system.machine import commit

        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "commit")
        path.write_text(commit() or "", encoding="utf-8")
        build_data["force_include"][str(path)] = "hpml_lab/shipped/commit"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.folder.cleanup()
