"""XProf's own converters, asked in a child on copies of the files (they may log, crash or hang), and their tables."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

import harness
from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.workbench.profiles import modules, remote
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
                if modules.is_module(path):
                    copy.write_bytes(modules.xspace(path))
                else:
                    shutil.copyfile(path, copy)
        words = [json.dumps([str(copy) for copy in copies]), name, json.dumps([dict(options) for options in asked])]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "harness.workbench.profiles.converter", str(answer), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                cwd=scratch,
                env={**os.environ, "TMPDIR": scratch, "PYTHONPATH": _HARNESS},
            )
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
    return f"{path.name}.xplane.pb" if modules.is_module(path) else path.name


def _last_error(printed: bytes) -> str:
    """The last line of a log that says something."""
    lines = [line.strip() for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
    return _LOG_HEAD.sub("", lines[-1])[:_LOG_CHARACTERS] if lines else "it says nothing about why"


# --- the tables of XProf's tools (Google's DataTable JSON) ------------------------------------------

Value: TypeAlias = str | float | int | bool | None
# XProf's units in SI: its times are us, its rates GFLOP/s, its bandwidths GiB/s (facts of xprof 2.24).
MICROSECOND, GIGAFLOPS, GIBIBYTES = 1e-6, 1e9, float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """One table: `rows` by the columns' ids, in XProf's units, and `properties`, which are words."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Value], ...]
    properties: Mapping[str, str]

    def fraction(self, name: str) -> float | None:
        """A property that is a percentage (`54.7%`), None where it is not there."""
        word = self.properties.get(name, "").removesuffix("%")
        return float(word) / 100 if word else None


def ask(paths: Sequence[Source], name: str) -> tuple[DataTable, ...]:
    """The tables that XProf's tool `name` answers with. Raises RatchetError `no-answer`, also for what is no table."""
    answer = msgspec.json.decode(tool(paths, name))
    found = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(one, dict) and (not one or "cols" in one) for one in found):
        raise RatchetError("no-answer", f"xprof's {name} answered with something else than tables for {paths[0]}")
    return tuple(_table(one) for one in found)


def number(row: Mapping[str, Value], column: str, scale: float = 1.0) -> float | None:
    """A cell times `scale`; None where it is not there, or no number."""
    value = row.get(column)
    return value * scale if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _table(said: Mapping[str, Any]) -> DataTable:
    columns = tuple(column["id"] for column in said.get("cols", ()))
    return DataTable(
        columns=columns,
        # Cells that say nothing come as null or are left out at the end.
        rows=tuple(
            {name: (cell or {}).get("v") for name, cell in zip(columns, row["c"], strict=False)}
            for row in said.get("rows", ())
        ),
        properties=said.get("p", {}),
    )
