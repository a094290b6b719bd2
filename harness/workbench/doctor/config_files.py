"""Environment variables that configuration files set, rewritten as shell assignments.

Formats: Dockerfiles (`ENV NAME value`), csh (`setenv`), fish (`set -x`), systemd (`Environment=`), makefiles, TOML,
JSON (also inside a command), and files for `docker run --env-file`.
"""

import re
import shlex
from collections.abc import Callable

_NAME = r"[A-Z][A-Z0-9_]*"
_DOCKER = re.compile(rf"^\s*ENV\s+({_NAME})\s+(.*)$", re.DOTALL)
_CSH = re.compile(rf"^\s*setenv\s+({_NAME})\s+(.*)$", re.DOTALL)
_FISH = re.compile(rf"^\s*set\s+(?:(?:--?\w[\w-]*)\s+)+({_NAME})\s+(.*)$", re.DOTALL)
_EXPORTS = re.compile(r"\s(?:-\w*x\w*|--export)\s")
_SYSTEMD = re.compile(r"^\s*Environment\s*=\s*(.*)$", re.DOTALL)
_MAKE = re.compile(rf"^\s*(?:export\s+)?({_NAME})(?:\s*(:{{1,3}}=|\?=)|\s+(\+?=))\s*(.*)$", re.DOTALL)
_JSON = re.compile(rf'\\?"({_NAME})\\?"\s*:\s*\\?"((?:[^"\\]|\\[^"])*)\\?"')
_OF_ENV_FILE = re.compile(rf"^\s*({_NAME})=(.*)$")


def as_shell(text: str, is_watched: Callable[[str], bool]) -> str:
    """The text with each line that sets a watched variable rewritten for a shell; all lines keep their numbers."""
    lines = text.splitlines()
    stated = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    is_env_file = not text.startswith("#!") and bool(stated) and all(_OF_ENV_FILE.match(line) for line in stated)
    rewritten: list[str] = []
    while len(rewritten) < len(lines):
        start = len(rewritten)
        joined, end = lines[start], start + 1
        while joined.endswith("\\") and end < len(lines):
            joined, end = f"{joined[:-1]} {lines[end].strip()}", end + 1
        shell = _line(joined, is_watched, is_env_file=is_env_file)
        rewritten += [lines[start]] if shell is None else [shell, *[""] * (end - start - 1)]
    return "\n".join(rewritten)


def _line(line: str, is_watched: Callable[[str], bool], *, is_env_file: bool) -> str | None:
    """One line rewritten for a shell; None if it sets no watched variable, or is shell syntax already."""
    for form in (_DOCKER, _CSH, _FISH):
        match = form.match(line)
        if match and is_watched(match[1]) and (form is not _FISH or _EXPORTS.search(line[: match.start(1)])):
            return _export(match[1], _value(match[2]))
    if match := _SYSTEMD.match(line):
        pairs = [word.partition("=") for word in _words(match[1])]
        return "; ".join(_export(name, value) for name, _, value in pairs if is_watched(name)) or None
    if is_env_file and (match := _OF_ENV_FILE.match(line)) and is_watched(match[1]):
        words = _words(match[2])
        # If words follow an unquoted value, a shell would run the first of them as a program.
        is_unquoted = len(words) > 1 and all(word.startswith("-") or _OF_ENV_FILE.match(word) for word in words[1:])
        return _export(match[1], " ".join(words)) if is_unquoted else None
    if (match := _MAKE.match(line)) and is_watched(match[1]):
        value = _value(match[4])
        return f"{match[1]}+={shlex.quote(f' {value}')}" if match[3] == "+=" else _export(match[1], value)
    pairs_of_json = [(name, value) for name, value in _JSON.findall(line) if is_watched(name)]
    if pairs_of_json:
        return f"env {' '.join(f'{name}={shlex.quote(value)}' for name, value in pairs_of_json)} program"
    return None


def _export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


def _value(text: str) -> str:
    """A value without its quotes and without the comment after it."""
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
