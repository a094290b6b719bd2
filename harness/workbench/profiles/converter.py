"""A process that asks one of XProf's tools: `python -m harness.workbench.profiles.converter ANSWER PATHS TOOL OPTIONS`.

PATHS is a JSON list. OPTIONS is a JSON list with one set of options for each question. Exit code 0: the answer to
question n is in the file ANSWER.n. Exit code NOTHING: XProf returned nothing for one of the questions.
"""

import json
import os
import sys
from pathlib import Path

from xprof.convert import raw_to_tool_data

NOTHING = 3


def main(arguments: list[str]) -> int:
    """Asks the tool, writes its answers and returns the exit code."""
    answer_path, tool = arguments[0], arguments[2]
    paths, option_sets = json.loads(arguments[1]), json.loads(arguments[3])
    # memory_viewer reads a module from a file next to the copies. In xprof 2.24 only xspace_to_tool_names writes it.
    if tool == "memory_viewer":
        raw_to_tool_data.xspace_to_tool_names(paths)
    for number, options in enumerate(option_sets):
        answer, _ = raw_to_tool_data.xspace_to_tool_data(paths, tool, {"use_saved_result": False, **options})
        if answer is None:
            return NOTHING
        Path(f"{answer_path}.{number}").write_bytes(answer.encode() if isinstance(answer, str) else answer)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # This skips the exit handlers of the libraries, which may crash.
    sys.stdout.flush()
    os._exit(code)
