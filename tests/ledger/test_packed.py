"""attempts.jsonl: packed, merged, cut off, attacked, killed; the ledger's view of the attempts stays the same."""

import dataclasses
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_fixtures import candidate, commit_all, four_attempts, git, plain_clone, run_attempt, run_revoke
from narrowing import present

from harness.errors import RatchetError
from harness.files import refuse_links
from harness.ledger import Ledger, history, packed
from harness.ledger.bulk_read import read_all
from harness.ledger.codec import RecordError, encode_attempt, value_text
from harness.ledger.fsck import audit
from harness.ledger.packing import pack, summary
from harness.ledger.paths import place_of
from harness.records import Row
from harness.records.stored import Packing

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NOTE = '{"schema":11,"note":{"kind":"timed"}}'


def packed_file(ledger: Ledger) -> Path:
    return ledger.place.packed_path


def commit(ledger: Ledger, subject: str = "pack") -> None:
    commit_all(ledger.place.root, subject)


def records(ledger: Ledger) -> list[str]:
    """Every record that the file holds, as JSON values are compared."""
    return [value_text(record.document()) for record in packed.read(packed_file(ledger).read_bytes(), "x").records]


def view(ledger: Ledger) -> list[Any]:
    """The ledger as its readers get it."""
    rows, skipped = history.rows(ledger.place)
    champion = ledger.champion()
    return [
        rows,
        skipped,
        ledger.next_number(),
        champion and champion.number,
        [history.attempt(ledger.place, row.number) for row in rows],
        [history.candidate(ledger.place, row.number) for row in rows],
        [(record.row, record.attempt, record.candidate, record.complaint) for record in read_all(ledger.place, rows)],
    ]


@pytest.fixture
def four_packed(ledger: Ledger) -> Ledger:
    """The ledger of four attempts, which are packed."""
    four_attempts(ledger)
    pack(ledger.place)
    return ledger


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_every_reader_says_of_a_packed_contest_what_it_said_before(
    ledger: Ledger, contest: Path, log: bool, committed: bool
) -> None:
    four_attempts(ledger)
    reader = ledger if log else plain_clone(contest, contest.parent / "clone")
    before, documents = view(reader), sorted(reader.place.experiments_directory.glob("*.json"))
    texts = [value_text(path.read_bytes()) for path in documents]
    packing = pack(reader.place)
    assert (packing.moved, packing.attempts, packing.left) == (4, 4, ())
    assert records(reader) == texts
    assert not reader.place.experiments_directory.exists()
    if committed:
        commit(reader)
    assert view(reader) == before
    assert history.rows(reader.place, 2)[0] == before[0][2:]
    assert audit(reader).findings == ()
    if committed:
        packed_file(reader).unlink()
        assert view(reader) == before, "HEAD has the file"
        assert audit(reader).findings == ()


def test_pack_attempt_pack_and_a_pack_of_nothing(four_packed: Ledger, contest: Path) -> None:
    first = packed_file(four_packed).read_bytes()
    again = pack(four_packed.place)
    assert (again.moved, again.bytes_before, again.bytes_after) == (0, len(first), len(first))
    assert summary(again) == f"nothing to pack: attempts.jsonl holds 4 attempts, {len(first):,} bytes"
    assert packed_file(four_packed).read_bytes() == first
    commit(four_packed)
    candidate(contest, 900)
    assert run_attempt(four_packed, "reject").number == 5
    candidate(contest, 1000)
    assert run_attempt(four_packed).number == 6
    assert [path.name[:4] for path in sorted(four_packed.place.experiments_directory.iterdir())] == ["0005", "0006"]
    before = view(four_packed)
    assert ([row.number for row in before[0]], before[1]) == ([1, 2, 3, 4, 5, 6], ())
    packing = pack(four_packed.place)
    assert (packing.moved, packing.attempts) == (2, 6)
    assert packed_file(four_packed).read_bytes().startswith(first), "lines are only added"
    commit(four_packed)
    assert view(four_packed) == before
    assert audit(four_packed).findings == ()


def test_a_revoke_and_an_undo_read_packed_champions(four_packed: Ledger, contest: Path) -> None:
    commit(four_packed)
    run_revoke(four_packed, 2, 4)
    assert present(four_packed.champion()).number == 2
    clone = plain_clone(contest, contest.parent / "clone", "--depth=1")
    assert present(clone.champion()).number == 2, "only the files at HEAD say so"


