"""Recording runs: each experiment in an interpreter of its own with a deadline, kept only if its exact claims hold."""

import importlib.util
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import Experiment, find
from hpml_lab.core.experiment.render import counted
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import ROOT
from hpml_lab.core.system.programs import run_python
from hpml_lab.core.system.readers import RECORD, reader, text_of
from hpml_lab.core.system.sealed import sealed_record, unsealed_record
from hpml_lab.core.timing import clock
from hpml_lab.core.timing.quiet import disturbance

# What only a GPU shows comes first, in the order of what it would teach if the time ended there.
MOST_TELLING = (
    "all-switches",
    "shared-gpu",
    "move-to-gpu",
    "sparse-formats",
    "inference-pipeline",
    "lung-nodule-pipeline",
    "profile-loop",
    "io-vs-compute",
    "gd-variants",
    "cudnn-benchmark",
    "pointwise-fusion",
    "amp-training",
    "num-workers",
    "channels-last",
    "conv-bias-bn",
    "zero-grad",
    "torch-profiler",
    "dynamic-graph",
    "gemm-tensor-cores",
    "dynamic-quantization",
    "one-hot-vs-embedding",
    "cpu-vs-gpu",
    "fused-optimizers",
    "attention-kernels",
    "offload",
    "async-timing",
    "kernel-table",
    "pinned-memory",
    "gpu-prefetcher",
    "batch-size",
    "checkpointing",
)
LEAST_SECONDS = 10.0  # with less time left nothing more is started
# Not `-m hpml_lab.references`: each process that the experiment spawns would import that module, and torch with it, before it
# starts. Those that a notebook spawns do not.
INTERPRETER = ["-c", "import sys; from hpml_lab.references import main; sys.exit(main(*sys.argv[1:]))"]
TESTS = "tests marked cuda"
LARGEST_FILE = 1 << 20  # bytes: a recorded run travels with the project
NOT_HERE = 3  # exit code of an interpreter whose experiment refused: a program, a package or data are missing
RECORDED, PASSED, SKIPPED, FAILED, LATE = "recorded", "passed", "skipped", "failed", "not finished"
BUSY = "machine busy"


@dataclass(frozen=True)
class Outcome:
    """What came of one experiment, or of the tests.

    state   RECORDED, or PASSED for the tests; SKIPPED; FAILED; LATE: killed at its deadline; BUSY: others had the cores
    detail  how many claims hold, why it was skipped, or the traceback
    """

    slug: str
    state: str
    seconds: float
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.state in (FAILED, LATE, BUSY)


def device_and_machine(requested: str | None) -> tuple[str, dict]:
    """The device to run on and this machine's description. Raises LabError for a device that does not exist here.

    Asked for in a child, because a process that has asked a GPU anything holds some of its memory.
    """
    outcome = run_in_child(_describe, requested, method="spawn", deadline_seconds=120)
    if outcome.how != "returned":
        raise LabError(f"torch does not answer here ({outcome.error or outcome.how}).", "Run `hpml-lab doctor`.")
    if isinstance(outcome.value, LabError):
        raise outcome.value
    return outcome.value


def _describe(requested: str | None) -> tuple[str, dict] | LabError:
    try:
        chosen = choose_device(requested)
    except LabError as error:
        return error
    return str(chosen), machine.describe(chosen.torch.index or 0)


def by_value(experiments: Iterable[Experiment], failed_before: Sequence[str] = ()) -> list[Experiment]:
    """The most telling first, then all that use a GPU, those that use several, and the rest.

    What failed before comes after what was never tried.
    """

    def position(experiment: Experiment) -> tuple[bool, int, list[bool]]:
        slug = experiment.slug
        telling = MOST_TELLING.index(slug) if slug in MOST_TELLING else len(MOST_TELLING)
        return slug in failed_before, telling, [tool not in experiment.uses for tool in ("cuda", "two-gpus")]

    return sorted(experiments, key=position)


def is_recorded(experiment: Experiment, size: str, here: dict, folder: Path) -> bool:
    """Whether `folder` has a run of this experiment, of this size, from a machine like this one.

    Alike are machines with the same torch and the same GPU (as many of them, for an experiment that uses several), or the same
    processor for an experiment that uses no GPU. A run on a GPU counts on a machine without one, too: it must not be replaced
    by less.
    """
    recorded = _load(experiment, folder)
    if recorded is None or recorded.size != size:
        return False
    there = recorded.machine | {"gpus": recorded.machine["gpus"] or int(recorded.machine["gpu"] is not None)}
    if recorded.device.startswith("cuda") and not here["gpu"]:
        return True
    several = ["gpus"] * ("two-gpus" in experiment.uses)
    on_gpu = recorded.device.startswith("cuda") or ("cuda" in experiment.uses and here["gpu"])
    unit = ["gpu"] if on_gpu else ["cpu", "cores"]
    return all(there[key] == here[key] for key in ["torch", *unit, *several])


