"""Makes the texts of failures fit for records: cut, with harmless characters only, without this machine's folders."""

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

from harness.records import Failure

# A message is the sentence that the report prints; the judge's longest message has 400 characters.
MESSAGE_CHARACTERS = 1000
# A traceback through JAX into a kernel has two dozen frames of three lines, and the exception's text.
DETAIL_CHARACTERS, DETAIL_LINES, LINE_CHARACTERS = 6000, 120, 400
# A cut text keeps more of its end than of its beginning: the exception and the last output are at the end.
_HEAD_SHARE = 0.25

# ECMA-48 control sequences (CSI ... final byte), operating system commands up to BEL or ST, and other escapes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]"
)
# Unicode's control and format characters (bidirectional overrides, zero widths), surrogates, private and unassigned
# characters, line and paragraph separators. They control a terminal or a browser, or look like other characters.
_HARMFUL = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# A path up to the folder of packages or of the standard library; the rest names the file. Quoted paths may have blanks.
_PATH = r"(?:(?<=\")/[^\"\n]+|(?:/[^\s\"'/]+)+)"
_LIBRARIES = re.compile(rf"{_PATH}/(?:site|dist)-packages/|{_PATH}/(?=python3\.\d+/)")


def strip_paths(failure: Failure | None, *folders: Path) -> Failure | None:
    """`failure`, if any, with the paths of its texts relative to `folders` and to where packages are installed."""
    if failure is None:
        return None
    return replace(failure, message=relative(failure.message, folders), detail=relative(failure.detail, folders))


def relative(text: str, folders: tuple[Path, ...]) -> str:
    """`text` with paths relative to `folders` and to where packages are installed, and `~` for the home folder."""
    text = _LIBRARIES.sub("", text)
    try:
        home = str(Path.home())
    except RuntimeError:
        # A user without a name or a home, as in a container.
        home = "/"
    # The longest is first, because one folder may lie in another. Some texts already have `~` for the home folder.
    for folder in sorted({str(folder) for folder in folders if folder.is_absolute()}, key=len, reverse=True):
        for written in {folder, folder.replace(home, "~", 1) if f"{folder}/".startswith(f"{home}/") else folder}:
            text = text.replace(f"{written}/", "")
    if home == "/":
        return text
    return re.sub(rf"(?<![\w.~/-]){re.escape(home)}(?![\w.-])", "~", text)


def one_line(text: str, characters: int = MESSAGE_CHARACTERS) -> str:
    """`text` in one line of at most `characters` harmless characters; a mark replaces text that is left out."""
    return _cut(" ".join(harmless(text).split()), characters)


def several_lines(text: str, characters: int = DETAIL_CHARACTERS) -> str:
    """`text` in harmless characters, at most `characters`, in at most `DETAIL_LINES` lines of `LINE_CHARACTERS`."""
    lines = [_cut(line.rstrip(), LINE_CHARACTERS) for line in harmless(text).split("\n")]
    if len(lines) > DETAIL_LINES:
        first = int(DETAIL_LINES * _HEAD_SHARE)
        left_out = len(lines) - DETAIL_LINES
        lines = [*lines[:first], f"[... {left_out} lines left out ...]", *lines[len(lines) - DETAIL_LINES + first :]]
    return _cut("\n".join(lines).strip("\n"), characters)


def harmless(text: str) -> str:
    """`text` without escape sequences; � replaces every other character that could control a reader's program."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    if text.isascii() and text.isprintable():
        return text
    kept = (c if c in "\n\t" or unicodedata.category(c) not in _HARMFUL else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(kept)


def _cut(text: str, characters: int) -> str:
    """At most `characters` of `text`: its beginning, a mark with the number of missing characters, and its end."""
    if len(text) <= characters:
        return text
    mark = f" [... {len(text) - characters} characters left out ...] "
    first = int(characters * _HEAD_SHARE)
    return f"{text[:first]}{mark}{text[len(text) - (characters - first - len(mark)) :]}"
