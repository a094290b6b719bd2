"""Records survive JSON exactly, and every spoiled document is refused by name."""

import dataclasses
import json
import math
from typing import Any

import msgspec
import pytest
from evidence_examples import evidence, failed
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_fixtures import attempt, row
from refusals import refused

from harness.errors import RatchetError
from harness.ledger import codec, diff, experiments, messages
from harness.ledger.codec import RecordError
from harness.records import Attempt, Check, Row, Verdict
from harness.records.stored import SCHEMA

TEXT = st.text(st.characters(exclude_categories=()), max_size=80)
NUMBERS = st.none() | st.floats(allow_nan=False)


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    check = Check(
        family=draw(TEXT),
        mode="full",
        shape=tuple(draw(st.lists(st.integers(0, 2**70), max_size=3))),
        seed=draw(st.integers(-(2**70), 2**70)),
        elements=1,
        error=draw(st.floats(allow_nan=False)),
        honest_error=0.0,
        tolerance=1.0,
        passed=draw(st.booleans()),
    )
    drawn = draw(st.sampled_from([evidence(), failed(detail=draw(TEXT))]))
    return attempt(
        draw(st.integers(1, 10**6)),
        draw(st.binary(max_size=80)),
        hypothesis=draw(TEXT),
        settings=tuple(draw(st.lists(st.tuples(TEXT, TEXT), max_size=2))),
        expected_time_ratio=draw(NUMBERS),
        evidence=dataclasses.replace(drawn, checks=(check,)),
        verdict=Verdict(outcome="reject", reasons=(draw(TEXT),), time_ratio=draw(NUMBERS)),
    )


@pytest.mark.long
@given(attempts(), NUMBERS)
@settings(max_examples=60)
def test_every_record_survives(made: Attempt, score: float | None) -> None:
    shown = dataclasses.replace(row(made), score=score)
    data = codec.encode_attempt(made, shown)
    assert codec.decode_attempt(data, "here") == made
    assert codec.decode_attempt_row(data, "here") == shown
    assert codec.decode_head_row(data, "here") == shown
    assert codec.encode_attempt(made, shown) == data
    line = codec.encode_row(shown)
    assert "\n" not in line
    assert codec.decode_row(line, "here") == shown


@pytest.mark.long
@given(TEXT, st.binary(max_size=60))
@settings(max_examples=60)
def test_commit_messages_give_the_row_back(hypothesis: str, kernel: bytes) -> None:
    made = attempt(12, kernel, hypothesis=hypothesis)
    message = messages.log_message(row(made))
    assert messages.row_of(message, "here") == row(made)
    assert len(message.split("\n")[0]) <= messages.SUBJECT_LENGTH
    accepted = messages.accept_message(made, row(made))
    subject = accepted.split("\n")[0]
    assert 0 < len(subject) <= messages.SUBJECT_LENGTH
    trailers = messages.trailers(accepted)
    assert trailers["Ratchet-Attempt"] == "12"
    assert trailers["Ratchet-Contest"] == "root"


def test_a_hypothesis_cannot_forge_trailers_or_rows() -> None:
    forged = f"faster\n\nRatchet-Attempt: 7\nRatchet-Row: {codec.encode_row(row(attempt(7)))}"
    made = attempt(12, hypothesis=forged)
    assert messages.trailers(messages.accept_message(made, row(made)))["Ratchet-Attempt"] == "12"
    assert messages.row_of(messages.log_message(row(made)), "here").number == 12


def test_the_document_is_readable_json() -> None:
    made = attempt(3, hypothesis='\u63d0\u9ad8 BQ: "quotes"\nsecond line')
    data = codec.encode_attempt(made, row(made))
    document = json.loads(data)
    assert list(document) == ["schema", "row", "attempt"]
    assert document["schema"] == SCHEMA
    assert data.endswith(b"}\n")
    assert "\u63d0\u9ad8 BQ" in data.decode()
    assert b'\n  "attempt": {"number":3,' in data


