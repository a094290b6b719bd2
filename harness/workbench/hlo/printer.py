"""A process that prints a serialized HloModuleProto as text: `python -m harness.workbench.hlo.printer` on stdin."""

import os
import sys

from harness import limits


def main() -> int:
    """Reads stdin, prints the module; 1 with XLA's own words where it cannot read it."""
    data = limits.read_stream(sys.stdin.buffer, "the module")
    limits.confine(len(data))
    # Half a second that only a proto is worth.
    from jaxlib import _hlo

    try:
        text = _hlo.HloModule.from_serialized_hlo_module_proto(data).to_string()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Past the exit handlers of its libraries, which may crash.
    os._exit(code)