def test_real_records_are_packed_and_come_back(ledger: Ledger, contest: Path) -> None:
    (contest / "experiments").mkdir()
    chosen = sorted((ROOT / "experiments").glob("00*.json"))[::9]
    for path in chosen:
        shutil.copy(path, contest / "experiments")
    before, _ = history.file_rows(ledger.place)
    packing = pack(ledger.place)
    assert packing.left == ()
    assert records(ledger) == [value_text(path.read_bytes()) for path in chosen]
    assert packing.bytes_after < packing.bytes_before / 3
    after, skipped = history.file_rows(ledger.place)
    assert (after, skipped) == (before, [])


def test_a_file_that_is_no_readable_attempt_stays(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    folder = ledger.place.experiments_directory
    second = next(folder.glob("0002-*"))
    whole_file = second.read_bytes()
    second.write_bytes(whole_file[:-40])
    (folder / "0009-copied.json").write_bytes(whole_file)
    (folder / "0010-more.json").write_bytes(
        whole_file.replace(b'"number": 2', b'"number": 10')
        .replace(b'"number":2,', b'"number":10,')
        .replace(b'"schema"', b'"more": 1, "schema"', 1)
    )
    (folder / "0011-link.json").symlink_to(second)
    (folder / "mine.txt").write_text("mine")
    packing = pack(ledger.place)
    assert packing.moved == 3
    left = " ".join(packing.left)
    assert all(word in left for word in ("0002-", "cut off", "0009-copied", "0010-more", "0011-link", "symbolic link"))
    assert sorted(path.name[:4] for path in folder.iterdir()) == ["0002", "0009", "0010", "0011", "mine"]


def test_two_clones_that_packed_apart_are_merged_by_git(four_packed: Ledger, contest: Path) -> None:
    commit(four_packed)
    other = plain_clone(contest, contest.parent / "other")
    for writer, block in ((four_packed, 700), (other, 800), (four_packed, 900), (other, 1000)):
        candidate(writer.place.root, block)
        run_attempt(writer, "reject", hypothesis=f"blocks of {block}")
    for writer in (four_packed, other):
        pack(writer.place)
        commit(writer)
    git(contest, "pull", "-q", "--no-rebase", "--no-edit", str(other.place.root), "main")
    rows, notes = history.rows(place_of(contest))
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 5, 6, 6]
    assert {row.hypothesis for row in rows[4:]} == {f"blocks of {block}" for block in (700, 800, 900, 1000)}
    assert all("exists more than once" in note for note in notes)
    merged = packed.read(packed_file(four_packed).read_bytes(), "x")
    assert merged.complaints == ()
    assert len({value_text(record.document()) for record in merged.records}) == 8
    assert pack(four_packed.place).moved == 0


@pytest.mark.parametrize("at_head", [True, False])
def test_a_line_that_is_cut_off_is_named_and_kept(four_packed: Ledger, contest: Path, at_head: bool) -> None:
    whole_file = packed_file(four_packed).read_bytes()
    if at_head:
        commit(four_packed)
    packed_file(four_packed).write_bytes(whole_file[:-300])
    line = whole_file.count(b"\n")
    clone = Ledger.open(contest)
    git(contest, "update-ref", "-d", clone.place.log_ref)
    rows, skipped = history.rows(clone.place)
    # What was accepted is in the accepting commits; without them HEAD has the last line only if it was committed.
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert any(
        f"attempts.jsonl, line {line}: expected JSON" in sentence and "cut off" in sentence for sentence in skipped
    )
    assert clone.next_number() == 5
    candidate(contest, 900)
    run_attempt(clone, "reject")
    packing = pack(clone.place)
    assert any(f"line {line}" in sentence for sentence in packing.left)
    assert packed_file(four_packed).read_bytes().startswith(whole_file[:-300] + b"\n")
    assert any(kind.kind == "corrupt-record" for kind in audit(clone).findings)


def test_the_number_of_a_damaged_line_is_not_given_again(ledger: Ledger) -> None:
    packed_file(ledger).write_bytes(b'{"packed":1}\n{"number":41,"row":["$o","$abc\n')
    assert ledger.next_number() == 42
    with pytest.raises(RatchetError, match="there is no attempt 41"):
        history.attempt(ledger.place, 41)


