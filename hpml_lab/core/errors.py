"""The one kind of error that a user is meant to read."""


class LabError(Exception):
    """Something that the reader can mend: says what is wrong and what to do.

    Library code raises it for bad input and for limits of the machine; the command line prints it without a traceback.
    """

    def __init__(self, wrong: str, mend: str) -> None:
        super().__init__(f"{wrong} {mend}")
        self.wrong, self.mend = wrong, mend

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """An exception is pickled by its one text; this one takes two, and comes from workers of pools and loaders."""
        return type(self), (self.wrong, self.mend)