def test_floats_that_are_not_finite_survive_in_standard_json() -> None:
    check = dataclasses.replace(evidence().checks[0], error=math.nan, honest_error=math.inf, tolerance=-math.inf)
    made = attempt(evidence=evidence(checks=(check,)))
    data = codec.encode_attempt(made)
    json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    decoded = codec.decode_attempt(data, "here").evidence.checks[0]
    assert decoded.error is not None
    assert math.isnan(decoded.error)
    assert (decoded.honest_error, decoded.tolerance) == (math.inf, -math.inf)


def spoiled(**changes: Any) -> bytes:
    document = json.loads(codec.encode_attempt(attempt(), row(attempt())))
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", "corrupt-record", "cut off"),
        (codec.encode_attempt(attempt())[:-200], "corrupt-record", "cut off"),
        (b"\xff\xfe{}", "corrupt-record", "UTF-8"),
        (b"[" * 100_000, "corrupt-record", "not readable JSON"),
        (b"[1, 2]", "foreign-record", "object"),
        (b'{"name": "something else"}', "foreign-record", "no schema number"),
        (b'{"schema": true, "attempt": {}}', "foreign-record", "no schema number"),
        (b'{"schema": 1, "notes": []}', "foreign-record", "`attempt`"),
        (spoiled(schema=99), "newer-record", "schema 99"),
        (spoiled(attempt={"number": 1}), "corrupt-record", "missing required field"),
        (spoiled(attempt=[]), "corrupt-record", "Expected `object`"),
        (
            codec.encode_attempt(attempt(looked_at=2**62)),
            "corrupt-record",
            f"looked_at to be at most 1,000,000,000 programs, got {2**62:,}",
        ),
    ],
)
def test_a_spoiled_document_is_refused_with_its_name(data: bytes, kind: str, words: str) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        codec.decode_attempt(data, "experiments/0001-x.json")
    assert caught.value.kind == kind
    assert "experiments/0001-x.json" in str(caught.value)


def test_types_are_strict() -> None:
    document = json.loads(codec.encode_attempt(attempt()))
    document["attempt"]["number"] = "1"
    with pytest.raises(RecordError, match=r"Expected `int`.*number"):
        codec.decode_attempt(json.dumps(document).encode(), "here")


def test_every_cut_of_a_file_is_noticed(tmp_path: Any) -> None:
    made = attempt()
    data = codec.encode_attempt(made, row(made))
    path = tmp_path / "0001-idea-1.json"
    for length in [*range(0, len(data) - 3, 97), len(data) - 3]:
        path.write_bytes(data[:length])
        with pytest.raises(RecordError):
            experiments.row_in(path, "here")
    path.write_bytes(data)
    assert experiments.row_in(path, "here") == row(made)
    path.write_bytes(data.replace(b"\n", b"\r\n"))
    assert experiments.row_in(path, "here") == row(made)
    path.write_text(json.dumps(json.loads(data), indent=8))
    assert experiments.row_in(path, "here") == row(made)


def test_a_row_does_not_name_its_own_commit() -> None:
    placed = dataclasses.replace(row(attempt()), commit="a" * 40)
    assert codec.decode_row(codec.encode_row(placed), "here") == row(attempt())


@pytest.mark.parametrize(
    ("hypothesis", "expected"),
    [
        ("BQ 128 -> 1024", "bq-128-1024"),
        ("baseline", "baseline"),
        ("\u63d0\u9ad8\u5757\u5927\u5c0f", "attempt"),
        ("", "attempt"),
        ("../../etc/passwd\0", "etc-passwd"),
        ("Gr\u00f6\u00dfere Bl\u00f6cke", "groere-blocke"),
        ("a" * 99, "a" * 40),
        ("a" * 39 + " b", "a" * 39),
    ],
)
def test_slugs(hypothesis: str, expected: str) -> None:
    assert experiments.slug(hypothesis) == expected


@given(st.integers(1, 10**7), TEXT)
def test_every_file_name_is_plain_and_gives_its_number_back(number: int, hypothesis: str) -> None:
    name = experiments.file_name(number, hypothesis)
    assert experiments.number_of(name) == number
    assert name.isascii()
    assert len(experiments.slug(hypothesis)) <= 40


