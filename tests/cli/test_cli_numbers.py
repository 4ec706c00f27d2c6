"""Numbers from the command line have bounds: none asks for work without end, or for a time that no clock can count."""

import argparse

import pytest

from hpml_lab.cli import COMMANDS, main
from hpml_lab.cli.shared import WRONG_INPUT, number


def numeric_options():
    """(command, option, its type) of each option of each command that takes something else than a text or a path."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    for module in COMMANDS:
        module.add_parser(commands)
    for name, command in commands.choices.items():
        for action in command._actions:
            if action.type not in (None, str) and "Path" not in repr(action.type):
                yield pytest.param(name, action.option_strings[-1], action.type, id=f"{name}{action.option_strings[-1]}")


def test_the_options_are_found():
    assert len(list(numeric_options())) >= 13


@pytest.mark.parametrize("command, option, kind", list(numeric_options()))
def test_a_number_without_a_bound_is_wrong_input(command, option, kind, capsys):
    assert kind not in (int, float), "use `number(low, high)` of cli/shared.py"
    for text in ("nan", "inf", "-inf", "1e300", "9" * 30, "9" * 5000, "-1", "", "x", "1,000", f"{'9' * 30}h"):
        with pytest.raises(SystemExit) as ended:
            main([command, f"{option}={text}", "x"])
        shown = capsys.readouterr().err
        assert ended.value.code == WRONG_INPUT and option in shown and len(shown) < 3000 and "Traceback" not in shown


def test_bounds_belong_to_the_range_and_whole_numbers_are_whole():
    read = number(0, 10)
    assert read("0") == 0 and read("10") == 10.0 and read("2.5") == 2.5
    assert number(1, 3, whole=True)("3") == 3
    with pytest.raises(argparse.ArgumentTypeError, match="'2.5' is not a whole number from 1 to 3"):
        number(1, 3, whole=True)("2.5")
