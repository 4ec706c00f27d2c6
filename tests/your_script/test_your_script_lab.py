"""The steps of a lab: what they make of a script's lines, what they keep, and what they say of scripts that cannot do them."""

import json
import math
import os
import re
import sys
import types
from dataclasses import replace

import pytest

from hpml_lab.cli import main
from hpml_lab.cli.shared import INTERRUPTED
from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.sealed import sealed_record, unsealed_record
from hpml_lab.referee.script_turns import Compared
from hpml_lab.your_script.tools import from_outside, lab_report, lab_steps, trainings
from hpml_lab.your_script.tools import lab as lab_module
from hpml_lab.your_script.tools.lab import remark, run_lab
from hpml_lab.your_script.tools.lab_report import DONE, FILE, NOT_DONE, NOT_HERE, LabReport, implausible, read_report
from hpml_lab.your_script.tools.lab_task import Findings, Lab, LabTask, NotDone, NotHere
from hpml_lab.your_script.tools.script_runs import EpochRow, ScriptRun, run_script
from hpml_lab.your_script.tools.trainings import ScriptScaling, TrainedRow
from hpml_lab.your_script.views.lab_page import lab_page

DEADLINE = 120.0  # seconds; far above what a loaded machine needs
# A training whose figures are known: each option has its own accuracy, and each seed one within ± 0.01.
KNOWN = """
import argparse
parser = argparse.ArgumentParser()
for name, kind in {"--seed": int, "--lr": float, "--optimizer": str, "--norm": str, "--dropout": float}.items():
    parser.add_argument(name, type=kind)
given = parser.parse_args()
noise = 0.01 * ((given.seed or 0) % 3 - 1)
accuracy = 0.5 + noise + {None: 0, "batch": 0, "none": -0.2}[given.norm] + 0.01 * bool(given.dropout)
rate = {None: 1, "sgd": 1, "nesterov": 2, "adagrad": 3, "adadelta": 4, "adam": 5}[given.optimizer] * (given.lr or 1)
print("files read")
for epoch in (1, 2, 3):
    loss = f"{rate / epoch + accuracy:.4f}"
    print(f"epoch {epoch}: load 0.5 s, train 1.5 s, total {5 - epoch}.0 s, loss {loss}, accuracy {accuracy:.4f}")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script into an empty folder, which is the current one, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="train.py"):
        (tmp_path / name).write_text(text)
        return name

    write.folder = tmp_path
    return write


# ---- runs ------------------------------------------------------------------------------------------------------------


def test_epochs_are_read_from_between_other_lines(script):
    run = run_script([script(KNOWN)], deadline_seconds=DEADLINE)
    assert run.failed == "" and [row.epoch for row in run.epochs] == [1, 2, 3]
    assert run.last == EpochRow(3, 0.5, 1.5, 2.0, 0.8233, 0.49)
    assert run.epoch_seconds == 2.0, "of the epochs after the first the fastest"


@pytest.mark.parametrize(
    "text, options, why",
    [
        ("print('done')", [], "it prints no line of the form `epoch 1: load"),
        (KNOWN, ["--schedule", "cyclical"], "it does not take this: --schedule cyclical"),
        ("raise ValueError('no data')", [], "ValueError: no data"),
        ("import sys; sys.exit(3)", [], "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", [], "killed by SIGKILL: most often the system, because memory ran out"),
        (
            "import os, sys; sys.stderr.write('a warning'); sys.stderr.flush(); os.kill(os.getpid(), 15)",
            [],
            "killed by SIGTERM: ",
        ),
        ("import torch; torch.zeros(1).cuda()", [], ("RuntimeError: ", "AssertionError: ")),
        ("print('epoch 1: load 1 s, train 2 s, total 0.0 s, loss 3')", [], "it prints epochs of 0 s"),
    ],
)
def test_a_run_without_epochs_says_why(script, monkeypatch, text, options, why):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run_script([script(text), *options], deadline_seconds=DEADLINE).failed.startswith(why)


@pytest.mark.parametrize(
    "line, loss, accuracy",
    [
        ("loss 1.2e-05, accuracy 0.9", 1.2e-05, 0.9),
        ("loss -1.5", -1.5, None),
        ("loss 1.82.", 1.82, None),
        ("loss NaN, accuracy 0", math.nan, 0.0),
    ],
)
def test_numbers_are_read_in_every_form(script, line, loss, accuracy):
    row = run_script([script(f"print('epoch 1: load 5e-05 s, train 2 s, total 3 s, {line}')")], deadline_seconds=DEADLINE).last
    assert (row.load, row.accuracy) == (5e-05, accuracy) and row.loss == pytest.approx(loss, nan_ok=True)


def test_an_error_of_several_lines_is_one_and_whole(script):
    """As torchvision's, whose first line ends with a colon: alone it says of what the reason is missing."""
    name = script("raise RuntimeError('cannot download x.gz:\\nTried a mirror, got:\\n<no such host>\\n')")
    run = run_script([name], deadline_seconds=DEADLINE)
    assert run.failed == "RuntimeError: cannot download x.gz: Tried a mirror, got: <no such host>"
    with pytest.raises(NotDone, match="^no profile: RuntimeError: cannot download x.gz: Tried a mirror"):
        from_outside.profile_lines(Lab([name], script.folder, DEADLINE))


