"""The tokens of HLO text, one after the other, with their line and column for errors."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from harness.errors import Limit

Kind: TypeAlias = Literal["name", "number", "string", "mark", "end"]

# A name may hold dots and dashes (`add.3.k_ref.1`, `copy-start`), but an arrow ends it (`bf_io->bf`). Text that begins
# with a digit and continues with letters is a name; otherwise `0bf_0oi` would be cut in two.
_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*.*?(?:\*/|\Z)|//[^\n]*)
      | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|'[^'\n]*')
      | (?P<number>-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w])|-?(?:inf|nan)(?![\w.]))
      | (?P<name>%?[A-Za-z_0-9](?:[\w.]|-(?!>))*)
      | (?P<mark>->|<=|\.\.\.|[%{}()\[\],=:*+<>?|@#-])""",
    re.VERBOSE | re.DOTALL,
)
_KINDS: dict[str, Kind] = {"string": "string", "number": "number", "name": "name", "mark": "mark"}
_OPENING = {"{": "}", "(": ")", "[": "]"}
# A group in braces, at most ten deep, is read in one match; the search for brackets handles deeper or unclosed groups.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACES = rf"\{{(?:[^{{}}\"'/]++|{_STRING})*+\}}"
for _ in range(9):
    _BRACES = rf"\{{(?:[^{{}}\"'/]++|{_STRING}|{_BRACES})*+\}}"
_GROUP = re.compile(_BRACES, re.DOTALL)
# The tokens that a jump over a balanced group must examine. All text between these tokens is skipped at once.
_STOP = re.compile(r'[{}()\[\]]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|\'[^\'\n]*\'|/\*.*?(?:\*/|\Z)', re.DOTALL)
# The largest machines have about ten thousand chips, so the limit allows lists of all chips for 400 collectives.
DEVICES = Limit(counts="devices in the groups of a module", most=1 << 22, variable="RATCHET_MAX_DEVICES")
DIMENSIONS = Limit(counts="dimensions in a shape", most=1000, variable="RATCHET_MAX_DIMENSIONS")
NAME = Limit(counts="characters in a name", most=10_000, variable="RATCHET_MAX_NAME")
# Integers have at most 64 bits, as in XLA.
_LARGEST = 1 << 63


class Misunderstood(Exception):
    """Text that does not fit the grammar at this place; a module's reader records the error and continues."""


class Token(NamedTuple):
    """One token; `text` is unchanged, and `start` is its offset in the whole text."""

    kind: Kind
    text: str
    start: int