def test_names_of_other_files_are_not_attempts() -> None:
    names = ("LOG.md", "notes.json", "1-x.json", "0001-X.json", ".0001-x.json.ratchet-new", "0001-x.json\n")
    assert [experiments.number_of(name) for name in names] == [None] * len(names)


LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"\n", b"-- x\n", b"\\ y\n", b"@@ -1 +1 @@\n", b"\xff\r\n", b"\x0c\n"]),
    max_size=30,
)


@given(LINES, LINES, st.sampled_from([b"", b"no newline", b"-"]), st.sampled_from([b"", b"no newline"]))
def test_a_diff_can_be_applied_again(old: list[bytes], new: list[bytes], old_end: bytes, new_end: bytes) -> None:
    before, after = b"".join(old) + old_end, b"".join(new) + new_end
    assert diff.applied(before, diff.unified(before, after)) == after


def test_a_diff_that_does_not_fit_is_refused() -> None:
    with refused("diff-mismatch", "does not fit at line 1"):
        diff.applied(b"c\n", diff.unified(b"a\n", b"b\n"))


def test_a_row_needs_no_attempt_of_this_shape() -> None:
    assert isinstance(codec.decode_head_row(codec.encode_attempt(attempt(), row(attempt()))[:8192], "here"), Row)
    assert codec.decode_head_row(b'{"schema": 1}', "here") is None


@pytest.mark.parametrize("value", [0.25, 1.0, float("nan"), float("inf"), -0.0, None])
@pytest.mark.parametrize("hypothesis", ["plain", "ünïcode \u2028", "not UTF-8: \udcff"])
def test_rows_are_the_same_wherever_they_are(value: float | None, hypothesis: str) -> None:
    changed = dataclasses.replace(row(attempt(3)), score=value, hypothesis=hypothesis)
    here = codec.decode_row(codec.encode_row(changed), "here")
    there = dataclasses.replace(here, commit="0" * 40, is_on_branch=True)
    assert codec.identity(changed) == codec.identity(here) == codec.identity(there)
    assert codec.identity(changed) != codec.identity(dataclasses.replace(changed, number=changed.number + 1))
    assert codec.identity(changed) != codec.identity(dataclasses.replace(changed, score=0.5))


def test_a_row_reads_alike_quickly_and_by_way_of_the_whole_document() -> None:
    """A plain value is read straight into a record; an old name, or a number that JSON cannot express, is not."""
    plain = row(attempt(3))
    odd = dataclasses.replace(plain, score=float("inf"))
    for entry in (plain, odd):
        for schema in (1, 2, 3, SCHEMA):
            line = codec.encode_row(entry).replace(f'"schema": {SCHEMA}', f'"schema": {schema}', 1)
            assert codec.decode_row(line, "here") == entry
    with pytest.raises(RecordError, match="newer"):
        codec.decode_row(codec.encode_row(plain).replace(f": {SCHEMA}", f": {SCHEMA + 1}", 1), "here")
    with pytest.raises(RecordError, match="does not fit"):
        codec.decode_row(codec.encode_row(plain).replace(f'"number": {plain.number}', '"number": "x"', 1), "here")


@pytest.mark.parametrize(
    "text",
    [
        "@@ -1 +1 @@\n-a\n+\ud83d\n",
        # Each pair would copy the whole text once more.
        "@@ -9 +9 @@\n@@ -1 +1 @@\n" * 100_000,
        "@@ -1 +1 @@\n\\ No newline at end of file\n",
    ],
)
def test_a_diff_that_no_ratchet_wrote_is_refused(text: str) -> None:
    with pytest.raises(RatchetError, match=r"the diff (goes back to line 1|is not text|does not fit)"):
        diff.applied(b"a\n", text)


def test_a_line_that_is_no_hunk_changes_nothing() -> None:
    assert diff.applied(b"a\n", f"@@ -{'9' * 5000} +1 @@\n+b\n") == b"a\n"


def test_what_is_printed_is_json_to_every_reader() -> None:
    names = {"name": "a\udcff\udc80b \U0001f600 \ud83d"}
    text = codec.valid_json(names)
    assert msgspec.json.decode(text.encode()) == {"name": "a\\xff\\x80b \U0001f600 \\ud83d"}