def test_a_run_that_does_not_end_is_ended(script):
    run = run_script([script("import time\ntime.sleep(1000)")], deadline_seconds=1.0)
    assert "it was not done after 1 s" in run.failed and run.seconds < DEADLINE


@pytest.mark.parametrize(
    "text, why",
    [("raise ValueError('no data')", "ValueError: no data"), ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL: ")],
)
def test_an_error_on_a_rank_is_the_scripts_and_not_the_launchers(script, text, why):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", script(text)]
    assert run_script(command, deadline_seconds=DEADLINE).failed.startswith(why)


def test_ranks_end_with_their_launcher(script, tmp_path):
    """torchrun's ranks are in process groups of their own."""
    name = script("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", name]
    assert "not done" in run_script(command, deadline_seconds=20.0).failed
    rank = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(rank, 0)


# ---- steps -----------------------------------------------------------------------------------------------------------


def lab_of(name, folder, seconds=DEADLINE):
    return Lab([name], folder, seconds)


def test_the_parts_of_an_epoch_are_those_that_the_script_prints(script, tmp_path):
    found = trainings.time_parts(lab_of(script(KNOWN), tmp_path))
    assert found.says[0] == "17 % of the time it waits for batches, 50 % it trains."  # 1.5 and 4.5 of 9 s
    assert "The first epoch takes 2.0 times as long" in found.says[1]
    assert len(found.tables[0].rows) == 3


def test_a_difference_is_claimed_where_it_is_larger_than_what_seeds_change(script, tmp_path):
    """Seeds give 0.49 to 0.51: dropout's 0.01 says nothing, and leaving out the norm costs 0.2."""
    lab = lab_of(script(KNOWN), tmp_path)
    trainings.change_seeds(lab)
    assert sorted(lab.accuracies) == pytest.approx([0.49, 0.49, 0.50, 0.51, 0.51])
    found = trainings.compare_norms(lab)
    claimed = [line.split(":")[0] for line in found.says if "more than another seed" in line]
    assert claimed == ["without batch norm", "without, with dropout"]
    rows = {row.run: row for row in found.tables[0].rows}
    assert rows["with dropout"].gain == pytest.approx(0, abs=1e-9) and len(lab.runs) == 5 + 3, "the base runs once"


def test_nothing_is_claimed_without_the_seeds(script, tmp_path):
    found = trainings.compare_norms(lab_of(script(KNOWN), tmp_path))
    assert found.says[0].startswith("No difference is claimed") and not any("more than" in line for line in found.says)


def test_a_script_that_ignores_its_options_is_found_out(script, tmp_path):
    """Its trainings are all the same: neither seeds nor variants say anything."""
    name = script("for e in (1, 2): print(f'epoch {e}: load 1 s, train 1 s, total 2 s, loss {e}.5, accuracy 0.5')")
    lab = lab_of(name, tmp_path)
    assert trainings.change_seeds(lab).says[0].startswith("The seeds tell no noise: each has the same accuracy")
    found = trainings.compare_schedules(lab)
    assert sum(line.endswith("it trains so by itself, or ignores the option.") for line in found.says) == 3


@pytest.mark.parametrize(
    "text, seconds, why",
    [
        (KNOWN.replace(", accuracy {accuracy:.4f}", ""), DEADLINE, "the script prints no accuracy."),
        (KNOWN, 1e-3, "too few of them have an accuracy."),
    ],
)
def test_seeds_that_tell_no_noise_say_why(script, tmp_path, monkeypatch, text, seconds, why):
    monkeypatch.setattr(trainings, "LATE", DEADLINE / seconds)
    assert trainings.change_seeds(lab_of(script(text), tmp_path, seconds)).says[0] == f"The seeds tell no noise: {why}"


def test_ranks_that_do_not_share_their_work_have_no_speed_up(script, tmp_path, monkeypatch):
    """A script that knows nothing of ranks trains as a whole on each: its epochs are there twice."""
    monkeypatch.setattr(trainings.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(trainings.machine, "cores", lambda: 2)
    name = script(KNOWN.replace('"--seed": int', '"--seed": int, "--batch": int'))
    with pytest.raises(NotDone, match="each rank prints every epoch.*shares no work"):
        trainings.scale_ranks(lab_of(name, tmp_path))


def ranks_of(monkeypatch, epochs, shares, failing=""):
    """Let runs of ranks take 1 s an epoch over the share of their (ranks, batch), up and down by `shares["noise"]` in turn."""
    calls = []

    def run(command, **options):
        ranks, batch = int(command[4]), int(command[-1])
        calls.append((ranks, batch))
        if f"{ranks} × {batch}" == failing:
            return ScriptRun([], "RuntimeError: no memory")
        factor = 1 + shares["noise"] * (-1) ** len(calls) / 2
        return ScriptRun([EpochRow(e, 0.0, 1.0, factor / shares[ranks, batch], 1.0) for e in range(epochs + 1)])

    monkeypatch.setattr(trainings, "run_script", run)
    monkeypatch.setattr(trainings.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(trainings.machine, "cores", lambda: 2)
    return calls


@pytest.mark.parametrize(
    "noise, verdicts", [(0.0, ["faster", "slower"]), (0.1, ["faster", "within noise"]), (1.0, ["within noise"] * 2)]
)
def test_a_speed_up_of_ranks_is_claimed_beyond_what_one_rank_changes(tmp_path, monkeypatch, noise, verdicts):
    """One rank ends each round as it began it: what it seems to gain over itself is the noise."""
    calls = ranks_of(monkeypatch, 2, {(1, 64): 1.0, (2, 64): 1.5, (2, 128): 0.95, "noise": noise})
    found = trainings.scale_ranks(lab_of("train.py", tmp_path))
    assert calls[:5] == [(1, 64), (2, 64), (2, 128), (1, 64), (1, 64)], "in rounds"
    base, *rows = found.tables[0].rows
    assert (base.speed_up, base.interval, base.noise, base.verdict) == (1.0, "", None, "")
    assert [row.verdict for row in rows] == verdicts and all(" to " in row.interval for row in rows)
    assert [row.noise for row in rows] == pytest.approx([100 * ((1 + noise / 2) / (1 - noise / 2) - 1)] * 2)
    assert found.says[0].startswith("strong, 2 ranks, samples per second: ") and "; noise ±" in found.says[0]


def test_of_few_epochs_no_speed_up_of_ranks_is_claimed(tmp_path, monkeypatch):
    monkeypatch.setattr(trainings, "time", types.SimpleNamespace(monotonic=iter(range(100)).__next__))
    calls = ranks_of(monkeypatch, 4, {(1, 64): 1.0, (2, 64): 1.5, (2, 128): 2.0, "noise": 0.0})
    found = trainings.scale_ranks(lab_of("train.py", tmp_path, seconds=3.5))
    assert len(calls) == 4 and [row.verdict for row in found.tables[0].rows] == ["", "", ""]
    assert found.says[0].startswith("strong, 2 ranks, samples per second: 1.50×, without noise")
    assert found.says[2].startswith("Noise is known from 5 epochs of each on")


def test_a_number_of_ranks_that_fails_leaves_the_others_their_noise(tmp_path, monkeypatch):
    calls = ranks_of(monkeypatch, 5, {(1, 64): 1.0, (2, 64): 1.5, "noise": 0.0}, failing="2 × 128")
    found = trainings.scale_ranks(lab_of("train.py", tmp_path))
    assert [(row.kind, row.verdict) for row in found.tables[0].rows] == [("strong", ""), ("strong", "faster")]
    assert "weak, 2 ranks: RuntimeError: no memory." in found.says and calls.count((2, 128)) == 1
    ranks_of(monkeypatch, 5, {(1, 64): 1.0, (2, 64): 1.5, "noise": 0.0}, failing="1 × 64")
    with pytest.raises(NotDone, match="^RuntimeError: no memory$"):
        trainings.scale_ranks(lab_of("train.py", tmp_path))


def test_a_parser_that_names_no_option_does_not_hide_which_one_was_tried(script, tmp_path):
    known = "print('epoch 1: load 1 s, train 1 s, total 2 s, loss 1')"
    name = script(f"import sys\nif len(sys.argv) > 1: sys.exit('Usage: train.py')\n{known}")
    with pytest.raises(NotDone, match="^with --seed 101: Usage: train.py$"):
        trainings.change_seeds(lab_of(name, tmp_path))


def test_five_optimizers_run_at_their_own_rate_and_at_one(script, tmp_path):
    rows = trainings.compare_optimizers(lab_of(script(KNOWN), tmp_path)).tables[0].rows
    losses = {row.run: row.loss for row in rows}
    for number, name in enumerate(trainings.OPTIMIZERS, start=1):
        assert losses[f"{name}, its own rate"] == pytest.approx(number / 3 + 0.49, abs=1e-4)
        assert losses[f"{name}, 0.01"] == pytest.approx(0.01 * number / 3 + 0.49, abs=1e-4)
    for given in (["--lr", "0.05"], ["--lr=0.05"]):
        with pytest.raises(NotDone, match="leave it out"):
            trainings.compare_optimizers(Lab([script(KNOWN), *given], tmp_path))


def test_what_does_not_fit_into_the_time_is_named(script, tmp_path, monkeypatch):
    monkeypatch.setattr(trainings, "LATE", 1e6)
    found = trainings.compare_norms(lab_of(script(KNOWN), tmp_path, seconds=1e-3))
    assert "Not run within 0 s" in found.says[-1] and "with dropout" in found.says[-1]
    assert len(found.tables[0].rows) == 1


@pytest.mark.parametrize("step", [trainings.compare_schedules, trainings.scale_ranks])
def test_a_step_that_the_script_cannot_do_says_which_option_is_missing(script, tmp_path, step):
    with pytest.raises(NotDone, match=r"does not take this: --(schedule|batch) "):
        step(lab_of(script(KNOWN), tmp_path))


def test_a_profile_names_the_line_in_which_most_of_the_time_goes(script, tmp_path):
    """A line of two thirds of the time, reached by two lines of a third each; the lines around them call all."""
    part = "def {0}():\n    for _ in range(4000):\n        sum(range(20000))\n"
    around = (
        "def train():\n    layer()\n    backward()\ndef score():\n    layer()\ndef main():\n    train()\n    score()\nmain()\n"
    )
    name = script("".join(map(part.format, ("layer", "backward"))) + around)
    found = from_outside.profile_lines(lab_of(name, tmp_path))
    share = int(re.match(r"train.py:3, `sum\(range\(20000\)\)`: (\d\d) %", found.says[0])[1])
    assert 50 < share < 80
    assert (tmp_path / "profile.html").exists() and [table.title for table in found.tables] == ["Lines of the script"]
    name = script(
        "import torch\nlayer = torch.nn.Linear(300, 300)\nfor _ in range(500):\n    layer(torch.ones(300, 300)).sum()\n"
    )
    lab = lab_of(name, tmp_path)
    lines, operators = from_outside.profile_lines(replace(lab, script=[str(tmp_path / name)])).tables
    assert all(row.line.startswith("train.py:") for row in lines.rows), "also where the script is named by its whole path"
    assert operators.title == "Operators of torch" and operators.rows[0].operator == "addmm"
    with pytest.raises(NotDone, match="ValueError: no data"):
        from_outside.profile_lines(lab_of(script("raise ValueError('no data')"), tmp_path))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="copies of a script take turns on Linux only")
@pytest.mark.parametrize(
    "text, why",
    [
        ("import torch\nprint('no step')", "it ends after 0 steps; let it train for longer"),
        ("import torch\nraise ValueError('no data')", "ValueError: no data"),
    ],
)
def test_workers_of_a_script_without_steps_are_not_tried(script, tmp_path, text, why):
    """Only a script that has come to its end is advised to train for longer."""
    with pytest.raises(NotDone) as raised:
        from_outside.try_workers(lab_of(script(text), tmp_path))
    assert str(raised.value) == f"no gain can be measured: {why}"


def test_numbers_of_workers_that_the_time_leaves_no_room_for_are_named(script, tmp_path, monkeypatch):
    tried = []

    def in_turns(candidates, yardstick):
        tried.extend(candidates)
        return {each.name: Compared(None, None, "it ended early") for each in candidates}

    monkeypatch.setattr(from_outside, "compared", in_turns)
    monkeypatch.setattr(from_outside.machine, "cores", lambda: 8)
    monkeypatch.setattr(from_outside, "require_turns", lambda: None)
    found = from_outside.try_workers(lab_of(script(KNOWN), tmp_path, seconds=0.0))
    assert [each.name for each in tried] == ["0 workers", "1 worker", "2 workers"]
    assert found.says[-1] == "Not run within 0 s: 4 workers; 8 workers. --again with more --seconds does."


# ---- the report ------------------------------------------------------------------------------------------------------


def steps_of(monkeypatch, **runs):
    """Let a lab have these steps only, {name: what runs}."""
    tasks = {name: LabTask(name, name, "What?", "08", run) for name, run in runs.items()}
    monkeypatch.setattr(lab_module, "TASKS", tasks)
    monkeypatch.setattr(lab_steps, "TASKS", tasks)
    return tasks


def test_what_is_done_stays_done_and_an_interruption_loses_the_running_step_alone(script, tmp_path, monkeypatch):
    calls = []

    def done(lab):
        calls.append("done")
        return Findings(["fine"], [Table("A table", [TrainedRow("a", 1.0, 0.5, None)])])

    def interrupted(lab):
        calls.append("interrupted")
        if calls.count("interrupted") == 1:
            raise KeyboardInterrupt
        raise NotHere("no GPU")

    steps_of(monkeypatch, first=done, second=interrupted)
    name = script(KNOWN)
    with pytest.raises(KeyboardInterrupt):
        run_lab([name], "lab")
    assert [step.state for step in read_report(tmp_path / "lab" / FILE).steps] == [DONE]
    report = run_lab([name], "lab")
    assert calls == ["done", "interrupted", "interrupted"]
    assert [(step.state, step.says) for step in report.steps] == [(DONE, ["fine"]), (NOT_HERE, ["no GPU"])]
    again = run_lab([name], "lab", steps=["first"], again=True)
    assert calls[3:] == ["done"] and len(again.tables) == 1, "what was found before is replaced"
    assert read_report(tmp_path / "lab" / FILE) == again


def test_an_error_of_one_step_leaves_the_others(script, monkeypatch):
    def refused(lab):
        raise LabError("a folder is too large.", "Make it smaller.")

    steps_of(monkeypatch, first=refused, second=lambda lab: Findings(["fine"], []))
    report = run_lab([script(KNOWN)], "lab")
    assert [step.state for step in report.steps] == [NOT_DONE, DONE]
    assert report.step("first").says == ["a folder is too large. Make it smaller."]


def test_a_fault_of_one_step_leaves_the_others(script, monkeypatch):
    def faulty(lab):
        return lab.scrpt

    steps_of(monkeypatch, first=faulty, second=lambda lab: Findings(["fine"], []))
    report = run_lab([script(KNOWN)], "lab")
    assert [step.state for step in report.steps] == [NOT_DONE, DONE]
    assert report.step("first").says == ["it ended in AttributeError: 'Lab' object has no attribute 'scrpt'"]


def test_what_is_written_while_a_step_runs_is_kept(script, tmp_path, monkeypatch):
    """As from the login node of a cluster, while the job runs; or another terminal with other steps."""
    row = TrainedRow("a", 1.0, 0.5, None)

    def first(lab):
        remark(lab.script, "lab", "first", sentence="as I thought")
        remark(lab.script, "lab", "second", prediction="twice")
        if not calls:
            calls.append("third")
            run_lab(lab.script, "lab", steps=["third"])
        return Findings(["fine"], [Table("First", [row])])

    calls: list[str] = []
    done = {name: lambda lab, name=name: Findings(["fine"], [Table(name, [row])]) for name in ("second", "third")}
    steps_of(monkeypatch, first=first, **done)
    run_lab([script(KNOWN)], "lab")
    report = read_report(tmp_path / "lab" / FILE)
    assert {step.name: step.state for step in report.steps} == dict.fromkeys(("first", "second", "third"), DONE)
    assert report.step("first").sentence == "as I thought" and report.step("second").prediction == "twice"
    assert sorted(table.title for table in report.tables) == ["First", "second", "third"]


def test_what_is_done_already_is_said(script, monkeypatch):
    steps_of(monkeypatch, first=lambda lab: Findings(["fine"], []), second=lambda lab: Findings(["fine"], []))
    name, said = script(KNOWN), []
    run_lab([name], "lab", say=said.append)
    assert not any("already" in line for line in said)
    said.clear()
    run_lab([name], "lab", steps=["first"], say=said.append)
    assert said == ["Done already: first. --again runs them anew."]


def test_a_seed_without_an_accuracy_leaves_the_noise_unknown(script, tmp_path):
    text = KNOWN.replace("for epoch", "if given.seed == 103:\n    accuracy = float('nan')\nfor epoch")
    found = trainings.change_seeds(lab := Lab([script(text)], tmp_path))
    assert len(lab.accuracies) == 4 and "too few of them have an accuracy" in found.says[0]


@pytest.mark.parametrize(
    "line, why",
    [
        ("load 0.5 s, train 0.0 s, total 0.6 s", "epochs of 0 s: print more digits"),
        ("load 520 s, train 3101 s, total 3.7 s", "load and train are more than the epoch's total"),  # milliseconds
        ("load -0.5 s, train 3.1 s, total 3.7 s", "load and train are more than the epoch's total"),
        ("load nan s, train 3.1 s, total 3.7 s", "load and train are more than the epoch's total"),
        ("load 0.1 s, train 0.1 s, total 0.1 s", ""),  # 0.05, 0.06 and 0.12, rounded
    ],
)
def test_times_that_are_none_are_not_taken(script, line, why):
    run = run_script([script(f"print('epoch 1: {line}, loss 1.0')")], deadline_seconds=DEADLINE)
    assert why in run.failed and bool(run.failed) == bool(why)
    if why.startswith("load"):
        report = LabReport(tables=[Table("Epochs", run.epochs)])
        [problem] = implausible(report, report.tables)
        assert "in an epoch of 3.7 s" in problem


def test_what_is_not_possible_is_tried_again_and_a_changed_script_runs_anew(script, monkeypatch):
    calls = []

    def sometimes(lab):
        calls.append("first")
        if len(calls) == 1:
            raise NotDone("no option")
        return Findings(["fine"], [])

    steps_of(monkeypatch, first=sometimes)
    name = script(KNOWN)
    run_lab([name], "lab")
    run_lab([name], "lab")
    run_lab([name], "lab")
    assert len(calls) == 2, "it was not possible once, and is done since"
    script(f"{KNOWN}# changed")
    run_lab([name], "lab")
    assert len(calls) == 3


def test_a_lab_that_goes_on_knows_the_noise_of_the_seeds(script):
    name = script(KNOWN)
    run_lab([name], "lab", steps=["seeds"])
    report = run_lab([name], "lab", steps=["norms"])
    assert "without batch norm: -0.210, more than another seed changes" in report.step("norms").says[0]


def test_predictions_are_kept_until_the_step_has_run(script, monkeypatch):
    name = script(KNOWN)
    remark([name], "lab", "parts", prediction="half of it")
    report = run_lab([name], "lab", steps=["parts"])
    assert report.step("parts").prediction == "half of it" and report.step("parts").state == DONE
    with pytest.raises(LabError, match="no prediction"):
        remark([name], "lab", "parts", prediction="17 %")
    assert remark([name], "lab", "parts", sentence="more than I thought").step("parts").prediction == "half of it"


def test_a_report_of_another_script_or_machine_is_left_alone(script, tmp_path):
    name = script(KNOWN)
    run_lab([name], "lab", steps=["parts"])
    before = (tmp_path / "lab" / FILE).read_bytes()
    with pytest.raises(LabError, match="the script was train.py, and is train.py --lr 1"):
        run_lab([name, "--lr", "1"], "lab", steps=["parts"])
    assert (tmp_path / "lab" / FILE).read_bytes() == before


def test_a_report_has_the_commit_and_one_of_before_is_read(script, tmp_path, monkeypatch):
    monkeypatch.setattr(lab_module.machine, "commit", lambda: "1a2b3c4")
    run_lab([script(KNOWN)], "lab", steps=["parts"])
    path = tmp_path / "lab" / FILE
    assert read_report(path).commit == "1a2b3c4"
    before = unsealed_record(json.loads(path.read_text()))
    del before["commit"]
    path.write_text(json.dumps(sealed_record(before)))
    assert read_report(path).commit == "" and read_report(path).step("parts").state == DONE


def test_words_may_be_written_on_another_machine_than_the_figures(script, tmp_path, monkeypatch):
    """On a cluster a login node and a compute node: predictions before, sentences after."""
    name = script(KNOWN)
    nodes = iter(["login", "compute", "compute", "login", "login"])
    monkeypatch.setattr(lab_report.machine, "cpu_name", lambda: next(nodes))
    remark([name], "lab", "parts", prediction="half of it")
    run_lab([name], "lab", steps=["parts"])
    report = remark([name], "lab", "parts", sentence="less")
    assert report.machine == "compute" and report.step("parts").prediction == "half of it"
    with pytest.raises(LabError, match="the machine was compute, and is login"):
        run_lab([name], "lab", steps=["seeds"])


def test_a_prediction_for_a_changed_script_starts_the_step_anew(script, tmp_path):
    name = script(KNOWN)
    run_lab([name], "lab", steps=["parts"])
    script(KNOWN + "# changed")
    step = remark([name], "lab", "parts", prediction="17 %").step("parts")
    assert step.state == "" and step.tables == [] and read_report(tmp_path / "lab" / FILE).tables == []


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"format": 2', '"format": 1'),
        lambda text: json.dumps({**json.loads(text), "steps": 3}),
        lambda text: "[]",
    ],
)
def test_a_damaged_report_is_refused_in_one_line(script, tmp_path, change):
    name = script(KNOWN)
    run_lab([name], "lab", steps=["parts"])
    path = tmp_path / "lab" / FILE
    path.write_text(change(path.read_text()))
    with pytest.raises(LabError, match=r"report.json.*or move it away") as raised:
        run_lab([name], "lab")
    assert "\n" not in raised.value.problem


