"""What the tuning guide would change in a script: to which scripts each change applies, and the lines that make it."""

import ast
import difflib
import io
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.referee.copies import Setting

Look = Mapping[str, Any]  # what `in_the_script.Look` has found
FSTRING_END = getattr(tokenize, "FSTRING_END", tokenize.STRING)  # from Python 3.12 on
FUSED = {"Adam", "AdamW", "SGD", "Adagrad"}  # on a CPU as well
NON_BLOCKING = "batch = batch.to(device, non_blocking=True)  # each tensor of a batch; not part of what was measured"
POSITIONS = {"set_to_none": 0, "num_workers": 5}  # as those that a call may give without their names
FOREACH = FUSED | {"Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "Adafactor"}


@dataclass(frozen=True)
class CallEdit:
    """Keyword arguments of the call that ends here: after this byte of a line."""

    file: str
    line: int
    column: int
    keywords: Mapping[str, str]


@dataclass(frozen=True)
class Tip:
    """One change of the guide.

    name       as `--only` and `--skip` take it
    title      in a sentence's end: "… gains 1.3×"
    section    the notebook that explains it
    settings   what a copy applies
    why_not    (look) -> why it does not apply here, "" if it does
    edits      (look) -> the calls to edit
    lines      what to write where no call says it
    also       what to write besides, at places that no constructor knows
    reorders   whether samples may come in another order
    lowers     whether it lowers the precision
    redraws    whether a network that draws random numbers, as dropout does, may draw others
    kind       of those of one kind only the fastest is kept
    """

    name: str
    title: str
    section: str
    settings: tuple[Setting, ...]
    why_not: Callable[[Look], str]
    edits: Callable[[Look], Sequence[CallEdit]] = lambda look: ()
    lines: str = ""
    also: str = ""
    reorders: bool = False
    redraws: bool = False
    lowers: bool = False
    kind: str = ""


def _of_loaders(
    name: str, title: str, options: dict[str, Any], why_not: Callable[[Look], str], workers: bool | None = None, **more: Any
) -> Tip:
    """A change of keyword arguments of DataLoaders: of those with workers, of those without, or of all."""

    def edits(look: Look) -> list[CallEdit]:
        rows = [row for row in look["loaders"] if row["file"] and workers in (None, bool(row["num_workers"]))]
        words = {keyword: repr(value) for keyword, value in options.items()}
        return [_at(row, words) for row in rows]

    return Tip(name, title, "08_loading", (("loader", options),), why_not, edits, _in_any("DataLoader", options), **more)


def _of_optimizers(name: str, title: str, options: dict[str, Any], classes: set[str]) -> Tip:
    """A change of a keyword argument of optimizers of these classes."""

    def edits(look: Look) -> list[CallEdit]:
        rows = [row for row in look["optimizers"] if row["file"] and row["class"] in classes]
        return [_at(row, {key: repr(value) for key, value in options.items() if value or row[key]}) for row in rows]

    why_not = _needs(
        lambda look: any(row["class"] in classes for row in look["optimizers"]), "no optimizer of torch.optim has the option"
    )
    lines = _in_any("optimizer", options)
    return Tip(name, title, "11_tuning", (("optimizer", options),), why_not, edits, lines, kind="optimizer")


def _at(row: Mapping[str, Any], keywords: Mapping[str, str]) -> CallEdit:
    return CallEdit(row["file"], row["line"], row["column"], keywords)


def _in_any(name: str, options: Mapping[str, Any]) -> str:
    """What to write where a library makes the call."""
    return f"# where the {name} is made, or as options of the library that makes it:\n" + ", ".join(
        f"{keyword}={value!r}" for keyword, value in options.items()
    )


def _needs(condition: Callable[[Look], bool], otherwise: str) -> Callable[[Look], str]:
    return lambda look: "" if condition(look) else otherwise


def _on_gpu(look: Look) -> bool:
    return any(root["device"] == "cuda" for root in look["roots"])


def _float32(look: Look) -> bool:
    return any(root["dtypes"] == ["torch.float32"] and not root["autocast"] for root in look["roots"])


def changes(cores: int, threads: int) -> list[Tip]:
    """All changes, in the guide's order, for a machine with so many cores and a script with so many threads."""
    without = _needs(
        lambda look: any(not row["num_workers"] for row in look["loaders"]), "every DataLoader has workers, or there is none"
    )
    with_workers = _needs(lambda look: any(row["num_workers"] for row in look["loaders"]), "no DataLoader has workers")
    to_a_gpu = _needs(lambda look: _on_gpu(look) and bool(look["loaders"]), "nothing is copied to a GPU from a DataLoader")
    stay = {"persistent_workers": True}
    found = []
    for workers in sorted({max(1, cores // 2), cores, min(2 * cores, 8)}):
        title = f"{workers} loader workers that stay" if workers > 1 else "1 loader worker that stays"
        options = {"num_workers": workers} | stay
        found.append(_of_loaders(f"workers-{workers}", title, options, without, False, reorders=True, kind="workers"))
    ahead = {"prefetch_factor": 4}
    found += [
        _of_loaders("persistent-workers", "workers that stay from epoch to epoch", stay, with_workers, True, reorders=True),
        _of_loaders("prefetch-4", "4 batches ahead for each worker", ahead, with_workers, True, reorders=True),
        _of_loaders("pinned-memory", "batches in pinned memory", {"pin_memory": True}, to_a_gpu, also=NON_BLOCKING),
        Tip(
            "cudnn-search",
            "cuDNN's search for the fastest algorithm",
            "11_tuning",
            (("cudnn_search", {}),),
            _needs(lambda look: _on_gpu(look) and any(root["images"] for root in look["roots"]), "no convolution on a GPU"),
            lines="torch.backends.cudnn.benchmark = True",
        ),
        Tip(
            "tf32",
            "TensorFloat-32 for float32 products",
            "12_precision",
            (("matmul_precision", {"precision": "high"}),),
            _needs(_on_gpu, "no network on a GPU"),
            lines='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
            lowers=True,
        ),
        Tip(
            "channels-last",
            "images and weights in channels-last order",
            "11_tuning",
            (("channels_last", {}),),
            _needs(
                lambda look: any(root["images"] for root in look["roots"]),
                "no network gets images (N, C, H, W) for convolutions",
            ),
            lines="net = net.to(memory_format=torch.channels_last)\n"
            "images = images.contiguous(memory_format=torch.channels_last)  # each batch",
            redraws=True,  # in the order of memory
        ),
        Tip(
            "gradients-to-none",
            "gradients set to None instead of zero",
            "11_tuning",
            (("zero_grad", {}),),
            _needs(
                lambda look: any(not row["set_to_none"] for row in look["zero_grad"]), "zero_grad sets them to None already"
            ),
            lambda look: [
                _at(row, {"set_to_none": "True"}) for row in look["zero_grad"] if row["file"] and not row["set_to_none"]
            ],
            lines="optimizer.zero_grad(set_to_none=True)",
        ),
        _of_optimizers("foreach", "an optimizer that updates all parameters in few calls", {"foreach": True}, FOREACH),
        _of_optimizers("fused", "a fused optimizer", {"fused": True, "foreach": False}, FUSED),
        Tip(
            "debugging-off",
            "anomaly mode, profiler and gradcheck off",
            "11_tuning",
            (("debugging_off", {}),),
            _needs(lambda look: look["debugging"], "no debugging tool is on"),
            lines="torch.autograd.set_detect_anomaly(False)  # and no profiler, no gradcheck, in the training itself",
        ),
        Tip(
            "autocast-bf16",
            "autocast to bfloat16",
            "12_precision",
            (("autocast", {"dtype": "bfloat16"}),),
            _needs(_float32, "autocast is on already, or the weights are not float32"),
            lines="with torch.autocast(device_type, torch.bfloat16):  # around the forward pass\n    outputs = net(inputs)",
            lowers=True,
        ),
        Tip(
            "compiled",
            "torch.compile",
            "11_tuning",
            (("compiled", {}),),
            _needs(lambda look: any(not root["compiled"] for root in look["roots"]), "the network is compiled already"),
            lines="net.compile()  # before its first call",
            redraws=True,  # with a generator of its own
        ),
    ]
    for number in sorted({1, cores} - {threads}):
        found.append(
            Tip(
                f"threads-{number}",
                f"{number} thread{'s' if number > 1 else ''} for each operator",
                "01_tensors",
                (("threads", {"number": number}),),
                _needs(lambda look: not _on_gpu(look), "the network is on a GPU"),
                lines=f"torch.set_num_threads({number})",
                kind="threads",
            )
        )
    return found


def chosen(known: Sequence[Tip], only: Sequence[str], skip: Sequence[str]) -> list[Tip]:
    """Those whose names begin with a word of `only` (all, if empty) and not of `skip`; LabError for a word of neither."""
    for word in (*only, *skip):
        if not any(change.name.startswith(word) for change in known):
            raise LabError(f"there is no change {word!r}.", f"Known here: {', '.join(change.name for change in known)}.")
    return [
        change
        for change in known
        if (not only or change.name.startswith(tuple(only))) and not (skip and change.name.startswith(tuple(skip)))
    ]


# ---- the lines to write -----------------------------------------------------------------------------------------------------


def as_diff(edits: Sequence[CallEdit], root: Path) -> str:
    """The edits as a unified diff, by files below `root` where they are there; "" where no call was found."""
    found = []
    for file in dict.fromkeys(edit.file for edit in edits):
        path = Path(file)
        try:
            with path.open(encoding="utf-8", newline="") as opened:  # as its lines end
                source = opened.read()
            changed = edited(source, [edit for edit in edits if edit.file == file])
        except (OSError, ValueError, SyntaxError):
            continue
        names = [f"{side}/{path.relative_to(root)}" if path.is_relative_to(root) else file for side in "ab"]
        lines = (text.splitlines(keepends=True) for text in (source, changed))
        found += difflib.unified_diff(*lines, *names, n=1)
    return "".join(line if line.endswith("\n") else line + "\n" for line in found)


def edited(source: str, edits: Sequence[CallEdit]) -> str:
    """The source with the keyword arguments of each call replaced, or put behind its last argument."""
    calls = {(node.end_lineno, node.end_col_offset): node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)}
    rows = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, rows[:number])) for number in range(len(rows) + 1)]
    pieces: dict[tuple[int, int], str] = {}
    ends = [
        (starts[token.end[0] - 1] + len(rows[token.end[0] - 1].decode()[: token.end[1]].encode()), token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP, FSTRING_END)
    ]

    def place(node: ast.expr) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    several: dict[tuple[int, int], dict[str, str]] = {}
    for edit in edits:
        several.setdefault((edit.line, edit.column), {}).update(edit.keywords)
    for (line, column), keywords in several.items():
        call = calls.get((line, column))
        if call is None:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        given |= {name: call.args[at] for name, at in POSITIONS.items() if at < len(call.args) and name in keywords}
        added = {name: value for name, value in keywords.items() if name not in given}
        pieces |= {place(given[name]): value for name, value in keywords.items() if name in given}
        if None in given:  # **options may have it already, and nothing may be given twice
            words = ", ".join(f'"{name}": {value}' for name, value in added.items())
            first, last = place(given[None])
            pieces[first, last] = f"{{**{source.encode()[first:last].decode()}, {words}}}"
        elif added:
            closing = starts[line - 1] + column - 1
            end, last = max((at, text) for at, text in ends if at <= closing)  # a comment may stand behind it
            comma = ", " if (call.args or call.keywords) and last != "," else " " if last == "," else ""
            pieces[end, end] = comma + ", ".join(f"{name}={value}" for name, value in added.items())
    text = source.encode()
    for (start, end), new in sorted(pieces.items(), reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode()
