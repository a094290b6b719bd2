"""`python -m harness.profiles.converter ANSWER PATHS TOOL OPTIONS`: one question to XProf, in its own process.

PATHS, TOOL (null: which tools there are) and OPTIONS are JSON. Exit code 0: the answer is in the file ANSWER;
NOTHING: XProf returned nothing.
"""

import json
import os
import sys
from pathlib import Path

from xprof.convert import raw_to_tool_data

NOTHING = 3


def main(arguments: list[str]) -> int:
    """Asks, writes the answer, and returns the exit code."""
    paths, tool, options = map(json.loads, arguments[1:])
    found: bytes | str | None
    if tool is None:
        found = json.dumps(raw_to_tool_data.xspace_to_tool_names(paths))
    else:
        # These read a module from a file that only the question for the tools writes, beside the copies (xprof 2.24).
        if tool in ("memory_viewer", "graph_viewer"):
            raw_to_tool_data.xspace_to_tool_names(paths)
        found, _ = raw_to_tool_data.xspace_to_tool_data(paths, tool, {"use_saved_result": False, **options})
    if found is None:
        return NOTHING
    Path(arguments[0]).write_bytes(found.encode() if isinstance(found, str) else found)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Past the exit handlers of its libraries, which may crash.
    sys.stdout.flush()
    os._exit(code)
