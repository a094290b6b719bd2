"""Source text as runs of coloured words, line by line, so that a page shows it without parsing markup."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from pygments.lexers.python import PythonLexer
from pygments.token import Token, _TokenType

# A letter that stands for a colour ("" is plain text), and the text in this colour.
Run = tuple[str, str]
Line = tuple[Run, ...]

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Token.Comment, "c"),
    (Token.Literal.String.Doc, "c"),
    (Token.Literal.String, "s"),
    (Token.Literal.Number, "n"),
    (Token.Keyword, "k"),
    (Token.Operator.Word, "k"),
    (Token.Name.Function, "f"),
    (Token.Name.Class, "f"),
    (Token.Name.Decorator, "d"),
    (Token.Name.Builtin, "b"),
)
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
# Blank lines between the functions of a module.
_BETWEEN = "\n\n\n"
_LEXER = PythonLexer(stripnl=False, ensurenl=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line of a diff: its sign (`+`, `-`, blank, `@` for a hunk's head), its numbers in the old and new file."""

    sign: str
    old: int | None
    new: int | None
    text: Line


def python_lines(text: str) -> tuple[Line, ...]:
    """The lines of a Python source, tabs expanded, invisible characters made visible."""
    shown = visible(text)
    parts = shown.split(_BETWEEN)
    # A string may span these blank lines; its parts alone are then not Python.
    if any(part.count(quotes) % 2 for part in parts for quotes in ('"""', "'''")):
        parts = [shown]
    lines: list[Line] = []
    for place, part in enumerate(parts):
        lines += [(), ()] if place else []
        lines += _coloured(part)
    if lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


@lru_cache(maxsize=1 << 14)
def _coloured(part: str) -> tuple[Line, ...]:
    """The coloured lines of a part, cached: the kernels of a ledger differ in few functions, and colouring is slow."""
    lines: list[list[Run]] = [[]]
    for token, value in _LEXER.get_tokens(part):
        name = _class_of(token)
        first, *rest = value.split("\n")
        _append(lines[-1], name, first)
        for text in rest:
            lines.append([])
            _append(lines[-1], name, text)
    return tuple(tuple(line) for line in lines)


def diff_lines(diff: str) -> tuple[DiffLine, ...]:
    """The lines of a unified diff from its first hunk on, each side coloured as Python."""
    shown: list[DiffLine] = []
    for head, body in _hunks(diff.split("\n")):
        match = _HUNK.match(head)
        old, new = (int(match[1]), int(match[2])) if match else (0, 0)
        shown.append(DiffLine(sign="@", old=None, new=None, text=(("", visible(head)),)))
        sides = {sign: iter(_side(body, sign)) for sign in "-+"}
        for line in body:
            sign, text = line[:1] or " ", line[1:]
            if sign == "\\":
                shown.append(DiffLine(sign="@", old=None, new=None, text=(("", visible(text.strip())),)))
                continue
            coloured = next(sides["-"], ()) if sign in "- " else None
            if sign in "+ ":
                coloured = next(sides["+"], ())
            shown.append(
                DiffLine(
                    sign=sign,
                    old=old if sign in "- " else None,
                    new=new if sign in "+ " else None,
                    text=coloured if coloured is not None else (("", visible(text)),),
                )
            )
            old += sign in "- "
            new += sign in "+ "
    return tuple(shown)


def visible(text: str) -> str:
    """`text` with tabs expanded, and with invisible characters, such as those that reverse text, as `<U+202E>`."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(sign if sign == "\n" or not _is_hidden(sign) else f"<U+{ord(sign):04X}>" for sign in text)


def _is_hidden(sign: str) -> bool:
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


@cache
def _class_of(token: _TokenType) -> str:
    return next((name for kind, name in _CLASSES if token in kind), "")


def _append(line: list[Run], name: str, text: str) -> None:
    if not text:
        return
    if line and (line[-1][0] == name or not text.strip()):
        line[-1] = (line[-1][0], line[-1][1] + text)
    else:
        line.append((name, text))


def _side(body: Sequence[str], sign: str) -> tuple[Line, ...]:
    """The lines of one side of a hunk, coloured together: a string may span several."""
    lines = [line[1:] for line in body if (line[:1] or " ") in f"{sign} "]
    coloured = python_lines("\n".join(line.replace("\r", "") for line in lines))
    return coloured + ((),) * (len(lines) - len(coloured))


def _hunks(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    hunks: list[tuple[str, list[str]]] = []
    for line in lines:
        if _HUNK.match(line):
            hunks.append((line, []))
        elif hunks:
            hunks[-1][1].append(line)
    # Text that ends in a newline leaves an empty part at the end, which is not a line of the diff.
    if hunks and hunks[-1][1] and hunks[-1][1][-1] == "":
        hunks[-1][1].pop()
    return hunks
