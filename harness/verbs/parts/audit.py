"""The work of `audit`: the flags of a launch script, of the environment, or of a capture."""

import os
import sys
from argparse import Namespace
from pathlib import Path

from harness import reading_limits
from harness.dumps import xplane
from harness.errors import Limit, RatchetError
from harness.files import refusals_in_words
from harness.hardware import chip
from harness.records.doctor import Settings
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.workbench.doctor import findings, known_flags, settings
from harness.workbench.doctor.flag_rules import RuleSubject, audit
from harness.workbench.profiles.places import SUFFIX

# A launch script is written by a person, so it is short.
_SCRIPT_BYTES = 4 << 20
_SCRIPT = Limit(counts="bytes in a launch script", most=_SCRIPT_BYTES, variable="RATCHET_MAX_SCRIPT_BYTES")


def run(arguments: Namespace) -> Outcome:
    target = chip(arguments.chip) if arguments.chip else None
    flags = _settings_in(arguments.file)
    is_capture = bool(arguments.file and arguments.file.endswith(SUFFIX))
    (table, every), fails = audit(
        RuleSubject(flags, known_flags.ask_libraries(flags), target, tuple(arguments.symptom), is_capture=is_capture)
    )
    return outcome_of("audit", (table, every), (findings.for_people(table), every), exit_code=1 if fails else 0)


def _settings_in(file: str | None) -> Settings:
    """The flags of a file, of stdin (`-`), or of the environment (None). Raises RatchetError."""
    if file is None:
        return settings.of_environment(os.environ)
    if file == "-":
        text = sys.stdin.read(_SCRIPT.value + 1)
        _SCRIPT.check(len(text), "stdin")
        reading_limits.note(len(text))
        return settings.of_script(text, "stdin")
    path = Path(file)
    with refusals_in_words(f"reading {path}"):
        if path.name.endswith(SUFFIX):
            return settings.of_capture(xplane.read(reading_limits.read(path), str(path)), path.name)
        data = reading_limits.read(path)
    if len(data) > _SCRIPT_BYTES or b"\0" in data:
        raise RatchetError(
            "not-a-script",
            f"expected a launch script (text, at most {_SCRIPT_BYTES >> 20} MiB) or a capture (*{SUFFIX}), got "
            f"{path}: {len(data):,} bytes{', some of them 0' if 0 in data else ''}",
        )
    return settings.of_script(data.decode("utf-8", "replace"), path.name)
