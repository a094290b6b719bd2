"""The short form of JSON values restores the value, and texts that no value was shortened to are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger.codec import RecordError, compact
from harness.ledger.shortening import Budget, Pool, name_of, restored, shorten, unshared

ROOT = Path(__file__).parents[2]
TEXTS = st.text() | st.sampled_from(["$", "$$o", "$o", "$abcdefg", "a\n\n\nb", "\n\n\n\n", "\ud800", "x" * 40])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda values: (
        st.lists(values)
        | st.dictionaries(TEXTS, values)
        | st.lists(st.fixed_dictionaries({"a long key": values, "another key": values}), min_size=3)
        | st.builds(lambda value, count: [value] * count, values, st.integers(2, 9))
    ),
    max_leaves=30,
)


def read_back(short: Any, texts: dict[str, bytes] | None = None) -> Any:
    budget = Budget("here")
    return restored(unshared(json.loads(compact(short)), texts or {}, budget), budget)


@pytest.mark.long
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_every_value_comes_back_alone_and_among_others(values: list[Any]) -> None:
    pool, new = Pool(), dict[str, str]()
    shorts = [shorten(value) for value in values]
    for short in (*shorts, *shorts):
        pool.count(short)
    for value, short in zip(values, shorts, strict=True):
        assert compact(read_back(short)) == compact(value)
        shared = pool.share(short, new)
        assert compact(read_back(shared, {name: text.encode() for name, text in new.items()})) == compact(value)


@pytest.mark.parametrize("number", [1, 8, 20, 31])
def test_real_records_of_old_schemas_come_back(number: int) -> None:
    (path,) = (ROOT / "experiments").glob(f"{number:04d}-*.json")
    document = json.loads(path.read_bytes())
    short = shorten(document)
    assert compact(read_back(short)) == compact(document)
    assert len(compact(short)) < len(compact(document)) * 0.85


@pytest.mark.parametrize(
    ("short", "what"),
    [
        (["$o", ["a"], 1, 2], "2 values for the 1 keys"),
        (["$o"], "without a list of keys"),
        (["$t", ["a"], 5], "columns do not fit"),
        (["$t", [], []], "columns do not fit"),
        (["$t", ["a", "b"], [1], [1, 2]], "columns do not fit"),
        (["$r", 2], "counts and values in turn"),
        (["$r", "2", 1], "counts and values in turn"),
        (["$d", "~~~~~~~~~~"], "numbers that cannot be read"),
        (["$d", 5], "numbers that cannot be read"),
        (["$i"], "numbers that cannot be read"),
        (["$l", "ab", "x"], "do not fit their first characters"),
        (["$l", "a", 1], "do not fit their first characters"),
        ("$missing", "refers to the shared value missing"),
        (["$r", 10**9, "xxxxxxxxxxxxxxxx"], "would unfold to more than"),
        (["$r", 10**18, 1], "would unfold to more than"),
    ],
)
def test_what_nothing_was_shortened_to_is_refused(short: Any, what: str) -> None:
    with pytest.raises(RecordError, match=what) as caught:
        read_back(short)
    assert str(caught.value).startswith("here ")


def test_values_that_double_at_every_name_hit_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_MAX_RECORD_BYTES", "1000000")
    texts, name = dict[str, bytes](), ""
    for _ in range(40):
        value = compact([f"${name}"] * 2 if name else ["x" * 20]).encode()
        name = name_of(value)
        texts[name] = value
    with pytest.raises(RecordError, match="would unfold to more than 1,000,000 bytes"):
        read_back(f"${name}", texts)


def test_names_that_lead_in_a_circle_and_deep_nesting_are_refused() -> None:
    with pytest.raises(RecordError, match="nested more than 100 deep"):
        read_back("$aaaaaaa", {"aaaaaaa": b'["$bbbbbbb"]', "bbbbbbb": b'["$aaaaaaa"]'})
    deep = json.loads("[" * 200 + "]" * 200)
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        shorten(deep)
    with pytest.raises(RecordError, match="nested more than 100 deep"):
        read_back(deep)
