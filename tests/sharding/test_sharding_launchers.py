"""The training script under python, torchrun, deepspeed and Slurm's line: the same weights; and torchrun's faults.

All of them run copies of the files in an empty folder, without this package: that is how a student uses them.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
import torch

from hpml_lab.core.judge.exercises import check
from hpml_lab.sharding.lessons import train

DEADLINE_SECONDS = 900  # for a launcher that hangs: the slowest takes 30 s on two quiet cores
HERE = Path(train.__file__).parent
STEPS = ["--steps", "12", "--save-every", "4"]
TWO = ["torchrun", "--standalone", "--nproc-per-node", "2", "--monitor-interval", "0.2", "train.py"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the launchers are programs of Linux and macOS")


STAND_IN = """
import torch
def load_digits(return_X_y):
    return torch.load({path!r}, weights_only=False)
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """What the script reads by scikit-learn, in a file."""
    from sklearn.datasets import load_digits

    path = tmp_path_factory.mktemp("digits") / "digits.pt"
    torch.save(load_digits(return_X_y=True), path)
    return str(path)


@pytest.fixture
def folder(tmp_path, digits):
    """A folder with the script's files, and a stand-in for scikit-learn, whose import takes each rank seconds."""
    for name in ("train.py", "train.slurm", "deepspeed.json"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "sklearn").mkdir()
    (tmp_path / "sklearn" / "datasets.py").write_text(STAND_IN.format(path=digits))
    return tmp_path


def run(command, folder, terminate_at=None, **variables):
    """(exit code, all it printed) of a launcher; afterwards nothing that it started runs.

    terminate_at   a path: the launcher gets SIGTERM as soon as it exists
    """
    mark = uuid.uuid4().hex
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "SLURM"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo", "PATH": path}
    environment = {**kept, **settings, "CUDA_VISIBLE_DEVICES": "", "HPML_TEST": mark, **variables}
    output = folder / f"{mark}.txt"
    with open(output, "w") as file:
        program = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            if terminate_at is not None:
                end = time.monotonic() + DEADLINE_SECONDS
                while not terminate_at.exists() and program.poll() is None and time.monotonic() < end:
                    time.sleep(0.05)
                program.terminate()
            program.wait(DEADLINE_SECONDS)
        finally:
            left = marked(mark)
            for process in left:
                process.kill()
            program.wait()
    assert left == [], output.read_text()[-2000:]
    return program.returncode, output.read_text()


def marked(mark, patience_seconds=20.0):
    """The processes that a launcher started and that still run after a while: they carry the mark in their environment."""
    end = time.monotonic() + patience_seconds
    while True:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HPML_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


def weights(folder):
    return torch.load(folder / "model.pt", weights_only=True)


