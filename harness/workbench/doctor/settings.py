"""Flags and variables in the environment, in a shell script, in a Python program or in a capture."""

import ast
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.dumps.xplane import Space
from harness.records.doctor import Setting, Settings
from harness.workbench.doctor import config_files, manifests, python_settings
from harness.workbench.doctor.python_settings import assignment

FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_PREFIXES = ("XLA_", "JAX_", "LIBTPU_", "TPU_", "PJRT_", "TF_CPP_", "ENABLE_PJRT", "MEGASCALE_")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+=?])((?:[^{}]|\{[^{}]*\})*))?\})")
_OPENS, _CLOSES = {"if", "case", "while", "until", "for"}, {"fi", "esac", "done"}
_LINE = re.compile(r"\bline (\d+)")
_CONTROL = _OPENS | {"then", "do", "else", "elif", "!", "{", "time"}
# Commands whose assignments also apply to later commands.
_LASTING = ("export", "declare", "typeset", "readonly", "local", "ENV", "ARG", "let")
# `--env=NAME=value`, `-eNAME=value`.
_OPTION = re.compile(r"(?:-e|--[\w-]*env[\w-]*)=?([A-Z]\w*\+?=.*)", re.DOTALL)
# The most lines of one command: without a limit, a quote that is never closed would take in the whole script.
_LONGEST_COMMAND = 400
_PYTHON = re.compile(r"^\s*(import|from)\s+\w|os\.environ|jax\.config", re.MULTILINE)
_ENV_OF_NOTEBOOK = re.compile(r"^\s*%(?:set_)?env\s+(\w+)(?:=|\s+)(.*)$")


def is_watched(name: str) -> bool:
    """True for a variable that JAX, XLA or libtpu reads."""
    return name.startswith(_PREFIXES)


def of_environment(variables: Mapping[str, str]) -> Settings:
    """The settings of a program that is started in this environment."""
    reader = Reader("the environment")
    for name in sorted(variables):
        if is_watched(name):
            reader.assign(assignment(name, variables[name], "environment"))
    return reader.settings()


def of_script(text: str, subject: str) -> Settings:
    """The settings in a launch script.

    Notebooks are read as Python. Other texts are read as Python if they have statements of Python and parse, else as
    shell.
    """
    reader = Reader(subject)
    notebook = _notebook_program(text)
    places: Sequence[str] = ()
    if notebook is not None:
        text, places = notebook
    try:
        tree = ast.parse(text) if _PYTHON.search(text) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is not None:

        def place(words: str) -> str:
            """`words`, in which a notebook's cell and line replace the line number of its program."""
            return _LINE.sub(lambda match: places[int(match[1]) - 1], words, count=1) if places else words

        for step in python_settings.steps(tree, is_watched):
            if isinstance(step, str):
                reader.not_understood.append(place(step))
            elif is_watched(step.variable):
                reader.assign(replace(step, place=place(step.place), too_late=place(step.too_late)))
    else:
        if manifests.is_manifest(text):
            lines = text.splitlines()
            for entry in filter(lambda entry: is_watched(entry.name), manifests.entries(text)):
                lines[entry.line - 1 : entry.last] = [""] * (entry.last - entry.line + 1)
                if entry.unread:
                    reader.not_understood.append(f"line {entry.line}: {entry.name} {entry.unread}")
                else:
                    setting = assignment(entry.name, entry.value, f"line {entry.line}")
                    reader.assign(replace(setting, scope=entry.container))
                    reader.scopes = max(reader.scopes, entry.container)
            text = "\n".join(lines)
        _read_shell(config_files.as_shell(text, is_watched), reader)
    return reader.settings()


