"""A change taken out of a later text: what merges, what conflicts, and helpers."""

import ast
from pathlib import Path

import pytest
from ledger_fixtures import into_repository

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger, merge
from harness.ledger.bare_source import bare

KERNELS = Path(__file__).parents[2] / "examples"
BASE = b"A = 1\nB = 2\n\n\ndef f():\n    return A\n"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "kernel.py").write_bytes(BASE)
    return Ledger.open(into_repository(tmp_path, "a kernel"))


def without(ledger: Ledger, text: bytes, before: bytes, after: bytes) -> bytes | None:
    candidates = (Candidate(text=each) for each in (text, before, after))
    merged = merge.without(ledger.place.repository, *candidates)
    return None if merged is None else merged.text


def files(contents: dict[str, bytes]) -> bytes:
    return Candidate.of_files(contents).text


def edited(text: bytes, *edits: tuple[bytes, bytes]) -> bytes:
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("change", "later"),
    [
        (((b"A = 1", b"A = 8"),), ((b"return A", b"return B"),)),
        # The lines are adjacent, and each change edits one of them.
        (((b"A = 1", b"A = 8"),), ((b"B = 2", b"B = 9"),)),
        (((b"B = 2\n", b"B = 2\nC = 3\n"),), ((b"B = 2\n", b"B = 9\n"),)),
        (((b"A = 1\n", b"Z = 0\nA = 1\n"),), ((b"A = 1\n", b""), (b"B = 2\n", b"B = 3\n"))),
        (((b"A = 1\n", b""),), ((b"return A", b"return B"),)),
        (((b"B = 2\n", b"B = 2\nC = 3\n"),), ((b"return A", b"return B"),)),
    ],
)
def test_a_change_goes_and_a_later_one_stays(
    change: tuple[tuple[bytes, bytes], ...], later: tuple[tuple[bytes, bytes], ...], ledger: Ledger
) -> None:
    after = edited(BASE, *change)
    champion = edited(after, *later)
    assert without(ledger, champion, BASE, after) == edited(BASE, *later)
    assert without(ledger, champion, after, champion) == after


@pytest.mark.parametrize(
    ("change", "later"),
    [
        ((b"A = 1", b"A = 8"), (b"A = 8", b"A = 9")),
        ((b"A = 1", b"A = 8"), (b"A = 8\nB = 2\n", b"")),
        ((b"B = 2\n", b"B = 2\nC = 3\n"), (b"C = 3\n", b"C = 4\nD = 5\n")),
        ((b"B = 2\n", b""), (b"A = 1\n", b"A = 1\nC = 3\n")),
    ],
)
def test_the_same_lines_changed_since_are_a_conflict(
    change: tuple[bytes, bytes], later: tuple[bytes, bytes], ledger: Ledger
) -> None:
    after = edited(BASE, change)
    assert without(ledger, edited(after, later), BASE, after) is None


def test_a_change_that_was_taken_back_changes_nothing(ledger: Ledger) -> None:
    after = edited(BASE, (b"A = 1", b"A = 8"))
    champion = edited(BASE, (b"return A", b"return B"))
    assert without(ledger, champion, BASE, after) == champion


def test_texts_without_a_last_line_end_and_with_carriage_returns(ledger: Ledger) -> None:
    for base in (BASE.rstrip(b"\n"), BASE.replace(b"\n", b"\r\n")):
        after, later = edited(base, (b"A = 1", b"A = 8")), ((b"B = 2", b"B = 9"), (b"return A", b"return B"))
        assert without(ledger, edited(after, *later), base, after) == edited(base, *later)


def test_headings_that_look_like_a_conflict_are_text(ledger: Ledger) -> None:
    base = b"<<<<<<< mine\n=======\n" + BASE + b">>>>>>> new\n"
    after, later = edited(base, (b"A = 1", b"A = 8")), (b"B = 2", b"B = 9")
    assert without(ledger, edited(after, later), base, after) == edited(base, later)


def test_words_about_the_same_lines_are_no_conflict(ledger: Ledger) -> None:
    after = edited(BASE, (b"A = 1\n", b"A = 8  # eight\n"), (b"def f():\n", b'def f():\n    """Eight."""\n'))
    champion = edited(
        after, (b"A = 8  # eight\n", b"# Rows.\nA = 8  # as many\n"), (b"Eight.", b"Rows."), (b"B = 2", b"B = 9")
    )
    assert without(ledger, champion, BASE, after) == b"A = 1\nB = 9\ndef f():\n    return A\n"
    # The program itself differs at these lines.
    assert without(ledger, edited(champion, (b"A = 8", b"A = 7")), BASE, after) is None


@pytest.mark.parametrize(
    "path", [*sorted(KERNELS.glob("*/kernel.py")), Path(merge.__file__)], ids=lambda path: path.parent.name
)
def test_a_bare_source_is_the_same_program(path: Path) -> None:
    source = path.read_bytes()
    stripped = bare(source)
    assert stripped is not None
    assert b"# " not in stripped.replace(b'"# ', b"")
    assert len(stripped.splitlines()) < len(source.splitlines())
    assert program(stripped) == program(source)
    assert bare(stripped) == stripped


def program(source: bytes) -> str:
    """The syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def test_strings_that_look_like_comments_stay_and_shared_lines_too() -> None:
    source = b'X = """\n\n# no comment\n"""\n\n\ndef f(): "a docstring"; return 1  # one\n\n\ndef g():\n    "alone"\n'
    assert bare(source) == b'X = """\n\n# no comment\n"""\ndef f(): "a docstring"; return 1\ndef g():\n    "alone"\n'
    assert bare(b"def") is None
    assert bare(b"\xff") is None


def test_other_line_ends_tie_no_change(ledger: Ledger) -> None:
    after = edited(BASE, (b"A = 1", b"A = 8"), (b"return A", b"# why\n    return A"))
    champion = edited(after, (b"B = 2", b"B = 9"))
    for end in (b"\r\n", b"\r"):
        merged = without(ledger, champion.replace(b"\n", end), BASE, after)
        assert merged == bare(edited(BASE, (b"B = 2", b"B = 9")))


def test_helpers_are_merged_each_by_itself(ledger: Ledger) -> None:
    candidate = files({"kernel.py": BASE, "one.py": b"X = 1\n"})
    two = files({"kernel.py": BASE, "one.py": b"X = 1\n", "two.py": b"Y = 1\n"})
    assert without(ledger, two, BASE, candidate) == files({"kernel.py": BASE, "two.py": b"Y = 1\n"})
    assert without(ledger, two, candidate, two) == candidate
    changed = files({"kernel.py": BASE, "one.py": b"X = 2\n"})
    assert without(ledger, changed, BASE, candidate) is None


def test_what_is_no_text_is_refused_with_gits_words(ledger: Ledger) -> None:
    with pytest.raises(RatchetError, match="merge-file"):
        without(ledger, BASE + b"\0mine", BASE, BASE + b"\0old")