def close(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    """The folder of a run of one process, with its last two snapshots; with the real scikit-learn."""
    folder = tmp_path_factory.mktemp("plain")
    shutil.copy(HERE / "train.py", folder)
    code, said = run([sys.executable, "train.py", *STEPS], folder)
    assert code == 0 and "1 ranks on cpu, from step 0" in said, said
    return folder / "run"


@pytest.fixture(scope="module")
def plain(plain_run):
    """The weights of one process."""
    return weights(plain_run)


def test_torchrun_continues_what_one_process_began_and_trains_the_same(folder, plain_run, plain):
    """From a snapshot in the middle, on two ranks; two ranks from step 0 are those of the Slurm script, torchrun's too."""
    shutil.copytree(plain_run / "step-00000008", folder / "run" / "step-00000008")
    code, said = run([*TWO, *STEPS], folder)
    assert code == 0 and "2 ranks on cpu, from step 8" in said, said
    assert close(weights(folder / "run"), plain)
    assert (folder / "run" / "rank1.log").read_text().count("continues from") == 1
    assert (folder / "run" / "step-00000012" / "state.pt").exists(), "what it saves itself"


needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

other_group = pytest.mark.environment(
    "a group of gloo that others make", files=("hpml_lab/sharding/lessons", "hpml_lab/sharding/experiments/elastic")
)
COUNT_THREADS = """
import contextlib, importlib, os, sys, time

def count():
    found = 0
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            found += open(f"/proc/self/task/{task}/comm").read().startswith("pt_gloo")
    return found

program = importlib.import_module(sys.argv.pop(1))
connect = program.dist.init_process_group

def counted(*arguments, **options):
    connect(*arguments, **options)
    end = time.monotonic() + 60
    while not (found := count()) and time.monotonic() < end:  # a thread gives itself its name
        time.sleep(0.01)
    print("threads of gloo at the start:", found > 0)

program.dist.init_process_group = counted
program.main()
print("threads of gloo at the end:", count())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads the names of threads from /proc")
@pytest.mark.parametrize(
    "program, arguments",
    [
        pytest.param("train", STEPS, id="DDP"),
        pytest.param(
            "train", [*STEPS, "--deepspeed_config", "deepspeed.json"], marks=[needs_deepspeed, other_group], id="DeepSpeed"
        ),
        pytest.param(
            "hpml_lab.sharding.experiments.elastic.on_ranks", ['{"folder": "run", "steps": 2}'], marks=other_group, id="elastic"
        ),
    ],
)
def test_no_thread_of_gloo_is_left_when_python_ends(folder, program, arguments):
    """One that still holds a tensor then may abort the process: `train.leave` says why."""
    group = {"WORLD_SIZE": "1", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    (folder / "count.py").write_text(COUNT_THREADS)
    variables = {**group, "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0", "PYTHONPATH": str(HERE.parents[1])}
    code, said = run([sys.executable, "count.py", program, *arguments], folder, **variables)
    assert code == 0, said
    assert "threads of gloo at the start: True\n" in said and "threads of gloo at the end: 0\n" in said, said


@needs_deepspeed
def test_deepspeeds_launcher_trains_the_same_and_compiles_nothing(folder, plain):
    lock = folder / "extensions" / "deepspeed_shm_comm" / "lock"  # what a killed run leaves behind
    lock.parent.mkdir(parents=True)
    lock.touch()
    port = ["--master_port", str(free_port())]
    code, said = run(
        ["deepspeed", "--num_accelerators", "2", *port, "train.py", *STEPS, "--deepspeed_config", "deepspeed.json"],
        folder,
        TORCH_EXTENSIONS_DIR=str(folder / "extensions"),
        DS_ACCELERATOR="cpu",
    )
    assert code == 0 and "DeepSpeedEngine, 2 ranks on cpu" in said, said
    assert close(weights(folder / "run"), plain)
    assert [path.name for path in (folder / "extensions").rglob("*") if path.is_file()] == ["lock"], (
        "nothing was compiled there"
    )
    assert not list((folder / "run").glob("extensions/**/*.so"))
    parts = sorted(path.name for path in (folder / "run" / "step-00000012").glob("*optim_states.pt"))
    assert len(parts) == 2, "each rank saves its part of the optimizer's state"


PLAY_SRUN = """#!/bin/bash
# Slurm's srun, played on this machine: one task a node.
for ((node = 0; node < SLURM_NNODES; node++)); do
    SLURM_NODEID=$node SLURM_PROCID=$node "$@" & tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""
PLAY_SCONTROL = '#!/bin/bash\n[ "$1 $2 $3" = "show hostnames node[1-2]" ] && printf "localhost\\nlocalhost\\n"\n'


@pytest.fixture
def slurm(folder):
    """The variables that Slurm sets for a job on two nodes, and its two programs."""
    programs = folder / "slurm"
    programs.mkdir()
    for name, text in (("srun", PLAY_SRUN), ("scontrol", PLAY_SCONTROL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    search = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    job = str(free_port() % 10000)
    return dict(PATH=search, SLURM_JOB_ID=job, SLURM_NNODES="2", SLURM_GPUS_ON_NODE="1", SLURM_JOB_NODELIST="node[1-2]")


@pytest.mark.environment(
    "two launches of torchrun", files=("hpml_lab/sharding/lessons/train.py", "hpml_lab/sharding/lessons/train.slurm")
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="a Slurm script is a bash script")
def test_the_slurm_script_trains_the_same_on_two_nodes(folder, plain, slurm):
    code, said = run(["bash", "train.slurm", *STEPS], folder, **slurm)
    assert code == 0 and "2 ranks on cpu, from step 0" in said, said
    result = folder / f"run-{slurm['SLURM_JOB_ID']}"
    assert close(weights(result), plain), "the folder has the job's number"
    assert len(list(result.glob("rank*.log"))) == 2


@pytest.mark.environment(
    "torchrun, and a signal to it", files=("hpml_lab/sharding/lessons/train.py", "hpml_lab/sharding/lessons/train.slurm")
)
def test_sigterm_to_torchrun_leaves_a_snapshot_of_the_step_in_which_it_came(folder):
    """torchrun passes the signal on; the ranks get it at different times."""
    endless = ["--steps", "1000000", "--save-every", "20"]
    code, said = run([*TWO, *endless], folder, terminate_at=folder / "run" / "step-00000020")
    assert code != 0 and "stopped by SIGTERM after step" in said, said
    stopped = [(folder / "run" / f"rank{rank}.log").read_text().rpartition("SIGTERM after step ")[2] for rank in (0, 1)]
    step = int(stopped[0].split(":")[0])
    assert stopped[0] == stopped[1] and (folder / "run" / f"step-{step:08d}" / "state.pt").exists()


def test_the_exercises_check_of_a_line_that_asks_for_help_prints_nothing(capsys):
    verdict = check("launch-line", lambda node, host: f"torchrun --nnodes 2 -h {host} train.py")
    assert verdict.mistake == "torchrun-refuses" and "it prints its help" in verdict.message
    assert capsys.readouterr().out == ""


# ---- faults -------------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def port_in_use():
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as taken:
        taken.bind(("", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.mark.environment("torchrun", files=("hpml_lab/sharding/lessons/train.py", "hpml_lab/sharding/lessons/train.slurm"))
def test_torchrun_names_a_port_that_is_in_use(folder, port_in_use):
    code, said = run(["torchrun", "--nproc-per-node", "2", "--master-port", port_in_use, "train.py"], folder)
    assert code != 0 and "EADDRINUSE" in said and f"port: {port_in_use}" in said, said
    assert not (folder / "run").exists(), "no rank had started"


def test_the_script_names_a_port_that_is_in_use(folder, port_in_use):
    group = dict(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port_in_use)
    code, said = run([sys.executable, "train.py"], folder, **group)
    assert code != 0 and "EADDRINUSE" in said and f"port: {port_in_use}" in said, said


@pytest.mark.environment("torchrun", files=("hpml_lab/sharding/lessons/train.py", "hpml_lab/sharding/lessons/train.slurm"))
def test_nccl_without_gpus_is_one_clear_error(folder):
    code, said = run([*TWO, "--device", "cuda"], folder)
    assert code != 0, said
    assert said.count("NCCL needs a GPU for each of 2 ranks here, and torch sees 0. Use --device cpu.") == 1, said
