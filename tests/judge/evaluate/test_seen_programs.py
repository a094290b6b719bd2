"""Kept compilations and simulations: restored whole or not at all, under their key; never results of checks."""

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import attack
from narrowing import present
from planted import POLICY, ROWS, norm, request

from harness import files
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.compile.seen_programs import Seen, SeenPrograms
from harness.judge.evaluate.request import Listener
from harness.records import Evidence, Failure, Policy
from harness.sandbox import confinement

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(confinement.landlock_version() is None, reason="nothing is kept without Landlock"),
]

FINISHED = "    y_ref[...] = (h * scale"
# The same program as far as the compiler sees it; the same on other lines; a wrong program.
SAME, OTHER, WRONG = norm(), norm((FINISHED, f"\n{FINISHED}")), norm((FINISHED, f"{FINISHED} * 1.5"))


def judged(
    contest: Path, programs: SeenPrograms | None, kernel: str = SAME, policy: Policy = POLICY, *, checked: bool = True
) -> tuple[Evidence, dict[str, str]]:
    """The evidence, and how each stage ended."""
    ended: dict[str, str] = {}

    def progress(stage: str, state: str, _: float) -> None:
        if state != "start":
            ended[stage] = state

    asked = request(contest, kernel, ROWS, policy=policy, programs=programs, checked=checked)
    return evaluation.evaluate(asked, Listener(progress=progress)), ended


def dumps(contest: Path) -> dict[str, bytes]:
    work = contest / "profile_data" / "0001"
    return {
        path.relative_to(work).as_posix(): path.read_bytes()
        for folder in ("dumps", "mosaic", "kernel.hlo.txt")
        for path in ((work / folder).rglob("*") if (work / folder).is_dir() else (work / folder,))
    }


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[SeenPrograms, Path, Evidence]:
    """A folder with one entry, the contest that it came from, and the evidence."""
    folder = tmp_path_factory.mktemp("seen")
    programs = SeenPrograms(directory=folder / "programs", judge="this judge")
    result, ended = judged(folder / "contest", programs)
    assert ended["compile"] == ended["simulate"] == "done"
    (entry,) = programs.directory.iterdir()
    assert entry.suffix == ".program"
    return programs, folder / "contest", result


@pytest.fixture
def copied(kept: tuple[SeenPrograms, Path, Evidence], tmp_path: Path) -> tuple[SeenPrograms, str, Path]:
    """The same in a folder that a test may spoil, the entry's key, and an empty folder for what is restored."""
    programs = replace(kept[0], directory=tmp_path / "programs")
    programs.directory.mkdir()
    (entry,) = kept[0].directory.iterdir()
    (programs.directory / entry.name).write_bytes(entry.read_bytes())
    work = tmp_path / "work"
    work.mkdir()
    return programs, entry.stem, work


def test_a_program_that_was_seen_is_neither_compiled_nor_simulated_and_checked_all_the_same(
    kept: tuple[SeenPrograms, Path, Evidence], tmp_path: Path
) -> None:
    programs, contest, first = kept
    again, ended = judged(tmp_path, programs)
    assert ended["compile"] == ended["simulate"] == "seen before"
    # Everything that follows from the program is the same, and so are its files.
    for name in ("hlo", "mosaic", "simulation", "latency", "trace", "failure"):
        ours, theirs = getattr(again, name), getattr(first, name)
        assert (replace(ours, seconds=0) if name == "trace" else ours) == (
            replace(theirs, seconds=0) if name == "trace" else theirs
        )
    assert dumps(tmp_path) == dumps(contest)
    assert (tmp_path / "profile_data" / "kernel.hlo.txt").read_bytes() == dumps(contest)["kernel.hlo.txt"]
    # The checks ran, on inputs drawn anew.
    assert [(check.mode, check.shape) for check in again.checks] == [
        (check.mode, check.shape) for check in first.checks
    ]
    assert {check.seed for check in again.checks}.isdisjoint(check.seed for check in first.checks)
    # A schedule with lines also serves if no lines are asked for, and nothing is added.
    screened, ended = judged(tmp_path, programs, checked=False)
    assert ended["compile"] == "seen before"
    assert screened.latency == first.latency
    assert len(list(programs.directory.iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "kernel", "checked"),
    [
        (lambda programs: replace(programs, judge="another judge, chip or compiler"), SAME, False),
        # Its lines are shown.
        (lambda programs: programs, OTHER, True),
        (lambda programs: programs, WRONG, False),
    ],
)
def test_nothing_is_given_for_another_key(
    kept: tuple[SeenPrograms, Path, Evidence],
    tmp_path: Path,
    change: Callable[[SeenPrograms], SeenPrograms],
    kernel: str,
    checked: bool,
) -> None:
    programs = replace(change(kept[0]), directory=tmp_path / "programs")
    programs.directory.mkdir()
    for entry in kept[0].directory.iterdir():
        (programs.directory / entry.name).write_bytes(entry.read_bytes())
    _, ended = judged(tmp_path, programs, kernel, checked=checked)
    assert ended["compile"] == "done"
    assert len(list(programs.directory.iterdir())) == 2


