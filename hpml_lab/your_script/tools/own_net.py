"""Steps that look into the script's own net: what batch norm has learned, and where a step of several ranks goes."""

import ast
import contextlib
import importlib.util
import io
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hpml_lab.core.experiment import Row, Table, column
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import STATE, bytes_of, check_zip, reader
from hpml_lab.distributed import time_step_parts
from hpml_lab.your_script.tools.lab_task import LATE, Findings, Lab, NotDone, NotHere
from hpml_lab.your_script.tools.script_runs import run_script

SMALL = 0.1  # a scale below it: the channel hardly passes anything on
FUNCTIONS = {"make_net": "() → net", "make_batch": "(size) → (x, y)"}


@dataclass
class ScaleRow(Row):
    """The learned scales of one batch norm, one for each channel; they start at 1."""

    layer: str = column("batch norm")
    channels: int = column("channels")
    smallest: float = column("smallest scale")
    median: float = column("median")
    largest: float = column("largest")
    small: float = column(f"below {SMALL:g}", "%")


def learned_scales(lab: Lab) -> Findings:
    """The scales that batch norm has learned, layer by layer, from the weights that `--save` writes."""
    with tempfile.TemporaryDirectory(prefix="hpml-lab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "weights.pt"
        run = run_script([*lab.script, "--save", str(path)], deadline_seconds=LATE * lab.seconds)
        if run.failed:  # argparse takes --save for --save-model, and then finds no use for the file
            why = re.sub(rf"(--save )?{re.escape(str(path))}", "--save FILE", run.failed)
            raise NotDone(why if "--save" in why else f"with --save FILE: {why}")
        if not path.exists():
            raise NotDone("it takes --save and writes no file")
        rows = scale_rows(read_weights(path))
    if not rows:
        raise NotDone("there are no scales of batch norm in the file that --save wrote, a state_dict")
    least, most = (choose(rows, key=lambda row: row.median) for choose in (min, max))
    says = [f"The median scale is {least.median:.2f} in {least.layer} and {most.median:.2f} in {most.layer}; all began at 1."]
    small = sum(row.small * row.channels for row in rows) / sum(row.channels for row in rows)
    says.append(f"{small:.1f} % of all channels are scaled below {SMALL:g}: pruning would begin with them (notebook 17).")
    return Findings(says, [Table("Learned scales of batch norm", rows)])


@reader("weights as torch.save writes a state_dict", "Run the step again.")
def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a state_dict in a file."""
    check_zip(file := io.BytesIO(bytes_of(path, STATE)), STATE)
    state = torch.load(file, map_location="cpu", weights_only=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def scale_rows(weights: dict[str, Tensor]) -> list[ScaleRow]:
    """A row for each batch norm: what has averages of its own has a weight for each channel."""
    rows = []
    for name in weights:
        layer, _, last = name.rpartition(".")
        scale = weights.get(f"{layer}.weight")
        if last == "running_mean" and scale is not None:
            size = scale.float().abs()
            low, middle, high = (float(found) for found in (size.min(), size.median(), size.max()))
            small = 100 * (size < SMALL).float().mean().item()
            rows.append(ScaleRow(layer, scale.numel(), low, middle, high, small))
    return rows


def split_step(lab: Lab) -> Findings:
    """Compute, communication and optimizer of a training step of the script's net, on one rank and on several."""
    gpus = 0 if "cpu" in lab.words else torch.cuda.device_count()
    if gpus == 1:
        raise NotHere("there is one GPU, and each rank needs its own: --device cpu behind the script lets them share the cores")
    ranks = [count for count in (1, 2, 4) if count <= (gpus or min(2, machine.cores()))]
    batches, device = ((32, 128, 512), "cuda") if gpus else ((4, 16), "cpu")
    with own_functions(lab) as (make_net, make_batch):
        try:
            rows = time_step_parts(
                make_net,
                make_batch,
                loss=each_position,
                ranks=ranks,
                batches=batches,
                device=device,
                deadline_seconds=LATE * lab.seconds,
            )
        except LabError as error:
            raise NotDone(str(error)) from error
    several = [row for row in rows if row.ranks > 1]
    says = [
        f"{row.ranks} ranks, {row.batch} on each: {100 * row.waiting / row.step:.0f} % of a step is an all-reduce that nothing "
        f"hides; {row.speed_up:.2f} times the samples of one rank."
        for row in several
    ]
    says.append("The net is that of `make_net()`, without the script's options; each rank has one thread.")
    return Findings(says, [Table("Parts of a step", rows)])


def each_position(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of (N, C) and (N,), or of (N, L, C) and (N, L), as of a text."""
    return cross_entropy(scores.flatten(0, -2), labels.flatten())


@contextlib.contextmanager
def own_functions(lab: Lab) -> Iterator[tuple[Callable[[], Any], Callable[[int], Any]]]:
    """The script's `make_net` and `make_batch`; in the block other modules of its folder are found, on ranks, too.

    Raises NotDone for a script without them, and for one that would train when it is imported.
    """
    at = next((at for at, word in enumerate(lab.script) if word.endswith(".py") and Path(word).is_file()), None)
    if at is None:
        raise NotDone("no file of the script is named")
    path = Path(lab.script[at]).absolute()
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, OSError) as error:
        raise NotDone(f"it cannot be read: {error}") from error
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if missing := [f"`{name}`: {form}" for name, form in FUNCTIONS.items() if name not in defined]:
        raise NotDone(f"the script does not define {' and '.join(missing)}")
    if not any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in tree.body):
        raise NotDone('it would train when it is imported: put its last lines under `if __name__ == "__main__":`')
    paths, arguments, modules = list(sys.path), list(sys.argv), set(sys.modules)
    with contextlib.chdir(Path.cwd()):  # it may change that, too
        try:
            sys.path.insert(0, str(path.parent))
            sys.argv[:] = [str(path), *lab.script[at + 1 :]]
            module = _imported(path)
            yield module.make_net, module.make_batch
        finally:
            sys.path[:], sys.argv[:] = paths, arguments
            for name in set(sys.modules) - modules:  # the reader may change them before the next run
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(path.parent)):
                    del sys.modules[name]


def _imported(path: Path) -> types.ModuleType:
    """The script as a module of no name that an import finds: so its functions reach ranks by their code."""
    spec = importlib.util.spec_from_file_location("script_of_a_lab", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses ask for
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise NotDone(f"it cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[spec.name]
    return module
