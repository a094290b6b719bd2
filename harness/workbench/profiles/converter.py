"""A process that asks one of XProf's tools: `python -m harness.workbench.profiles.converter ANSWER PATHS TOOL OPTIONS`.

PATHS is a JSON list, OPTIONS a JSON list of the options of each question. Exit code 0: the answer to question n is in
the file ANSWER.n; NOTHING: XProf returned nothing to one of them.
"""

import json
import os
import sys
from pathlib import Path

from xprof.convert import raw_to_tool_data

NOTHING = 3


def main(arguments: list[str]) -> int:
    """Asks, writes the answers, and returns the exit code."""
    answer, tool = arguments[0], arguments[2]
    paths, asked = json.loads(arguments[1]), json.loads(arguments[3])
    # It reads a module from a file that only the question for the tools writes, beside the copies (xprof 2.24).
    if tool == "memory_viewer":
        raw_to_tool_data.xspace_to_tool_names(paths)
    for number, options in enumerate(asked):
        found, _ = raw_to_tool_data.xspace_to_tool_data(paths, tool, {"use_saved_result": False, **options})
        if found is None:
            return NOTHING
        Path(f"{answer}.{number}").write_bytes(found.encode() if isinstance(found, str) else found)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Past the exit handlers of its libraries, which may crash.
    sys.stdout.flush()
    os._exit(code)