def _notebook_program(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The code of a notebook as one Python program, and each line's place in words; None if `text` is not a notebook.

    `%env` sets a variable; other magics and commands are left out.
    """
    if '"cells"' not in text:
        return None
    try:
        cells = json.loads(text)["cells"]
        sources = [(number, cell["source"]) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lines, places = ["import os"], ["the notebook"]
    for number, source in sources:
        for at, line in enumerate("".join(source).splitlines(), 1):
            lines.append(_python(line))
            places.append(f"cell {number}, line {at}")
    return "\n".join(lines), tuple(places)


def _python(line: str) -> str:
    """A line of a cell, rewritten as Python."""
    if match := _ENV_OF_NOTEBOOK.match(line):
        return f"os.environ[{match[1]!r}] = {match[2].strip()!r}"
    return f"{line[: len(line) - len(line.lstrip())]}pass" if line.lstrip()[:1] in ("%", "!") else line


def of_capture(space: Space, subject: str) -> Settings:
    """The settings in the statistics of a capture's planes; also PYTHON_TRACER if the capture has Python calls.

    JAX's profiler records no settings, but some launchers record command lines and flags.
    """
    reader = Reader(subject)
    for plane in space.planes:
        for name, value in plane.stats.items():
            words = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            if is_watched(name.upper()):
                reader.assign(assignment(name.upper(), words, f"plane {plane.name}"))
            elif "--xla_" in words:
                variable = "LIBTPU_INIT_ARGS" if "--xla_tpu" in words or "--xla_jf" in words else "XLA_FLAGS"
                reader.assign(assignment(variable, words, f"plane {plane.name}, {name}"))
    if not reader.assigned:
        reader.notes.append(
            "The capture contains no flags, because JAX's profiler records none. Audit the launch script instead."
        )
    traced = sum(
        event.of.name.startswith("$") for plane in space.planes for line in plane.lines for event in line.events
    )
    if traced:
        reader.assign(assignment("PYTHON_TRACER", str(traced), "events of the capture"))
    return reader.settings()


@dataclass
class Reader:
    """The assignments so far, in order, and the current values of the variables."""

    subject: str
    values: dict[str, str] = field(default_factory=dict)
    # Values that only one scope sees; they take precedence over `values`, which all scopes see.
    scoped: dict[tuple[int, str], str] = field(default_factory=dict)
    scopes: int = 0
    assigned: list[Setting] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def assign(self, setting: Setting) -> None:
        """Sets a variable. If the assignment is certain, flags that only the old value has are marked as not final."""
        name, scope, is_certain = setting.variable, setting.scope, setting.is_certain
        if name in FLAG_VARIABLES:
            new = (setting.value or "").split()
            old = self.value(name, scope).split()
            kept = len(old) if new[: len(old)] == old else 0
            at = next((i for i in range(len(new)) if old and new[i : i + len(old)] == old), None)
            if not kept and at is None and is_certain:
                self._throw_away(name, new, scope)
            added = new[len(old) :] if kept else new if at is None else new[:at] + new[at + len(old) :]
            self.assigned += [_flag(setting, word) for word in added]
        elif is_watched(name) or name == "PYTHON_TRACER":
            if is_certain:
                self._throw_away(name, [], scope)
            self.assigned.append(setting)
        if scope:
            self.scoped[scope, name] = setting.value or ""
        else:
            self.values[name] = setting.value or ""

    def value(self, name: str, scope: int = 0) -> str:
        """The current value of a variable in a scope; "" if it has none."""
        return self.scoped.get((scope, name), self.values.get(name, ""))

    def _throw_away(self, variable: str, kept: list[str], scope: int) -> None:
        self.assigned = [
            replace(s, is_final=False)
            if s.variable == variable and s.is_certain and s.word not in kept and s.scope in (0, scope)
            else s
            for s in self.assigned
        ]

    def settings(self) -> Settings:
        return Settings(
            subject=self.subject,
            settings=tuple(self.assigned),
            not_understood=tuple(self.not_understood),
            notes=tuple(self.notes),
        )


def _flag(setting: Setting, word: str) -> Setting:
    """The setting of the flag that `word`, a word of a variable's value, sets."""
    name, equals, value = word.lstrip("-").partition("=")
    return replace(setting, name=name, value=value if equals else None, word=word)


def _read_shell(text: str, reader: Reader, before: int = 0) -> None:
    """Reads the assignments of a script and of scripts inside its commands; `before` lines precede the script."""
    depth = 0
    for number, source, words in _commands(text):
        line = before + number
        if words is None:
            if any(prefix in source for prefix in (*FLAG_VARIABLES, "JAX_", "--xla_")):
                reader.not_understood.append(f"line {line}: a quote is not closed: {source.strip()[:80]}")
            continue
        if words[:1] == ["set"] or words[:1] == ["echo"]:
            continue
        for script in _scripts(words):
            _read_shell(script, reader, line - 1)
        heads = [word for word in words if word in _OPENS | _CLOSES]
        depth += sum(word in _OPENS for word in heads)
        read = False
        for command in _simple_commands(words):
            read = _assign_all(command, reader, line, is_certain=depth == 0) or read
        loose = [word for word in words if word.startswith("--xla_") and not read]
        if loose and not any(_ASSIGNMENT.fullmatch(word) and not word.startswith("-") for word in words):
            reader.not_understood.append(
                f"line {line}: {loose[0]} is an argument of a command, not in a variable: it is unknown whether the "
                "program reads this argument"
            )
        depth = max(0, depth - sum(word in _CLOSES for word in heads))


def _simple_commands(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a list or pipeline, without the keywords of conditions and loops."""
    for is_separator, group in itertools.groupby(words, lambda word: set(word) <= set(";&|()")):
        if not is_separator:
            command = list(itertools.dropwhile(lambda word: word in _CONTROL, group))
            if command:
                yield command


def _assign_all(words: list[str], reader: Reader, line: int, *, is_certain: bool) -> bool:
    """Makes the assignments of one command; returns True if a watched variable is among them.

    Assignments before the name of a command apply only to this command.
    """
    read = False
    lasts = words[0] in _LASTING or all(_ASSIGNMENT.fullmatch(word.rstrip(";")) for word in words)
    if not lasts:
        reader.scopes += 1
    scope = 0 if lasts else reader.scopes
    for word, following in itertools.pairwise((*words, "")):
        option = _OPTION.fullmatch(word)
        match = _ASSIGNMENT.fullmatch((option[1] if option else word).rstrip(";"))
        if match is None or (option and not is_watched(match[1])):
            continue
        name, plus, raw = match.groups()
        values = {**reader.values, **{key: value for (at, key), value in reader.scoped.items() if at == scope}}
        value, unread = _expand(raw, values, name)
        if plus:
            value = f"{values.get(name, '')}{value}"
        if is_watched(name) or "--xla" in value or name in values or not unread:
            if unread and (is_watched(name) or "--xla" in value):
                reader.not_understood.append(f"line {line}: the value of {name} is not known: it contains {unread}")
            setting = assignment(name, value, f"line {line}")
            reader.assign(replace(setting, is_certain=is_certain, scope=scope))
            read = read or is_watched(name)
        if name in FLAG_VARIABLES and following.startswith("--xla_"):
            reader.not_understood.append(
                f"line {line}: {following} is not in {name}: quotes around the value of {name} are missing"
            )
    return read


def _scripts(words: list[str]) -> Iterator[str]:
    """The scripts in a command's arguments: `--command="..."` of a launcher, `-c '...'` of a shell."""
    for word, following in itertools.pairwise((*words, "")):
        option, equals, value = word.partition("=")
        if option == "--command":
            yield value if equals else following
        elif word in ("-c", "-lc") and " " in following:
            yield following


def _commands(text: str) -> Iterator[tuple[int, str, list[str] | None]]:
    """The line number, source and words of each command; the words are None if quotes do not close.

    Continued lines, and lines inside quotes, are joined.
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        joined, end = lines[at], at + 1
        while joined.endswith("\\") and end < len(lines):
            joined, end = joined[:-1] + lines[end], end + 1
        words = _split(joined)
        while words is None and end < min(len(lines), at + _LONGEST_COMMAND):
            joined = joined[:-1] + lines[end] if joined.endswith("\\") else f"{joined}\n{lines[end]}"
            end += 1
            words = None if joined.endswith("\\") else _split(joined)
        yield at + 1, lines[at] if words is None else joined, words
        at = at + 1 if words is None else end


def _split(source: str) -> list[str] | None:
    lexer = shlex.shlex(source, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return None


def _expand(raw: str, values: Mapping[str, str], assigned: str) -> tuple[str, str]:
    """A value with its variables expanded (unset variables: their default or ""), and its unknown part in words."""
    unread = ""
    # shlex cuts `$(...)` at its parenthesis.
    if raw.endswith("$") or "$(" in raw or "`" in raw:
        unread = "the output of a command"

    def put(match: re.Match[str]) -> str:
        nonlocal unread
        name = match[1] or match[2]
        if name in values:
            return values[name] if match[3] not in (":+", "+") else match[4] or ""
        if match[3] in (":-", "-", ":=", "="):
            return match[4] or ""
        # Scripts often prepend the old value of the variable; an old value from the caller is unknown and left out.
        if name != assigned and not match[3]:
            unread = unread or f"${name}, which is not set here"
        return ""

    return _EXPANSION.sub(put, raw), unread