def _load(experiment: Experiment, folder: Path) -> Result | None:
    """The experiment's run in `folder`; None if there is none yet, or one of an older version."""
    try:
        return experiment.load(folder / f"{experiment.slug}.json")
    except LabError:
        return None


def expected_seconds(experiment: Experiment, size: str, folder: Path) -> float:
    """What the run that is recorded took, on whatever machine; 0 where none is, or one of another size."""
    recorded = _load(experiment, folder)
    return recorded.seconds if recorded is not None and recorded.size == size else 0.0


def outdated(experiment: Experiment, folder: Path) -> str:
    """The commit that has changed the experiment since its run was recorded, such as "1a2b3c4 of 2026-11-24"; "" if none has.

    Its code is its module, and what that imports from its topic and from the clock. Answers "" outside a checkout.
    """
    recorded = _load(experiment, folder)
    if recorded is None:
        return ""
    module = sys.modules[experiment.function.__module__]
    imported = {getattr(value, "__module__", None) or "" for value in vars(module).values()}
    own = {name for name in imported if name.startswith((f"hpml_lab.{experiment.topic}.", clock.__name__))}
    files = [file for name in {module.__name__, *own} if (file := getattr(sys.modules[name], "__file__", None))]
    if not files:  # made by hand
        return ""
    asked = ["log", "-1", "--format=%h of %cs"]
    made = re.fullmatch(r"([0-9a-f]{7,40})\+?", recorded.machine["commit"] or "")  # what a file says is no option of git
    since = machine.git(*asked, f"{made[1]}..HEAD", "--", *files) if made else None  # None: a commit that this checkout lacks
    return (machine.git(*asked, f"--since={recorded.when}", "--", *files) or "") if since is None else since


def record(experiment: Experiment, size: str, device: str, folder: Path, pictures: Path, deadline_seconds: float) -> Outcome:
    """Run one experiment in an interpreter of its own and put its result into `folder` if every exact claim holds.

    Its figure is drawn, too, into `pictures`: one that cannot be drawn is a failure. A full run on the CPU is kept only if the
    machine was quiet before it and after it: its times are shown to everybody, those of a quick one to nobody.
    """
    slug, on_cpu = experiment.slug, size == "full" and device == "cpu"
    if on_cpu and (busy := disturbance()):
        return Outcome(slug, BUSY, 0.0, f"not run: {busy}.")
    with tempfile.TemporaryDirectory() as temporary:
        arguments = [*INTERPRETER, slug, size, device, temporary]
        finished = run_python(arguments, deadline_seconds=deadline_seconds)
        seconds, error = finished.seconds, finished.stderr.strip()
        if finished.exitcode is None:
            return Outcome(slug, LATE, seconds, f"killed after {deadline_seconds:.0f} s.\n{_end(error)}".strip())
        if finished.exitcode == NOT_HERE:
            return Outcome(slug, SKIPPED, seconds, error.splitlines()[-1])
        if finished.exitcode:
            return Outcome(slug, FAILED, seconds, _end(error) or f"the interpreter ended with exit code {finished.exitcode}.")
        made = Path(temporary) / f"{slug}.json"
        try:
            result = experiment.load(made)
        except LabError as unreadable:  # a row has a value that its class does not declare
            return Outcome(slug, FAILED, seconds, unreadable.problem)
        if result.size != size:
            return Outcome(
                slug, SKIPPED, seconds, f"{result.size}: it does not fit into this GPU's memory, and a part is not recorded"
            )
        broken = [claim for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds]
        if broken:
            words = [f"exact claim fails: {claim.text} [{claim.measured}]" for claim in broken]
            return Outcome(slug, FAILED, seconds, "\n".join(words))
        content, picture = made.read_bytes(), made.with_suffix(".png")
        if len(content) > LARGEST_FILE:
            return Outcome(slug, FAILED, seconds, f"its file has {len(content) / 1e6:.1f} MB, more than 1 MB: thin its curves.")
        if on_cpu and (busy := disturbance()):
            return Outcome(slug, BUSY, seconds, f"not kept: the machine was quiet before; after the run, {busy}.")
        atomic_write(folder / made.name, content)
        if picture.is_file():
            atomic_write(pictures / picture.name, picture.read_bytes())
    claims = counted(result.claims) if result.claims else ""
    return Outcome(slug, RECORDED, seconds, ", ".join(filter(None, [claims, "quiet before and after" * on_cpu])))


