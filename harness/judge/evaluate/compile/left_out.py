"""Finds the kernel options in a program's bytes that make the compiler leave checks out, and sets them to false.

This is unrelated to the pass of XLA that the judge itself leaves out on the CPU (interpret/as_written.py).
"""

from dataclasses import dataclass
from pathlib import Path

from harness.judge.evaluate.messages import CompileRequest

# The options as JAX writes them into the configuration of a kernel's call.
_OPTIONS = (b'"disable_bounds_checks": true', b'"disable_semaphore_checks": true')


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCompileRequest(CompileRequest):
    """A request to compile a program together with the checks that its own options leave out."""


def leaves_out_checks(artifact: Path) -> bool:
    """True if a kernel of this exported program asks the compiler to leave checks out."""
    program = artifact.read_bytes()
    return any(option in program for option in _OPTIONS)


def with_checks(program: bytes) -> bytes:
    """The same program with all checks in its kernels, in the same number of bytes."""
    for option in _OPTIONS:
        program = program.replace(option, option.replace(b": true", b":false"))
    return program
