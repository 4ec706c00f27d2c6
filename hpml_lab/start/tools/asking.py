"""Asks torch, in processes of its own, and the system's tools what they know about this machine."""

import json
import os
import subprocess
import sys

from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.paths import ROOT
from hpml_lab.start.tools.finding import Answers

ANSWER_SECONDS = 300  # torch takes a minute to load from a cold disk


def ask(device: str | None = None) -> Answers:
    """What `torch_probe.py` and nvidia-smi answer, {step: facts}; a step that failed has "error".

    device  the device that was asked for; None if the workbook chooses
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))}
    if device is not None:
        environment["HPML_DEVICE"] = device
    # Two processes in parallel: torchvision's import takes as long as all the rest.
    groups = (["torch", "device", "experiments", "mnist"], ["torchvision"])
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "hpml_lab.start.tools.torch_probe", str(os.getpid()), *steps],
            env=environment,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for steps in groups
    ]
    answers: Answers = {}
    for steps, process in zip(groups, running, strict=True):
        try:
            said, _ = process.communicate(timeout=ANSWER_SECONDS)
            end = f"the Python that tried it ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            end = f"no answer within {ANSWER_SECONDS} s"
        for line in said.splitlines():
            if line.startswith('{"step"'):
                answers |= {(facts := json.loads(line)).pop("step"): facts}
        for step in steps:
            answers.setdefault(step, {"error": end})
    answers["nvidia-smi"] = {"gpus": nvidia_smi()}
    return answers


def run_tool(command: list[str], seconds: float = 20) -> str | None:
    """What a tool prints (stdout, else stderr), or None if it is absent, fails or hangs."""
    found = find_tool(command[0])
    if found is None:
        return None
    try:
        done = subprocess.run([found, *command[1:]], capture_output=True, text=True, timeout=seconds, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else None


def nvidia_smi() -> list[dict[str, str]] | None:
    """Name, memory in MiB, compute capability and driver of each GPU that the driver sees; None without a working driver."""
    names = ("name", "memory.total", "compute_cap", "driver_version")
    said = run_tool(["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"])
    if said is None:
        return None
    cells = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]
