"""Starts the training program in a process of its own, and lets py-spy watch it."""

import contextlib
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment, started
from hpml_lab.data import DataSet
from hpml_lab.profiling import training_program
from hpml_lab.profiling.py_spy import record_stacks

HOT = training_program.noise_by_hand.__name__  # the function of the training program that is slow on purpose


@contextlib.contextmanager
def training_process(data: DataSet, deadline_seconds: float = 60.0) -> Iterator[int]:
    """Start the training program and give its process number once it is warm; at the end of the block it is gone.

    Raises LabError where it does not get warm within `deadline_seconds`.
    """
    name = training_program.__name__
    with tempfile.TemporaryFile() as images:  # not a pipe: writing into one would wait for the program
        np.savez(images, x=data.train_x.numpy(), y=data.train_y.numpy())
        images.seek(0)
        # -P: the current folder is not searched for modules. Should this process be killed, the program ends by itself.
        command = [sys.executable, "-P", "-m", name, str(2 * deadline_seconds)]
        streams = {"stdin": images, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with started(command, env=python_environment(), **streams) as program:
            ready, _, _ = select.select([program.stdout], [], [], deadline_seconds)
            if not ready or training_program.WARM.encode() not in program.stdout.readline():
                raise LabError("The training program did not start.", f"Run `python -m {name} 5 < data.npz` to see why.")
            yield program.pid


def record_training(data: DataSet, path: Path | str, seconds: float = 1.0, rate: int = 100) -> Path:
    """Watch a fresh training program and write what py-spy saw to `path` (.txt, .json for speedscope.app, or .svg)."""
    with training_process(data) as process_id:
        return record_stacks(process_id, path, seconds, rate)
