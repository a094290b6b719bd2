"""A search over kernel.py's constants: its questions, its memory, and the fate of its best setting."""

import json
import random
import resource
import signal
import threading
import time
from math import inf, log2
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import committed_contest, git, ratchet
from narrowing import present
from refusals import refused

from harness import contest as contests
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.loop import screening, search
from harness.loop.bench import Bench
from harness.loop.options import Options
from harness.loop.search import SearchProgress, Settings, Study, WholeGrid
from harness.loop.search_space import space
from harness.loop.sweep import Screening, sweep
from harness.shell.main import main

pytestmark = pytest.mark.long

GRID = space(["BQ=128..8192:pow2", "BKV=128..8192:pow2", "SPLIT=1..4", "ORDER=rows,columns"])
SMALL = space(["BQ=128..512:pow2", "BKV=1,2"])


def study(folder: Path, grid: Any = GRID, **changes: Any) -> Study:
    words: dict[str, Any] = {
        "method": "tpe",
        "trials": 40,
        "deadline": time.monotonic() + 600,
        "seed": 0,
        "path": folder / "a" / "journal",
        "name": "one",
    }
    return Study(grid, **(words | changes))


def seconds(settings: Settings) -> float | None:
    """A time with its minimum at 2048 x 1024; blocks that are too large do not fit."""
    values = dict(settings)
    bq, bkv, split = (int(values[name]) for name in ("BQ", "BKV", "SPLIT"))
    if bq * bkv > 1 << 22:
        return None
    away = abs(log2(bq / 2048)) + abs(log2(bkv / 1024)) + 0.3 * abs(split - 2)
    return 1e-3 * (1 + 0.2 * away + (0.1 if values["ORDER"] == '"rows"' else 0))


def worked_off(search: Study, time_of: Any = seconds) -> dict[Settings, float | None]:
    times: dict[Settings, float | None] = {}
    while (settings := search.ask()) is not None:
        assert settings not in times
        times[settings] = time_of(settings)
        search.tell(settings, times[settings])
    return times


def least(times: dict[Settings, float | None]) -> float:
    return min((value for value in times.values() if value is not None), default=inf)


def test_it_asks_for_as_many_as_it_may_each_once(tmp_path: Path) -> None:
    search = study(tmp_path, trials=30)
    times = worked_off(search)
    assert len(times) == search.total == 30
    assert all(dict(GRID)[name].count(value) == 1 for settings in times for name, value in settings)


@pytest.mark.slow
def test_it_finds_what_chance_does_not(tmp_path: Path) -> None:
    """In most draws it finds one of the best few of 392 settings; as many random trials end much further off."""
    by_model, by_chance = (
        sorted(least(worked_off(study(tmp_path / f"{method}{seed}", seed=seed, method=method))) for seed in range(5))
        for method in ("tpe", "random")
    )
    assert by_model[2] < 1.1e-3 < by_chance[2]


def test_a_space_that_is_smaller_is_gone_through_whole(tmp_path: Path) -> None:
    search = study(tmp_path, SMALL, trials=40)
    times = worked_off(search, lambda settings: 1.0)
    assert len(times) == search.total == WholeGrid(SMALL).total == 6


def test_what_has_no_latency_is_learned_from_and_not_asked_for_again(tmp_path: Path) -> None:
    assert len(worked_off(study(tmp_path, SMALL), lambda settings: None)) == 6
    assert worked_off(study(tmp_path, SMALL), lambda settings: None) == {}


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    before = worked_off(study(tmp_path, trials=10))
    search = study(tmp_path, trials=10)
    after = worked_off(search)
    again = before.keys() & after.keys()
    # The fastest settings are asked for again, so that one of them can be judged.
    assert again == set(
        sorted((settings for settings in before if before[settings]), key=lambda settings: before[settings] or inf)[:3]
    )
    assert len(after) == 10
    other = worked_off(study(tmp_path, trials=10, name="another"))
    assert other.keys() == before.keys(), "another study knows nothing of it, and draws the same"


