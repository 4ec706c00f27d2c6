"""What the commands share that run somebody else's command."""

from hpml_lab.core.errors import LabError


def foreign_command(words: list[str], example: str) -> list[str]:
    """The command after the options, with or without a `--` before it; LabError if there is none."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise LabError("there is no command to run.", f"For example: {example}")
    return command
