"""What the exercises that ask for a dictionary of answers have in common."""

from collections.abc import Iterable

from hpml_lab.core.exercises import Mistake


def expect_keys_and_type(answer: object, keys: Iterable[str], kind: type | tuple[type, ...], description: str) -> None:
    """Raise Mistake unless `answer` is a dictionary with exactly these keys, and values of type `kind`."""
    keys = list(keys)
    if not isinstance(answer, dict) or set(answer) != set(keys):
        raise Mistake("wrong-keys", f"Keep the dictionary's keys as they were: {', '.join(keys)}.")
    if not all(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for value in answer.values()):
        raise Mistake("wrong-type", f"Each value is {description}.")
