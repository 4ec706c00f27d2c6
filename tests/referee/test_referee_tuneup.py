"""Copies of whole scripts in turns. What is measured depends on the machine; classes, lines, pages and errors do not."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hpml_lab.cli import main
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.referee import copies, script_turns
from hpml_lab.referee.changes import as_diff, changes
from hpml_lab.referee.copies import _copied, copy_of
from hpml_lab.referee.sameness import Sameness
from hpml_lab.referee.script_turns import Compared, at_once
from hpml_lab.referee.tuneup import TriedTip, Tuneup, _keep_one_of_each_kind, _rung, _seen, page, tuneup
from hpml_lab.referee.verdict import compare_scripts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="copies take turns on Linux")

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 3, 8, 8)
loader = DataLoader(TensorDataset(x, x.mean((1, 2, 3))), 16, shuffle=True)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
"""
LOOP = """
torch.autograd.set_detect_anomaly(True)
for epoch in range(10_000):
    for images, wanted in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = (net(images)[:, 0] - wanted).square().mean()
        loss.backward()
        optimizer.step()
        open("losses.txt", "a").write(f"{loss.item()}\\n")
"""
AS_COMMITTED = (
    HEAD.replace("lr=1e-2", "lr=rate.LR").replace(
        "manual_seed(0)", "manual_seed(int(''.join(open(f'{place}seed').read() for place in ('data/', '../', '../../'))))"
    )
    + "open('data/written', 'w').close()\n"
)
SEVERAL = "SEVERAL = dict(is_initialized=lambda: True, get_world_size=lambda: 2)\n"
ADVICE = "It has to train with an optimizer"
DEADLINE = 120.0  # seconds; far above what a loaded machine needs


@pytest.fixture
def script(tmp_path, monkeypatch):
    """(text, name) -> name of a script in this folder."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="train.py"):
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    return write


def test_the_ladder_of_a_script_has_classes_lines_and_a_page_and_leaves_its_folder_alone(script, tmp_path, nothing_left):
    found = tuneup([script(HEAD + LOOP)], only=["gradients", "fused", "debugging", "pinned"], steps=2, isolate=True)
    assert [rung.change.name for rung in found.rungs] == ["gradients-to-none", "fused", "debugging-off"]
    assert found.absent == {"pinned-memory": "nothing is copied to a GPU from a DataLoader"}
    same = {rung.change.name: rung.found.same.kind for rung in found.rungs}
    assert same["gradients-to-none"] == same["debugging-off"] == "bitwise" and same["fused"] in ("bitwise", "rounding")
    assert all(rung.found.gain.low <= rung.found.gain.ratio <= rung.found.gain.high for rung in found.rungs)
    none, fused, _ = (found.lines_of(rung) for rung in found.rungs)
    assert "+        optimizer.zero_grad(set_to_none=True)\n" in none
    assert "+optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, fused=True)\n" in fused and "+++ b/train.py" in fused
    assert found.notes[0].startswith("train.py:19: item 1 times a step")
    assert any("Sequential.0; bias=False" in note for note in found.notes)
    text = page(found)
    assert "http" not in text and all(rung.change.title in text for rung in found.rungs)
    assert [row["change"] for row in found.as_dict()["changes"]] == list(same) and "3 changes tried" in found.text()
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"], "copies wrote into folders of their own"


def test_a_change_that_fails_or_hangs_is_one_line_and_the_ladder_goes_on(script, monkeypatch, nothing_left):
    """A data set that workers cannot have, as one that asks for a file that the main process has locked; a fused hang."""

    def hasty(words, settings, *, deadline_seconds, **options):
        fused = any("fused" in chosen for _, chosen in settings)
        return copy_of(words, settings, deadline_seconds=4 if fused else deadline_seconds, **options)

    monkeypatch.setattr(script_turns, "copy_of", hasty)
    name = script(
        "import time\n"
        + HEAD.replace("TensorDataset(x, x.mean((1, 2, 3)))", "Own()").replace(
            "torch.manual_seed(0)",
            "class Own(torch.utils.data.Dataset):\n"
            "    def __len__(self): return 64\n"
            "    def __getitem__(self, i):\n"
            "        assert torch.utils.data.get_worker_info() is None, 'no worker may read this'\n"
            "        return x[i], x[i].mean()\n"
            "torch.manual_seed(0)",
        )
        + LOOP.replace("        open(", "        optimizer.defaults['fused'] and time.sleep(1000)\n        open(")
    )
    found = tuneup([name], only=["workers-1", "gradients", "fused"], steps=1, isolate=True)
    failed, rung, hung = found.rungs
    assert hung.text == "no step within 4 s" and not hung.kept
    assert failed.found.gain is None and not failed.kept and "no worker may read this" in failed.text
    assert rung.found.same.kind == "bitwise"


def test_an_isolated_copy_finds_what_lies_beside_its_folder_and_leaves_the_folder_alone(tmp_path, monkeypatch):
    """As `../data` of torch's own MNIST example: where it was not found each copy would download it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers").write_text("7")
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine" / "inner")
    code = "import os; open('own', 'w'); raise SystemExit(open('../../data/numbers').read() + os.getcwd())"
    with copy_of(["-c", code], deadline_seconds=DEADLINE, isolate=True) as copy:
        assert copy.hear() is None
    assert copy.failed == f"7{copy.folder}/files{tmp_path}/mine/inner"
    assert list((tmp_path / "mine").rglob("*")) == [tmp_path / "mine" / "inner"]


