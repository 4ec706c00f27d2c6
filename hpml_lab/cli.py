"""The command `hpml-lab`: list, run, report, doctor, data fetch.

Imports are late on purpose: `--help` answers at once, and `doctor` works where torch is missing or broken.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from hpml_lab import __version__
from hpml_lab.core import machine
from hpml_lab.core.errors import LabError

FINE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130  # exit codes; 130 is the shell's own for Ctrl-C


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 something failed, 2 wrong input, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a dash, and no error
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if not hasattr(chosen, "command"):
        parser.print_help()
        return WRONG_INPUT
    try:
        code = chosen.command(chosen)
        sys.stdout.flush()
        return code
    except LabError as error:
        _tell(error.problem, error.fix)
        return WRONG_INPUT
    except KeyboardInterrupt:
        _tell("interrupted.", "Run the same command again; what was finished is kept.")
        return INTERRUPTED
    except BrokenPipeError:  # `hpml-lab list | head`: the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hpml-lab", description="Experiments of five lectures on high-performance machine learning, run on this machine."
    )
    parser.add_argument("--version", action="version", version=f"hpml-lab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")  # its name in an error, too

    one = commands.add_parser("list", help="all experiments: slug, notebook, lectures, title")
    one.set_defaults(command=_list)

    one = commands.add_parser("run", help="run experiments, print their tables and claims, save them as JSON and PNG")
    one.add_argument("slugs", nargs="+", metavar="SLUG", help="names from `hpml-lab list`, or all")
    one.add_argument("--size", default="quick", help="quick (seconds on a laptop; default) or full (the lecture's parameters)")
    one.add_argument("--device", help="cpu, cuda or cuda:N (default: a CUDA GPU where there is one)")
    one.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="where to save (default: results)")
    one.set_defaults(command=_run)

    one = commands.add_parser("report", help="make one HTML page of the results in a folder")
    one.add_argument("folder", type=Path, metavar="DIR", help="the folder that `hpml-lab run --out DIR` filled")
    one.add_argument("--out", type=Path, metavar="FILE", help="the page (default: DIR/report.html)")
    one.set_defaults(command=_report)

    one = commands.add_parser("doctor", help="what this machine is and what each notebook can show on it, with the mends")
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(command=_doctor)

    one = commands.add_parser("data", help="data sets that do not ship with the workbook")
    actions = one.add_subparsers(title="actions", metavar="ACTION", required=True)
    one = actions.add_parser("fetch", help="download a data set, check it, and keep it")
    one.add_argument("name", metavar="NAME", help="mnist")
    one.add_argument("--to", type=Path, metavar="DIR", help="the data folder (default: HPML_DATA, else the project's data/)")
    one.set_defaults(command=_fetch)
    return parser


def _tell(wrong: str, mend: str = "") -> None:
    print(f"hpml-lab: {wrong}" + (f"\n  {mend}" if mend else ""), file=sys.stderr, flush=True)


def _registry():
    """The module of the experiments' registry; LabError where torch, or one of the topics, does not load."""
    machine.require_torch()
    try:
        from hpml_lab.core import experiment

        experiment.all_experiments()
    except Exception as error:  # a broken installation fails in many ways
        raise LabError(
            f"the experiments do not load ({type(error).__name__}: {error}).", "`hpml-lab doctor` says what to mend."
        ) from error
    return experiment


# ---- list ------------------------------------------------------------------------------------------------------------


def _list(_: argparse.Namespace) -> int:
    from hpml_lab.core.paths import REFERENCE

    rows = [("slug", "notebook", "lectures", "reference", "title")]
    for one in _registry().all_experiments():
        recorded = "yes" if (REFERENCE / f"{one.slug}.json").is_file() else "no"
        rows.append((one.slug, one.notebook, one.lecture, recorded, one.title))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return FINE


# ---- run -------------------------------------------------------------------------------------------------------------