def test_a_wrong_program_that_was_seen_is_still_wrong(tmp_path: Path) -> None:
    programs = SeenPrograms(directory=tmp_path / "programs", judge="this judge")
    screened, _ = judged(tmp_path, programs, WRONG, checked=False)
    assert screened.failure is None
    for _ in range(2):
        result, _ = judged(tmp_path, programs, WRONG)
        assert present(result.failure).kind == "wrong-result"


def test_compiler_flags_simulator_and_timing_tables_are_part_of_the_key(copied: tuple[SeenPrograms, str, Path]) -> None:
    programs, _, work = copied
    artifact, dumps = work / "artifact", work / "dumps"
    dumps.mkdir()
    artifact.write_bytes(b"a program")
    keys = {
        programs.key(artifact, {"LIBTPU_INIT_ARGS": flags}, simulator, dumps)
        for flags in ("--one", "--other")
        for simulator in ("a.run", "b.run")
    }
    artifact.write_bytes(b"another program")
    keys.add(programs.key(artifact, {"LIBTPU_INIT_ARGS": "--one"}, "a.run", dumps))
    # The contents of tables in the timed calls are part of the key.
    for tables in (b"[1]", b"[2]"):
        (dumps / "timing-tables.json").write_bytes(tables)
        keys.add(programs.key(artifact, {"LIBTPU_INIT_ARGS": "--one"}, "a.run", dumps))
    assert len(keys) == 7


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def resealed(data: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    """Another body with the right digest, as only an attacker writes."""
    mark, body = data[: data.index(b"\n") + 1], data[data.index(b"\n") + 1 + 32 :]
    return mark + hashlib.sha256(edit(body)).digest() + edit(body)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:40],
        lambda data: b"",
        flipped,
        lambda data: data + b"x",
        lambda data: b"kernel-ratchet program 0\n" + data.split(b"\n", 1)[1],
        lambda data: resealed(data, lambda body: body[: len(body) // 2]),
        lambda data: resealed(data, lambda body: body.replace(b"dumps/", b"../../")),
        lambda data: resealed(data, lambda body: b""),
    ],
    ids=["cut", "half", "head", "empty", "bit", "longer", "older", "no archive", "elsewhere", "nothing"],
)
def test_a_damaged_entry_is_dropped(copied: tuple[SeenPrograms, str, Path], spoil: Callable[[bytes], bytes]) -> None:
    programs, key, work = copied
    path = programs.directory / f"{key}.program"
    path.write_bytes(spoil(path.read_bytes()))
    assert programs.restored(key, work) is None
    # Nothing of it is left, there or here.
    assert not path.exists()
    assert not list(work.iterdir())
    assert sorted(path.name for path in work.parent.iterdir()) == ["programs", "work"]


def test_an_entry_under_another_name_is_dropped(copied: tuple[SeenPrograms, str, Path]) -> None:
    programs, key, work = copied
    other = "0" * len(key)
    (programs.directory / f"{key}.program").rename(programs.directory / f"{other}.program")
    assert programs.restored(other, work) is None
    assert not list(work.iterdir())