@pytest.mark.parametrize(
    ("line", "kind", "what"),
    [
        (b"[1, 2]", "corrupt-record", "the line cannot be read"),
        (b"{}", "foreign-record", "expected an attempt, shared values or a note"),
        (b"\xff\xfe", "corrupt-record", "the line cannot be read"),
        (b"[" * 100_000, "corrupt-record", "the line cannot be read"),
        (b'{"shared":{"aaaaaaa":1}}', "corrupt-record", "its name is not its hash"),
        (b'{"packed":2}', "newer-record", "update the ratchet"),
        (b'{"number":7,"row":null,"schema":3,"attempt":null}', "corrupt-record", "has no row"),
        (b'{"number":7,"row":["$r",99999999999,"abc"],"schema":3,"attempt":null}', "too-large", "would unfold"),
        (b'{"number":7,"row":"$missing","schema":3,"attempt":null}', "corrupt-record", "the shared value missing"),
        (b'{"number":7,"row":{"number":7},"schema":3,"attempt":null}', "corrupt-record", "does not fit schema"),
    ],
)
def test_hostile_lines_are_named_and_skipped(four_packed: Ledger, line: bytes, kind: str, what: str) -> None:
    git(four_packed.place.root, "update-ref", "-d", four_packed.place.log_ref)
    with open(packed_file(four_packed), "ab") as stream:
        stream.write(line + b"\n")
    rows, skipped = history.rows(four_packed.place)
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert any(what in sentence and "attempts.jsonl, line" in sentence for sentence in skipped)
    assert kind in {finding.kind for finding in audit(four_packed).findings}


def test_two_values_of_one_name_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "name_of", lambda value: "aaaaaaa")
    data = b'{"packed":1}\n{"shared":{"aaaaaaa":1}}\n{"shared":{"aaaaaaa":2}}\n{"number":1,"row":"$aaaaaaa"}\n'
    lines = packed.read(data, "here")
    assert [str(complaint) for complaint in lines.complaints] == [
        "here, line 3: the shared value aaaaaaa differs from the value of that name in a line above"
    ]
    with pytest.raises(RecordError, match="which no line of the file holds undamaged"):
        lines.records[0].row()


def test_a_file_of_damaged_lines_is_told_in_a_few() -> None:
    lines = packed.read(b"x\n" * 1000, "here")
    assert len(lines.complaints) == 21
    assert str(lines.complaints[-1]) == "here: further damaged lines: 980"


def test_a_newer_file_is_left_alone(ledger: Ledger) -> None:
    four_attempts(ledger)
    packed_file(ledger).write_bytes(b'{"packed":2}\n{"unknown":1}\n')
    with pytest.raises(RatchetError, match="update the ratchet"):
        pack(ledger.place)
    assert packed_file(ledger).read_bytes() == b'{"packed":2}\n{"unknown":1}\n'
    assert len(list(ledger.place.experiments_directory.iterdir())) == 4


