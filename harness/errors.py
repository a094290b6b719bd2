"""The errors a person can act on, each with a stable kind; anything else that escapes is a bug."""


class RatchetError(Exception):
    """A known error: `kind` is stable for programs, the text says expected, got, where and what to do next."""

    exit_code = 4

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UsageError(RatchetError):
    """The command line itself is wrong."""

    exit_code = 2
