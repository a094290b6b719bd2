"""Commands of the ratchet as forks of one process that has imported it: half a CPU second less for each.

Run as a program it is that process: a line of JSON on stdin is a command, a line on stdout how it ended. A fork gets
the command's folder, environment, files and arguments before the harness has read any of them. Commands that judge run
in one fork, which saves each of them the second in which JAX is imported; the MCP server also runs them in this way.
`serving` is for commands of a copy of the harness.
"""

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

_PROJECT = Path(__file__).parents[2]
# These are read when Python starts or a library is loaded: if they differ, a command gets its own process.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "OPENBLAS_", "OMP_")
# The verbs that judge or trace kernels, and the word before a hypothesis.
_JUDGING = {"experiment", "judge", "replay", "rescale", "champions", "sweep", "new"}
_ROOMS = ("advice", "judge.verdict", "ledger", "loop", "render", "verbs")
# CPU seconds of all forks of this process's commands: benchmarks/cpu_of_tests.py adds them to those of children.
cpu_seconds = 0.0


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


@dataclass(slots=True)
class _Server:
    """The process that forks, started with the first command."""

    process: "subprocess.Popen[str] | None" = None
    is_busy: bool = False


# By the folder of the harness, which is their PYTHONPATH.
_servers = {str(_PROJECT): _Server()}
_STARTED_WITH = _at_start({**os.environ, "PYTHONPATH": str(_PROJECT)})


def can_fork(environment: Mapping[str, str]) -> bool:
    """True if a fork behaves like a new process with this environment."""
    server = _servers.get(environment["PYTHONPATH"])
    if server is None or server.is_busy:
        return False
    return _at_start({**environment, "PYTHONPATH": str(_PROJECT)}) == _STARTED_WITH


@contextmanager
def serving(folder: Path) -> Iterator[None]:
    """Forks commands of the copy of the harness in `folder` as well; the copy must not change any more."""
    _servers[str(folder)] = _Server()
    try:
        yield
    finally:
        _close(_servers.pop(str(folder)))


def run(
    where: Path, arguments: tuple[str, ...], environment: dict[str, str], timeout: float
) -> "subprocess.CompletedProcess[str]":
    """Runs `python -m harness ARGUMENTS` in the folder `where`. Raises TimeoutError."""
    global cpu_seconds
    server = _servers[environment["PYTHONPATH"]]
    if server.process is None or server.process.poll() is not None:
        server.process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    process = server.process
    assert process.stdin is not None
    assert process.stdout is not None
    server.is_busy = True
    try:
        with TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            command = {"where": str(where), "arguments": arguments, "environment": environment}
            process.stdin.write(json.dumps({**command, "out": str(out), "err": str(err)}) + "\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], timeout)[0]:
                process.kill()
                raise TimeoutError(f"{arguments}: no end in {timeout} s")
            code, seconds = json.loads(process.stdout.readline())
            cpu_seconds += seconds
            return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())
    finally:
        server.is_busy = False


@atexit.register
def _close_all() -> None:
    for server in _servers.values():
        _close(server)


def _close(server: _Server) -> None:
    process = server.process
    if process is not None and process.stdin is not None and process.stdout is not None:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def _become(command: dict[str, Any]) -> None:
    """Makes this fork the command's process, up to its first line."""
    os.chdir(command["where"])
    os.environ.clear()
    os.environ.update(command["environment"])
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, command["out"], 0), (2, command["err"], 0)):
        opened = os.open(name, flags or os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.path[0] = command["where"]
    sys.argv = [str(Path(command["environment"]["PYTHONPATH"]) / "harness" / "__main__.py"), *command["arguments"]]


def _serve() -> None:
    import gc
    import importlib
    import pkgutil

    # Not this file's folder: the harness is in PYTHONPATH.
    sys.path[0] = os.environ["PYTHONPATH"]
    for room in _ROOMS:
        package = importlib.import_module(f"harness.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"harness.{room}."):
            importlib.import_module(module.name)
    from harness.shell.main import program

    assert "jax" not in sys.modules, "it reads its settings when it is imported"
    gc.freeze()
    judge = _Judge()
    for line in sys.stdin:
        command = json.loads(line)
        if _JUDGING & {word.partition(":")[0] for word in command["arguments"]}:
            print(judge.answer(line), flush=True)
            continue
        pid = os.fork()
        if not pid:
            _become(command)
            sys.exit(program())
        _, status, used = os.wait4(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]), flush=True)


class _Judge:
    """The fork that runs all commands that judge, one by one: its child that has imported JAX serves all of them."""

    def __init__(self) -> None:
        self._pipes: tuple[TextIO, TextIO] | None = None

    def answer(self, line: str) -> str:
        """The end of the line's command, as a line."""
        if self._pipes is None:
            asked, answered = os.pipe(), os.pipe()
            if not os.fork():
                os.close(asked[1])
                os.close(answered[0])
                _judge_each(os.fdopen(asked[0]), os.fdopen(answered[1], "w"))
                sys.exit(0)
            os.close(asked[0])
            os.close(answered[1])
            self._pipes = os.fdopen(asked[1], "w"), os.fdopen(answered[0])
        self._pipes[0].write(line)
        self._pipes[0].flush()
        return self._pipes[1].readline().rstrip()


def _judge_each(commands: TextIO, answers: TextIO) -> None:
    from harness.shell.main import program

    for line in commands:
        before = os.times()
        _become(json.loads(line))
        try:
            code = program()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        # Keeps no folder and no file busy, like a process that has ended.
        os.chdir("/")
        for number in (1, 2):
            os.dup2(0, number)
        answers.write(json.dumps([code, sum(os.times()[:4]) - sum(before[:4])]) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