def test_what_cannot_be_is_found_in_a_report():
    ranks = Table("Ranks", [ScriptScaling("strong", 2, 64, 1.0, 2.1), ScriptScaling("strong", 2, 64, 1.0, 3.0)])
    parts = Table("Parts", [EpochRow(1, 0.0, 0.0, 1.0, 1.0)])
    devices = Table("Devices", [TrainedRow("cuda", 1.0, 1.0, None)])
    wrong = ["Ranks: 2 ranks are 3 times as fast as one", "Parts: train of 0 s"]
    assert implausible(LabReport(gpu="a GPU"), [ranks, parts, devices]) == wrong
    assert implausible(LabReport(), [devices]) == ["Devices: figures of a GPU, and the report names none"]


def test_the_page_has_each_step_and_loads_nothing(script):
    name = script(KNOWN)
    remark([name], "lab", "parts", prediction="<b>half</b> & more")
    page = lab_page(run_lab([name], "lab", steps=["parts", "devices"]))
    assert "&lt;b&gt;half&lt;/b&gt; &amp; more" in page
    assert "17 % of the time it waits for batches" in page and page.count("<img") == 1
    assert "background" not in page, "figures are drawn for a light ground and for a dark one"
    assert "Not run yet." in page, "of the steps that nobody asked for"
    assert not re.search(r'(src|href)="https?:', page)


