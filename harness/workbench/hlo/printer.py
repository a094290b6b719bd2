"""A process that prints a serialized HloModuleProto as text: `python -m harness.workbench.hlo.printer` on stdin."""

import os
import re
import sys
from typing import Any

from harness import reading_limits

_ARGUMENT = re.compile(r"^(.* parameter\((\d+)\))(?!.*sharding=)", re.MULTILINE)


def main() -> int:
    """Exit code 0 after printing the module; 1 after printing XLA's error, if XLA cannot read the module."""
    data = reading_limits.read_stream(sys.stdin.buffer, "the module")
    reading_limits.confine(len(data))
    # The import takes half a second, so the input is checked first.
    from jaxlib import _hlo

    try:
        text = _with_shardings(_hlo.HloModule.from_serialized_hlo_module_proto(data), _hlo.HloSharding.from_proto)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


def _with_shardings(module: Any, sharding: Any) -> str:
    """The module's text with the arguments' shardings: from jax 0.12 on, a partitioned module's text lacks them."""
    text: str = module.to_string()
    stated = module.spmd_parameters_shardings or ()

    def written(match: re.Match[str]) -> str:
        number = int(match[2])
        return f"{match[1]}, sharding={sharding(stated[number])}" if number < len(stated) else match[1]

    rest, entry, body = text.rpartition("\nENTRY ")
    arguments, end, after = body.partition("\n}")
    return f"{rest}{entry}{_ARGUMENT.sub(written, arguments)}{end}{after}"


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # This skips the exit handlers of the libraries, which may crash.
    os._exit(code)
