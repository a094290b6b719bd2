"""Hints in terms of a kernel.py: the constants to set, which are all there is to change of a package's kernel."""

import ast
from collections.abc import Sequence
from dataclasses import replace

from harness.advice.source_names import shown_name
from harness.candidate import KERNEL, Candidate, constants
from harness.loop.block_constants import with_settings
from harness.records import Evidence, Hint

# More axes than these make a grid that nobody waits for.
_MOST_NAMES = 3
# Changes of code, as advice/kernel_changes.py has them: they would be made in the package's file.
_IN_THE_CODE = ("body", "scratch", "grid", "mask", "dtype")


def for_kernel(advice: Sequence[Hint], evidence: Evidence, candidate: Candidate) -> tuple[Hint, ...]:
    """`advice` in terms of what there is to try in `candidate`.

    The code is taken for a package's where operations come from one and no file of the candidate makes a Pallas call.
    """
    advice = with_settings(advice, evidence, candidate)
    traces = [program.trace for _, program in evidence.programs if program.trace]
    found = sorted({shown_name(source.name) for trace in traces for source in trace.sources})
    tried = _tried(candidate.files[KERNEL])
    if not found or not tried or b"pallas_call" in candidate.text:
        return advice
    told: list[Hint] = []
    for hint in advice:
        if hint.kind not in _IN_THE_CODE:
            told.append(hint)
        elif any(tried in other.suggestion for other in told):
            told.append(replace(hint, suggestion=f"only in a copy of {found[0]}: {hint.suggestion}"))
        else:
            said = f"try the constants of kernel.py, which calls {' and '.join(found)}: {tried}"
            # What was observed bounds a change of the code, not one of the sizes.
            told.append(replace(hint, suggestion=said, kind="constants", gain=None, gain_source=""))
    return tuple(told)


def _tried(kernel: bytes) -> str:
    """The sweep over half and twice the sizes that kernel.py sets; "" where it sets none."""
    sizes = [(name, size) for name, value in constants(kernel) if (size := _size(value))]
    grid = " ".join(f"--set {name}={size // 2},{size},{size * 2}" for name, size in sizes[:_MOST_NAMES])
    return f'`ratchet.sh sweep "experiment: ..." {grid}`' if grid else ""


def _size(value: str) -> int:
    """The whole number above 1 that a constant is; 0 for any other."""
    node = ast.parse(value, mode="eval").body
    number = node.value if isinstance(node, ast.Constant) else 0
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 1 else 0