def test_an_interrupted_lab_has_a_page_of_what_is_done(script, tmp_path, monkeypatch, capsys):
    def interrupted(lab):
        raise KeyboardInterrupt

    steps_of(monkeypatch, parts=trainings.time_parts, workers=interrupted)
    assert main(["lab", script(KNOWN)]) == INTERRUPTED
    page = (tmp_path / "lab" / "lab.html").read_text(encoding="utf-8")
    assert "17 % of the time it waits for batches" in page
    assert "interrupted" in capsys.readouterr().err


def test_what_is_written_down_at_a_terminal_is_kept(script, tmp_path):
    name = script(KNOWN)
    assert main(["lab", "--predict", "parts", "17 %", name]) == 0
    assert main(["lab", "--steps", "parts", name]) == 0
    assert main(["lab", "--explain", "parts", "as expected", name]) == 0
    step = read_report(tmp_path / "lab" / FILE).step("parts")
    assert (step.prediction, step.state, step.sentence) == ("17 %", DONE, "as expected")
    assert main(["lab", "--predict", "speed", "x", name]) == 2


def test_an_unknown_step_is_refused_before_anything_runs(script, tmp_path):
    with pytest.raises(LabError, match="no step 'speed'.*parts, workers"):
        run_lab([script(KNOWN)], "lab", steps=["speed"])
    assert not (tmp_path / "lab").exists()