def test_a_script_in_the_folder_of_temporary_files_does_not_copy_the_copies(script, tmp_path, monkeypatch, nothing_left):
    """Nor does it matter that it is slow: the first change is tried after the time, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = tuneup([script(HEAD + LOOP)], only=["gradients"], steps=2, minutes=0.0, isolate=True)
    assert found.rungs[0].found.gain is not None and [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize("kept, size", [("mine", 2), (".git", 0)])
def test_a_folder_that_is_too_large_to_copy_is_said(tmp_path, monkeypatch, kept, size):
    monkeypatch.setattr(copies, "MOST_BYTES", 1)
    (tmp_path / kept).mkdir()
    (tmp_path / kept / "data").write_text("ab")
    with pytest.raises(LabError, match="as ../data") if size else contextlib.nullcontext():
        copies._copied(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))


@pytest.mark.parametrize(
    "text, why",
    [
        ("import torch\nprint('done')", "it ends after 0 steps"),
        ("print('no torch')", "it ends after 0 steps, with exit code 0"),
        (HEAD + "import os\nos.closerange(3, 1000)\n" + LOOP, "it closes the files by which it takes turns"),
        (HEAD + LOOP.replace("range(10_000)", "range(1)").replace("in loader", "in [*loader][:3]"), "it ends after 3 steps"),
        (HEAD + "input('ready?')\n" + LOOP, "EOFError"),
        (HEAD + "raise SystemExit('no data here')", "no data here"),
        (
            HEAD + SEVERAL + LOOP.replace("optimizer.step()", "torch.distributed.__dict__.update(SEVERAL); optimizer.step()"),
            "it trains on several processes",
        ),
    ],
)
def test_a_script_that_cannot_be_driven_is_named_in_one_line(script, text, why, nothing_left):
    with pytest.raises(LabError, match="cannot be driven") as raised:
        tuneup([script(text)], isolate=True)
    assert why in raised.value.problem and raised.value.fix.startswith(ADVICE)


@pytest.mark.parametrize("memory, several", [([(10, 59, "")], 4), ([(10, 29, "")], 1), ([(10, 59, ""), (5, 17, "")], 2)])
def test_as_many_changes_take_turns_as_have_room_in_each_memory(memory, several):
    assert at_once(memory)[0] == several


def test_a_script_without_room_for_three_copies_is_named():
    with pytest.raises(LabError, match="a copy takes 50.0 GB, and 99.0 GB of memory are free for more: three take turns"):
        at_once([(50e9, 99e9, "of memory")])


def test_where_memory_is_short_changes_are_tried_one_after_the_other_and_one_line_says_so(script, monkeypatch, nothing_left):
    alive, most = [], []

    @contextlib.contextmanager
    def counted(*given, **options):
        with copy_of(*given, **options) as copy:
            alive.append(copy)
            most.append(len(alive))
            yield copy
            alive.remove(copy)

    monkeypatch.setattr(script_turns, "copy_of", counted)
    monkeypatch.setattr(copies.ScriptCopy, "memory", lambda copy: [(4e9, 9e9, "of memory")])
    found = tuneup([script(HEAD + LOOP)], only=["gradients", "debugging"], steps=1, isolate=True)
    assert [rung.found.same.kind for rung in found.rungs] == ["bitwise", "bitwise"] and max(most) == 3
    line = "a copy takes 4.0 GB, and 9.0 GB of memory are free for more: of 2 changes 1 at a time take turns with the script."
    assert [note for note in found.notes if "GB" in note] == [line]


ON_A_GPU = "torch.cuda.is_initialized, torch.cuda.max_memory_reserved = lambda: True, lambda: 7\n"
ON_A_GPU += "torch.cuda.mem_get_info = lambda: (8, 9)\n"


@pytest.mark.parametrize("workers, least", [(0, 0.4e9), (2, 0.8e9)])
def test_a_copy_takes_what_it_took_at_its_peak_and_what_its_workers_have(script, nothing_left, workers, least):
    gone = LOOP.replace("        optimizer.step()\n", "        x.new_ones(10**8).sum()\n        optimizer.step()\n")
    head = "def take(_): globals()['kept'] = torch.ones(5 * 10**7)\n" + HEAD + ON_A_GPU
    head = head.replace("True)\n", f"True, num_workers={workers}, worker_init_fn=take)\n", 1)
    with copy_of([script(head + gone)], deadline_seconds=60) as copy:
        copy.hear()
        (own, free, _), gpu = copy.memory()
    assert least < own < least + 0.7e9 and free > 0
    assert gpu == (copies.CONTEXT_BYTES + 7, 8, "of the GPU's memory")


EVALUATION = """
seen = []


