"""The parser of verbs: short forms of the usual arguments, values that begin with a minus, errors with a suggestion."""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError
from harness.hardware import CHIPS
from harness.shell import completers
from harness.shell.arguments import attempt_number
from harness.shell.program_name import renamed


class Parser(argparse.ArgumentParser):
    """A parser with short forms of the usual arguments; it raises UsageError instead of ending the process."""

    def add_argument(
        self, *names: str, complete: Sequence[str] | Callable[..., Any] | None = None, **how: Any
    ) -> argparse.Action:
        """Adds an argument as argparse does; `complete` are the words that a shell offers, or their completer."""
        action = super().add_argument(*names, **how)
        if complete is not None:
            action.completer = complete if callable(complete) else tuple(complete)  # type: ignore[attr-defined]
        return action

    def flag(self, name: str, words: str) -> None:
        """Adds an option without a value; `words` are its line of --help."""
        self.add_argument(name, action="store_true", help=words)

    def option(self, form: str, words: str, **how: Any) -> None:
        """Adds an option with a value; `form` is the option in --help, `--jobs N`. The default is None unless given."""
        name, _, metavar = form.partition(" ")
        self.add_argument(name, metavar=metavar or None, help=words, **how)

    def many(self, form: str, words: str, **how: Any) -> None:
        """Adds an option that may be given again; its value is the list of all values."""
        self.option(form, words, action="append", default=[], **how)

    def choice(self, name: str, choices: Iterable[str], words: str, **how: Any) -> None:
        """Adds an argument whose value is one of `choices`."""
        self.add_argument(name, choices=tuple(choices), help=words, **how)

    def word(self, name: str, words: str, **how: Any) -> None:
        """Adds a positional argument, which may be left out."""
        self.add_argument(name, help=words, **{"nargs": "?", **how})

    def attempt(self, words: str, **how: Any) -> None:
        """Adds the number of an attempt as a positional argument, which may be left out."""
        self.word("number", words, **{"type": attempt_number, "metavar": "N", **how})

    def chip(self, words: str, **how: Any) -> None:
        """Adds `--chip`."""
        self.add_argument("--chip", help=words, complete=tuple(chip.name for chip in CHIPS), **how)

    def member(self) -> None:
        """Adds `--member` of a suite."""
        self.option("--member NAME", "the member of a suite", complete=completers.members)

    def settings(self, metavar: str, words: str) -> None:
        """Adds `--set`, constants of kernel.py or prepare.py."""
        self.many(f"--set {metavar}", words, dest="settings", complete=completers.constants)

    def json(self, printed: str) -> None:
        """Adds `--json`, which prints the document that `printed` names."""
        self.flag("--json", f"print {printed}")

    def quiet(self) -> None:
        """Adds `--quiet`, for a verb that reports progress."""
        self.flag("--quiet", "print no progress on stderr")

    def common(self, *, takes_contest: bool) -> None:
        """Adds the arguments that every verb takes, before the verb's own.

        `--only-reads` is for tools that promise to write nothing: nothing is judged then, and a killed attempt is
        neither finished nor undone. `--for-server` is for the server of the tools: progress is printed with --json too,
        no work follows the document, and the process ends with the server.
        """
        if takes_contest:
            self.option("-C DIR", "the contest's folder", dest="directory", type=Path)
        self.flag("--only-reads", argparse.SUPPRESS)
        self.flag("--for-server", argparse.SUPPRESS)

    def needless_quiet(self) -> None:
        """Adds `--quiet` to a verb without progress: a script need not know which verbs print progress."""
        if "--quiet" not in self.option_names():
            self.flag("--quiet", argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        lacking = re.fullmatch(r"argument (-[\w-]+)(?:/\S+)*: expected one argument", message)
        for action in self._actions if lacking else ():
            if lacking and lacking[1] in action.option_strings and action.help:
                words = action.help % {"default": action.default}
                message = f"expected {lacking[1]} {action.metavar or 'VALUE'}, got nothing after it: {words}"
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        meant = did_you_mean(unknown[1], self.option_names(), "") if unknown else ""
        raise UsageError("usage", f"{message}{'; ' if meant else ''}{meant}\n{self.format_usage().strip()}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses as argparse does, but a value may begin with a minus and a digit: `--expect -5%`."""
        words: list[str] = []
        valued = self.valued()
        for word in sys.argv[1:] if args is None else args:
            if re.match(r"-\d", word) and words and words[-1].startswith("--") and words[-1] in valued:
                words[-1] += f"={word}"
            else:
                words.append(word)
        return super().parse_known_args(words, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(renamed(message or ""), file)

    def option_names(self) -> list[str]:
        """The names of all options."""
        return [name for action in self._actions for name in action.option_strings]

    def options(self) -> tuple[argparse.Action, ...]:
        """The arguments in the order of `--help`, without `--help` itself and hidden arguments."""
        return tuple(
            action
            for action in self._actions
            if not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS
        )

    def valued(self) -> tuple[str, ...]:
        """The options that take a value."""
        return tuple(name for action in self.options() if action.nargs != 0 for name in action.option_strings)


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """The hint for a word that is not among `names`: the nearest name, or `otherwise` if none is near."""
    near = difflib.get_close_matches(word, list(names), 1)
    return f"did you mean `{near[0]}`?" if near else otherwise
