"""`hpml-lab tune MODULE:FUNCTION`: the fastest DataLoader settings for a data set or a loader of your own."""

import argparse
import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from hpml_lab.cli.shared import FAILED, FINE, YEAR, number, print_error
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError

SECONDS, COUNT, WORKERS = number(0, YEAR), number(1, 10**9, whole=True), number(0, 1024, whole=True)  # what an option takes
BATCH_SIZE = 32  # for a data set, which has none of its own
EXAMPLE = "For example `hpml-lab tune train:make_data`, with train.py in the current folder."


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "tune",
        help="the fastest DataLoader settings for a data set or loader of your own",
        usage="%(prog)s MODULE:FUNCTION [options] [-- ARGS]",
        epilog="The module finds its file and ARGS in sys.argv, as if it had been started with them.",
    )
    parser.add_argument(
        "target",
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns a Dataset or a DataLoader, or a tuple, list or dictionary of them, "
        "such as one to train and one to test, of which the first is taken; its module is looked for here first",
    )
    parser.add_argument("--batch-size", type=COUNT, metavar="N", help=f"default: the loader's; {BATCH_SIZE} for a Dataset")
    parser.add_argument(
        "--step-seconds",
        type=SECONDS,
        default=0.0,
        metavar="S",
        help="how long your training step takes on a batch (default: 0)",
    )
    parser.add_argument("--epochs", type=COUNT, default=10, metavar="N", help="epochs of the training to come (default: 10)")
    parser.add_argument(
        "--max-workers",
        type=number(0, 1024, whole=True),
        metavar="N",
        help="most workers to try (default: 8, or the cores if more)",
    )
    parser.add_argument(
        "--budget-seconds", type=SECONDS, default=30.0, metavar="S", help="after which no further trial begins (default: 30)"
    )
    parser.add_argument(
        "--deadline-seconds", type=SECONDS, default=20.0, metavar="S", help="within which each batch must come (default: 20)"
    )
    parser.set_defaults(command=tune)
    parse = parser.parse_known_args

    def parse_before_dashes(arguments: list[str], namespace: Any = None) -> tuple[Any, list[str]]:
        """argparse itself takes what comes after -- for more of the positional arguments."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        chosen, unknown = parse(arguments[:end], namespace)
        chosen.script_arguments = arguments[end + 1 :]
        return chosen, unknown

    parser.parse_known_args = parse_before_dashes


def tune(chosen: argparse.Namespace) -> int:
    """Run the trials and print the chosen settings, the gain and all trials.

    An error of the user's code is shown with its traceback and gives 1; its SystemExit and Ctrl-C pass through.
    """
    module, function = _named(chosen.target)
    machine.require_torch()
    with _argv(chosen.script_arguments):
        return _tune(chosen, module, function)


def _tune(chosen: argparse.Namespace, module: str, function: str) -> int:
    try:
        data = _found(module, function)()
    except LabError:
        raise
    except Exception:
        traceback.print_exc()
        print_error(f"{chosen.target} failed (above).")
        return FAILED
    from torch.utils.data import DataLoader, Dataset

    from hpml_lab.loading.tools.tuner import is_data
    from hpml_lab.loading.tools.tuner import tune as find_settings

    several = list(data.values()) if isinstance(data, dict) else data
    if isinstance(several, tuple | list) and several and isinstance(several[0], Dataset | DataLoader):
        data = several[0]
    is_loader = isinstance(data, DataLoader)
    if not is_data(data):
        raise LabError(f"{chosen.target} returned a {type(data).__name__}.", "Return a Dataset or a DataLoader.")
    batch_size = BATCH_SIZE if chosen.batch_size is None and not is_loader else chosen.batch_size
    try:
        tuned = find_settings(
            data,
            batch_size,
            step_seconds=chosen.step_seconds,
            epochs=chosen.epochs,
            max_workers=chosen.max_workers,
            budget_seconds=chosen.budget_seconds,
            deadline_seconds=chosen.deadline_seconds,
        )
    except LabError as error:
        if error.__cause__ is None:  # what was asked for is wrong
            raise
        traceback.print_exception(error.__cause__)  # the data set failed
        print_error(error.problem, error.fix)
        return FAILED
    print(tuned)
    options = ", ".join(f"{name}={value!r}" for name, value in tuned.options.items())
    print(f"\nDataLoader(dataset, batch_size={tuned.batch_size}, {options})")
    return FINE


def _named(target: str) -> tuple[str, str]:
    module, colon, function = target.partition(":")
    if not (module and colon and function):
        raise LabError(f"{target!r} does not name a function.", f"Use MODULE:FUNCTION. {EXAMPLE}")
    if module.endswith(".py") or "/" in module:
        raise LabError(f"{module!r} is a file, not a module.", f"Leave out .py, and write folders with dots. {EXAMPLE}")
    return module, function


@contextlib.contextmanager
def _argv(arguments: list[str]) -> Iterator[None]:
    """The module's own sys.argv, for its options; the name of its file comes first, once it is known."""
    given, sys.argv = sys.argv, ["", *arguments]
    try:
        yield
    finally:
        sys.argv = given


def _found(module: str, function: str) -> Callable[[], Any]:
    """The function, imported with the current folder first on the path; what the module's own code raises passes."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    package = module.partition(".")[0]
    for name in dict.fromkeys((package, module)):  # a package is imported to find a module in it
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            if error.name != name:  # of an import in the package
                raise
            spec = None
        if spec is None:
            raise LabError(f"no module is called {module!r} here.", EXAMPLE)
        sys.argv[0] = spec.origin or name
    own = os.path.dirname(spec.origin or "")
    if own not in sys.path and spec.submodule_search_locations is None:
        sys.path.append(own)  # where `python FILE` finds the modules next to it
    found = importlib.import_module(module)
    for name in function.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise LabError(f"the module {module!r} ({sys.argv[0]}) has no function {function!r}.", EXAMPLE)
    return found
