"""Commands in the test's own process: their exit codes are checked, and the tests read their output."""

import json
from typing import Any, NamedTuple

import pytest

from harness.shell.main import main


class Output(NamedTuple):
    """The text that a command wrote to stdout and to stderr."""

    out: str
    err: str


class Shell:
    """Runs commands. `words` may be paths too, and `code` several exit codes; earlier output is dropped."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *words: object, code: int | tuple[int, ...] = 0) -> Output:
        """The output of a command."""
        self._capsys.readouterr()
        try:
            exit_code = main([str(word) for word in words])
        except SystemExit as ended:
            # The end of --help.
            exit_code = int(ended.code or 0)
        output = Output(*self._capsys.readouterr())
        assert exit_code in (code if isinstance(code, tuple) else (code,)), f"{words}: exit {exit_code}\n{output.err}"
        return output

    def printed(self, *words: object, code: int | tuple[int, ...] = 0) -> str:
        """The text on stdout."""
        return self.run(*words, code=code).out

    def complaint(self, *words: object, code: int | tuple[int, ...]) -> str:
        """The text on stderr."""
        return self.run(*words, code=code).err

    def document(self, *words: object, code: int | tuple[int, ...] = 0) -> Any:
        """The document that the command prints with --json."""
        return json.loads(self.printed(*words, "--json", code=code))
