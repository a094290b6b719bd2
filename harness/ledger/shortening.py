"""JSON values to a short form and back: repeated keys and items once, numbers in base 85, shared values by name.

The short form is JSON again. In it, a string that begins with one `$` is a sign; a string of the original value that
begins with `$` gets one more `$`.

["$o", KEYS, VALUE ...]         an object, unless its keys are short
["$t", KEYS, COLUMN ...]        a list of at least three objects with the same keys
["$r", COUNT, VALUE ...]        a list in which values repeat, COUNT and VALUE in turn
["$d", TEXT]                    a list of floats: little-endian IEEE 754 doubles in base 85 (base64.b85encode)
["$i", TEXT]                    a list of integers, each in 32 bits without a sign, likewise
["$l", FIRSTS, REST ...]        a text of at least four lines: the first characters of all lines (a line feed for an
                                empty line), then the rest of each line. A line that one diff adds and a later diff
                                removes then has the same REST in both.
"$NAME"                         the shared value of that name, which is the beginning of a hash of its short form

`shorten` makes all of these forms except the last, which `Pool.share` makes from them. To read, call `unshared`, then
`restored`. Both take a `Budget`, because a few bytes of a short form may stand for any number of bytes.
"""

import base64
import hashlib
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import reading_limits
from harness.ledger.codec import RecordError, compact

# 42 bits: if each of two clones shares a thousand values, two values get the same name in one of four million merges.
# The reader names such values instead of mixing them up.
_NAME_LENGTH = 7
# If the JSON text of a value has fewer characters than this, a name for it saves next to nothing.
_LEAST = 16
# A definition costs its name twice, quotes, a colon and a comma.
_DEFINITION = 2 * _NAME_LENGTH + 6
_TABLE_ROWS, _TEXT_LINES = 3, 4
# The sign of an array of numbers, and their format in `struct`.
_ARRAYS = {"$d": "d", "$i": "I"}
# A record is nested a dozen deep.
_DEEPEST = 100


@dataclass(slots=True)
class Budget:
    """The most characters that one record may grow to while it is read, and `where`, its name in errors."""

    where: str
    most: int = field(default_factory=lambda: reading_limits.RECORD.value)
    spent: int = 0

    def spend(self, characters: int) -> None:
        """Raises RecordError `too-large` if the record would be larger than reading_limits.RECORD."""
        self.spent += characters
        if self.spent > self.most:
            raise RecordError(
                "too-large",
                f"{self.where} would unfold to more than {self.most:,} {reading_limits.RECORD.counts}; "
                f"raise the limit, {reading_limits.RECORD.variable}, if you trust the source of this file",
            )

    def damaged(self, what: str) -> RecordError:
        """The error for a short form that `shorten` never makes."""
        return RecordError("corrupt-record", f"{self.where} {what}")


def name_of(short_text: bytes) -> str:
    """The name under which a value of this short form is shared."""
    return base64.urlsafe_b64encode(hashlib.sha256(short_text).digest())[:_NAME_LENGTH].decode()


# --- without names -----------------------------------------------------------------------------


def shorten(value: Any, depth: int = 0) -> Any:
    """The short form of a JSON value in which no value is shared by name.

    Raises ValueError if the value is nested too deeply.
    """
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        if len(compact(list(value))) < _LEAST:
            return {key: shorten(item, depth + 1) for key, item in value.items()}
        return ["$o", shorten(list(value), depth + 1), *(shorten(item, depth + 1) for item in value.values())]
    if isinstance(value, list):
        return _shortened_list(value, depth)
    return _shortened_text(value) if isinstance(value, str) else value


def _shortened_list(items: list[Any], depth: int) -> list[Any]:
    if len(items) >= _TABLE_ROWS and all(
        isinstance(item, dict) and list(item) == list(items[0]) != [] for item in items
    ):
        columns = ([item[key] for item in items] for key in items[0])
        return ["$t", shorten(list(items[0]), depth + 1), *(shorten(column, depth + 1) for column in columns)]
    plain = [shorten(item, depth + 1) for item in items]
    forms = [plain, ["$r", *_runs(plain)]]
    if sign := _array_sign(items):
        packed = base64.b85encode(struct.pack(f"<{len(items)}{_ARRAYS[sign]}", *items)).decode()
        forms.append([sign, _escaped(packed)])
    return min(forms, key=lambda form: len(compact(form)))


def _array_sign(items: list[Any]) -> str:
    """The sign for an array of these items; "" if they are not all numbers of one kind."""
    kinds = set(map(type, items))
    if kinds == {float}:
        return "$d"
    return "$i" if kinds == {int} and min(items) >= 0 and max(items) < 1 << 32 else ""


def _runs(items: list[Any]) -> list[Any]:
    runs: list[Any] = []
    before = None
    for item in items:
        if (now := compact(item)) == before:
            runs[-2] += 1
        else:
            runs += [1, item]
        before = now
    return runs


def _shortened_text(value: str) -> Any:
    lines = value.split("\n")
    if len(lines) < _TEXT_LINES:
        return _escaped(value)
    return ["$l", _escaped("".join(line[:1] or "\n" for line in lines)), *(_escaped(line[1:]) for line in lines)]


def _escaped(value: str) -> str:
    return f"${value}" if value.startswith("$") else value


def restored(short: Any, budget: Budget) -> Any:
    """The JSON value of a short form without references. Raises RecordError."""
    if isinstance(short, dict):
        return {key: restored(item, budget) for key, item in short.items()}
    if isinstance(short, list):
        sign = short[0] if short and isinstance(short[0], str) else ""
        if sign in _RESTORE:
            return _RESTORE[sign]([restored(part, budget) for part in short[1:]], budget)
        return [restored(item, budget) for item in short]
    return short.removeprefix("$") if isinstance(short, str) else short


