"""Two scripts, or one script at two commits: is the second faster beyond noise, and does it train the same?"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.script_profile import check_script
from hpml_lab.referee.copies import OURS, left_out, place_below, require_small, require_turns
from hpml_lab.referee.sameness import ALLOWED
from hpml_lab.referee.script_turns import ADVICE, Candidate, Compared, EndsEarly, Yardstick, compared


@dataclass(frozen=True)
class ScriptVerdict:
    """Whether the second of two scripts is accepted, and why."""

    names: tuple[str, str]
    found: Compared
    allow: str

    @property
    def accepted(self) -> bool:
        return self.found.faster_within(ALLOWED[self.allow])

    def text(self) -> str:
        """The verdict in three lines."""
        gain, same = self.found.gain, self.found.same
        if gain is None or same is None:
            return f"not accepted: {self.names[1]} does not get through: {self.found.failed}"
        lines = ["accepted" if self.accepted else "not accepted", f"  speed: {gain}", f"  training: {same}"]
        return "\n".join([*lines, *([f"  {self.found.held_up}"] if self.found.held_up else [])])

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        return {"a": self.names[0], "b": self.names[1], "accepted": self.accepted, **self.found.as_dict()}


def compare_scripts(
    a: Sequence[str],
    b: Sequence[str],
    *,
    allow: str = "rounding",
    steps: int | None = None,
    folders: tuple[Path | None, Path | None] = (None, None),
    isolate: bool = False,
) -> ScriptVerdict:
    """Run `python A…` and `python B…` in turns, A twice; LabError where A cannot be driven.

    allow    "bitwise", "rounding" or "precision": how far B's training may differ
    folders  in which they run: this one
    isolate  let each copy run in a copy of it
    """
    require_turns()
    for words, folder in zip((a, b), folders, strict=True):
        if folder is None:
            check_script(words)
    names = " ".join(a), " ".join(b)
    base = Candidate(names[0], a, where=folders[0], isolate=isolate)
    other = Candidate("b", b, where=folders[1], isolate=isolate)
    try:
        found = compared([other], Yardstick(base), steps)["b"]
    except EndsEarly as error:
        raise LabError(f"{names[0]} cannot be driven: {error}.", ADVICE) from error
    return ScriptVerdict(names, found, allow)


def compare_commits(commits: Sequence[str], script: Sequence[str], isolate: bool = False, **options: Any) -> ScriptVerdict:
    """`compare_scripts` of one script at two commits of the repository that this folder belongs to.

    What git does not track, such as data, is what this folder and those beside it have now: a script may change it, as one that
    is run by hand, unless they are isolated.
    """
    with contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(_checked_out(commit, isolate)) for commit in commits)
        verdict = compare_scripts(script, script, folders=(one, other), isolate=isolate, **options)
    return ScriptVerdict((commits[0], commits[1]), verdict.found, verdict.allow)


@contextlib.contextmanager
def _checked_out(commit: str, isolate: bool) -> Iterator[Path]:
    """This folder as it is in a commit, with links to what git does not track.

    isolate  copies of it where it belongs to this folder: a script may write there
    """
    top, here = Path(_git("rev-parse", "--show-toplevel")), Path(_git("rev-parse", "--show-prefix"))
    untracked = _git("-C", str(top), "ls-files", "-z", "--others", "--directory").split("\0")
    if isolate:
        require_small(top / here)
    with tempfile.TemporaryDirectory(prefix=OURS, ignore_cleanup_errors=True) as name:
        tree = place_below(Path(name) / "commit", top)
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            if not (tree / here).is_dir():
                raise LabError(f"{commit} has no folder {here}.", "Go to a folder that both commits have.")
            for path in map(Path, filter(None, untracked)):
                # Python looks for the modules of a script next to the file that a link names, which is not this commit's.
                copied = isolate and path.is_relative_to(here) or path.suffix == ".py"
                _bring(top / path, tree / path, copied)
            yield tree / here
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _bring(source: Path, target: Path, copied: bool) -> None:
    if target.exists() or left_out(str(source.parent), [source.name]):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not copied:
        target.symlink_to(source)
    elif source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, ignore=left_out)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, errors="surrogateescape", check=True)
    except FileNotFoundError as error:
        raise LabError("git is not installed.", "Install it, or name two scripts.") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise LabError(
            f"git {' '.join(words)} failed: {said[-1] if said else error}.", "Is this a repository with both?"
        ) from error
    return done.stdout.strip()