def test_two_at_a_time_are_never_asked_for_the_same(tmp_path: Path) -> None:
    search, turn = study(tmp_path, SMALL, trials=6), threading.Lock()
    asked: list[Settings] = []

    def serve() -> None:
        while True:
            with turn:
                settings = search.ask()
                if settings is None:
                    return
                asked.append(settings)
            time.sleep(0.001 * random.random())
            with turn:
                search.tell(settings, 1.0)

    workers = [threading.Thread(target=serve) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(asked) == len(set(asked)) == 6


def test_the_settings_as_they_stand_come_first(tmp_path: Path) -> None:
    first = (("BQ", "256"), ("BKV", "2"))
    assert study(tmp_path, SMALL, first=[first]).ask() == first


def test_what_a_condition_leaves_out_is_not_asked_for_whatever_is_known(tmp_path: Path) -> None:
    before = worked_off(study(tmp_path, SMALL), lambda settings: float(dict(settings)["BQ"]))
    fastest = min(before, key=lambda settings: before[settings] or inf)
    left = frozenset(settings for settings in before if dict(settings)["BQ"] == "512")
    again = study(tmp_path, SMALL, allowed=left, first=[fastest])
    assert worked_off(again, lambda settings: 1.0).keys() == left
    assert again.earlier.keys() == before.keys(), "what was looked at counts all the same"
    assert worked_off(study(tmp_path, SMALL, name="new", allowed=left, first=[fastest]), lambda _: 1.0).keys() == left


def test_a_search_that_goes_on_has_what_is_left_of_its_trials(tmp_path: Path) -> None:
    begun = study(tmp_path, trials=20, in_all=True)
    first = [begun.ask() for _ in range(7)]
    for settings in first:
        assert settings is not None
        begun.tell(settings, seconds(settings))
    more = study(tmp_path, trials=20, in_all=True, seed=1)
    again = worked_off(more)
    assert len(again) == more.total
    # The fastest are looked at once more, beyond the number.
    assert len(again.keys() | set(first)) == 20
    assert worked_off(study(tmp_path, trials=20, in_all=True, seed=2)).keys() <= again.keys() | set(first)


def test_what_went_wrong_with_the_machine_is_asked_for_again(tmp_path: Path) -> None:
    search = study(tmp_path, SMALL, trials=6)
    unanswered = present(search.ask())
    search.forget(unanswered)
    rest = worked_off(search, lambda settings: 1.0)
    assert unanswered not in rest
    assert unanswered in worked_off(study(tmp_path, SMALL, trials=6), lambda settings: 1.0)


def test_it_begins_nothing_after_its_time(tmp_path: Path) -> None:
    assert study(tmp_path, deadline=time.monotonic() - 1).ask() is None


def test_it_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 110.0, 120.0, 130.0])
    monkeypatch.setattr("harness.loop.search.time.monotonic", lambda: next(now))
    standing = SearchProgress(3)
    assert standing.after(2e-3, "") == "2.000 ms, best so far, 1 of 3, 20 s left"
    assert standing.after(None, "out-of-memory") == "out-of-memory, best so far 2.000 ms, 2 of 3, 10 s left"
    assert standing.after(3e-3, "") == "3.000 ms, best so far 2.000 ms, 3 of 3"


