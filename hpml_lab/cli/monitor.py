"""`hpml-lab monitor -- COMMAND`: processors, memory, disks and GPUs while a command runs, as a table and a picture."""

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

from hpml_lab.cli.shared import number


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "monitor",
        help="watch processors, memory, disks and GPUs while a command runs: CSV and a picture",
        usage="hpml-lab monitor [--out NAME] [--rate N] -- COMMAND [ARGS ...]",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("monitor"),
        metavar="NAME",
        help="writes NAME.csv, which grows while the command runs, and NAME.png at its end (default: monitor)",
    )
    parser.add_argument("--rate", type=number(1e-4, 1000), default=10.0, metavar="N", help="samples a second (default: 10)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND [ARGS ...]", help="any program")
    parser.set_defaults(command=monitor)


def monitor(chosen: argparse.Namespace) -> int:
    """Run the command, write both files, and return the command's own exit code."""
    from hpml_lab.cli.foreign import foreign_command, ours_first, output_file

    ours_first()
    from hpml_lab.profilers.beside import never_fatal, say
    from hpml_lab.profilers.foreground import in_foreground, wait_with_usage
    from hpml_lab.profilers.monitor import Monitor

    command = foreign_command(chosen.words, "hpml-lab monitor -- python train.py")
    out = output_file(chosen.out, "--out")
    Monitor(chosen.rate)  # a wrong rate is an error before the command runs
    with _own_names(out) as (table, picture), in_foreground(command) as process:
        with Monitor(chosen.rate, process_id=process.pid, path=table) as watched:
            _, usage = wait_with_usage(process)
            if usage:
                watched.ended(usage.ru_utime + usage.ru_stime)
        say(_summary(watched, usage))
        if watched.written:
            say(f"the samples are in {table}.")
        with never_fatal(f"there is no picture {picture}"):
            from hpml_lab.core.show import style  # only now: the command does not wait for matplotlib
            from hpml_lab.core.system.files import atomic_write
            from hpml_lab.profilers.monitor_picture import monitored_run

            atomic_write(picture, style.png(monitored_run(watched.samples, shlex.join(command)).figure))
            say(f"their picture is in {picture}.")
        if watched.note:
            say(watched.note)
    return process.returncode


@contextlib.contextmanager
def _own_names(out: Path) -> Iterator[tuple[Path, Path]]:
    """The table's and the picture's name; with this process's number in it where another monitor writes there just now."""
    with contextlib.ExitStack() as stack:
        for name in (out.name, f"{out.name}-{os.getpid()}"):
            table, picture = (out.with_name(f"{name}.{kind}") for kind in ("csv", "png"))
            try:
                held = stack.enter_context(open(table, "ab"))
                if fcntl is not None:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                continue
            except (OSError, ValueError):  # no locks there, or no file: the monitor says what it cannot write
                break
        yield table, picture


def _summary(watched, usage) -> str:
    from hpml_lab.profilers.energy import used_joules
    from hpml_lab.profilers.nvml import MIB

    used = sum(sample.process_cpu or 0.0 for sample in watched.samples)
    mean = used / max(watched.seconds, 1e-9)
    if usage:
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MIB
        most = f"the largest process at most {peak:.0f} MiB"
    else:
        most = f"all its processes together at most {max(sample.rss or 0.0 for sample in watched.samples):.0f} MiB when sampled"
    joules = zip(("CPU", "GPUs"), used_joules(watched.samples), strict=True)
    energy = "".join(f", {found:.0f} J by the machine's {name}" for name, found in joules if found is not None)
    return f"{watched.seconds:.1f} s, {used:.2f} s of processor time (on average {mean:.2f} cores), {most}{energy}."
