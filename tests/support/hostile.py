"""A child that runs the code that it is sent, as kernel.py is run, but without JAX, so that it starts quickly."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from harness.records import Failure
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.messages import Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Python code to run; its result is the value of `found`."""

    text: str


def run(source: Source) -> Done:
    """The value of `found` after running the code, in words."""
    names = {"found": ""}
    exec(source.text, names)
    return Done(path=str(names["found"]))


def attack(
    directory: Path, text: str, *, are_confined: bool, seconds: float = 20, memory_bytes: int = 1 << 30
) -> tuple[str | Failure, tuple[str, ...]]:
    """The value of `found` after running `text` in a child of its own, or its failure; and processes left behind."""
    variables = environment.on_cpu()
    variables["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
    directory.mkdir(exist_ok=True)
    with Children(memory_bytes, are_confined=are_confined) as children:
        child = children.start("candidate", "hostile", directory, variables)
        children.ask(child, "run", "contract", "run", Source(text=text), Done, seconds)
        _, reply = children.wait()
    return (reply if isinstance(reply, Failure) else reply.path), tuple(children.left_behind.values())


def is_alive(pid: int) -> bool:
    """True if the process still runs; one that only waits to be reaped does not."""
    state = b"X"
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    return state not in (b"Z", b"X")


TASKS = {"run": (Source, run)}
