"""The grids that searches are held against: complete, and read as they are meant."""

from math import inf
from pathlib import Path

import search_cost

from harness.loop import search_space


def test_every_setting_of_every_grid_is_timed(tmp_path: Path) -> None:
    lines = search_cost.timed()
    assert len(search_cost.PROBLEMS) == 10
    for place, problem in enumerate(search_cost.PROBLEMS):
        settings = search_cost.Bench(problem, tmp_path / str(place)).settings
        found = {line.settings for line in lines if line.problem == problem.name}
        assert found == {search_space.words(one) for one in settings}
        assert 170 <= len(found) <= search_cost.SETTINGS
    assert all(line.seconds is None or line.seconds > 1e-6 for line in lines)
    assert all(bool(line.why) == (line.seconds is None) for line in lines)


def test_an_evaluation_counts_from_one_and_near_is_two_per_cent() -> None:
    assert search_cost.needed([inf, 3.0, 1.03, 1.02, 1.0], 1.0) == 4
    assert search_cost.needed([1.0], 1.0) == 1
    assert search_cost.needed([1.03], 1.0) == inf
