"""What is said to the process that runs a user's program: which file and function, and what it may not know."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """Run `path`: its function without arguments twice, or (`function` empty) the file as a main program, once.

    `home` and `directory` are the user's own; `scratch` is where dumps go.
    """

    path: str
    function: str
    home: str
    directory: str
    scratch: str
