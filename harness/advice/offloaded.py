"""The operations that XLA hands to the SparseCore, and the changes that keep them off it."""

from collections.abc import Iterator
from pathlib import Path

from harness import reading_limits
from harness.advice import dump_directory
from harness.advice.source_names import shown_name
from harness.errors import RatchetError
from harness.hlo import parse
from harness.hlo.module import Instruction, Module
from harness.judge.simulate.channel import SPARSE_CORE
from harness.records import Evidence, Hint, Latency

_THREAD = 'async_execution_thread="sparsecore"'
_MOST_OPERATIONS = 4
REMEDY = (
    "write these operations so that XLA keeps them on the TensorCore: jnp.repeat, jnp.histogram, jnp.bincount, sorts "
    "and .at[].add of a small table can be comparisons and cumulative sums (jnp.cumsum, (x[:, None] == y).sum(0)). Or "
    "let the problem state the table as an input, if the caller computes it. In a package's file: docs/KERNELS.md, "
    "`Change a package's kernel`"
)


def hints(evidence: Evidence, contest: Path) -> tuple[Hint, ...]:
    """The hint on a program without a latency because of the SparseCore, with its operations' lines; else ()."""
    if not is_the_reason(evidence):
        return ()
    handed = _handed(_operations(evidence, contest))
    return (Hint(observation=f"there is no latency: {handed}", suggestion=REMEDY, rule="SparseCore"),)


def explain(evidence: Evidence, contest: Path) -> str:
    """`XLA hands operations (scatter-add at gmm.py line 187) to the SparseCore ...: REMEDY`; "" for another reason."""
    return f"{_handed(_operations(evidence, contest))}: {REMEDY}" if is_the_reason(evidence) else ""


def is_the_reason(evidence: Evidence) -> bool:
    """True if nothing failed, and the SparseCore is one reason why the latency is unknown."""
    latency = evidence.latency
    if evidence.failure is not None or latency is None or latency.seconds is not None:
        return False
    return any(SPARSE_CORE in reason for reason in latency.reasons)


def other_reasons(latency: Latency) -> tuple[str, ...]:
    """The reasons for which there is no latency, except the SparseCore."""
    return tuple(reason for reason in latency.reasons if SPARSE_CORE not in reason)


def operations(module: Module) -> tuple[str, ...]:
    """The operations of `module` that XLA hands to the SparseCore, in words: `scatter-add at gmm.py line 187`."""
    calls = [
        (computation.name, instruction)
        for computation in module.computations
        for instruction in computation.instructions
        if _THREAD in instruction.attributes
    ]
    # A call on the SparseCore repeats itself inside the computation that it calls.
    inside = {name for _, call in calls for name in call.computations("calls", "to_apply")}
    return tuple(dict.fromkeys(_words(call) for home, call in calls if home not in inside))


def _words(call: Instruction) -> str:
    operation = call.op_name.rpartition("/")[2] or call.name
    file, _, line = call.source.rpartition(":")
    return f"{operation} at {shown_name(file)} line {line}" if file else f"{operation} without a source line"


def _handed(operations_in_words: tuple[str, ...]) -> str:
    shown = operations_in_words[:_MOST_OPERATIONS]
    more = len(operations_in_words) - len(shown)
    which = f" ({', '.join(shown)}{f' and {more} more' if more else ''})" if shown else ""
    return f"XLA hands operations{which} to the SparseCore, whose time is not simulated"


def _operations(evidence: Evidence, contest: Path) -> tuple[str, ...]:
    """The operations of all programs on the SparseCore, in words; () if no HLO text of them is on this machine."""
    every = (name for _, program in evidence.programs for name in _of_program(program, contest))
    return tuple(dict.fromkeys(every))


def _of_program(evidence: Evidence, contest: Path) -> Iterator[str]:
    dumps = dump_directory.of(evidence, contest)
    if dumps is None:
        return
    for path in (dumps.parent / "kernel.hlo.txt", *sorted(dumps.glob("*TLP-hlo.txt"))):
        try:
            module = parse.module(reading_limits.read(path).decode())
        except (OSError, UnicodeDecodeError, RatchetError):
            # Without this file, only the words of a hint are less precise.
            continue
        yield from operations(module)
        return