def _end(text: str, lines: int = 30) -> str:
    return "\n".join(text.splitlines()[-lines:])


def run_cuda_tests(device: str, deadline_seconds: float) -> Outcome:
    """Run the tests of this checkout that are marked `cuda`; skipped, with a reason, where they cannot run."""
    files = [str(p) for p in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in p.read_text(encoding="utf-8")]
    reasons = {
        "no CUDA GPU here": not device.startswith("cuda"),
        "pytest is not installed": importlib.util.find_spec("pytest") is None,
        "this installation has no tests: use a checkout": not files,
        "no time left: run the same command again": deadline_seconds < LEAST_SECONDS,
    }
    for reason, applies in reasons.items():
        if applies:
            return Outcome(TESTS, SKIPPED, 0.0, reason)
    # The project's own options name plugins that a machine without Jupyter lacks.
    options = ["-m", "cuda", "-q", "-rs", "--continue-on-collection-errors", "-o", "addopts=", "-p", "no:cacheprovider"]
    finished = run_python(["-m", "pytest", *options, f"--rootdir={ROOT}", *files], deadline_seconds=deadline_seconds)
    words = _end(finished.stdout + finished.stderr, 200)
    if finished.exitcode == 0:
        return Outcome(TESTS, PASSED, finished.seconds, words.splitlines()[-1])
    return Outcome(TESTS, LATE if finished.exitcode is None else FAILED, finished.seconds, words)


def load_outcomes(path: Path) -> dict[str, Outcome]:
    """The outcomes of earlier calls, by slug; none if the file is missing or damaged."""
    try:
        return _outcomes(path)
    except LabError:
        return {}


@reader("a list of outcomes", "Delete it: the runs are tried again.")
def _outcomes(path: Path) -> dict[str, Outcome]:
    return {item["slug"]: Outcome(**unsealed_record(item)) for item in json.loads(text_of(path, RECORD))}


def save_outcomes(path: Path, outcomes: dict[str, Outcome]) -> None:
    atomic_write(path, json.dumps([sealed_record(asdict(outcome)) for outcome in outcomes.values()], indent=1) + "\n")


def page(outcomes: dict[str, Outcome], untried: Sequence[str], old: dict[str, str], here: dict, size: str) -> str:
    """One page in Markdown: what ran and how long, what was skipped and why, what failed and its traceback.

    old  {slug: commit} of recorded runs that are older than their experiment
    """
    states = Counter(outcome.state for outcome in outcomes.values())
    counts = ", ".join(f"{count} {state}" for state, count in [*states.items(), ("not tried", len(untried))])
    lines = [f"# Runs at size {size} on {machine.label(here)}", "", f"{counts}.", ""]
    if untried:
        lines += [f"Not tried yet: {', '.join(untried)}.", ""]
    if old:
        changed = ", ".join(f"{slug} ({commit})" for slug, commit in old.items())
        lines += [f"Recorded before their experiment last changed (`--again` records them anew): {changed}.", ""]
    if outcomes:
        lines += ["| experiment | outcome | seconds | |", "|---|---|---:|---|"]
    for outcome in outcomes.values():
        first = (outcome.detail.splitlines() or [""])[-1 if outcome.state == FAILED else 0]
        lines.append(f"| {outcome.slug} | {outcome.state} | {outcome.seconds:.1f} | {first.replace('|', '/')} |")
    for outcome in filter(lambda outcome: outcome.is_wrong, outcomes.values()):
        lines += ["", f"## {outcome.slug}", "", "```", outcome.detail, "```"]
    return "\n".join(lines) + "\n"


def main(slug: str, size: str, device: str, folder: str) -> int:
    """Run one experiment here, save its result and its figure; a LabError or a missing package is a reason to skip it."""
    try:
        experiment = find(slug)
        result = experiment(size, device or None)
    except (LabError, ModuleNotFoundError) as error:
        print(f"{error}", file=sys.stderr)
        return NOT_HERE
    result.save(folder)
    if (figure := result.figure()) is not None:
        atomic_write(Path(folder) / f"{slug}.png", style.png(figure))
    return 0
