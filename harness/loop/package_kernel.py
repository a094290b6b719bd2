"""Hints for a kernel.py that calls a package's kernel: without copying the package, only constants can change."""

import ast
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness import reading_limits
from harness.advice import dump_directory, offloaded
from harness.advice.rules.counts import DO_WITHOUT, OUTPUT_READ
from harness.advice.rules.stopping import STOP_TUNING
from harness.advice.source_names import shown_name
from harness.candidate import KERNEL, Candidate, constants
from harness.errors import RatchetError
from harness.loop.block_constants import with_settings
from harness.loop.untried_advice import Known
from harness.records import Array, Evidence, Hint, Statement
from harness.workbench.hlo.copies import Copy, around_a_kernel, copied_array

# Screening a grid over more constants takes too long.
_MOST_NAMES = 3
_MOST_ARRAYS = 4
# Kinds of changes of code (advice/kernel_changes.py), which would be made in the package's file.
_IN_THE_CODE = ("body", "scratch", "grid", "mask", "dtype")


def for_kernel(
    advice: Sequence[Hint],
    evidence: Evidence,
    candidate: Candidate,
    contest: Path,
    who_tried: Callable[[], Known] = dict,
) -> tuple[Hint, ...]:
    """`advice` as changes that can be tried in `candidate`; hints on copies name the arrays copied around a kernel.

    If there is no latency because of the SparseCore, the hint on its operations comes first. These operations and the
    copied arrays come from the compiled module, if the folder `contest` still has it. The kernel counts as a package's
    if operations come from a package and no file of the candidate makes a Pallas call. `who_tried` gives the sets of
    constants that attempts and sweeps tried, as untried_advice.who_tried does; it is called at most once.
    """
    advice = [
        _with_copied_arrays(hint, _program_of(hint, evidence), contest) if hint.rule == "copies" else hint
        for hint in with_settings(advice, evidence, candidate)
    ]
    advice = [*offloaded.hints(evidence, contest), *advice]
    traces = [program.trace for _, program in evidence.programs if program.trace]
    packages = sorted({shown_name(source.name) for trace in traces for source in trace.sources})
    sizes = tuple((name, size) for name, value in constants(candidate.files[KERNEL]) if (size := _size(value)))
    if not packages or not sizes or b"pallas_call" in candidate.text:
        return tuple(advice)
    in_a_copy = f"possible only in a copy of {packages[0]}"
    is_done = any(hint.rule in STOP_TUNING for hint in advice)
    sweep = "" if is_done else _sweep_words(sizes[:_MOST_NAMES], candidate, _longest_axis(evidence), who_tried())
    if not (sweep or is_done):
        names = ", ".join(name for name, _ in sizes[:_MOST_NAMES])
        in_a_copy = f"half and twice the values of {names} were tried already or exceed every axis; {in_a_copy}"
    hints: list[Hint] = []
    for hint in advice:
        if hint.kind not in _IN_THE_CODE:
            hints.append(hint)
        elif any(sweep in other.suggestion for other in hints) or not sweep:
            hints.append(replace(hint, suggestion=f"{in_a_copy}: {hint.suggestion}"))
        else:
            suggestion = f"try the constants of kernel.py, which calls {' and '.join(packages)}: {sweep}"
            # The hint's gain is a bound for a change of the code, not of the sizes.
            hints.append(replace(hint, suggestion=suggestion, kind="constants", gain=None, gain_source=""))
    return tuple(hints)


def _program_of(hint: Hint, evidence: Evidence) -> Evidence:
    """The evidence of the suite's member that `hint` names first; `evidence` itself for a single problem."""
    for member, program in evidence.named_members:
        if hint.observation.startswith((f"{member.name}:", f"{member.name} (")):
            return program
    return evidence