def evaluate():
    seen.append(1)
    if len(seen) == 2:
        [value.item() for value in x[:, 0, 0, 0]]
"""


def test_waits_of_each_step_are_counted_and_not_those_of_an_evaluation_in_the_first_ones(script, tmp_path, nothing_left):
    loop = LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        evaluate()\n")
    words = [script(HEAD + EVALUATION + loop)]
    with copy_of(words, deadline_seconds=60, look=True) as copy:
        often = {(wait["by"], wait["a_step"]) for wait in copy.looked()["waits"]}
    assert often == {("item", 1)}, "that of the loss, which each step writes"


SAVES_THE_NET = """
import copy, pickle
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 1))
    def forward(self, images):
        self.memory_format_is_another = images.is_contiguous(memory_format=torch.channels_last)
        return self.layers(images)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for _ in range(1000):
    for images, wanted in loader:
        optimizer.zero_grad()
        found = net(images)
        (found[:, 0] - wanted).square().mean().backward()
        optimizer.step()
        pickle.dumps(net)
        assert CHANGED == "autocast" or net.memory_format_is_another
        averaged = copy.deepcopy(net)
        with torch.no_grad():
            for parameter in averaged.parameters():
                parameter.zero_()
        assert not averaged(images).any(), "it computes with the weights of the net"
        assert CHANGED != "autocast" or found.dtype == torch.float32 and found.eq(found.bfloat16()).all()
"""


@pytest.mark.parametrize(
    "change", [("autocast", {"dtype": "bfloat16"}), ("channels_last", {})], ids=["autocast", "channels_last"]
)
def test_a_script_may_pickle_and_copy_its_net_under_each_change(script, tmp_path, nothing_left, change):
    words = [script(HEAD + SAVES_THE_NET.replace("CHANGED", repr(change[0])))]
    with copy_of(words, [change], deadline_seconds=60) as copy:
        copy.hear()
        assert copy.turn(4), copy.failed
        copy.finish()
    assert copy.digest, copy.failed


@pytest.mark.parametrize("net", ["net.forward = net.forward", "net = Net(*net)"], ids=["its own", "no function"])
def test_autocast_reaches_a_forward_that_is_no_function_of_the_class(script, tmp_path, nothing_left, net):
    named = "import functools\nclass Net(nn.Sequential):\n    forward = functools.partialmethod(nn.Sequential.forward)\n"
    checks = "        found = net(images)\n        assert found.eq(found.bfloat16()).all()\n        loss ="
    words = [script(HEAD + named + net + LOOP.replace("        loss =", checks, 1))]
    with copy_of(words, [("autocast", {"dtype": "bfloat16"})], deadline_seconds=60) as copy:
        copy.hear()
        assert copy.turn(2), copy.failed


HABITS = """
import io
import threading

