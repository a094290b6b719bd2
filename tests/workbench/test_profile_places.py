"""Places of captures, their names, the pruning of old ones, and the list of runs."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from analyses import printed
from capture_examples import corrupt_run, one_device, run_folder, serialized
from evidence_examples import evidence, statement
from ledger_fixtures import attempt

from harness.errors import RatchetError, UsageError
from harness.loop import kept_captures
from harness.loop.scaffold import scaffold
from harness.records import Attempt
from harness.records.problem import SuiteMember
from harness.shell.main import main
from harness.workbench.profiles import places
from harness.workbench.profiles.places import PROFILE_DATA, resolve

DATA = serialized(one_device())


def written(logdir: Path, run: str, age_seconds: int = 0) -> Path:
    """A capture that is `age_seconds` old."""
    path = run_folder(logdir, run, DATA)
    os.utime(path, (1_700_000_000 - age_seconds,) * 2)
    return path


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    """A folder with captures of the kinds that the judge, `profile` and `timeline` write."""
    data = tmp_path / PROFILE_DATA
    written(data, "0003-1f2e3d4c", 50)
    written(data, "0003-paired-1f2e3d4c", 10)
    written(data, "0003-paired-1f2e3d4c-2", 9)
    written(data, "0004-simulated-v5e", 40)
    written(data, "0005-profile-aaaaaaaa", 30)
    written(data, "kernel-profile-bbbbbbbb", 20)
    return tmp_path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty folder of captures."""
    return kept_captures.make_folder(tmp_path / PROFILE_DATA)


def test_every_way_to_name_a_capture_finds_it(contest: Path) -> None:
    data = contest / PROFILE_DATA
    run = data / "plugins" / "profile" / "0005-profile-aaaaaaaa"
    for what in (str(run), str(run / "host-0.xplane.pb"), run.name, "5", "0005"):
        place = resolve(what, contest)
        assert (place.name, place.attempt, place.log_directory) == (run.name, 5, data)
        assert [path.resolve() for path in place.files] == [run / "host-0.xplane.pb"]
    for folder in (data, contest, data / "plugins", data / "plugins" / "profile", None):
        assert resolve(None if folder is None else str(folder), contest).name == "0003-paired-1f2e3d4c-2"
    assert resolve(str(data), contest / "elsewhere").attempt == 3


def test_an_attempts_own_capture_comes_before_that_of_its_paired_benchmark_and_a_simulated_one_last(
    contest: Path,
) -> None:
    assert resolve("3", contest).name == "0003-1f2e3d4c"
    assert resolve("4", contest).name == "0004-simulated-v5e"
    written(contest / PROFILE_DATA, "0004-paired-cccccccc", 400)
    assert resolve("4", contest).name == "0004-paired-cccccccc"


def test_a_source_that_is_named_is_the_one_that_is_meant(contest: Path) -> None:
    data = contest / PROFILE_DATA
    written(data, "0003-simulated-v5e", 5)
    written(data, "0003-profile-dddddddd", 1)
    assert resolve("3", contest).name == "0003-1f2e3d4c"
    assert resolve("3:measured", contest).name == "0003-1f2e3d4c"
    assert resolve("3:simulated", contest).name == "0003-simulated-v5e"
    # A later capture by `profile` of its kernel does not count as the attempt's.
    written(data, "0004-profile-eeeeeeee", 1)
    assert resolve("4", contest).name == "0004-simulated-v5e"
    assert resolve("4:measured", contest).name == "0004-profile-eeeeeeee"


def test_the_programs_of_a_suite_have_captures_of_their_own(contest: Path) -> None:
    data = contest / PROFILE_DATA
    for member in ("full", "causal"):
        written(data, f"0006-{member}-simulated-v5e", 5)
    with pytest.raises(UsageError, match="name one of 0006-causal-simulated-v5e, 0006-full-simulated-v5e") as caught:
        resolve("6", contest)
    assert caught.value.kind == "which-member"
    assert resolve("0006-full-simulated-v5e", contest).attempt == 6


def test_simulated_runs_take_no_room_from_captured_ones(data: Path) -> None:
    for number in range(1, kept_captures.KEPT_RUNS + 3):
        written(data, f"{number:04d}-simulated-v5e", 1000 - number)
    captured = written(data, "kernel-profile-bbbbbbbb", 5000)
    assert kept_captures.prune(data, {1}) == ("0002-simulated-v5e",)
    assert captured.exists()


