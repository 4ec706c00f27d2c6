"""Stacks that a sampler saw: folded text read into a tree, and counted by function.

Folded text has one line a stack: the frames from the outermost inwards with semicolons between them, a space, the samples.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError

DEEPEST = 200  # frames of a stack in a tree: a recursive program has a thousand, and a tree is walked recursively
IMPORT_FRAMES = ("<frozen importlib", "importlib/_bootstrap")  # in the frames that py-spy writes while Python imports a module


@dataclass
class StackNode:
    """A frame and what it called: `own` samples ended in it, `total` passed through it."""

    frame: str
    own: int = 0
    total: int = 0
    children: dict[str, "StackNode"] = field(default_factory=dict)

    def add(self, frames: Iterable[str], samples: int) -> None:
        """Add samples of one stack, its frames from the outermost inwards, below this node."""
        node = self
        node.total += samples
        for frame in frames:
            node = node.children.setdefault(frame, StackNode(frame))
            node.total += samples
        node.own += samples

    def walk(self) -> Iterator["StackNode"]:
        """This node and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


@dataclass
class FrameShare(Row):
    """One function in all stacks: the samples that ended in it (self), and those that passed through it (total)."""

    frame: str = column("function")
    own: int = column("self", "samples")
    own_percent: float = column("self", "%")
    total: int = column("total", "samples")
    total_percent: float = column("total", "%")


def read_stacks(folded: str) -> StackNode:
    """The tree of all stacks of a folded text, below a root called "all". Raises LabError for a line that is not a stack."""
    root = StackNode("all")
    for stack, samples in _stacks(folded):
        root.add(stack.split(";")[:DEEPEST], samples)
    return root


def _stacks(folded: str) -> Iterator[tuple[str, int]]:
    """Each stack and its samples, without those that have no frame: py-spy writes ` 3` for a thread that is just starting."""
    for line in filter(str.strip, folded.splitlines()):
        stack, space, samples = line.rstrip().rpartition(" ")
        if not space or not samples.isdecimal():
            raise LabError(f"{line!r} is not a folded stack.", "A line is `outer;inner 12`: frames, a space, samples.")
        if stack.strip():
            yield stack, int(samples)


def split_imports(folded: str) -> tuple[str, str]:
    """Folded text without the stacks in which Python imported a module, and those stacks.

    Most samples of a short script fall into `import torch`; they would hide the script's own work.
    """
    work, imports = [], []
    for stack, samples in _stacks(folded):
        (imports if any(name in stack for name in IMPORT_FRAMES) else work).append(f"{stack} {samples}\n")
    return "".join(work), "".join(imports)


def frame_shares(root: StackNode) -> list[FrameShare]:
    """One row a function, the largest self share first; a stack in which a function called itself counts once in its total."""
    counts: dict[str, list[int]] = {}

    def count(node: StackNode, above: frozenset[str]) -> None:
        own_and_total = counts.setdefault(node.frame, [0, 0])
        own_and_total[0] += node.own
        if node.frame not in above:
            own_and_total[1] += node.total
        for child in node.children.values():
            count(child, above | {node.frame})

    for child in root.children.values():
        count(child, frozenset())
    rows = [
        FrameShare(frame, own, 100 * own / root.total, total, 100 * total / root.total)
        for frame, (own, total) in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row.own, -row.total))


def function_name(frame: str) -> str:
    """The function's name in a frame as py-spy writes it, "name (file.py:12)"."""
    return frame.split(" (")[0]
