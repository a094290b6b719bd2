"""XProf's own conversion of captures, asked in a child on copies of the files: it may log, crash or hang there."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import harness
from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.workbench.profiles import module_files, remote
from harness.workbench.profiles.remote import Remote, Source

# A capture of some GB takes minutes.
_SECONDS = 600.0
_HARNESS = str(Path(harness.__file__).parents[1])
# How libraries of Google begin a line of their logs.
_LOG_HEAD = re.compile(r"^[IWEF]\d{4} \S+ +\d+ [\w.]+:\d+\] ")
# The converter's exit code for no answer.
_NOTHING = 3
_LOG_CHARACTERS = 300


def tool(paths: Sequence[Source], name: str) -> bytes:
    """What XProf's tool `name` makes of the capture in `paths`, mostly JSON: converted here without
    writing beside it, or as the server says where the capture is on one.

    Raises RatchetError `no-answer`: the tool does not exist, has nothing to say about this
    capture, crashed, or took too long; the text says which.
    """
    return answers(paths, name, ({},))[0]


def answers(paths: Sequence[Source], name: str, asked: Sequence[Mapping[str, object]]) -> tuple[bytes, ...]:
    """Likewise for each of several sets of options; the capture is copied and XProf loaded once for all of them."""
    there = [path for path in paths if isinstance(path, Remote)]
    return (
        remote.answers(there, name, asked) if there else _convert_here([Path(str(path)) for path in paths], name, asked)
    )


def _convert_here(paths: Sequence[Path], name: str, asked: Sequence[Mapping[str, object]]) -> tuple[bytes, ...]:
    what = f"xprof's {name}"
    with tempfile.TemporaryDirectory(prefix="ratchet-xprof-") as scratch:
        # It writes caches into the folder of the run.
        copies = [Path(scratch) / "run" / _profile_name(path) for path in paths]
        answer = Path(scratch) / "answer"
        with refusals_in_words(f"copying {paths[0]}"):
            copies[0].parent.mkdir()
            for path, copy in zip(paths, copies, strict=True):
                if module_files.is_module(path):
                    copy.write_bytes(module_files.xspace(path))
                else:
                    shutil.copyfile(path, copy)
        words = [json.dumps([str(copy) for copy in copies]), name, json.dumps([dict(options) for options in asked])]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "harness.workbench.profiles.converter", str(answer), *words],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
                cwd=scratch, env={**os.environ, "TMPDIR": scratch, "PYTHONPATH": _HARNESS},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise RatchetError(
                "no-answer", f"{what} took more than {_SECONDS:g} s for {paths[0]} and was ended"
            ) from error
        if done.returncode == 0:
            return tuple(Path(f"{answer}.{number}").read_bytes() for number in range(len(asked)))
        if done.returncode == _NOTHING:
            raise RatchetError("no-answer", f"{what} has no answer for {paths[0]}: {_last_error(done.stderr)}")
        how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else "failed"
        raise RatchetError("no-answer", f"{what} {how} on {paths[0]}: {_last_error(done.stderr)}")


def _profile_name(path: Path) -> str:
    return f"{path.name}.xplane.pb" if module_files.is_module(path) else path.name


def _last_error(printed: bytes) -> str:
    """The last line of a log that says something."""
    lines = [line.strip() for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
    return _LOG_HEAD.sub("", lines[-1])[:_LOG_CHARACTERS] if lines else "it says nothing about why"
