"""docs/SEMANTICS.md, printed from the table: `python -m harness.advice.semantics_page >docs/SEMANTICS.md`."""

from collections.abc import Iterator

from harness.judge.evaluate.trace.semantics_outside import OUTSIDE
from harness.judge.evaluate.trace.semantics_table import FLAGS, OPTIONS, SECTIONS, SemanticsEntry

_HEAD = """\
# What a kernel's operations mean

Made by `python -m harness.advice.semantics_page` from `semantics_table.py` and `semantics_outside.py` in
`harness/judge/evaluate/trace/`; a test compares it with them.

Correctness is checked on a CPU, in programs that JAX's Pallas interpreters make of the kernel. This page lists, for
every operation that a Pallas TPU kernel can contain, what these programs compute, what Mosaic compiles the operation
to, and which check sees a difference. An operation that is not listed is refused (`unknown-primitive`).

| kind | meaning |
|---|---|
| same | both compute the same, up to the rounding of floats |
| modelled | the program that is checked is rewritten so that it computes what the chip computes |
| guarded | another check sees a difference |
| refused | refused by name (`refused-primitive`), because no check could tell a right result from a wrong one |

What the chip does is read off the schedules of libtpu 0.0.42.1 (jax 0.10.2) and 0.0.50.1 (jax 0.12.0) for v4, v5e,
v5p, v6e and v7x. A schedule shows which instructions run, not how each of them rounds. If the rounding is not
published, the table says so, and the judge makes the pessimistic assumption. An undefined result (a quotient
by zero, an index beyond its array, a false hint) is a *mark* on the CPU: NaN or a very large integer, so that a kernel
that uses it fails. float16 is refused: neither compiler has code for it. The last section lists the operations that
may stand outside of kernels, where XLA compiles them for both platforms; a primitive counts as listed only if it is
JAX's own object of that name. The other sections do not cover kernels for GPUs.
"""
_OPTIONS = """\
## Options of the compiler

These options of `pltpu.CompilerParams` are accepted. Any other option that is set is refused (`refused-option`),
including other `flags`, `allow_input_fusion` and `collective_id`. Kernels over a mesh (`core_map`, `pl.kernel`, and
with them SparseCore) are refused too.
"""


def page() -> str:
    """The whole page, as Markdown."""
    flags = {f"flags: {name}": what for name, what in FLAGS.items()}
    options = ((f"`{name}`", what) for name, what in (OPTIONS | flags).items())
    sections = (_section(title, entries) for title, entries in (*SECTIONS, ("Outside of kernels", OUTSIDE)))
    parts = (_HEAD, *sections, f"{_OPTIONS}\n{_table(('option', 'what it changes'), options)}")
    return "\n".join(parts)


def _section(title: str, entries: tuple[SemanticsEntry, ...]) -> str:
    rows = (
        (", ".join(f"`{name}`" for name in entry.primitives), entry.kind, entry.on_cpu, entry.on_chip, entry.guard)
        for entry in entries
    )
    columns = ("operation", "kind", "on the CPU, unless modelled", "on the chip", "guard, or why")
    return f"## {title}\n\n" + _table(columns, rows)


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = (columns, ("---",) * len(columns), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