def _with_copied_arrays(hint: Hint, evidence: Evidence, contest: Path) -> Hint:
    """`hint`, which is about copies, with the names of the arrays copied around the kernel of `evidence`.

    If every copy changes the layout, the remedy for copies that keep it is left out.
    """
    dumps = dump_directory.of(evidence, contest)
    try:
        path = None if dumps is None else dumps.parent / "kernel.hlo.txt"
        moved = around_a_kernel(reading_limits.read(path).decode()) if path else ()
    except (OSError, UnicodeDecodeError, RatchetError):
        # Only the words of a hint depend on this file.
        moved = ()
    if not moved:
        return hint
    more = f" and {len(moved) - _MOST_ARRAYS} more" if len(moved) > _MOST_ARRAYS else ""
    arrays = ", ".join(copied_array(copy, evidence.problem) for copy in moved[:_MOST_ARRAYS])
    # An output that is read too early, or an input that is written, is copied without a change of its layout.
    is_in_place = any(copy.kind == "defensive" for copy in moved)
    remedies = [part for part in hint.suggestion.split("; ") if is_in_place or part != OUTPUT_READ]
    if columns := _copied_columns(moved, evidence.problem):
        rows = columns.shape[0]
        # This replaces the advice to pass arrays unchanged: only the kernel can change the layout of its columns.
        remedies = [
            f"{columns.name} uses one of 128 lanes: let the kernel write it along the lanes, with out_shape "
            f"(1, {rows}) and blocks (1, ...), and return {columns.name}.reshape({rows}, 1)"
        ]
    return replace(
        hint, observation=f"{hint.observation}; copied: {arrays}{more}", suggestion="; ".join(remedies) or DO_WITHOUT
    )


def _copied_columns(moved: Sequence[Copy], problem: Statement) -> Array | None:
    """The output [rows, 1], if all copies only bring it into the layout of the program's result; else None."""
    outputs = [output for output in problem.outputs if len(output.shape) == 2 and output.shape[1] == 1]
    are_columns = all(copy.kind == "relayout" and copy.consumers == ("the result",) for copy in moved)
    sizes = {copy.shape.partition("[")[2].rstrip("]") for copy in moved}
    same = [output for output in outputs if sizes == {",".join(map(str, output.shape))}]
    return same[0] if are_columns and len(same) == 1 else None


def _sweep_words(sizes: Sequence[tuple[str, int]], candidate: Candidate, longest: int, who_tried: Known) -> str:
    """The command that sweeps over half and twice these `sizes`; "" if all these values were tried.

    Sizes above `longest` (the problem's longest axis) are left out. They are kept if the present size is larger too:
    then the constant sets no block.
    """
    present = dict(candidate.tunable)
    values = [[new for new in (size // 2, size, size * 2) if size > longest or new <= longest] for _, size in sizes]
    names = [name for name, _ in sizes]
    untried = [
        grid_point
        for grid_point in itertools.product(*values)
        if grid_point != tuple(size for _, size in sizes)
        and frozenset({**present, **dict(zip(names, map(str, grid_point), strict=True))}.items()) not in who_tried
    ]
    if not untried:
        return ""
    # A value that was tried is not advised again with each new value of another constant.
    done = {setting for constants in who_tried for setting in constants}
    columns = {name: sorted(set(column)) for name, column in zip(names, zip(*untried, strict=True), strict=True)}
    new = {name: [each for each in column if (name, str(each)) not in done] for name, column in columns.items()}
    grids = {name: values for name, values in new.items() if values and values != [dict(sizes)[name]]}
    if not grids:
        return ""
    if len(grids) > 1:
        # Next to a new value of one constant, the others may keep their present values.
        grids = {name: sorted({*values, dict(sizes)[name]}) for name, values in grids.items()}
    grid = " ".join(f"--set {name}={','.join(map(str, each))}" for name, each in grids.items())
    return f'`ratchet.sh sweep "experiment: ..." {grid}`'


def _longest_axis(evidence: Evidence) -> int:
    """The length of the longest axis of the inputs and outputs of all programs."""
    arrays = (
        array for _, program in evidence.programs for array in (*program.problem.inputs, *program.problem.outputs)
    )
    return max((size for array in arrays for size in array.shape), default=0)


def _size(value: str) -> int:
    """The constant `value` if it is a whole number above 1, else 0."""
    node = ast.parse(value, mode="eval").body
    number = node.value if isinstance(node, ast.Constant) else 0
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 1 else 0
