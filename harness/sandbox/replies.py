"""Cuts and cleans all texts in the reply of a child, before anybody reads them.

A child that runs kernel.py can send anything: the text of an exception may be the contents of a file, an escape
sequence, or a megabyte long. Reports, records, pages and other programs read these texts.
"""

import dataclasses
from pathlib import Path
from typing import Any

from harness.sandbox import strip_paths

# Whole numbers are counts, bytes and cycles, which never need more than 64 bits.
_LARGEST = 1 << 63
# The most characters of a field that holds sentences, by the field's name; paths in these sentences are shortened.
_SENTENCES = {
    "message": strip_paths.MESSAGE_CHARACTERS,
    "warnings": 600,
    "unknown": 600,
    "reasons": 600,
    "not_understood": 600,
    "kind": 60,
    # The title of a report, and the report's sentence about the problem.
    "kernel_name": 120,
    "problem_description": 400,
}
_SEVERAL_LINES = ("detail",)
# The most sentences of a field: nobody reads more.
_MOST_SENTENCES = 40
# The most characters of any other text: a name, a number, or the path of a file (PATH_MAX of linux/limits.h). A path is
# not shortened, because it is used.
_OTHER_CHARACTERS = 4096


def clean(reply: Any, folders: tuple[Path, ...]) -> Any:
    """`reply`, a record of a child, with every text cut and cleaned, and paths in sentences relative to `folders`.

    Raises ValueError if the record has a whole number of more than 64 bits.
    """
    olds = {field.name: getattr(reply, field.name) for field in dataclasses.fields(reply)}
    news = {name: _value(name, old, folders) for name, old in olds.items()}
    changes = {name: new for name, new in news.items() if new is not olds[name]}
    return dataclasses.replace(reply, **changes) if changes else reply


def _value(name: str, value: Any, folders: tuple[Path, ...]) -> Any:
    if isinstance(value, str):
        return _text(name, value, folders)
    if isinstance(value, (tuple, list)):
        kept = value[:_MOST_SENTENCES] if name in _SENTENCES else value
        items = tuple(_value(name, item, folders) for item in kept)
        if len(kept) < len(value):
            items = (*items, f"{len(value) - len(kept)} more are left out")
        return items
    if isinstance(value, dict):
        return {_text("", key, folders): _value(name, item, folders) for key, item in value.items()}
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"expected {name} of at most 64 bits, got {value.bit_length()}")
    return clean(value, folders) if dataclasses.is_dataclass(value) else value


def _text(name: str, text: str, folders: tuple[Path, ...]) -> str:
    # The time of the search for paths grows with the square of a line's length. So a text is cut before the search,
    # and cut to its final length afterwards.
    if name in _SENTENCES:
        limit = _SENTENCES[name]
        return strip_paths.one_line(strip_paths.relative(strip_paths.one_line(text, 4 * limit), folders), limit)
    if name in _SEVERAL_LINES:
        rough = strip_paths.several_lines(text, 4 * strip_paths.DETAIL_CHARACTERS)
        return strip_paths.several_lines(strip_paths.relative(rough, folders))
    return strip_paths.harmless(text)[:_OTHER_CHARACTERS]
