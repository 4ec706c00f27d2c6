"""The one kind of error that a user is meant to read."""


class LabError(Exception):
    """An error that the reader can fix: it says what is wrong and what to do.

    Library code raises it for bad input and for limits of the machine; the command line prints it without a traceback.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}")
        self.problem, self.fix = problem, fix

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Pickle both texts: workers of pools and loaders raise this error too."""
        return type(self), (self.problem, self.fix)


class UnreadableFile(LabError):
    """A file cannot be read, and the problem says which one: the fault of a scan may be in a file next to its header."""


def error_text(error: BaseException) -> str:
    """An error's text; that of its arguments, if its own cannot be made."""
    try:
        return str(error)
    except Exception:  # a __str__ that raises
        return " ".join(arg for arg in error.args if isinstance(arg, str))
