"""`hpml-lab monitor -- COMMAND`: processors, memory, disks and GPUs while a command runs, as a table and a picture."""

import argparse
import sys
from pathlib import Path


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "monitor",
        help="watch processors, memory, disks and GPUs while a command runs: CSV and a picture",
        usage="hpml-lab monitor [--out NAME] [--rate N] -- COMMAND [ARGS ...]",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("monitor"), metavar="NAME", help="writes NAME.csv and NAME.png (default: monitor)"
    )
    parser.add_argument("--rate", type=float, default=10.0, metavar="N", help="samples a second (default: 10)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND [ARGS ...]", help="any program")
    parser.set_defaults(command=monitor)


def monitor(chosen: argparse.Namespace) -> int:
    """Run the command, write both files, and return the command's own exit code."""
    from hpml_lab.cli.foreign import foreign_command
    from hpml_lab.profiling.foreground import exit_code, in_foreground
    from hpml_lab.profiling.monitor import Monitor

    command = foreign_command(chosen.words, "hpml-lab monitor -- python train.py")
    with in_foreground(command) as process, Monitor(chosen.rate, process_id=process.pid) as watched:
        code = exit_code(process.wait())
    from hpml_lab.core import style  # only now: the command does not wait for matplotlib
    from hpml_lab.core.files import atomic_write
    from hpml_lab.profiling.monitor_picture import monitored_run

    table = watched.to_csv(chosen.out.with_name(f"{chosen.out.name}.csv"))
    picture = atomic_write(chosen.out.with_name(f"{chosen.out.name}.png"), style.png(monitored_run(watched.samples).figure))
    used = sum(sample.process_cpu for sample in watched.samples)
    peak = max(sample.rss for sample in watched.samples)
    lines = [
        f"hpml-lab: {watched.seconds:.1f} s, on average {used / max(watched.seconds, 1e-9):.2f} cores, at most {peak:.0f} MiB.",
        f"  The samples are in {table}, their picture in {picture}.",
    ]
    print("\n".join([*lines, *([f"  {watched.note}"] if watched.note else [])]), file=sys.stderr, flush=True)
    return code
