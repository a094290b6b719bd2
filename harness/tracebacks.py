"""The line of a prepare.py at which its code raised an error."""

import traceback
from pathlib import Path

# The beginning of the name of a module made from a prepare.py (harness.operators.prepare_module); a hash follows.
PREPARE = "contest_prepare_"


def place_in_prepare(error: BaseException) -> str:
    """File and line of the innermost frame of prepare.py in the traceback, such as `prepare.py line 34: `.

    "" if the traceback of `error` has no such frame.
    """
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith(PREPARE)
    ]
    return f"{Path(frames[-1][0]).name} line {frames[-1][1]}: " if frames else ""