class Tokens:
    """A reader of the tokens of a text, with one token of look-ahead."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.text = text
        # The groups read so far, by their text, so that no text is read twice.
        self.groups: dict[str, object] = {}
        # The number of devices listed so far, which is limited.
        self.devices = 0
        self._end = start
        self._next: Token | None = None
        # Keys are the places of brackets that are never closed. The value is the place of the wrong closing bracket, or
        # None if the text ends first.
        self._unclosed: dict[int, int | None] = {}

    @property
    def place(self) -> int:
        """The offset of the next token, or the end of the last token if the next token has not been read."""
        return self._next.start if self._next else self._end

    def peek(self) -> Token:
        """The next token, without taking it."""
        if self._next is None:
            self._next = self._scan()
        return self._next

    def take(self) -> Token:
        """Takes the next token and returns it."""
        token = self.peek()
        self._next = None
        self._end = token.start + len(token.text)
        return token

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Takes and returns the match of `pattern` at the next token. Without a match, takes nothing, returns None."""
        match = pattern.match(self.text, self._next.start if self._next else self._end)
        if match is not None:
            self._next, self._end = None, match.end()
        return match

    def sees(self, *texts: str) -> bool:
        """True if the next token is one of `texts`, and not a string."""
        return self.peek().text in texts and self.peek().kind != "string"

    def begins_line(self) -> bool:
        """True if the next token is the first of its line, or if the text ends."""
        token = self.peek()
        place = token.start
        while place and self.text[place - 1] != "\n" and self.text[place - 1].isspace():
            place -= 1
        return token.kind == "end" or not place or self.text[place - 1] == "\n"

    def skip(self, text: str) -> bool:
        """Takes the next token and returns True if it is `text`; otherwise returns False."""
        if self.sees(text):
            self.take()
            return True
        return False

    def items(self, closing: str) -> Iterator[int]:
        """Yields the number of each item of a list, and takes commas and `closing`. The caller takes the items."""
        number = 0
        while not self.skip(closing):
            if number:
                self.expect(",")
            yield number
            number += 1

    def skip_value(self) -> None:
        """Takes the next bracketed group, or the next token if no group begins there."""
        if self.sees("{", "[", "("):
            self.group()
        else:
            self.take()

    def expect(self, text: str) -> Token:
        """Takes the next token, which must be `text`. Raises Misunderstood if it is not."""
        if not self.sees(text):
            raise self.misunderstood(f"`{text}`")
        return self.take()

    def name(self) -> str:
        """The next token, a name, without its `%`."""
        token = self.peek()
        if token.kind not in ("name", "number"):
            raise self.misunderstood("a name")
        NAME.check(len(token.text), f"the name at {self.where(token.start)}")
        return self.take().text.removeprefix("%")

    def integer(self) -> int:
        """The next token, a whole number."""
        token = self.peek()
        try:
            number = int(token.text if token.kind != "string" else "")
        except ValueError as error:
            raise self.misunderstood("a whole number") from error
        finally:
            self.take()
        if abs(number) >= _LARGEST:
            raise Misunderstood(f"{self.where(token.start)}: expected a number of 64 bits, got `{token.text[:40]}`")
        return number

    def group(self) -> str:
        """The text of the bracketed group that begins here, brackets included."""
        start = self.peek().start
        if (whole := self.match(_GROUP)) is not None:
            return whole[0]
        if self.peek().text not in _OPENING:
            raise self.misunderstood("a bracket")
        if start not in self._unclosed and (end := self._closing(start)) is not None:
            self.jump(end)
            return self.text[start:end]
        wrong = self._unclosed[start]
        if wrong is None:
            raise Misunderstood(f"the bracket opened at {self.where(start)} is never closed")
        raise Misunderstood(f"at {self.where(wrong)}: `{self.text[wrong]}` closes nothing")

    def _closing(self, start: int) -> int | None:
        """The offset after the bracket that closes the bracket at `start`; None if no bracket closes it.

        All brackets that are open at the end of a failed search are recorded in `_unclosed`. A later search stops at
        the first recorded bracket, so no unclosed bracket is searched twice.
        """
        opened: list[int] = []
        place, wrong = start, None
        while (match := _STOP.search(self.text, place)) is not None:
            place = match.end()
            if match[0] in _OPENING:
                opened.append(match.start())
                if match.start() in self._unclosed:
                    wrong = self._unclosed[match.start()]
                    break
            elif match[0] in "})]":
                if _OPENING[self.text[opened[-1]]] != match[0]:
                    wrong = match.start()
                    break
                opened.pop()
                if not opened:
                    return place
        self._unclosed |= dict.fromkeys(opened, wrong)
        return None

    def jump(self, place: int) -> None:
        """Continues at the offset `place`."""
        self._next = None
        self._end = place

    def where(self, place: int) -> str:
        """The position of an offset in words, such as `line 3, column 7`."""
        line = bisect_left(self._line_ends, place)
        line_start = self._line_ends[line - 1] + 1 if line else 0
        return f"line {line + 1}, column {place - line_start + 1}"

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    def misunderstood(self, expected: str) -> Misunderstood:
        """The exception to raise for an unexpected next token."""
        token = self.peek()
        got = "the end of the text" if token.kind == "end" else f"`{token.text[:40]}`"
        return Misunderstood(f"{self.where(token.start)}: expected {expected}, got {got}")

    def _scan(self) -> Token:
        while True:
            if self._end >= len(self.text):
                return Token("end", "", len(self.text))
            match = _TOKEN.match(self.text, self._end)
            if match is None:
                return Token("mark", self.text[self._end], self._end)
            if match.lastgroup != "space":
                break
            self._end = match.end()
        return Token(_KINDS[match.lastgroup or ""], match[0], match.start())