def kept_often(programs: SeenPrograms, key: str, work: Path, seen: Seen) -> None:
    for _ in range(30):
        programs.keep(key, work, seen.compiled, seen.simulation)


def test_two_processes_keep_and_read_the_same_at_once(copied: tuple[SeenPrograms, str, Path]) -> None:
    programs, key, work = copied
    seen = present(programs.restored(key, work))
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=kept_often, args=(programs, key, work, seen)) for _ in range(2)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers) or not reads:
        again = work.parent / f"again-{reads}"
        again.mkdir()
        # The entry is always whole: at no moment is it missing or half written.
        assert programs.restored(key, again) == seen
        assert (again / "kernel.hlo.txt").read_bytes() == (work / "kernel.hlo.txt").read_bytes()
        reads += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in programs.directory.iterdir()] == [f"{key}.program"]


def test_no_more_is_kept_than_the_limit_and_what_was_asked_for_stays(copied: tuple[SeenPrograms, str, Path]) -> None:
    programs, key, work = copied
    seen = present(programs.restored(key, work))
    size = (programs.directory / f"{key}.program").stat().st_size
    small = replace(programs, most_bytes=3 * size + size // 2)
    # A temporary file that a killed process left behind.
    (programs.directory / f".{key}.0123").write_bytes(b"x" * size)
    os.utime(programs.directory / f".{key}.0123", (1, 1))
    for number in range(5):
        other = f"{number:064x}"
        small.keep(other, work, seen.compiled, seen.simulation)
        # The second stays: it is asked for each time.
        for place, path in enumerate(sorted(programs.directory.glob("*.program"))):
            os.utime(path, (100 + place, 100 + place))
        os.utime(programs.directory / f"{key}.program", (10_000, 10_000))
    names = {path.stem for path in programs.directory.iterdir()}
    assert len(names) == 3
    assert key in names
    assert f"{4:064x}" in names
    # An entry larger than the whole cache is not kept.
    replace(programs, most_bytes=size // 2).keep("f" * 64, work, seen.compiled, seen.simulation)
    assert "f" * 64 not in {path.stem for path in programs.directory.iterdir()}


def test_links_among_the_dumps_are_not_followed(copied: tuple[SeenPrograms, str, Path]) -> None:
    programs, key, work = copied
    seen = present(programs.restored(key, work))
    (work / "dumps" / "link").symlink_to("/etc/passwd")
    programs.keep("a" * 64, work, seen.compiled, seen.simulation)
    assert [path.stem for path in programs.directory.iterdir()] == [key]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_costs_no_more_than_the_time(tmp_path: Path) -> None:
    (tmp_path / "programs").write_text("no folder")
    result, ended = judged(tmp_path, SeenPrograms(directory=tmp_path / "programs", judge="this judge"))
    assert result.failure is None
    assert ended["compile"] == "done"


@pytest.mark.slow
def test_where_children_are_not_confined_nothing_is_kept_or_read(
    kept: tuple[SeenPrograms, Path, Evidence], tmp_path: Path
) -> None:
    open_ = replace(POLICY, is_confined=False)
    _, ended = judged(tmp_path, kept[0], policy=open_)
    assert ended["compile"] == "done"
    judged(tmp_path, SeenPrograms(directory=tmp_path / "programs", judge="this judge"), policy=open_)
    assert not (tmp_path / "programs").exists()


def test_a_candidate_reaches_nothing_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = files.cache_directory()
    assert folder == tmp_path / "cache" / "kernel-ratchet"
    entry = present(folder) / "programs" / f"{'0' * 64}.program"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"as it was")
    for line in ("open({path!r}, 'wb')", "open({path!r}, 'rb')", "os.unlink({path!r})", "open({path!r} + '2', 'wb')"):
        reply, _ = attack(tmp_path / "scratch", f"import os\n{line.format(path=str(entry))}", are_confined=True)
        assert "PermissionError" in (reply.message if isinstance(reply, Failure) else reply)
    assert entry.read_bytes() == b"as it was"
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]
