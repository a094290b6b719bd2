"""The help of one verb, the overview of all verbs, and the page docs/COMMANDS.md."""

from argparse import Action
from collections.abc import Iterator

from harness import __version__
from harness.errors import UsageError
from harness.shell import exit_codes
from harness.shell.catalogue import EVERY, typed_verbs
from harness.shell.parser import Parser, did_you_mean
from harness.shell.verb import GROUPS, Verb


def parser_named(name: str) -> Parser:
    """The parser of the verb. Raises UsageError `unknown-verb`."""
    if name in EVERY:
        return EVERY[name].parser()
    hint = did_you_mean(name, EVERY, "`ratchet.sh --help` lists the verbs")
    raise UsageError("unknown-verb", f"expected a verb, got {name!r}; {hint}")


def overview() -> str:
    """The text of `ratchet.sh --help`: every verb with an example, by purpose."""
    return "\n".join(_overview_lines()) + "\n"


def _overview_lines() -> Iterator[str]:
    yield 'usage: ratchet.sh "experiment: HYPOTHESIS" [options]   test one change of kernel.py, keep it if it is faster'
    yield "       ratchet.sh VERB [options]"
    verbs = list(typed_verbs())
    widest = max(len(verb.line) for verb in verbs)
    for group, title in GROUPS.items():
        yield ""
        yield title
        for verb in verbs:
            if verb.place[0] == group:
                yield f"  {verb.name:10} {verb.line:{widest}}  {verb.example}"
    yield ""
    yield "  -C DIR     the contest's folder (default: the current folder)"
    yield "  --python X the Python to set up the environment with (3.12, or a path); this option must come first"
    yield "ratchet.sh VERB --help says more; ratchet.sh experiment --help lists the options of an attempt."
    yield exit_codes.SENTENCE
    yield f"kernel-ratchet {__version__}"


def page() -> str:
    """The page docs/COMMANDS.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "Made by `./ratchet.sh help --markdown` from the parsers; a test compares it with them."
    yield ""
    yield f"{exit_codes.SENTENCE[0].upper()}{exit_codes.SENTENCE[1:]}."
    yield "Every verb takes `--help`. The document that `--json` prints has its version in `schema`; its JSON schema is"
    yield "printed by `./ratchet.sh schema VERB`. `-C DIR` names the contest's folder (default: the current one)."
    for group, title in GROUPS.items():
        yield ""
        yield f"## {title[0].upper()}{title[1:]}"
        for verb in EVERY.values():
            if verb.place[0] == group:
                yield from _section(verb)


def _section(verb: Verb) -> Iterator[str]:
    for name, parser in verb.parsers():
        yield ""
        yield f"{'###' if name == verb.name else '####'} {name}"
        yield ""
        yield str(parser.description)
        yield ""
        yield "```"
        # The first of the examples at the end of the parser's --help.
        example = str(parser.epilog).partition("example: ")[2].partition("; ")[0]
        yield f"./ratchet.sh {verb.example}" if name == verb.name else f"./{example}"
        yield "```"
        yield from _options(parser)


def _options(parser: Parser) -> Iterator[str]:
    shown = [option for option in parser.options() if option.dest != "directory"]
    if shown:
        yield ""
        yield "| | |"
        yield "|---|---|"
    for option in shown:
        words = str(option.help or "").replace("%%", "%").replace("|", "\\|")
        yield f"| `{_name(option)}` | {words} |"


def _name(option: Action) -> str:
    value = "" if option.nargs == 0 else f" {option.metavar or '|'.join(map(str, option.choices or ())) or 'VALUE'}"
    if not option.option_strings:
        name = str(option.metavar or option.dest)
        return f"[{name}]" if option.nargs == "?" else name
    return f"{', '.join(option.option_strings)}{value}".replace("|", "\\|")