def test_a_link_that_leads_out_is_refused(ledger: Ledger, contest: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    packed_file(ledger).symlink_to(tmp_path / "outside")
    with pytest.raises(RatchetError, match="outside the repository"):
        refuse_links(contest)
    with pytest.raises(RatchetError, match="symbolic link"):
        pack(ledger.place)


def test_notes_move_along_and_are_read(ledger: Ledger) -> None:
    four_attempts(ledger)
    notes = ledger.place.experiments_directory / "notes.jsonl"
    notes.write_text(f"{NOTE}\n{NOTE}\n")
    packing = pack(ledger.place)
    assert (packing.notes, packing.left) == (1, ())
    assert not ledger.place.experiments_directory.exists()
    assert packed.notes_lines(ledger.place) == [NOTE]
    assert packed_file(ledger).read_text().splitlines()[-1] == NOTE
    commit(ledger)
    packed_file(ledger).unlink()
    assert packed.notes_lines(ledger.place) == [NOTE]
    ledger.place.experiments_directory.mkdir()
    notes.write_text(f"{NOTE}\nmine\n")
    git(ledger.place.root, "checkout", "-q", "attempts.jsonl")
    packing = pack(ledger.place)
    assert "lines that are not notes: 1" in packing.left[0]
    assert notes.exists()


def test_the_way_to_merge_is_said_once(ledger: Ledger, contest: Path) -> None:
    four_attempts(ledger)
    (contest / ".gitattributes").write_text("*.py text")
    pack(ledger.place)
    assert (contest / ".gitattributes").read_text() == "*.py text\nattempts.jsonl merge=union\n"
    candidate(contest, 900)
    run_attempt(ledger, "reject")
    pack(ledger.place)
    assert (contest / ".gitattributes").read_text().count("union") == 1


def test_damage_that_differs_from_the_log_is_found(ledger: Ledger) -> None:
    four_attempts(ledger)
    three = next(ledger.place.experiments_directory.glob("0003-*"))
    edited = dataclasses.replace(history.attempt(ledger.place, 3), hypothesis="idea X")
    row = dataclasses.replace(
        next(row for row in history.rows(ledger.place)[0] if row.number == 3), hypothesis="idea X"
    )
    name = three.name
    three.write_bytes(encode_attempt(edited, row))
    pack(ledger.place)
    (finding,) = [entry for entry in audit(ledger).findings if entry.kind == "file-differs"]
    assert finding.where.startswith("attempts.jsonl, line ")
    assert finding.remedy.startswith(f"remove that line, then git -C {ledger.place.root} cat-file -p ")
    assert finding.remedy.endswith(f"experiments/{name}") or "0003-" in finding.remedy


# Another test of this worker may have imported JAX, which warns of every fork; the child here does not use JAX.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_killed_at_every_change_of_a_file_nothing_is_lost(ledger: Ledger, contest: Path, tmp_path: Path) -> None:
    four_attempts(ledger)
    (ledger.place.experiments_directory / "notes.jsonl").write_text(f"{NOTE}\n")
    commit(ledger, "all files")
    git(contest, "update-ref", "-d", ledger.place.log_ref)
    expected = sorted(value_text(path.read_bytes()) for path in ledger.place.experiments_directory.glob("*.json"))
    for moment in range(200):
        copy = tmp_path / f"copy-{moment}"
        shutil.copytree(contest, copy)
        place = place_of(copy)
        if not _killed(copy, moment):
            break
        # Without HEAD, only the working tree has these values.
        texts = {value_text(path.read_bytes()) for path in place.experiments_directory.glob("*.json")}
        if place.packed_path.exists():
            lines = packed.read(place.packed_path.read_bytes(), "x")
            assert lines.complaints == ()
            texts |= {value_text(record.document()) for record in lines.records}
        assert sorted(texts) == expected
        Ledger.open(copy).recovered()
        pack(place)
        assert not [*copy.rglob("*.ratchet-new")]
        assert sorted(records(Ledger.open(copy))) == expected
        assert packed.notes_lines(place) == [NOTE]
        assert not place.experiments_directory.exists()
        shutil.rmtree(copy)
    assert 8 < moment < 199
    assert sorted(records(Ledger.open(copy))) == expected


def _killed(contest: Path, moment: int) -> bool:
    """Packs in a child that ends before its change number `moment` of a file; True if that change was reached."""
    child = os.fork()
    if not child:
        left = moment

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            is_change = event in ("os.rename", "os.remove", "os.rmdir") or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_WRONLY
            )
            if is_change and str(contest) in str(arguments[0]):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(count)
        pack(place_of(contest))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_rows_come_from_the_head_of_a_line(four_packed: Ledger) -> None:
    git(four_packed.place.root, "update-ref", "-d", four_packed.place.log_ref)
    lines = packed_file(four_packed).read_bytes().splitlines()
    at, line = next((at, line) for at, line in enumerate(lines) if line.startswith(b'{"number":2,'))
    attempt_at = line.index(b'"attempt":')
    lines[at] = line[:attempt_at] + b'"attempt":"nothing"}'
    packed_file(four_packed).write_bytes(b"\n".join(lines) + b"\n")
    rows, skipped = history.rows(four_packed.place)
    assert [row.number for row in rows] == [1, 2, 3, 4]
    assert skipped == ()
    assert all(isinstance(row, Row) for row in rows)
    assert any(finding.kind == "corrupt-record" for finding in audit(four_packed).findings)


def test_the_summary_counts() -> None:
    packing = Packing(moved=3, notes=1, attempts=7, bytes_before=1_000_000, bytes_after=90_000, left=())
    assert summary(packing) == (
        "3 attempts and 1 note moved into attempts.jsonl, which holds 7 attempts: now 90,000 bytes, before packing "
        "1,000,000"
    )