def test_a_torn_line_of_the_journal_is_cut_off(tmp_path: Path) -> None:
    first = worked_off(study(tmp_path, SMALL, trials=3), lambda settings: 1.0)
    journal = tmp_path / "a" / "journal"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 6, "trial')
    rest = worked_off(study(tmp_path, SMALL, trials=6), lambda settings: 1.0)
    assert first.keys() | rest.keys() == worked_off(study(tmp_path, SMALL, name="b"), lambda settings: 1.0).keys()


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    """A file may not grow, as on a full disk: nothing written is lost, and the search can be continued."""
    search = study(tmp_path, SMALL)
    settings = present(search.ask())
    search.tell(settings, 1.0)
    size = (tmp_path / "a" / "journal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        with pytest.raises(RatchetError, match="journal") as caught:
            search.ask()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert caught.value.kind in {"no-space", "io"}
    rest = worked_off(study(tmp_path, SMALL, trials=6), lambda settings: 1.0)
    assert len(rest.keys() | {settings}) == 6


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    worked_off(study(tmp_path, SMALL), lambda settings: 1.0)
    journal = tmp_path / "a" / "journal"
    journal.write_text("not a line of a journal\n" + journal.read_text())
    with refused("bad-journal", "is not the journal of a search"):
        study(tmp_path, SMALL)


@pytest.mark.parametrize(
    "change",
    [
        (b'"param_name":"BQ"', b'"param_name":"NO"'),
        (b'"values":[1.0]', b'"values":[-1.0]'),
        (b'"values":[1.0]', b'"values":["x"]'),
        (b'"values":[1.0]', b'"values":[]'),
        (b'"param_value_internal":', b'"param_value_internal":9999'),
        (b'{"op_code":0', b"[" * 100_000 + b'\n{"op_code":0'),
    ],
)
def test_whatever_is_in_a_journal_is_named(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    journal = tmp_path / "a" / "journal"
    search = study(tmp_path, SMALL)
    settings = present(search.ask())
    search.tell(settings, 1.0)
    assert change[0] in journal.read_bytes()
    journal.write_bytes(journal.read_bytes().replace(*change, 1))
    with refused("bad-journal", "is not the journal of a search"):
        study(tmp_path, SMALL).ask()


def test_a_search_begins_when_nobody_else_searches(tmp_path: Path) -> None:
    """It knows the results that another command found before, and no line that it writes is cut off."""
    contest = contests.load(committed_contest(tmp_path / "contest", 512))

    def begin() -> Study:
        with pytest.raises(RatchetError) as caught, Ledger.open(contest.directory).lock("another"):
            pass
        raise RatchetError("begun", caught.value.kind)

    wanted = Screening(parameters=space(["BQ=128,256"]), begin=begin, places=screening.local(1))
    with refused("begun", "busy"):
        sweep(Bench(contest=contest), "blocks", wanted, Options(), lambda _: None)
    assert not (contest.directory / "profile_data" / "tune.journal").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--minutes", "0"), "minutes above 0"),
        (("--minutes", "nan"), "minutes above 0"),
        (("--minutes", "-1"), "minutes above 0"),
        (("--seed", "-1"), "0 to 4294967295"),
        (("--seed", "9" * 5000), "0 to 4294967295"),
        (("--trials", "0"), "1 or more"),
        (("--set", "BQ=8..64:pow3"), "a rising range"),
        (("--set", "BQ=1.5..3"), "a rising range"),
        (("--set", "BQ=8..64:-8"), "a rising range"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "-C", str(tmp_path), "experiment: a", "--set", "BKV=1,2", *words]) == 2
    assert message in capsys.readouterr().err


def test_without_optuna_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RatchetError, match=r"ratchet.sh tune` installs it"):
        study(tmp_path)


def test_a_study_is_of_one_kernel_whatever_its_constants_are(tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest", 512)
    contest, kernel = contests.load(folder), folder / "kernel.py"
    grid = space(["BQ=128,256", "BKV=256,512"])
    name = search.study_name(contest, grid)
    assert search.as_it_stands(contest.candidate(), grid) == (("BQ", "128"), ("BKV", "256"))
    kernel.write_text(kernel.read_text().replace("BQ = 128", "BQ = 256"))
    assert search.study_name(contest, grid) == name
    assert search.as_it_stands(contest.candidate(), space(["BQ=128,512"])) is None
    assert search.study_name(contest, space(["BQ=128,256"])) != name
    kernel.write_text(kernel.read_text() + "\nMORE = 1\n")
    assert search.study_name(contest, grid) != name


@pytest.mark.slow
def test_the_best_that_was_found_is_one_attempt(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 1024)
    ratchet(contest, "experiment: baseline", expect=0)
    words = ("--set", "BQ=64..1024:pow2", "--set", "BKV=64..1024:pow2", "--trials", "6", "--json")
    tuned = ratchet(contest, "tune", "experiment: blocks", *words, expect=0)
    assert "names no observation" in tuned.stderr.partition("threshold: ")[0]
    done = json.loads(tuned.stdout)
    screened = done["sweep"]["screened"]
    assert (done["attempt"], done["outcome"], len(screened)) == (2, "accept", 6)
    assert dict(screened[0]["settings"]) == {"BQ": "128", "BKV": "256"}
    assert screened[0]["same_as"] == 1
    record = json.loads(ratchet(contest, "show", "2", "--json", expect=0).stdout)["attempt"]
    assert record["sweep"] == done["sweep"]
    assert record["settings"] == done["best"]
    assert record["hypothesis"].startswith("blocks [best of 6: BQ=")
    assert git(contest, "status", "--porcelain") == ""
    more = json.loads(ratchet(contest, "tune", "experiment: go on", *words).stdout)
    screened_before = {json.dumps(trial["settings"]) for trial in screened}
    latencies = {json.dumps(trial["settings"]) for trial in (*screened, *more["sweep"]["screened"]) if trial["seconds"]}
    assert more["sweep"]["looked_at"] == len(latencies), "what the search found before counts too, and once"
    assert sum(json.dumps(trial["settings"]) in screened_before for trial in more["sweep"]["screened"]) == 3
