"""`hpml-lab reference`: record every experiment at full size on this machine, then run the tests that need its GPU."""

import argparse
import re
import sys
import time
from pathlib import Path

from hpml_lab.cli.shared import FAILED, FINE, YEAR, load_experiments, number, print_error, require_writable
from hpml_lab.core.system.errors import LabError

UNITS = {"s": 1, "m": 60, "h": 3600}


def duration(text: str) -> float:
    """Seconds of a duration such as 90s, 25m or 1.5h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a valid duration: write 90s, 25m or 1.5h")
    return number(0, YEAR)(str(float(found[1]) * UNITS[found[2]]))


def add_parser(commands) -> None:
    parser = commands.add_parser("reference", help="record experiments at full size, and run the tests that need a GPU")
    parser.add_argument("slugs", nargs="*", metavar="SLUG", help="names from `hpml-lab list` (default: all)")
    parser.add_argument("--again", action="store_true", help="record also what is recorded already")
    parser.add_argument("--budget", type=duration, default="25m", metavar="TIME", help="time in all (default: 25m)")
    parser.add_argument("--deadline", type=duration, default="5m", metavar="TIME", help="time for each (default: 5m)")
    parser.add_argument("--size", default="full", help="full (default) or quick")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: a CUDA GPU if there is one)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where recorded runs go (default: data/reference)")
    parser.add_argument(
        "--log", type=Path, default=Path("results/reference"), metavar="DIR", help="page, pictures (default: results/reference)"
    )
    parser.set_defaults(command=record_references)


def record_references(chosen: argparse.Namespace) -> int:
    """Run what is not recorded yet, most telling first, and end with one page, also when interrupted."""
    end = time.monotonic() + chosen.budget
    experiments = load_experiments(chosen.slugs, chosen.size)
    from hpml_lab import references
    from hpml_lab.core.system.files import atomic_write
    from hpml_lab.core.system.paths import CHECKOUT, REFERENCE

    if not chosen.out and not CHECKOUT:
        raise LabError("an installed package keeps its recorded runs as they are.", "Name a folder: --out DIR")
    out = chosen.out or REFERENCE
    require_writable(out, "--out")
    require_writable(chosen.log, "--log")
    device, here = references.device_and_machine(chosen.device)
    log = chosen.log / "outcomes.json"
    outcomes = references.load_outcomes(log)
    failed_before = [outcome.slug for outcome in outcomes.values() if outcome.is_wrong]
    recorded = [e for e in experiments if references.is_recorded(e, chosen.size, here, out)]
    left = references.by_value([e for e in experiments if chosen.again or e not in recorded], failed_before)
    print(f"{len(recorded)} of {len(experiments)} are recorded; {len(left)} to run on {device}", file=sys.stderr)
    untried = [experiment.slug for experiment in left]

    def keep(outcome: references.Outcome) -> None:
        outcomes[outcome.slug] = outcome
        references.save_outcomes(log, outcomes)
        print(f"{outcome.seconds:.1f} s: {outcome.state}", file=sys.stderr, flush=True)

    try:
        for index, experiment in enumerate(left, 1):
            remaining = end - time.monotonic()
            if remaining < references.LEAST_SECONDS:
                break
            expected = references.expected_seconds(experiment, chosen.size, out)
            if expected > remaining:
                print(f"[{index}/{len(left)}] {experiment.slug}: {expected:.0f} s do not fit any more", file=sys.stderr)
                continue
            print(f"[{index}/{len(left)}] {experiment.slug} … ", end="", file=sys.stderr, flush=True)
            deadline = min(chosen.deadline, remaining)
            outcome = references.record(experiment, chosen.size, device, out, chosen.log, deadline)
            if outcome.state == references.LATE and deadline < chosen.deadline:
                print("no time left", file=sys.stderr, flush=True)  # not its fault: it is tried again next time
                break
            keep(outcome)
            untried.remove(experiment.slug)
        if not chosen.slugs:
            keep(references.run_cuda_tests(device, end - time.monotonic()))
    finally:
        old = {e.slug: commit for e in experiments if (commit := references.outdated(e, out))}
        text = references.page(outcomes, untried, old, here, chosen.size)
        atomic_write(chosen.log / "page.md", text)
        print(text, flush=True)
    asked = [experiment.slug for experiment in left] + [references.TESTS] * (not chosen.slugs)  # not what earlier calls were
    wrong = [slug for slug in asked if slug in outcomes and outcomes[slug].is_wrong]
    if wrong:
        print_error(f"failed: {', '.join(wrong)}.", "The page says why; run the same command again to try them once more.")
    return FAILED if wrong else FINE