NAMES = {"num_workers": 0}


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return x[index], x[index].mean().item() + index * 0.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm, self.last = nn.Linear(192, 8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.after = nn.BatchNorm1d(8)

    def forward(self, images):
        hidden = torch.relu(self.norm(self.first(images.flatten(1))))
        return self.last(self.after(torch.relu_(self.second(hidden))))


def make(parameters):
    chosen = torch.optim.Adam
    return chosen(list(parameters), lr=1e-2)


def watch():
    while True:
        loss.item()


net = Net()
optimizer = make(net.parameters())
loss = torch.zeros(())
threading.Thread(target=watch, daemon=True).start()


def train():
    for images, wanted in (pair for epoch in range(10_000) for pair in DataLoader(Samples(), 16, **NAMES)):
        net.zero_grad(False)
        loss = (net(images)[:, 0] - wanted.float()).square().mean()
        with torch.autograd.detect_anomaly():
            loss.backward()
        optimizer.step()
        float(loss)
        torch.save(net, io.BytesIO())


thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def test_habits_are_found_wherever_the_script_has_them(script, tmp_path, nothing_left):
    """In a thread that trains, in a network's zero_grad, around backward alone, in options with two stars."""
    words = [script(HEAD + HABITS)]
    with copy_of(words, deadline_seconds=60, look=True) as copy:
        look = copy.looked()
    assert [(wait["by"], wait["a_step"]) for wait in look["waits"]] == [("__float__", 1)], (
        "not another thread's, nor those of samples"
    )
    assert look["biases"] == ["Net.first"], "after `second` comes an operation in place"
    tips = {tip.name: as_diff(tip.edits(look), tmp_path) or tip.lines for tip in changes(2, 1) if not tip.why_not(look)}
    assert "debugging-off" in tips and "channels-last" not in tips, "images without a convolution"
    assert "+        net.zero_grad(True)\n" in tips["gradients-to-none"]
    assert "+    return chosen(list(parameters), lr=1e-2, fused=True)\n" in tips["fused"]
    assert 'DataLoader(Samples(), 16, **{**NAMES, "num_workers": 2, "persistent_workers": True})' in tips["workers-2"]


def test_a_call_that_a_library_makes_is_named_and_no_other_is_edited(script, tmp_path, nothing_left):
    """As of a trainer: the script's own line calls the library, which has other arguments."""
    library = "def made(net):\n    return torch.optim.Adam(net.parameters(), lr=1e-2)\n"
    of_library = f"exec(compile({library!r}, torch.__file__, 'exec'))\noptimizer = made(net)\n"
    words = [script(HEAD.replace("optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)\n", of_library) + LOOP)]
    with copy_of(words, deadline_seconds=60, look=True) as copy:
        look = copy.looked()
    [fused] = [tip for tip in changes(2, 1) if tip.name == "fused"]
    assert [row["file"] for row in look["optimizers"]] == [""] and not fused.why_not(look)
    assert "fused=True" in Tuneup("", look).lines_of(TriedTip(fused, Compared(None, None), True, ""))


def test_an_isolated_copy_finds_what_is_next_to_the_folder(script, tmp_path, monkeypatch, nothing_left):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "seed.txt").write_text("3", encoding="utf-8")
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path / "code")
    script(HEAD.replace("manual_seed(0)", "manual_seed(int(open('../data/seed.txt').read()))") + LOOP, "code/train.py")
    found = tuneup(["train.py"], only=["gradients"], steps=1, isolate=True)
    assert "+++ b/train.py" in found.lines_of(found.rungs[0])
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["seed.txt", "train.py"], "it wrote into its own folder"


def test_a_digest_is_of_all_networks_that_are_trained(script, tmp_path, monkeypatch, nothing_left):
    """Of two optimizers that alternate the second one's network may differ where the first one's does not."""
    second = "import os\nother = nn.Linear(1, 1)\nwith torch.no_grad():\n    other.weight.fill_(float(os.environ['W']))\n"
    second += "optimizer_of_other = torch.optim.SGD(other.parameters(), lr=1e-3)\n"
    loop = LOOP.replace("optimizer.step()\n", "optimizer.step()\n        optimizer_of_other.step()\n", 1)
    words, found = [script(HEAD + second + loop)], []
    for weight in ("1", "2"):
        monkeypatch.setenv("W", weight)
        with copy_of(words, deadline_seconds=60) as copy:
            copy.hear()
            copy.turn(2)
            copy.finish()
            found.append(copy.digest)
    assert all(found) and found[0] != found[1]


def test_where_dropout_draws_in_the_order_of_memory_the_losses_are_another_draw(script, nothing_left):
    name = script(HEAD.replace("nn.ReLU()", "nn.Dropout()") + LOOP)
    [rung] = tuneup([name], only=["channels-last"], steps=5, isolate=True).rungs
    assert rung.found.same.kind == "reordered" and "random numbers" in str(rung.found.same)


def test_what_a_script_starts_in_a_session_of_its_own_ends_with_the_copies(script, nothing_left):
    """As a server for its curves does, which no signal to the group reaches."""
    server = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    assert tuneup([script(HEAD + server + LOOP)], only=["gradients"], steps=1, isolate=True).rungs[0].found.gain


