"""`hpml-lab run SLUG …`: run experiments, print their results, and save them as JSON and PNG."""

import argparse
import os
import shlex
import sys
import time
import traceback
from pathlib import Path

from hpml_lab.cli.shared import FAILED, FINE, INTERRUPTED, RESULTS_FOLDER, load_experiments, print_error, require_writable
from hpml_lab.core.system.errors import LabError


def add_parser(commands) -> None:
    parser = commands.add_parser("run", help="run experiments, print their claims and tables, save them as JSON and PNG")
    parser.add_argument("slugs", nargs="+", metavar="SLUG", help="names from `hpml-lab list`, or all")
    parser.add_argument(
        "--size", default="quick", help="quick (seconds on a laptop; default) or full (the lecture's parameters)"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: a CUDA GPU if there is one)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where to save (default: {RESULTS_FOLDER})")
    parser.set_defaults(command=run_experiments)


def run_experiments(chosen: argparse.Namespace) -> int:
    experiments, device, out = _checked(chosen)
    if _rank() > 0:  # torchrun: the ranks share the work; only rank 0 reports and saves
        for experiment in experiments:
            experiment(chosen.size, chosen.device)
        return FINE
    from hpml_lab.core.experiment import results_folder
    from hpml_lab.core.show import style
    from hpml_lab.core.system.files import atomic_write

    start, total = time.perf_counter(), len(experiments)
    finished, unsaved, crashed, failing = [], [], [], []
    for index, experiment in enumerate(experiments, 1):
        print(f"[{index}/{total}] {experiment.slug}, {chosen.size} on {device}", file=sys.stderr, flush=True)
        result = None
        try:
            result = experiment(chosen.size, chosen.device)
            if not result:
                failing.append(experiment.slug)
            try:
                saved = out is not None and results_folder.save(result, out)
            finally:
                print(result.text(), flush=True)  # on a full disk the result is at least seen
            finished.append(experiment.slug)
            if saved and (figure := result.figure()) is not None:
                atomic_write(out / f"{experiment.slug}.png", style.png(figure))
            print(flush=True)
            if out is not None and not saved:
                unsaved.append(experiment.slug)
                print_error(
                    f"{experiment.slug}: {out} has a run at a larger size, which stays; this one was not saved.",
                    "To keep both, name another folder with --out.",
                )
        except LabError as error:
            crashed.append(experiment.slug)
            print_error(f"{experiment.slug}: {error.problem}", error.fix)
        except KeyboardInterrupt:
            left = [other.slug for other in experiments[index - 1 :] if other.slug not in finished]
            done = f"{'Not saved' if out is None else f'Kept in {out}'}: {', '.join(finished)}."
            print_error(
                f"interrupted. {done if finished else 'Nothing had finished yet.'}",
                f"Not run: {', '.join(left)}." if left else "",
            )
            return INTERRUPTED
        except Exception as error:  # whatever one experiment does, the others are still worth running
            if isinstance(error, BrokenPipeError) and result is not None:  # who reads the output has gone
                raise
            crashed.append(experiment.slug)
            traceback.print_exc()
            print_error(f"{experiment.slug} crashed (above); the other experiments still run.")
    whole = [slug for slug in finished if slug not in crashed]
    where = f"{'the others ' * bool(unsaved)}saved in {out}. One page of them: hpml-lab report {shlex.quote(str(out))}"
    if out is None:
        where = "not saved, because HPML_RESULTS is empty."
    elif set(whole) <= set(unsaved):
        where = "nothing was saved."
    print(f"{len(whole)} of {total} finished in {time.perf_counter() - start:.1f} s; {where}", file=sys.stderr, flush=True)
    if crashed:
        print_error(f"not finished: {', '.join(dict.fromkeys(crashed))}.")
    if failing:
        print_error(f"an exact claim FAILS in {', '.join(failing)}: either this machine or the workbook is wrong.")
    return FAILED if crashed or failing else FINE


def _rank() -> int:
    """This process's number among those that torchrun started; 0 if it started none. Raises LabError for what is no number."""
    try:
        rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError as error:
        raise LabError(f"RANK or WORLD_SIZE is not a number ({error}).", "Unset both, or start ranks with torchrun.") from error
    if rank and not 0 <= rank < size:
        raise LabError(
            f"RANK is {rank} of {size}: there is no such rank, so nothing would be printed or saved.",
            "Unset RANK, which an earlier launch may have left, or start ranks with torchrun.",
        )
    return rank


def _checked(chosen: argparse.Namespace) -> tuple[list, object, Path | None]:
    """The experiments, the device and the folder that were asked for, checked before the first one runs; raises LabError."""
    named = [slug for slug in chosen.slugs if slug != "all"]
    experiments = load_experiments(named, chosen.size)
    if named and "all" in chosen.slugs:  # next to it, too, a slug that does not exist is an error
        experiments = load_experiments([], chosen.size)
    from hpml_lab.core.experiment.results_folder import results_folder
    from hpml_lab.core.system.device import choose_device

    device, out = choose_device(chosen.device), chosen.out or results_folder()
    if out is not None:
        require_writable(out, "--out")
    return experiments, device, out