def test_a_file_outside_a_log_directory_is_a_capture_too(tmp_path: Path) -> None:
    path = tmp_path / "copied.xplane.pb"
    path.write_bytes(DATA)
    place = resolve(str(path), tmp_path)
    assert (place.paths, place.attempt) == ((path,), None)
    assert resolve(str(tmp_path), tmp_path / "elsewhere").paths == (path,)


@pytest.mark.parametrize(
    ("what", "error", "kind", "sentence"),
    [
        ("7", RatchetError, "no-profile", r"ratchet\.sh timeline 7"),
        ("5:simulated", RatchetError, "no-profile", r"no simulated capture.*; its captures are 0005-profile-aaaaaaaa"),
        ("nonsense", UsageError, "no-such-place", r"the number of an attempt .*; got 'nonsense'"),
        ("gs://bucket/logs", UsageError, "remote-profile", "gcloud storage cp"),
    ],
)
def test_nothing_there_and_nonsense_are_errors_that_say_what_was_expected(
    what: str, error: type[RatchetError], kind: str, sentence: str, contest: Path
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        resolve(what, contest)
    assert caught.value.kind == kind
    with pytest.raises(RatchetError, match=r"ratchet\.sh profile") as caught:
        resolve(None, contest / "elsewhere")
    assert caught.value.kind == "no-profile"


def test_pruning_keeps_the_newest_those_of_champions_and_what_is_not_the_ratchets(data: Path) -> None:
    for number in range(1, 26):
        written(data, f"{number:04d}-paired-0000{number:04d}", 1000 - number)
    kept = (written(data, "2026_11_21_16_47_23", 5000), written(data, "mine", 5000))
    assert kept_captures.prune(data, {1, 2}) == ("0005-paired-00000005", "0004-paired-00000004", "0003-paired-00000003")
    left = {place.name for place in places.runs(data)}
    assert len(left) == kept_captures.KEPT_RUNS + 4
    assert {"0001-paired-00000001", "0002-paired-00000002", "0025-paired-00000025"} <= left
    assert all(path.exists() for path in kept)
    assert kept_captures.prune(data, {1, 2}) == ()


def test_runs_and_dumps_keep_to_a_size_and_those_of_champions_go_last(data: Path) -> None:
    for number in range(1, 7):
        written(data, f"{number:04d}-paired-0000{number:04d}", 1000 - number)
        dump = data / f"{number:04d}" / "dumps" / "0-final_bundles.txt"
        dump.parent.mkdir(parents=True)
        dump.write_bytes(bytes(9 * len(DATA)))
        os.utime(dump, (1_700_000_000 - 1000 + number,) * 2)
    mine = written(data, "mine", 5000)
    # Each attempt takes ten times the capture's bytes: three of them fit.
    assert set(kept_captures.prune(data, {2}, kept_bytes=30 * len(DATA))) == {
        name for number in (1, 3, 4) for name in (f"{number:04d}", f"{number:04d}-paired-0000{number:04d}")
    }
    assert mine.exists()
    kept = [path.stat().st_size for path in data.rglob("0*/**/*") if path.is_file()]
    assert sum(kept) <= 30 * len(DATA)
    # The newest stays, whatever it takes: dumps and capture of attempt 6 were written together.
    kept_captures.prune(data, {2}, kept_bytes=0)
    assert [place.attempt for place in places.runs(data)] == [6, None]
    assert [folder.name for folder in data.glob("0*")] == ["0006"]
    assert list(kept_captures.tidy(data, {2})) == []


def left(data: Path, name: str, age_seconds: int, size: int = 10) -> Path:
    """A file of this size and age that a command left; in the folder `name`, unless that names a file."""
    path = (
        data / name if Path(name).suffix in (".gz", ".json", ".html", ".journal") else data / name / "dumps" / "x.txt"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (1_700_000_000 - age_seconds,) * 2)
    return path


def recorded(number: int, *dumps: str) -> Attempt:
    """An attempt with its schedules in these folders; of a suite if there are several."""
    recordings = tuple(evidence(dump_directory=path) for path in dumps)
    if len(recordings) == 1:
        return attempt(number, evidence=recordings[0])
    names = [Path(path).parts[-2] for path in dumps]
    members = tuple(SuiteMember(name=name, weight=0.5, function=name, statement=statement()) for name in names)
    whole = evidence(dump_directory=None, members=recordings, problem=replace(statement(), members=members))
    return attempt(number, evidence=whole)


SCRATCH = (
    *("sweep/000", "sweep/001", "edits/000", "bisect/abc", "bisect/attempt-3", "ablate/0003", "revoke/0003"),
    *("replay/0003", "replay/0003-champion", "diff-0", "diff-1", "judge", "champion", "new", "attack/work"),
    *("0004-champion", "0004-failed", "0001-simulated-v5e.trace.json.gz", "0002-1f2e3d4c.perfetto.json.gz"),
    "answers/show.json",
)


@pytest.mark.parametrize("name", ["mine.trace.json.gz", "before-the-fix.perfetto.json.gz"])
def test_timelines_that_somebody_named_otherwise_stay(name: str, data: Path) -> None:
    mine, _ = left(data, name, 100), left(data, "0009", 50)
    assert kept_captures.prune(data, set(), kept_bytes=1) == ()
    assert mine.exists()


@pytest.mark.parametrize("link", ["plugins", "plugins/profile", "more"])
def test_runs_behind_a_link_are_somebody_elses(link: str, data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    runs = [written(elsewhere, f"kernel-{number:08d}", 1000 - number) for number in range(kept_captures.KEPT_RUNS + 5)]
    (data / link).parent.mkdir(exist_ok=True)
    (data / link).symlink_to(elsewhere / link if link.startswith("plugins") else elsewhere)
    assert len(places.runs(data)) == len(runs)
    assert kept_captures.prune(data, set(), kept_bytes=1) == ()
    assert all(path.exists() for path in runs)


@pytest.mark.parametrize("name", SCRATCH)
def test_whatever_a_command_leaves_counts_and_goes_when_it_is_old(name: str, data: Path) -> None:
    old, newer = left(data, name, 100), left(data, "0009", 50)
    assert kept_captures.prune(data, set(), kept_bytes=20) == ()
    assert kept_captures.prune(data, set(), kept_bytes=19) == (name,)
    assert not old.exists()
    assert newer.exists()


def test_the_oldest_goes_first_whichever_command_left_it(data: Path) -> None:
    for age, name in enumerate(SCRATCH):
        left(data, name, age)
    assert kept_captures.prune(data, set(), kept_bytes=45) == SCRATCH[4:]


def test_what_can_be_gone_on_with_stays(data: Path) -> None:
    attempts = [
        left(data, name, 100)
        for name in ("tune.journal", "report.html", "attack/1a2b3c4d-7.json", "mine", "sweep.json", "plots", "00ab")
    ]
    left(data, "judge", 50)
    assert kept_captures.prune(data, set(), kept_bytes=0) == ()
    assert all(path.exists() for path in attempts)


@pytest.mark.parametrize(
    "dumps",
    [
        ("profile_data/0003/dumps",),
        # The folder of a champion that `revoke` named.
        ("profile_data/revoke/0003/dumps",),
        ("profile_data/0003/a/dumps", "profile_data/0003/b/dumps"),
    ],
)
def test_what_the_champions_record_names_is_never_removed(dumps: tuple[str, ...], data: Path, tmp_path: Path) -> None:
    files = [left(tmp_path, path.removesuffix("/dumps"), 1000) for path in dumps]
    run = written(data, "0007-paired-1f2e3d4c", 1000)
    for number in (5, 6, 8):
        left(data, f"{number:04d}", 100 - number)
    assert kept_captures.prune(data, {3, 5, 7}, recorded(7, *dumps), kept_bytes=0) == ("0005", "0006")
    assert all(path.exists() for path in (*files, run))


@pytest.mark.parametrize("dumps", ["profile_data", "/elsewhere/profile_data/0003/dumps", "..", ""])
def test_a_record_that_names_no_dumps_of_the_folder_keeps_nothing_else(dumps: str, data: Path) -> None:
    left(data, "0003", 1000)
    left(data, "judge", 100)
    assert kept_captures.prune(data, set(), recorded(7, dumps), kept_bytes=0) == ("0003",)


def test_nothing_is_removed_while_a_command_is_at_work(tmp_path: Path) -> None:
    data = tmp_path / PROFILE_DATA
    program = (
        "import pathlib, sys\nfrom harness.loop import kept_captures\n"
        "with kept_captures.in_use(pathlib.Path(sys.argv[1])):\n    print('in use', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in use\n"
        left(data, "judge", 100)
        left(data, "diff-0", 50)
        assert kept_captures.prune(data, set(), kept_bytes=0) == ()
        with kept_captures.in_use(data):
            other.communicate("")
            assert other.returncode == 0
            assert kept_captures.prune(data, set(), kept_bytes=0) == ()
    assert kept_captures.prune(data, set(), kept_bytes=0) == ("judge",)


def test_what_lies_behind_a_link_is_somebodys_own(data: Path, tmp_path: Path) -> None:
    theirs = left(tmp_path / "elsewhere", "000", 100)
    (data / "sweep").symlink_to(tmp_path / "elsewhere")
    (data / "judge").symlink_to(theirs.parents[1])
    left(data, "diff-0", 50)
    assert kept_captures.prune(data, set(), kept_bytes=0) == ()
    assert theirs.exists()


def test_the_folder_is_one_that_git_passes_over(data: Path) -> None:
    assert (data / ".gitignore").read_text() == "*\n"
    (data / ".gitignore").write_text("mine\n")
    assert kept_captures.make_folder(data) == data
    assert (data / ".gitignore").read_text() == "mine\n"


def test_a_command_whose_business_is_another_says_what_it_removed(tmp_path: Path) -> None:
    for number in range(kept_captures.KEPT_RUNS + 1):
        written(tmp_path, f"kernel-profile-{number:08x}", 1000 - number)
    assert list(kept_captures.tidy(tmp_path, set())) == ["removed old captures and dumps (1): kernel-profile-00000000"]
    assert list(kept_captures.tidy(tmp_path, set())) == []
    for number in range(kept_captures.KEPT_RUNS):
        written(tmp_path, f"judge-{number:08x}", 500 - number)
    (sentence,) = kept_captures.tidy(tmp_path, set())
    assert sentence.startswith("removed old captures and dumps (20): kernel-profile-00000014, kernel-profile-00000013")
    assert sentence.endswith("kernel-profile-0000000d and 12 more")


def test_list_runs_shows_every_run_and_says_which_cannot_be_read(
    contest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt_run(contest / PROFILE_DATA)
    (table,) = printed(capsys, "xprof", "list-runs", "-C", str(contest))
    rows = {row["run"]: row for row in table["rows"]}
    assert len(rows) == 7
    name = "0003-paired-1f2e3d4c"
    counts = {"attempt": 3, "hosts": 1, "devices": "1 TPU v6 lite", "files": 1, "bytes": len(DATA)}
    assert rows[name] | {"written": ""} == {"run": name, "written": "", "origin": "measured", **counts}
    assert rows["corrupt"]["devices"] is None
    assert "not a complete profile" in table["notes"][0]
    assert main(["xprof", "list-runs", str(contest / PROFILE_DATA / "plugins" / "profile" / "corrupt" / "..")]) == 0
    assert "0005-profile-aaaaaaaa" in capsys.readouterr().out


def test_an_empty_log_directory_is_said_to_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xprof", "list-runs", str(tmp_path)]) == 0
    assert "empty: there is no .xplane.pb file" in capsys.readouterr().out


def test_the_help_of_xprof_names_every_subcommand_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["xprof", "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "list-runs" in shown
    assert "ratchet.sh xprof list-runs ./profile_data" in shown


@pytest.mark.parametrize(
    ("words", "sentence"), [(["xprof"], "got none"), (["xprof", "list-runz"], "did you mean `list-runs`?")]
)
def test_an_unknown_subcommand_is_a_usage_error(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_new_contests_keep_captures_out_of_git(tmp_path: Path) -> None:
    scaffold(tmp_path / "mine", "attention", ())
    assert f"{PROFILE_DATA}/" in (tmp_path / "mine" / ".gitignore").read_text().splitlines()