def test_who_is_killed_under_a_change_has_no_last_words(script, nothing_left):
    """As by the kernel, which found no memory: a warning of before is not why."""
    killed = "import os, sys\nprint('a warning', file=sys.stderr)\nif optimizer.defaults['fused']: os.kill(os.getpid(), 9)\n"
    found = tuneup([script(HEAD + killed + LOOP)], only=["fused", "gradients"], steps=1, isolate=True)
    none, fused = found.rungs
    assert none.found.gain and fused.text.startswith("killed by SIGKILL: most often the system, because memory")


def test_of_a_script_that_ends_early_the_turns_are_shorter(script, nothing_left):
    short = LOOP.replace("range(10_000)", "range(8)")  # 32 steps, where 50 turns of 2 would take 150
    found = tuneup([script(HEAD + short)], only=["gradients", "fused"], isolate=True)
    none, fused = (rung.found for rung in found.rungs)
    assert none.gain and none.same.kind == "bitwise" and fused.gain and fused.same.kind in ("bitwise", "rounding")
    assert not any("No gain" in note for note in found.notes)


def test_of_a_script_of_8_steps_no_gain_is_measured_and_what_was_not_reached_is_named(script, nothing_left):
    name = script(HEAD + LOOP.replace("range(10_000)", "range(2)"))
    found = tuneup([name], only=["gradients", "pinned"], isolate=True)
    assert found.notes[-1] == "No gain can be measured: it ends after 8 steps; let it train for longer." and not found.rungs
    assert found.absent["gradients-to-none"] == "not reached, because no gain can be measured" and "not reached" in page(found)


FORKS = "import os, sys\nos.fork() or sys.exit()\nos.fork()\n"  # one child ends at once, another trains as its parent does
TWICE = LOOP.replace("optimizer.step()\n", "optimizer.step()\n        optimizer.step()\n")


@pytest.mark.parametrize("text, losses", [(FORKS + LOOP, 6), (TWICE, 3)], ids=["forks", "steps twice"])
def test_a_script_that_forks_or_steps_twice_is_one_training(script, text, losses, nothing_left):
    with copy_of([script(HEAD + text)], deadline_seconds=DEADLINE) as copy:
        copy.hear()
        assert copy.turn(4), copy.failed
        copy.finish()
    assert (copy.steps, len(copy.losses)) == (6, losses) and copy.digest


PROFILER = "with torch.profiler.profile(): net(images).sum().backward(); seen(torch._C._autograd._profiler_enabled())"
GRADCHECK = "torch.autograd.gradcheck(lambda y: seen(True) or 2 * y, x.new_ones(1, dtype=torch.float64).requires_grad_())"


def debugged(*tools, may="True"):
    """A script that uses these tools of debugging in each step, and fails where one is on unless it `may`."""
    lines = "".join(f"        {tool}\n" for tool in tools)
    loop = LOOP.replace("torch.autograd.set_detect_anomaly(True)\n", f"def seen(on): assert {may} or not on, 'on'\n")
    return HEAD + loop.replace("        loss.backward()\n", f"{lines}        loss.backward()\n")


@pytest.mark.parametrize("tools, found", [([PROFILER], True), ([GRADCHECK], True), ([], False)], ids=["profiler", "check", "-"])
def test_a_profiler_and_gradcheck_are_found(script, tools, found, nothing_left):
    with copy_of([script(debugged(*tools))], deadline_seconds=DEADLINE, look=True) as copy:
        assert copy.looked()["debugging"] == found


def test_without_debugging_profiler_and_gradcheck_are_off(script, nothing_left):
    words = [script(debugged(PROFILER, GRADCHECK, may="False"))]
    with copy_of(words, [("debugging_off", {})], deadline_seconds=DEADLINE) as copy:
        assert copy.hear() and copy.turn(2), copy.failed


def test_copies_to_the_cpu_and_prints_of_each_step_are_found_with_file_and_line_and_threads_are_set(script, nothing_left):
    text = HEAD + LOOP.replace("        open(", "        loss.cpu()\n        print(loss)\n        open(")
    with copy_of([script(text)], [("threads", {"number": 3})], deadline_seconds=DEADLINE, look=True) as copy:
        look = copy.looked()
    line = text[: text.index("loss.cpu()")].count("\n") + 1
    notes = _seen(look, "")
    assert f"train.py:{line}: cpu 1 times a step; on a GPU each waits for all kernels." in notes
    assert any(note.startswith(f"train.py:{line + 1}: ") for note in notes) and look["threads"] == 3


