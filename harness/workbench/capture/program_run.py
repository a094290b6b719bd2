"""A user's program run in a child of its own, in the user's environment, with a limit on its time."""

import os
import tempfile
from pathlib import Path

import harness
from harness.errors import RatchetError, UsageError
from harness.records import Failure
from harness.records.doctor import ProgramRun
from harness.sandbox.child import Children
from harness.workbench.capture.messages import SECOND_CALL, ProgramRequest
from harness.workbench.doctor import jax_errors
from harness.workbench.doctor.second_call import second_call

# A program may hold what the machine has; it is the user's own.
_BYTES = 1 << 50


def program_run(module: str, limit_seconds: float) -> ProgramRun:
    """Runs `MODULE.py:FUNCTION` twice, or `MODULE.py` once as a main program, unconfined: it is the user's own.

    Raises UsageError `no-module`, RatchetError with the kind of what ended it.
    """
    name, _, function = module.partition(":")
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError("no-module", f"expected MODULE.py or MODULE.py:FUNCTION, got {module!r}: no file {path}")
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch, Children(_BYTES, are_confined=False) as children:
        paths = [str(Path(harness.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        child = children.start("program", "harness.workbench.capture.programs", Path(scratch), given)
        request = ProgramRequest(
            path=str(path), function=function, home=str(Path.home()), directory=str(Path.cwd()), scratch=scratch
        )
        children.ask(child, path.name, "contract", "run", request, ProgramRun, limit_seconds)
        _, reply = children.wait()
        profile = next((Path(scratch) / SECOND_CALL).rglob("*.xplane.pb"), None)
        if isinstance(reply, ProgramRun) and profile is not None:
            reply = second_call(reply, profile)
    if isinstance(reply, Failure):
        told = jax_errors.translated(reply.message, reply.detail, path.name)
        if told:
            raise RatchetError("jax-error", told)
        detail = f"\n{reply.detail}" if reply.detail else ""
        raise RatchetError(reply.kind, f"{path.name}: {reply.message}{detail}")
    assert isinstance(reply, ProgramRun)
    return reply
