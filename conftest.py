"""Makes nbval sound over the whole of `notebooks/` (nbval 0.11 with pytest 9) and keeps the tests off the user's settings.

By itself nbval waits 2000 s for a dead kernel, looks for its sanitize file in the current folder, gives up on output after
5 s, ignores a trailing `;`, kills its kernels, and compares stderr and HTML. Each is fixed here, so that replacing nbval would
change this one file.
"""

import base64
import contextlib
import gc
import getpass
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from queue import Empty

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tests"))
import hanging  # noqa: E402
import plan  # noqa: E402

CELL_SECONDS = 600.0  # for a cell that hangs: with a load of 20 on two cores, the slowest took 307 s
OUTPUT_SECONDS = 120.0
STDERR = pytest.StashKey[int]()
TALLY = defaultdict(lambda: [0, 0.0])  # {group: [tests, seconds]} of this run
SHOWN = defaultdict(list)  # {text of a picture's output: [PNG as base64]} of the notebooks that this worker ran
RUNS = {}  # {slug: result} of the experiments that `ran` ran here
WORKER_BYTES = 3_000_000_000  # of a worker with the kernel and the ranks that its tests start

# The kernels that nbval starts inherit these: quick, quiet, and drawing without a screen.
os.environ.setdefault("HPML_SIZE", "quick")
os.environ["MPLBACKEND"] = "agg"
os.environ["HPML_RESULTS"] = ""  # what tests run must not replace the reader's own results
os.environ["HPML_LIVE"] = "0"  # nbval counts a live curve as an output, though it is cleared
# The workers of a parallel run share the cores: with all threads each, they would mostly wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler writes to stderr from C otherwise
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
# torch finds a compiled kernel by its function alone: a run that pretends an older processor has a folder of its own.
_kernels = f"torchinductor-of-tests-{getpass.getuser()}-{os.environ.get('ATEN_CPU_CAPABILITY', 'here')}"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), _kernels))
# jsonschema, which nbformat imports, would build a grammar of international addresses: two seconds in each process.
sys.modules["rfc3987_syntax"] = None
# In a background job of a script Ctrl-C is ignored, also by the programs that it starts. Tests send Ctrl-C to theirs.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # a GPU machine may lack xdist
def pytest_xdist_auto_num_workers():
    """How many workers `-n auto` starts: one more than there are cores, because tests also wait, if the memory holds them."""
    from hpml_lab.core.system.machine import cores, memory_bytes

    return max(1, min(cores() + 1, (memory_bytes() or 0) // WORKER_BYTES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker takes a group at a time: the cells of a notebook share its kernel, and a topic's tests read what it found."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return plan.group_of(nodeid)

    config.pluginmanager.register(hanging.Silence("nightly" in config.option.markexpr, config.stash[STDERR]))
    return ByGroup(config, log)


def pytest_addoption(parser):
    parser.addoption(
        "--topics", default="", metavar="NAMES", help="only these topics: notebook, tests, exercises, and the house"
    )
    parser.addoption("--changed", default="", metavar="REV", help="only what the changes since REV can break, and the house")
    parser.addoption("--store-seconds", action="store_true", help="write tests/seconds.json, by which tests are put in order")


def pytest_ignore_collect(collection_path, config):
    ours = collection_path.is_file() and collection_path.is_relative_to(HERE)
    return True if ours and not plan.CHOSEN.runs(collection_path) else None


def pytest_collection_finish():
    """The million objects of 7,000 collected tests live to the end: the garbage collector need not visit them each time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def load_is_not_said():
    """No result has a note on a busy machine, which the tests themselves keep busy; those of the note have it back."""
    from hpml_lab.core.timing import laps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(laps, "HELD_UP", float("inf"))
        yield


@pytest.fixture(scope="module")
def without_mnist():
    """MNIST was not fetched."""
    from hpml_lab.core.system.errors import LabError

    def absent():
        raise LabError("MNIST was not found.", "Fetch it.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpml_lab.data.sets.read_mnist", absent)
        yield


@pytest.fixture(scope="module")
def on_digits(without_mnist):
    """(slug, parameters) -> result: run an experiment on a small part of digits."""
    from hpml_lab.core.experiment import Params
    from hpml_lab.core.experiment.registry import find
    from hpml_lab.core.system import machine
    from hpml_lab.core.system.device import choose_device

    def run(slug, **parameters):
        experiment = find(slug)
        result = experiment.function(Params(size="quick", device=choose_device("cpu"), **parameters))
        result.experiment, result.slug, result.size, result.device = experiment, slug, "quick", "cpu"
        result.machine = dict(machine.describe())
        return result

    return run


@pytest.fixture(scope="session")
def ran():
    """(slug) -> the result at quick on a CPU that the topic's notebook got in this run of the tests, or that is got here.

    The notebook stands first in its topic's group, so nothing that it has measured is measured again. What it has found on a
    GPU is no result of the CPU.
    """
    from hpml_lab.core.experiment.registry import find

    def result(slug):
        folder = results_of_this_run()
        found = find(slug).load(folder / f"{slug}.json") if (folder / f"{slug}.json").is_file() else None
        if found is None or (found.size, found.device) != ("quick", "cpu"):
            if slug not in RUNS:
                RUNS[slug] = find(slug)("quick", device="cpu")
            found = find(slug).load(RUNS[slug].save(folder / "of tests"))
        found.is_from_file = True
        return found

    return result


@pytest.fixture(scope="session")
def as_shown(same_picture):
    """(result, figure, draw) -> bool: the figure is that of the run itself, before its result was in a file.

    Of a result of `ran` it is what the notebook showed. By default it is the experiment's own, otherwise that of `draw`.
    """

    def compare(result, figure, draw=None):
        from_file = vars(result).get("is_from_file")
        if not from_file or result.slug in RUNS:
            run = RUNS[result.slug] if from_file else result
            return same_picture(figure, run.figure() if draw is None else draw(run).figure)
        caption = result.experiment.caption if draw is None else " ".join(draw.__doc__.split())
        shown = SHOWN[f"Figure: {caption}"] + SHOWN[f"Figure: This run, {result.size}: {caption}"]
        return any(same_picture(figure, base64.b64decode(picture)) for picture in shown)

    return compare


@pytest.fixture(scope="session")
def same_picture():
    """(figure, figure) -> bool: as large, and alike but for a few pixels. Each is a figure, or its PNG.

    Bytes are not compared: the solver of the layout may round differently from figure to figure, and pytest would spend
    minutes on the difference of two files.
    """
    import io

    import numpy as np
    from PIL import Image

    from hpml_lab.core.show import style

    def pixels(figure):
        png = figure if isinstance(figure, bytes) else style.png(figure)
        return np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=float)

    def compare(a, b):
        a, b = pixels(a), pixels(b)
        return a.shape == b.shape and bool(np.mean(np.abs(a - b) > 32) < 0.01)

    return compare


@pytest.fixture
def sound(tmp_path, as_shown):
    """(result) asserts what holds of every experiment: exact claims hold, if it has any, and read the same on every machine,
    and the figure of the saved file is the figure of the run, with labeled axes."""
    import re

    from hpml_lab.core.experiment.registry import load_result
    from hpml_lab.core.system import machine

    def check(result):
        result.machine = result.machine or dict(machine.describe())  # the registry adds it, where it runs the experiment
        exact = [claim for claim in [*result.claims, *result.checks] if claim.exact]
        assert [(claim.text, claim.measured) for claim in exact if not claim.holds] == []
        assert [claim.text for claim in exact if re.search(r"cuda|µs|torch 2\.", claim.text)] == []
        loaded = load_result(result.save(tmp_path))
        figure = loaded.figure()
        assert as_shown(result, figure)
        curves = [axes for axes in figure.axes if axes.axison and axes.lines]
        assert not curves or any(axes.get_xlabel() and axes.get_ylabel() for axes in curves)

    return check


@pytest.fixture
def nothing_left(monkeypatch):
    """After the test no process lives that it started, directly or through others, children of init included."""
    from multiprocessing import resource_tracker

    import psutil

    resource_tracker.ensure_running()  # stays with this process, so it must not have the mark
    monkeypatch.setenv("HPML_TEST_MARK", mark := f"{time.time_ns()}")
    yield
    left, end = [True], time.monotonic() + 5  # what was killed with its group may not have got to its end yet
    while left and time.monotonic() < end:
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HPML_TEST_MARK") == mark:
                    left.append(process.cmdline())
    assert left == []


@pytest.fixture
def own_experiments(monkeypatch):
    """The experiments are those that the test registers, not the workbook's."""
    from hpml_lab.core.experiment import catalogue, registry

    def listed():
        found = registry.all_experiments()
        return [catalogue.Listed(row.slug, row.notebook, row.lecture, row.title, row.function.__module__) for row in found]

    monkeypatch.setattr(registry, "import_topics", lambda part: {})
    monkeypatch.setattr(registry, "_REGISTRY", {})
    monkeypatch.setattr(catalogue, "catalogue", listed)


@pytest.fixture
def small_group():
    """(words, quota): the words in front of a command start it in a control group of its own with that quota of cores."""
    files = {"cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"}, "": {"cpu.max": "10000 100000"}}
    for mounted, texts in files.items():  # version 1, and 2
        group = Path("/sys/fs/cgroup", mounted, f"hpml-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                for name, text in texts.items():
                    with open(group / name, "r+", encoding="utf-8") as file:  # never a new one
                        file.write(text)
                yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")], 0.1
                return
            finally:
                group.rmdir()
    pytest.skip("no control group may be made here")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with hanging.watched(item, item.config.stash[STDERR]):
        return (yield)


def pytest_runtest_teardown(item):
    """Keep the pictures that a notebook's cell has shown, for `as_shown`."""
    for output in getattr(item, "test_outputs", None) or []:
        if png := output.get("data", {}).get("image/png"):
            SHOWN[output["data"].get("text/plain")].append(png)


def results_of_this_run():
    """Where the notebooks' kernels keep their results, for `ran`."""
    return Path(os.environ["HPML_TEST_RUN"]) / "results"


def pytest_configure(config):
    config.stash[STDERR] = os.dup(2)  # during a test this is a file of pytest's, which is lost when the process ends
    for name in ("SIGHUP", "SIGQUIT"):  # ignored under nohup and in a shell's background: programs that tests start inherit it
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if hasattr(config, "workerinput"):
        plan.CHOSEN = plan.Plan.read(Path(os.environ["HPML_TEST_RUN"]) / "plan.json")
    else:
        os.environ["HPML_TEST_RUN"] = tempfile.mkdtemp(prefix="hpml-tests-")  # the workers inherit it
        results_of_this_run().mkdir()
        try:
            plan.CHOSEN = plan.planned(config.option.topics, config.option.changed)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        plan.CHOSEN.write(Path(os.environ["HPML_TEST_RUN"]) / "plan.json")
    if not config.pluginmanager.hasplugin("nbval"):
        return  # a GPU machine without Jupyter: only the tests that need no notebook run there
    config.option.nbval_sanitize_with = config.option.nbval_sanitize_with or str(HERE / "tests" / "sanitize.cfg")
    config.option.nbval_cell_timeout = min(config.option.nbval_cell_timeout, CELL_SECONDS)

    from nbval.kernel import RunningKernel

    def await_reply(self, msg_id, timeout=None):
        """Wait for a cell's reply in steps of a second, so that a dead kernel is noticed."""
        end = time.monotonic() + (CELL_SECONDS if timeout is None else timeout)
        while True:
            try:
                message = self.get_message(stream="shell", timeout=1.0)
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the notebook's kernel died in this cell") from None
                if time.monotonic() >= end:
                    raise
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                if message["content"]["status"] == "aborted":
                    raise RuntimeError("the kernel aborted this cell")
                return

    def execute_cell_input(self, cell_input, allow_stdin=None):
        """Send a cell with history on: without it IPython takes a trailing `;` for nothing."""
        return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)

    def stop(self):
        """Let multiprocessing put its things away, then end the kernel: killed with them, it leaves semaphores and sockets.

        A kernel that only is asked to end waits for the tracker of semaphores, which ends after it, until both are killed.
        """
        if self.is_alive():
            self.kc.execute("import multiprocessing.util as _util; _util._exit_function()", silent=True)
            with contextlib.suppress(Empty):
                self.kc.get_shell_msg(timeout=10)
        self.kc.stop_channels()
        self.km.shutdown_kernel(now=True)
        del self.km

    def start(self, *args, **kwargs):
        """Start a kernel that keeps its results, for the tests of its topic."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HPML_RESULTS", str(results_of_this_run()))
            begin(self, *args, **kwargs)

    begin, RunningKernel.__init__ = RunningKernel.__init__, start
    RunningKernel.await_reply, RunningKernel.execute_cell_input = await_reply, execute_cell_input
    RunningKernel.stop = stop


def pytest_unconfigure(config):
    # What is frozen is not freed at the end of the process, which Triton's binding reports below pytest's summary:
    # "nanobind: leaked 514 functions!" and two dozen lines more from each worker.
    gc.unfreeze()
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop("HPML_TEST_RUN"), ignore_errors=True)


def pytest_collectstart(collector):
    if type(collector).__name__ == "IPyNbFile":
        # Progress lines, drawings and tables with measured figures: never the same twice. The text next to them is compared.
        collector.skip_compare += ("stderr", "text/html", "image/svg+xml", "application/javascript")


def why_at_night(item):
    """Why a test waits for `make nightly`; None if it does not. A mark without a reason ends the run."""
    for mark in (item.get_closest_marker("nightly"), item.get_closest_marker("environment")):
        if mark and not mark.args:
            raise pytest.UsageError(f'{item.nodeid}: say why it waits for the night: @pytest.mark.{mark.name}("a few words")')
        if mark and mark.name == "nightly":
            return f"{mark.args[0]}: runs with `make nightly`"
        if mark and not plan.CHOSEN.touches((plan.relative(item.path), *mark.kwargs["files"])):
            return f"{mark.args[0]}: runs with `make nightly`, or where its files changed"
    return None


def pytest_collection_modifyitems(config, items):
    asked = config.option.markexpr
    places = {}
    for item in items:
        is_cell = type(item).__name__ == "IPyNbCell"
        if is_cell:
            item.output_timeout = OUTPUT_SECONDS
            item.add_marker(pytest.mark.notebook)
        if "nightly" not in asked and (why := why_at_night(item)):
            item.add_marker(pytest.mark.skip(reason=why))
        if item.get_closest_marker("cuda"):  # not item.keywords: a parameter may be called cuda too
            import torch

            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
        group = plan.group_of(item.nodeid)
        places[item] = -plan.last_seconds(group), group, not is_cell
    # The longest group first, so that no worker ends with one; a notebook before its topic's tests.
    items.sort(key=places.__getitem__)


def pytest_runtest_logreport(report):
    """Count tests and seconds by group. With workers, their reports arrive at the process that started them."""
    group = plan.group_of(report.nodeid)
    TALLY[group][0] += report.when == "setup"
    TALLY[group][1] += report.duration


def pytest_terminal_summary(terminalreporter, config):
    """How many tests each topic had, and their seconds: a run that lost some shows it."""
    terminalreporter.section("tests and seconds by topic", sep="-")
    topics = defaultdict(lambda: [0, 0.0])
    for group, (tests, seconds) in TALLY.items():
        name = group.removeprefix("exercises of ").removeprefix("tests/").partition("::")[0]
        name = name.partition("/")[0].removesuffix(".py")
        topics[name][0] += tests
        topics[name][1] += seconds
    parts = [f"{name} {tests} ({seconds:.0f} s)" for name, (tests, seconds) in sorted(topics.items())]
    terminalreporter.write_line(", ".join(parts))
    if config.option.store_seconds:
        # A group of which everything was skipped, such as a long test by day, keeps the seconds that it had.
        plan.store_seconds({group: round(seconds, 1) for group, (_, seconds) in TALLY.items() if seconds})
