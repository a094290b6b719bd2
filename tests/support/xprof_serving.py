"""The verb `serve` with the real XProf server, in a process of its own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The verb in a process, and its greeting; the process is ended in any case."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        greeting = ""
        # The address for other machines is its last line.
        while "ssh -L" not in greeting and "runs are read when" not in greeting:
            line = process.stdout.readline()
            assert line, f"ended with {process.wait()}: {process.stderr.read() if process.stderr else ''}"
            greeting += line
        yield process, greeting
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
