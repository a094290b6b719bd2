"""The flags that `audit` checks: from a launch script, from the environment, or from a capture."""

import os
import sys
from pathlib import Path

from harness import reading_limits
from harness.dumps import xplane
from harness.errors import Limit, RatchetError
from harness.files import refusals_in_words
from harness.records.doctor import Settings
from harness.workbench.doctor import settings
from harness.workbench.profiles.places import SUFFIX

# A launch script is written by a person, so it is short.
_SCRIPT_BYTES = 4 << 20
_SCRIPT = Limit(counts="bytes in a launch script", most=_SCRIPT_BYTES, variable="RATCHET_MAX_SCRIPT_BYTES")


def settings_in(file: str | None) -> Settings:
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