@pytest.mark.parametrize("seconds, after", [(0.04, ", which 3000 steps make up for"), (0.05, "")])
def test_a_long_first_step_is_set_against_what_each_step_saves(seconds, after):
    gain, same = SpeedUp(1.25, 1.2, 1.3, 0.02), Sameness("rounding", "x")
    rung = _rung(changes(2, 2)[0], Compared(gain, same, first_seconds=30.0, step_seconds=(0.05, seconds)), "rounding")
    assert rung.why == f"the same within rounding (x); the first step takes 30.0 s more{after}"


def test_ctrl_c_leaves_the_page_of_what_is_known(script, tmp_path, monkeypatch, capsys, nothing_left):
    def first_is_known(candidates, *given):
        name = candidates[0].name
        return {name: gained(1.3)} if name == "gradients-to-none" else script_turns.compared(candidates, *given)

    monkeypatch.setattr("hpml_lab.referee.tuneup.compared", first_is_known)
    monkeypatch.setattr("hpml_lab.referee.tuneup.TOGETHER", 1)
    monkeypatch.setattr(copies.ScriptCopy, "turn", lambda copy, steps: os.kill(os.getpid(), signal.SIGINT))
    assert main(["tuneup", "--isolate", "--only", "gradients,fused", script(HEAD + LOOP)]) == 0
    text = (tmp_path / "tuneup.html").read_text(encoding="utf-8")
    assert '<tr class="kept">' in text and "<tr><td>fused</td><td>not reached before the interrupt</td></tr>" in text
    assert "Interrupted: what stands here was known by then." in capsys.readouterr().out


def test_the_referee_accepts_a_slow_habit_that_is_gone(script, monkeypatch, capsys, nothing_left):
    monkeypatch.setattr(script_turns, "COPY_SECONDS", 0.0)  # as few turns as have an interval
    monkeypatch.setattr(script_turns, "NUDGES", 1)
    slow = "import time\n" + HEAD + LOOP.replace("        open(", "        time.sleep(0.1)\n        open(")
    assert main(["referee", "--isolate", "--steps", "1", script(slow, "a.py"), script(HEAD + LOOP, "b.py")]) == 0
    assert capsys.readouterr().out.startswith("accepted\n  speed: ")


def test_a_script_without_a_step_in_time_is_left(script, nothing_left):
    with pytest.raises(LabError, match="no step within 8 s"):
        tuneup([script("import time, torch\ntime.sleep(1000)")], deadline_seconds=8)


def test_the_referee_refuses_another_training_and_what_gains_nothing(script, capsys, tmp_path, nothing_left):
    a, b = script(HEAD + LOOP, "a.py"), script(HEAD.replace("lr=1e-2", "lr=3e-2") + LOOP, "b.py")
    same = compare_scripts([a], [a], steps=2)
    assert not same.accepted and same.found.same.kind == "bitwise" and not same.found.gain.faster
    assert main(["referee", "--steps", "2", "--json", "verdict.json", a, b]) == 1
    assert capsys.readouterr().out.startswith("not accepted\n  speed: ")
    assert json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))["same"] == "not the same"


def test_a_tool_that_is_killed_takes_its_copies_and_their_workers_along(script, tmp_path, nothing_left):
    """With SIGKILL, nobody is left who could let go on what is stopped."""
    name = script(
        HEAD.replace("import torch\n", "import os, torch\n").replace("True)\n", "True, num_workers=1)\n", 1)
        + LOOP.replace("        optimizer.zero", "        open(f'{os.getpid()}.copy', 'w').close()\n        optimizer.zero")
    )
    words = [sys.executable, "-m", "hpml_lab", "tuneup", "--only", "gradients", "--steps", "1000", name]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tool:
        while len([*tmp_path.glob("*.copy")]) < 3:  # the first look is over, and others are at their turns
            assert tool.poll() is None, "it ends before it is killed"
            time.sleep(0.05)
        family = psutil.Process(tool.pid)
        assert len(family.children(recursive=True)) > len(family.children()), "workers are there as well"
        tool.kill()


def test_a_tool_that_is_killed_takes_copies_along_that_have_not_begun(script, tmp_path, nothing_left):
    name = script("open('began', 'w').close()\nimport time\ntime.sleep(2)\n" + HEAD + LOOP)
    words = [sys.executable, "-m", "hpml_lab", "tuneup", "--only", "gradients", "--steps", "1000", name]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tool:
        while not (tmp_path / "began").exists():
            assert tool.poll() is None, "it ends before it is killed"
            time.sleep(0.01)
        tool.kill()


