"""A verb that only reads, run for a server in a process of its own, so that a bad file cannot end the server."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from harness import reading_limits
from harness.errors import RatchetError


def answer(verb: str, words: Sequence[str]) -> dict[str, Any]:
    """The document that the verb prints for `words`, which hold --json; it runs as a command line, with its limits.

    Raises RatchetError: the verb's own refusal, or `too-large` where it prints more than an answer may have.
    """
    command = [sys.executable, "-P", "-m", "harness", verb, *words]
    in_utf8 = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, env=in_utf8, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            printed = reading_limits.read_stream(process.stdout, f"the answer of {verb}", reading_limits.ANSWER)
        finally:
            if process.poll() is None:
                process.terminate()
    try:
        document: dict[str, Any] = json.loads(printed)
    except ValueError as error:
        raise RatchetError(
            "reader-died", f"the process that reads for this tool ended with exit code {process.returncode}"
        ) from error
    if "error" in document:
        raise RatchetError(document["error"]["kind"], document["error"]["message"])
    return document
