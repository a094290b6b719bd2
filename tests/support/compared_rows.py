"""Writes the table of docs/DECIDING.md that says how many rows are compared with float64 at the contest's own shape.

PYTHONPATH=. .venv/bin/python tests/support/compared_rows.py
"""

from pathlib import Path

import numpy as np
from narrowing import present

from harness.loop import scaffold
from harness.operators import Member, Suite
from harness.operators.outputs import row_count
from harness.operators.survey import Surveying
from harness.prepare import data

PAGE = Path(__file__).parents[2] / "docs" / "DECIDING.md"
BEGIN, END = "<!-- compared rows -->\n", "<!-- end -->\n"
# The number of draws, whose mean number of rows is shown.
_DRAWS = 20


def table() -> str:
    """One row for each template, with the template's own constants."""
    lines = [
        "| `--like` | rows of an output | compared, drawn | share | how all rows are tested |",
        "|---|--:|--:|--:|---|",
    ]
    for template in scaffold.templates():
        problem = present(data.read(scaffold.text(template, "prepare.py")))[0]
        members = problem.members if isinstance(problem, Suite) else (Member(name="", problem=problem),)
        for member in members:
            total = row_count(member.problem.statement().outputs)
            count = round(np.mean([len(member.problem.sample_rows(seed)) for seed in range(_DRAWS)]))
            name = f"`{template}`" + f", {member.name}" * bool(member.name)
            how = "all are compared" if count == total else _how(member.problem)
            lines.append(f"| {name} | {total:,} | {count:,} | {100 * count / total:.0f} % | {how} |")
    return "\n".join(lines) + "\n"


def _how(problem: object) -> str:
    assert isinstance(problem, Surveying)
    words = " ".join((problem.survey.__doc__ or "").split())
    how = words.partition(", by ")[2].partition(".")[0]
    assert how, (
        f"expected a docstring of {type(problem).__name__}.survey with ', by ' and how rows are chosen, got {words!r}"
    )
    return how


def page() -> str:
    """docs/DECIDING.md with today's table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