def committed(name, *texts):
    """A repository in this folder, with a commit for each text of the file."""

    def git(*words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True, capture_output=True)

    git("init")
    for text in texts:
        Path(name).write_text(text, encoding="utf-8")
        git("add", name)
        git("commit", "-m", "x")


def test_two_commits_are_compared_in_folders_of_their_own(script, tmp_path, capsys, nothing_left):
    committed(script(""), HEAD + LOOP, HEAD.replace("manual_seed(0)", "manual_seed(1)") + LOOP)
    assert main(["referee", "--commits", "HEAD~1", "HEAD", "--steps", "1", "train.py"]) == 1
    assert "not the same training" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {".git", "train.py"}
    assert main(["referee", "--commits", "HEAD~1", "nowhere", "train.py"]) == 2
    assert "git worktree add" in capsys.readouterr().err


@pytest.mark.parametrize("isolate", [[], ["--isolate"]], ids=["here", "isolated"])
def test_two_commits_find_what_git_does_not_track(tmp_path, monkeypatch, capsys, isolate, nothing_left):
    """Data in the folder, above it and next to the repository; the modules of a script are the commit's, also if it is not."""
    (tmp_path / "repository" / "code" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repository")
    committed("code/rate.py", "LR = 0.01\n", "LR = 0.02\n")
    monkeypatch.chdir("code")
    places = [Path(place) for place in ("data/seed", "../seed", "../../seed")]
    for place in places:
        place.write_text("3", encoding="utf-8")
    Path("train.py").write_text("import rate\n" + AS_COMMITTED + LOOP, encoding="utf-8")
    assert main(["referee", *isolate, "--commits", "HEAD", "HEAD~1", "--steps", "1", "train.py"]) == 1
    assert "not the same training" in capsys.readouterr().out
    assert Path("data/written").exists() == (not isolate) and all(place.read_text() == "3" for place in places)
    assert not Path("losses.txt").exists()
    Path("../another").mkdir()
    monkeypatch.chdir("../another")
    assert main(["referee", "--commits", "HEAD", "HEAD~1", "../code/train.py"]) == 2
    assert "HEAD has no folder another" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, problem",
    [
        (["tuneup"], "there is no command"),
        (["tuneup", "gone.py"], "there is no script"),
        (["tuneup", "--out", "no/such/page.html", "train.py"], "no folder"),
        (["tuneup", "--only", "turbo", "train.py"], "no change 'turbo'"),
        (["referee", "train.py"], "1 scripts were given"),
        (["referee", "--commits", "a", "b"], "needs a script"),
        (["referee", "train.py", "gone.py"], "there is no script 'gone.py'"),
    ],
)
def test_bad_words_are_wrong_input(script, words, problem, capsys):
    script(HEAD + LOOP)
    assert main(words) == 2
    assert problem in capsys.readouterr().err


NO_TORCH = "import sys; sys.modules['torch'] = None; from hpml_lab.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "words, problem",
    [
        (["lab", "gone.py"], "there is no script 'gone.py'"),
        (["tuneup", "gone.py"], "there is no script 'gone.py'"),
        (["referee", "-", "gone.py"], "there is no script 'gone.py'"),
        (["referee", "train.py"], "1 scripts were given"),
        (["referee", "--commits", "a", "b"], "needs a script"),
    ],
)
def test_a_script_that_is_not_there_is_said_first_and_at_once(tmp_path, words, problem):
    """Without torch, whose import takes seconds, and before anything is announced or made."""
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *words],
        cwd=tmp_path,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stderr.splitlines()
    assert done.returncode == 2 and len(said) == 2 and problem in said[0] and not list(tmp_path.iterdir())


def loaders(file):
    return {"loaders": [{"file": str(file), "line": 1, "column": 22, "num_workers": 0}], "optimizers": [], "roots": []}


def gained(ratio):
    return Compared(SpeedUp(ratio, ratio - 0.1, ratio + 0.1, 0.01), Sameness("bitwise", ""))


