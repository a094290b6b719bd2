"""The instructions of an HLO module's text, each by its name."""

import re

# `  ROOT %naive.1 = bf16[...] custom-call(...), ..., backend_config={...}`: what a kernel's call has there is its whole
# body, some 10 KB that nobody can read.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?(%?([\w.\-]+) = .+?)(?:, backend_config=.*)?$", re.MULTILINE)


def instructions(hlo: str) -> dict[str, str]:
    """The text of every instruction, without its backend's configuration; empty where the compiler dumped no module."""
    return {match[2]: match[1] for match in _INSTRUCTION.finditer(hlo)}
