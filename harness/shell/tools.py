"""The verbs as tools for programs: arguments and their schema come from the verb's own parser."""

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema

from harness.errors import UsageError
from harness.shell.catalogue import EVERY
from harness.shell.parser import did_you_mean
from harness.shell.verb import Call, Effect, Verb

# Arguments that only a terminal needs, and arguments that would let a caller choose a program or a cluster to trust.
_LEFT_OUT = frozenset({"-C", "--json", "--csv", "--quiet", "--full", "--ray"})
# Arguments that are never paths: sentences, and an address that is only printed.
_NO_PATHS = frozenset({"message", "reason", "url"})
CONTEST, PART, START = "contest", "part", "start"
# The longest text, such as a hypothesis or a path, and the most values in a list of them.
_LONGEST, _MOST_VALUES = 10_000, 1000
# Programs whose numbers are doubles hold integers exactly up to this one.
_LARGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a tool; `also` is another name for it, or None."""

    name: str
    action: argparse.Action
    also: str | None

    @property
    def is_required(self) -> bool:
        """True if the verb requires the argument."""
        return self.action.required and self.action.nargs != "*"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the argument's value."""
        schema = self._value_schema()
        if self.action.nargs in ("*", "+") or isinstance(self.action, argparse._AppendAction):
            # A list of one value may be given as that value.
            schema = {"anyOf": [schema, {"type": "array", "items": schema, "maxItems": _MOST_VALUES}]}
        words = str(self.action.help or "").replace("%%", "%")
        return {**schema, "description": f"{words} (added if missing)" if self.name == "message" else words}

    def words(self, value: Any) -> tuple[list[str], list[str]]:
        """The argument as options, and as positional words.

        Raises UsageError if a positional word begins with a minus.
        """
        if self.action.nargs == 0:
            return ([self.action.option_strings[-1]] if value else []), []
        # JSON has one type of numbers: an integer may come as 3.0.
        texts = [
            str(int(item)) if isinstance(item, float) and item.is_integer() else str(item) for item in _items(value)
        ]
        if self.action.option_strings:
            option = next(name for name in self.action.option_strings if name.startswith("--"))
            return [f"{option}={text}" for text in texts], []
        for text in texts:
            if text.startswith("-"):
                raise UsageError("usage", f"{self.name}: expected a path, a name or a number, got {text!r}")
        return [], texts

    def _value_schema(self) -> dict[str, Any]:
        if self.action.nargs == 0:
            return {"type": "boolean"}
        if self.action.choices is not None:
            return {"enum": list(self.action.choices)}
        kind = self.action.type
        returns = kind if isinstance(kind, type) else get_type_hints(kind)["return"] if kind else str
        if returns in (int, int | None):
            return {"type": "integer", "minimum": -_LARGEST, "maximum": _LARGEST}
        if returns is float:
            return {"type": "number"}
        # Programs may pass an attempt (`3`) or a factor (`2`) as a number.
        is_text = returns is Path or self.name in _NO_PATHS
        return {"type": "string" if is_text else ["string", "number"], "maxLength": _LONGEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A verb, or a subcommand of one (`words`), as a program calls it."""

    name: str
    verb: Verb
    words: tuple[str, ...]
    effect: Effect
    description: str
    arguments: tuple[Argument, ...]

    @property
    def is_reading(self) -> bool:
        """True if a second call gives the same answer, so that the answer can be read in parts."""
        return self.effect in ("reads", "repairs")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments; it allows no others."""
        properties: dict[str, Any] = {}
        for argument in self.arguments:
            properties[argument.name] = argument.schema
            if argument.also:
                properties[argument.also] = {**argument._value_schema(), "description": f"the same as {argument.name}"}
        if self.verb.takes_contest:
            properties[CONTEST] = {
                "type": "string",
                "maxLength": _LONGEST,
                "description": "the contest's folder (default: the server's)",
            }
        if self.is_reading:
            properties[PART] = {
                "type": "string",
                "maxLength": _LONGEST,
                "description": "only this part of the answer, such as /tables/0/rows; `cut` in an answer names parts",
            }
            properties[START] = {
                "type": "integer",
                "minimum": 0,
                "description": "start at this item of the part, or character of a text (0)",
            }
        required = [argument.name for argument in self.arguments if argument.is_required and not argument.also]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def valid(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments under their own names, without null values. Raises UsageError `usage`."""
        schema = self.schema
        for name in arguments.keys() - schema["properties"].keys():
            allowed = ", ".join(schema["properties"])
            hint = did_you_mean(name, schema["properties"], "")
            raise UsageError("usage", f"{self.name} takes {allowed}; got {name!r}{'; ' if hint else ''}{hint}")
        meant = {name: value for name, value in arguments.items() if value is not None}
        validator = jsonschema.Draft202012Validator(schema)
        if (error := next(iter(validator.iter_errors(meant)), None)) is not None:
            place = "".join(f"{step}: " for step in error.absolute_path)
            # The value that is wrong comes first, and may be long.
            complaint = (
                error.message if len(error.message) <= 600 else f"{error.message[:300]} ... {error.message[-300:]}"
            )
            raise UsageError("usage", f"{self.name}: {place}{complaint}")
        for name, value in meant.items():
            for text in _items(value):
                if isinstance(text, str) and not _is_word(text):
                    raise UsageError("usage", f"{self.name}: {name}: expected text without NUL or lone surrogates")
        for argument in self.arguments:
            if argument.also in meant and argument.name in meant:
                names = f"{argument.name} and {argument.also}"
                raise UsageError("usage", f"{self.name}: {names} are two names of one argument: expected one of them")
            if argument.also in meant:
                meant[argument.name] = meant.pop(argument.also)
            if argument.is_required and argument.name not in meant:
                raise UsageError("usage", f"{self.name}: expected {argument.also or argument.name}, which is missing")
        return meant

    def command_line(self, meant: Mapping[str, Any]) -> list[str]:
        """The arguments of `valid` as words for the verb's parser. Raises UsageError as `Argument.words`."""
        options, words = list[str](), list[str]()
        for argument in self.arguments:
            if argument.name in meant:
                more = argument.words(meant[argument.name])
                options += more[0]
                words += more[1]
        return [*self.words, *words, *options]

    def paths(self, meant: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        """Each text of `valid` that may name a file, with True if it is a path even if no such file exists."""
        for argument in self.arguments:
            for text in _items(meant.get(argument.name)):
                if isinstance(text, str) and argument.name not in _NO_PATHS:
                    yield text, argument.action.type is Path


def tools() -> Iterator[Tool]:
    """Every tool, in the order of the overview."""
    for verb in EVERY.values():
        for call in verb.calls():
            yield _tool(verb, call)


def _tool(verb: Verb, call: Call) -> Tool:
    assert verb.effect is not None, f"{verb.name} has no `effect`"
    left_out = _LEFT_OUT | verb.not_for_tools
    return Tool(
        name=call.tool,
        verb=verb,
        words=call.words,
        effect=verb.effect,
        description=str(call.parser.description),
        arguments=tuple(
            Argument(name=(name := _name(action)), action=action, also=verb.other_names.get(name))
            for action in call.parser.options()
            if left_out.isdisjoint((action.dest, *action.option_strings))
        ),
    )


def _name(action: argparse.Action) -> str:
    option = next((name for name in action.option_strings if name.startswith("--")), action.dest)
    return option.removeprefix("--").replace("-", "_")


def _is_word(text: str) -> bool:
    """True if `text` can be a word of a command line."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _items(value: Any) -> list[Any]:
    """The values of an argument, which may be one value or a list."""
    return value if isinstance(value, list) else [value]
