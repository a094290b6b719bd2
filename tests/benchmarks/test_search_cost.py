"""The grids that searches are compared with: complete, and read as they are meant."""

from math import inf
from pathlib import Path

import pytest
import search_cost

from harness.loop import search_space


@pytest.mark.long
def test_every_setting_of_every_grid_is_timed(tmp_path: Path) -> None:
    assert len(search_cost.PROBLEMS) == 10
    for place, problem in enumerate(search_cost.PROBLEMS):
        settings = search_cost.Bench(problem, tmp_path / str(place)).settings
        lines = search_cost.lines_of(problem)
        timed = {line.settings for line in lines}
        assert timed == {search_space.words(each) for each in settings}
        assert 170 <= len(timed) <= search_cost.SETTINGS
        assert all(line.seconds is None or line.seconds > 1e-6 for line in lines)
        assert all(bool(line.why) == (line.seconds is None) for line in lines)


def test_an_evaluation_counts_from_one_and_near_is_two_per_cent() -> None:
    assert search_cost.needed([inf, 3.0, 1.03, 1.02, 1.0], 1.0) == 4
    assert search_cost.needed([1.0], 1.0) == 1
    assert search_cost.needed([1.03], 1.0) == inf


def test_what_runs_out_of_vmem_may_be_smaller_than_what_does_not() -> None:
    def line(settings: str, seconds: float | None) -> search_cost.Timed:
        why = "" if seconds else "RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom"
        return search_cost.Timed(problem="p", settings=settings, seconds=seconds, why=why)

    lines = [line("A=256 B=1024", 1.0), line("A=256 B=512", None), line("A=512 B=512", None)]
    assert search_cost.out_of_vmem(lines) == (2, 1)
    by_problem = [search_cost.out_of_vmem(search_cost.lines_of(problem)) for problem in search_cost.PROBLEMS]
    # As docs/TABLES.md says.
    assert [sum(counts) for counts in zip(*by_problem, strict=True)] == [89, 2]