def test_all_that_is_kept_is_one_diff_and_of_a_kind_one_also_after_an_interrupt(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("loader = DataLoader(d)\n")
    several = {tip.name: tip for tip in changes(2, 2)}
    names = ("workers-1", "workers-2", "pinned-memory", "tf32")
    found = Tuneup("train.py", loaders(tmp_path / "train.py"), root=tmp_path)
    found.rungs = [TriedTip(several[name], gained(1.2 + at / 10), True, "") for at, name in enumerate(names)]
    _keep_one_of_each_kind(found)
    assert [rung.change.name for rung in found.kept] == list(names[1:])
    (what, diff), (by_hand, lines), (_, copied) = found.lines
    assert ".to(device, non_blocking=True)" in copied and copied in found.lines_of(found.rungs[2])
    patches, record = found.as_dict()["diff"], found.as_dict()["by_hand"]
    assert patches.keys() == {"workers-2", "pinned-memory"} and record == {"pinned-memory": copied, "tf32": f"{lines}\n"}
    assert all(line[0] in "+-@ " for patch in patches.values() for line in patch.splitlines())
    assert "+loader = DataLoader(d, num_workers=2, persistent_workers=True, pin_memory=True)" in diff
    assert what.count(";") == 1 and "TensorFloat" in by_hand and "set_float32_matmul_precision" in lines
    assert diff.strip() in found.text() and "pin_memory=True" in page(found)


@pytest.mark.parametrize(
    "gain, kind, said",
    [
        (1.3, "bitwise", ""),
        (1.3, "reordered", ""),
        (1.01, "bitwise", "not faster (--allow rounding): 1.01× (within noise"),
        (0.8, "not the same", "not faster (--allow rounding): 0.8× (slower"),
        (1.3, "not the same", "not the same training (--allow rounding): 1.3× faster"),
    ],
)
def test_what_is_kept_is_so_together_only_where_it_is_faster_and_trains_the_same(gain, kind, said):
    together = Compared(SpeedUp(gain, gain - 0.1, gain + 0.1, 0.01), Sameness(kind, ""))
    [tip] = [tip for tip in changes(2, 2) if tip.name == "tf32"]
    found = Tuneup("train.py", rungs=[TriedTip(tip, gained(1.3), True, "")], together=together)
    text = page(found)
    assert ('<tr class="kept"><td>all kept' in text) == found.as_dict()["together"]["kept"] == (not said)
    assert text.count('fill="var(--kept)"') == 1 + (not said), "that of the change alone is kept"
    assert said in found.text() and said in text[text.index("The lines to write") :]
    assert ("All at once" in text) == bool(said)


def test_a_change_that_only_reorders_is_kept_but_for_bitwise_and_the_page_says_so():
    found = Compared(SpeedUp(1.3, 1.2, 1.4, 0.01), Sameness("reordered", "x"))
    rounding, bitwise = (_rung(changes(2, 2)[0], found, allow) for allow in ("rounding", "bitwise"))
    assert rounding.kept and not bitwise.kept and bitwise.why.endswith("; --allow rounding keeps it")
    pages = [page(Tuneup("train.py", allow=allow)) for allow in ("rounding", "bitwise")]
    assert ["other samples" in text for text in pages] == [True, False]


def test_who_computes_on_a_gpu_before_the_look_is_said_of_a_script_that_trains_there(script, monkeypatch):
    several = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 4711)]
    answers = {"Init": None, "Shutdown": None, "DeviceGetCount": 1, "DeviceGetHandleByIndex": "handle"}
    answers |= {"DeviceGetPciInfo": SimpleNamespace(busId="3B:00.0"), "DeviceGetComputeRunningProcesses": several}
    nvml = SimpleNamespace(**{f"nvml{name}": lambda *_, answer=answer: answer for name, answer in answers.items()})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    line = "Others had a GPU open before the look (3B:00.0: process 4711): gains may be noisier there, and fewer copies fit."
    for device in ("cuda", "cpu"):
        look = {"roots": [{"device": device}], "debugging": False, "waits": [], "biases": [], "threads": 1}
        monkeypatch.setattr("hpml_lab.referee.tuneup._look", lambda *_, look=look: look)
        found = tuneup([script("")], only=["debugging"])
        assert page(found).count(line) == found.text().count(line) == (device == "cuda")


def test_that_the_kept_changes_fail_together_is_said():
    found = Tuneup("train.py", together=Compared(None, None, "RuntimeError: no"))
    assert "together: it does not get through: RuntimeError: no" in found.text()
    assert "it does not get through: RuntimeError: no" in page(found)


def test_an_isolated_copy_leaves_environments_out(tmp_path, monkeypatch):
    (tmp_path / "mine" / "venv").mkdir(parents=True)
    (tmp_path / "mine" / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "mine" / "train.py").write_text("")
    (tmp_path / "root").mkdir()
    copied = _copied(tmp_path / "mine", tmp_path / "root" / "files")
    assert [path.name for path in copied.iterdir()] == ["train.py"]
