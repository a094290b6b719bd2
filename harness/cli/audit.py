"""What `audit` says of the flags of a launch script, of the environment or of a capture."""

import os
import sys
from argparse import Namespace
from pathlib import Path

from harness import limits
from harness.cli.documents import TablesDocument, figures
from harness.cli.verb import Outcome
from harness.dumps import xplane
from harness.errors import Limit, RatchetError
from harness.files import refusals_in_words
from harness.hardware import chip
from harness.records.doctor import Settings
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.doctor import findings, known_flags, settings
from harness.workbench.doctor.flag_rules import SYMPTOMS, RuleSubject
from harness.workbench.doctor.flags import audit as audited
from harness.workbench.profiles.places import SUFFIX

# A launch script is text that a person wrote.
_SCRIPT_BYTES = 4 << 20
_SCRIPT = Limit(counts="bytes in a launch script", most=_SCRIPT_BYTES, variable="RATCHET_MAX_SCRIPT_BYTES")


def audit(given: Namespace) -> Outcome:
    meant = chip(given.chip) if given.chip else None
    found = _settings(given.file)
    subject = RuleSubject(
        found, known_flags.known(found), meant, tuple(SYMPTOMS[name] for name in given.symptom),
        is_capture=bool(given.file and given.file.endswith(SUFFIX)),
    )  # fmt: skip
    (table, every), fails = audited(subject)
    return Outcome(
        document=TablesDocument(command="audit", tables=figures([table, every])),
        text=lambda: tables.text([findings.for_people(table), every], terminal_width()),
        exit_code=1 if fails else 0,
    )


def _settings(file: str | None) -> Settings:
    if file is None:
        return settings.of_environment(os.environ)
    if file == "-":
        text = sys.stdin.read(_SCRIPT.value + 1)
        _SCRIPT.check(len(text), "stdin")
        limits.note(len(text))
        return settings.of_script(text, "stdin")
    path = Path(file)
    with refusals_in_words(f"reading {path}"):
        if path.name.endswith(SUFFIX):
            return settings.of_capture(xplane.read(limits.read(path), str(path)), path.name)
        data = limits.read(path)
    if len(data) > _SCRIPT_BYTES or b"\0" in data:
        raise RatchetError(
            "not-a-script",
            f"expected a launch script (text, at most {_SCRIPT_BYTES >> 20} MiB) or a capture (*{SUFFIX}), got "
            f"{path}: {len(data):,} bytes{', some of them 0' if 0 in data else ''}",
        )
    return settings.of_script(data.decode("utf-8", "replace"), path.name)