def _run(chosen: argparse.Namespace) -> int:
    experiments, device = _checked(chosen)
    if os.environ.get("RANK", "0") != "0":  # torchrun: the ranks share the work; rank 0 alone tells and saves
        for one in experiments:
            one(chosen.size, chosen.device)
        return FINE
    from hpml_lab.core import render, style
    from hpml_lab.core.files import atomic_write

    out, start, total = chosen.out, time.perf_counter(), len(experiments)
    finished, crashed, untrue = [], [], []
    for place, one in enumerate(experiments, 1):
        print(f"[{place}/{total}] {one.slug}, {chosen.size} on {device}", file=sys.stderr, flush=True)
        try:
            result = one(chosen.size, chosen.device)
            if not result:
                untrue.append(one.slug)
            try:
                result.save(out)
            finally:
                print(render.text(result), flush=True)  # on a full disk the table is at least seen
            (out / f"{one.slug}.png").unlink(missing_ok=True)  # an older picture shall not stand beside a newer result
            finished.append(one.slug)
            if (figure := result.figure()) is not None:
                atomic_write(out / f"{one.slug}.png", style.png(figure))
            print(flush=True)
        except LabError as error:
            crashed.append(one.slug)
            _tell(f"{one.slug}: {error.problem}", error.fix)
        except KeyboardInterrupt:
            left = [other.slug for other in experiments[place - 1 :] if other.slug not in finished]
            kept = f"Kept in {out}: {', '.join(finished)}." if finished else "Nothing had finished yet."
            _tell(f"interrupted. {kept}", f"Not run: {', '.join(left)}." if left else "")
            return INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception:  # whatever one experiment does, the others are still worth running
            crashed.append(one.slug)
            traceback.print_exc()
            _tell(f"{one.slug} crashed (above); the other experiments still run.")
    kept = [slug for slug in finished if slug not in crashed]
    print(
        f"{len(kept)} of {total} finished in {time.perf_counter() - start:.1f} s; saved in {out}. "
        f"One page of them: hpml-lab report {out}",
        file=sys.stderr,
        flush=True,
    )
    if crashed:
        _tell(f"not finished: {', '.join(dict.fromkeys(crashed))}.")
    if untrue:
        _tell(f"an exact claim FAILS in {', '.join(untrue)}: this machine or the workbook is at fault.")
    return FAILED if crashed or untrue else FINE


def _checked(chosen: argparse.Namespace) -> tuple[list, object]:
    """The experiments and the device that were asked for, all checked before the first one runs; raises LabError."""
    registry = _registry()
    from hpml_lab.core.device import choose_device

    if chosen.size not in registry.SIZES:
        raise LabError(f"{chosen.size!r} is not a size.", f"Use {' or '.join(registry.SIZES)}.")
    device = choose_device(chosen.device)
    experiments = [registry.find(slug) for slug in dict.fromkeys(chosen.slugs) if slug != "all"]
    if "all" in chosen.slugs:  # beside it, too, a slug that does not exist is told
        experiments = list(registry.all_experiments())
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=chosen.out).close()
    except OSError as error:
        raise LabError(
            f"results cannot be saved in {chosen.out} ({error.strerror}).", "Choose another folder with --out."
        ) from error
    return experiments, device


# ---- the others ------------------------------------------------------------------------------------------------------


def _report(chosen: argparse.Namespace) -> int:
    _registry()
    from hpml_lab.report import write_report

    page, left_out = write_report(chosen.folder, chosen.out)
    for name, why in left_out:
        _tell(f"left out {name}: {why}")
    print(page)
    return FINE


def _doctor(chosen: argparse.Namespace) -> int:
    import shutil

    from hpml_lab.start.doctor import examine

    print("Looking at this machine; loading torch takes some seconds.", file=sys.stderr, flush=True)
    found = examine()
    print(found.as_json() if chosen.json else found.as_text(min(shutil.get_terminal_size().columns, 110)))
    return FINE if found.ready else FAILED


def _fetch(chosen: argparse.Namespace) -> int:
    if chosen.name != "mnist":
        raise LabError(f"no data set that can be fetched is called {chosen.name!r}.", "Use mnist.")
    machine.require_torch()
    from hpml_lab.data.fetch import fetch_mnist

    print(f"MNIST is complete and checked: {fetch_mnist(chosen.to)}")
    return FINE
