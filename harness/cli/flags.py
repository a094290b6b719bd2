"""The verb `audit`: flags of a launch script, of the environment or of a capture."""

import os
import sys
from pathlib import Path

from harness.cli.arguments import verb_parser
from harness.dumps import xplane
from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.hardware import chip
from harness.records.checkup import Settings
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.doctor import findings, known_flags, settings
from harness.workbench.doctor.flag_rules import SYMPTOMS, Subject
from harness.workbench.doctor.flags import audit as audited

_CAPTURE = ".xplane.pb"
# A launch script is text that a person wrote.
_SCRIPT_BYTES = 4 << 20


def audit(words: list[str]) -> int:
    parser = verb_parser(
        "audit",
        "Audits the flags of JAX, XLA and libtpu in a launch script (shell or Python), in the environment, or in a "
        "capture: unknown, contradictory, without effect, missing for a symptom, harmful for measuring. The installed "
        "jaxlib and libtpu are started with the flags and asked. Exit code 1 where the program would not start or two "
        "flags exclude each other.",
        "ratchet.sh audit launch.sh --symptom all-reduce-stalls --chip v7x",
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help=f"a script, *{_CAPTURE}, or - for stdin (default: the environment)"
    )
    parser.add_argument(
        "--symptom", action="append", default=[], choices=sorted(SYMPTOMS), help="what was seen; may be given again"
    )
    parser.add_argument("--chip", default=None, help="the chip that the program runs on")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(words)
    meant = chip(given.chip) if given.chip else None
    found = _settings(given.file)
    subject = Subject(
        found, known_flags.known(found), meant, tuple(SYMPTOMS[name] for name in given.symptom),
        is_capture=bool(given.file and given.file.endswith(_CAPTURE)),
    )  # fmt: skip
    (table, every), fails = audited(subject)
    if given.json:
        print(tables.json_text("audit", [table, every]))
    else:
        print(tables.text([findings.for_people(table), every], terminal_width()))
    return 1 if fails else 0


def _settings(file: str | None) -> Settings:
    if file is None:
        return settings.of_environment(os.environ)
    if file == "-":
        return settings.of_script(sys.stdin.read(), "stdin")
    path = Path(file)
    with refusals_in_words(f"reading {path}"):
        if path.name.endswith(_CAPTURE):
            return settings.of_capture(xplane.read(path.read_bytes(), str(path)), path.name)
        data = path.read_bytes()
    if len(data) > _SCRIPT_BYTES or b"\0" in data:
        raise RatchetError(
            "not-a-script",
            f"expected a launch script (text, at most {_SCRIPT_BYTES >> 20} MiB) or a capture (*{_CAPTURE}), got "
            f"{path}: {len(data):,} bytes{', some of them 0' if 0 in data else ''}",
        )
    return settings.of_script(data.decode("utf-8", "replace"), path.name)
