"""XProf's converters and their tables. A converter may crash, so it runs in a child process on copies of the files."""

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
from harness.workbench.profiles.places import SUFFIX
from harness.workbench.profiles.remote import Remote, Source

# A capture of some GB takes minutes.
_SECONDS = 600.0
_HARNESS = str(Path(harness.__file__).parents[1])
# The beginning of a log line of Google's libraries.
_LOG_HEAD = re.compile(r"^[IWEF]\d{4} \S+ +\d+ [\w.]+:\d+\] ")
# The converter's exit code for no answer.
_NOTHING = 3
_LOG_CHARACTERS = 300


def tool(paths: Sequence[Source], name: str) -> bytes:
    """The answer of XProf's tool `name` about the capture in `paths`, mostly JSON.

    The capture is converted on this machine, without writing next to its files, or by the XProf server that has it.
    Raises RatchetError `no-answer` with the reason if the tool does not exist, returns nothing, crashes or takes too
    long.
    """
    return answers(paths, name, ({},))[0]


def answers(paths: Sequence[Source], name: str, option_sets: Sequence[Mapping[str, object]]) -> tuple[bytes, ...]:
    """The answer for each set of options; the capture is copied, and XProf loaded, only once for all sets.

    Raises as `tool` does.
    """
    on_server = [path for path in paths if isinstance(path, Remote)]
    if on_server:
        return remote.answers(on_server, name, option_sets)
    here, what = [Path(str(path)) for path in paths], f"xprof's {name}"
    with tempfile.TemporaryDirectory(prefix="ratchet-xprof-") as scratch:
        # XProf writes caches into the folder of the run.
        copies = [
            Path(scratch) / "run" / (f"{path.name}{SUFFIX}" if modules.is_module(path) else path.name) for path in here
        ]
        answer = Path(scratch) / "answer"
        with refusals_in_words(f"copying {paths[0]}"):
            copies[0].parent.mkdir()
            for path, copy in zip(here, copies, strict=True):
                if modules.is_module(path):
                    copy.write_bytes(modules.xspace(path))
                else:
                    shutil.copyfile(path, copy)
        options = json.dumps([dict(each) for each in option_sets])
        words = [json.dumps([str(copy) for copy in copies]), name, options]
        try:
            process = subprocess.run(
                [sys.executable, "-P", "-m", "harness.workbench.profiles.converter", str(answer), *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                cwd=scratch,
                env={**os.environ, "TMPDIR": scratch, "PYTHONPATH": _HARNESS},
            )
        except subprocess.TimeoutExpired as error:
            why = f"{what} took more than {_SECONDS:g} s for {paths[0]} and was stopped"
            raise RatchetError("no-answer", why) from error
        if process.returncode == 0:
            return tuple(Path(f"{answer}.{number}").read_bytes() for number in range(len(option_sets)))
        how = f"was killed by signal {-process.returncode} on" if process.returncode < 0 else "failed on"
        how = "has no answer for" if process.returncode == _NOTHING else how
        raise RatchetError("no-answer", f"{what} {how} {paths[0]}: {_last_error(process.stderr)}")


def _last_error(printed: bytes) -> str:
    """The last non-empty line of a log, without the prefix of Google's libraries."""
    lines = [line.strip() for line in printed.decode("utf-8", "replace").splitlines() if line.strip()]
    return _LOG_HEAD.sub("", lines[-1])[:_LOG_CHARACTERS] if lines else "it gives no reason"


# --- the tables of XProf's tools (Google's DataTable JSON) ------------------------------------------

Value: TypeAlias = str | float | int | bool | None
# XProf's units in SI units: times are in us, rates in GFLOP/s, bandwidths in GiB/s (xprof 2.24).
MICROSECOND, GIGAFLOPS, GIBIBYTES = 1e-6, 1e9, float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """One table: `rows` map column ids to cells in XProf's units; `properties` are texts."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Value], ...]
    properties: Mapping[str, str]

    def fraction(self, name: str) -> float | None:
        """A property that is a percentage (`54.7%`) as a fraction; None if it is missing."""
        word = self.properties.get(name, "").removesuffix("%")
        return float(word) / 100 if word else None


def ask(paths: Sequence[Source], name: str) -> tuple[DataTable, ...]:
    """The tables in the answer of XProf's tool `name`.

    Raises RatchetError `no-answer`, also if the answer has no tables.
    """
    answer = msgspec.json.decode(tool(paths, name))
    tables = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(table, dict) and (not table or "cols" in table) for table in tables):
        raise RatchetError("no-answer", f"xprof's {name} answered with something other than tables for {paths[0]}")
    return tuple(_table(table) for table in tables)


def number(row: Mapping[str, Value], column: str, scale: float = 1.0) -> float | None:
    """A cell times `scale`; None if it is missing or no number."""
    value = row.get(column)
    return value * scale if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _table(table: Mapping[str, Any]) -> DataTable:
    columns = tuple(column["id"] for column in table.get("cols", ()))
    return DataTable(
        columns=columns,
        # Empty cells come as null, or are left out at the end.
        rows=tuple(
            {name: (cell or {}).get("v") for name, cell in zip(columns, row["c"], strict=False)}
            for row in table.get("rows", ())
        ),
        properties=table.get("p", {}),
    )