def _object(parts: list[Any], budget: Budget) -> Any:
    keys, values = _keys(parts, budget), parts[1:]
    if len(keys) != len(values):
        raise budget.damaged(f"has {len(values)} values for the {len(keys)} keys of an object")
    budget.spend(sum(map(len, keys)))
    return dict(zip(keys, values, strict=True))


def _table(parts: list[Any], budget: Budget) -> Any:
    keys, columns = _keys(parts, budget), parts[1:]
    lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
    if len(columns) != len(keys) or len(lengths) != 1 or -1 in lengths:
        raise budget.damaged(f"has a table whose columns do not fit its {len(keys)} keys")
    budget.spend(lengths.pop() * sum(len(key) + 4 for key in keys))
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def _repeated(parts: list[Any], budget: Budget) -> Any:
    counts, values = parts[::2], parts[1::2]
    if len(counts) != len(values) or not all(type(count) is int and count > 0 for count in counts):
        raise budget.damaged("has runs that are not counts and values in turn")
    for count, value in zip(counts, values, strict=True):
        budget.spend(count * len(compact(value)))
    return [value for count, value in zip(counts, values, strict=True) for _ in range(count)]


def _array(code: str) -> Callable[[list[Any], Budget], Any]:
    def numbers(parts: list[Any], budget: Budget) -> Any:
        try:
            (packed,) = parts
            data = base64.b85decode(packed)
            budget.spend(3 * len(data))
            items = list(struct.unpack(f"<{len(data) // struct.calcsize(f'<{code}')}{code}", data))
            compact(items)
            return items
        except (TypeError, ValueError, struct.error) as error:
            raise budget.damaged(f"has numbers that cannot be read: {error}") from error

    return numbers


def _lines(parts: list[Any], budget: Budget) -> Any:
    if not all(isinstance(part, str) for part in parts) or len(parts) != 1 + len(parts[0] if parts else ""):
        raise budget.damaged("has a text whose lines do not fit their first characters")
    firsts, *rests = parts
    return "\n".join(first.removesuffix("\n") + rest for first, rest in zip(firsts, rests, strict=True))


def _keys(parts: list[Any], budget: Budget) -> list[str]:
    keys = parts[0] if parts else None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise budget.damaged("has an object without a list of keys")
    return keys


_RESTORE: Mapping[str, Callable[[list[Any], Budget], Any]] = {
    "$o": _object,
    "$t": _table,
    "$r": _repeated,
    "$l": _lines,
    **{sign: _array(code) for sign, code in _ARRAYS.items()},
}


# --- names -------------------------------------------------------------------------------------


def unshared(short: Any, texts: Mapping[str, bytes], budget: Budget, depth: int = 0) -> Any:
    """`short` with shared values in place of their names; `texts` are their short forms by name. Raises RecordError."""
    if depth > _DEEPEST:
        raise budget.damaged(f"is nested more than {_DEEPEST} deep")
    if isinstance(short, dict):
        budget.spend(sum(len(key) + 4 for key in short))
        return {key: unshared(item, texts, budget, depth + 1) for key, item in short.items()}
    if isinstance(short, list):
        budget.spend(2 + len(short))
        return [unshared(item, texts, budget, depth + 1) for item in short]
    if not isinstance(short, str):
        budget.spend(8)
        return short
    budget.spend(len(short))
    if len(short) != 1 + _NAME_LENGTH or not short.startswith("$") or short.startswith("$$"):
        return short
    if short[1:] not in texts:
        raise budget.damaged(f"refers to the shared value {short[1:]}, which no line of the file holds undamaged")
    return unshared(parsed(texts[short[1:]], budget), texts, budget, depth + 1)


def parsed(data: bytes, budget: Budget) -> Any:
    """The value of the JSON text `data`. Raises RecordError."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise budget.damaged(f"is not readable JSON: {error}") from error


@dataclass(slots=True)
class Pool:
    """The values that several records have: `names` maps the short form of each to its name, `seen` counts short forms.

    `taken_names` are the names that a new value cannot get.
    """

    names: dict[str, str] = field(default_factory=dict)
    taken_names: set[str] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)

    def count(self, short: Any) -> None:
        """Counts the values in a short form without names. Nothing is counted inside a value that was seen before."""
        if isinstance(short, str | list | dict):
            text = compact(short)
            if len(text) >= _LEAST:
                self.seen[text] += 1
                if self.seen[text] > 1:
                    return
            for part in _parts(short):
                self.count(part)

    def share(self, short: Any, new: dict[str, str]) -> Any:
        """A counted short form, with names in place of the values worth naming; new names go into `new`."""
        if not isinstance(short, str | list | dict):
            return short
        text = compact(short)
        if text in self.names:
            return f"${self.names[text]}"
        shared = short
        if isinstance(short, dict):
            shared = {key: self.share(item, new) for key, item in short.items()}
        elif isinstance(short, list):
            shared = [self.share(item, new) for item in short]
        times = self.seen[text]
        if times < 2 or len(text) < _LEAST or (times - 1) * (len(text) - _NAME_LENGTH - 3) <= _DEFINITION:
            return shared
        stored = compact(shared)
        name = name_of(stored.encode())
        if name in self.taken_names:
            return shared
        self.taken_names.add(name)
        self.names[text], new[name] = name, stored
        return f"${name}"


def _parts(short: Any) -> Iterable[Any]:
    return short.values() if isinstance(short, dict) else short if isinstance(short, list) else ()
