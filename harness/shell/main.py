"""The command line: words in, exit code out, errors as sentences or documents."""

import difflib
import io
import itertools
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import __version__, reading_limits
from harness.errors import RatchetError, UsageError
from harness.render.layout import harmless, terminal_width, wants_colour
from harness.render.sections import screen
from harness.shell.arguments import say
from harness.shell.catalogue import EVERY, typed_verbs, valued_options
from harness.shell.exit_codes import BUG, INTERRUPTED
from harness.shell.help_page import overview
from harness.shell.parser import did_you_mean
from harness.shell.program_name import renamed, work_in
from harness.shell.verb import MESSAGE, Outcome, Verb

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_HELP = {"-h", "--help"}
# The environment variable that a shell sets when it asks for completions.
COMPLETING = "_ARGCOMPLETE"
# The hypothesis of a contest's first attempt.
_BASELINE = "baseline"
# The depth and the number of entries of a search for contests. A contest is in a folder of the repository, or in one of
# its examples, and a search of more entries would take too long.
_DEPTH, _MOST_ENTRIES = 2, 5000
_CONTESTS_SHOWN = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors are printed to stderr, with their kind."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    work_in(None)
    try:
        return _run(words)
    except RatchetError as error:
        return _fail(error.kind, str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        return _fail("interrupted", "interrupted: kernel.py is as it was", INTERRUPTED, as_json)
    except RecursionError:
        return _fail("too-large", "the data is nested deeper than Python can follow", 4, as_json)
    except MemoryError:
        return _fail("no-memory", "not enough memory for this command", 4, as_json)
    except OSError as error:
        return _fail("os-error", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 4, as_json)
    # Python's own exit code for an exception is 1, which means "rejected" to a program that drives the loop.
    except Exception:  # noqa: BLE001
        import traceback

        return _fail("bug", f"a bug in the ratchet, not in your kernel:\n{traceback.format_exc()}", BUG, as_json)


def program() -> int:
    """The exit code of the command line that began this process; a verb that reads strangers' files runs in a child."""
    prepare_output()
    if COMPLETING in os.environ:
        from harness.shell import completion

        completion.answer()
    words = sys.argv[1:]
    if "--for-server" in words:
        # This comes before the verb is watched, so that the watcher ends with the server.
        reading_limits.end_with_parent()
    try:
        place = None if _HELP & {*words} else place_of_verb(words)
    except RatchetError:
        place = None
    if place is None or words[place] not in EVERY or not EVERY[words[place]].is_watched:
        return main(words)
    from harness.shell.watch import run_watched

    return run_watched(partial(main, words), lambda kind, message: _fail(kind, message, 4, "--json" in words))


class _Pipe(io.FileIO):
    """A file that drops output once its reader has ended, so that `ratchet.sh ... | head` ends as without `| head`."""

    def write(self, data: "Buffer") -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data) or 0


def prepare_output() -> None:
    """Makes a verb end normally even if its output pipe was closed, or if a character cannot be encoded.

    A character that cannot be encoded is printed as its escape sequence. Otherwise an attempt with such a
    character in its report would be recorded, and then end as a bug.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.flush()
            pipe = io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False))
            is_lined = name == "stderr" or stream.line_buffering
            wrapped = io.TextIOWrapper(pipe, stream.encoding, "backslashreplace", line_buffering=is_lined)
            setattr(sys, name, wrapped)


def _run(words: list[str]) -> int:
    place = place_of_verb(words)
    if place is None:
        if _HELP & {*words}:
            print(renamed(overview()), end="")
            return 0
        if "--version" in words:
            print("\n".join((f"kernel-ratchet {__version__}", *_packages())))
            return 0
        raise UsageError(
            "no-message", f"expected a verb or a message that begins with `experiment:`, got nothing\n{overview()}"
        )
    if words[place] == f"{MESSAGE}:" and words[place + 1 :]:
        rest = words[place + 1 :]
        end = next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))
        quoted = " ".join([f'"experiment: {" ".join(rest[:end])}"', *rest[end:]])
        raise UsageError("no-message", f"put the message in quotes: {quoted}")
    if words[place] in EVERY:
        return _carry_out(EVERY[words[place]], words[:place] + words[place + 1 :])
    return _carry_out(EVERY[MESSAGE], words)


def _packages() -> Iterator[str]:
    """The versions that a verdict depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    for name in ("jax", "libtpu"):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"
    yield f"Python {platform.python_version()}"


def _carry_out(verb: Verb, words: list[str]) -> int:
    """Parses the words, runs the verb, prints its outcome, and returns the exit code."""
    arguments = verb.parse(words)
    # `test` keeps only its own options.
    for_server = getattr(arguments, "for_server", False)
    if verb.takes_contest:
        work_in(
            arguments.directory,
            (named.name for named in EVERY.values() if named.takes_contest and named.hints_name_contest),
        )
    try:
        with reading_limits.pythons_limits_in_words("the data read") if verb.is_watched else nullcontext():
            outcome = verb.run(arguments)
            text = _text_of(verb, arguments, outcome)
    except UsageError as error:
        if error.kind != "usage":
            raise
        raise UsageError(error.kind, f"{error}\n{verb.usage(arguments)}") from error
    except RatchetError as error:
        if error.kind != "no-contest" or not (where := contests_below(arguments.directory or Path())):
            raise
        raise RatchetError(error.kind, f"{error}; {where}") from error
    if text:
        print(text if verb.shows_texts or arguments.json else renamed(text), flush=True)
    for sentence in outcome.messages:
        say(sentence)
    try:
        for sentence in () if for_server else outcome.afterwards():
            say(sentence)
    except KeyboardInterrupt:
        say("interrupted: a later command does the remaining work")
    except RatchetError as error:
        say(str(error))
    return outcome.exit_code


def _text_of(verb: Verb, arguments: Namespace, outcome: Outcome) -> str:
    if outcome.document is None or verb.document is None or not arguments.json:
        text, colour = outcome.text(), wants_colour(sys.stdout)
        return harmless(text if isinstance(text, str) else screen(text, terminal_width(), colour=colour), colour)
    # Imported only here: the import takes half a second, and only JSON needs it.
    from harness.shell.documents import json_text

    return json_text(verb.document, outcome.document)


def place_of_verb(words: Sequence[str]) -> int | None:
    """The index of the verb or message, the first word that is neither an option nor its value; None if there is none.

    Raises UsageError `unknown-verb`.
    """
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif word == "-C":
            skip = True
        elif word in _HELP or word == "--version":
            continue
        elif word.startswith("-"):
            # Only the verbs' own parsers know which options take a value.
            skip = word in valued_options()
        elif word.startswith(f"{MESSAGE}:") or word in EVERY:
            return place
        else:
            raise UsageError(
                "unknown-verb",
                f"expected a verb or a message that begins with `experiment:`, got {word!r}; {_meant(words[place:])}",
            )
    return None


def _meant(words: Sequence[str]) -> str:
    """The hint for words that do not begin with a verb: the nearest command, or the words as a hypothesis."""
    word = words[0]
    begins = word.partition(" ")[0].partition(":")[0]
    if difflib.get_close_matches(begins.lower(), [MESSAGE], 1, 0.8):
        rest = word.removeprefix(begins).lstrip(": ") or "HYPOTHESIS"
        return f'did you mean "{MESSAGE}: {rest}"?'
    if ours := next(filter(None, (verb.meant_by(words) for verb in typed_verbs())), None):
        return f"did you mean `{ours}`?"
    verb = did_you_mean(word, (verb.name for verb in typed_verbs()), "")
    phrase = " ".join(itertools.takewhile(lambda each: not each.startswith("-"), words))
    # The usual first hypothesis resembles the name of a verb.
    is_baseline = bool(difflib.get_close_matches(word.lower(), [_BASELINE], 1, 0.8))
    if verb and not is_baseline and " " not in word:
        return verb
    as_message = f'"{MESSAGE}: {_BASELINE if is_baseline else phrase}"'
    if verb:
        return f"{verb.removesuffix('?')}, or {as_message}?"
    return f"for an attempt: {as_message}; `ratchet.sh --help` lists the verbs"


def contests_below(folder: Path) -> str:
    """`contests here: attn, mbg`, the folders as `-C` takes them; "" if no contest lies within two levels.

    `folder` is as the user typed it, relative to the current folder or absolute.
    """
    where = "here" if folder == Path() else "there"
    names = sorted(
        str(path)
        for path in itertools.islice(_folders(folder, _DEPTH), _MOST_ENTRIES)
        if (path / "prepare.py").is_file() and (path / "kernel.py").is_file()
    )
    more = f" and {len(names) - _CONTESTS_SHOWN} more" if len(names) > _CONTESTS_SHOWN else ""
    return f"contests {where}: {', '.join(names[:_CONTESTS_SHOWN])}{more}" if names else ""


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """The folders up to `depth` levels below `folder`, without links, hidden folders and unreadable ones."""
    try:
        with os.scandir(folder) as entries:
            below = [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(below):
        if not path.name.startswith("."):
            yield path
            if depth > 1:
                yield from _folders(path, depth - 1)


def _fail(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        # Imported only here: the import takes half a second, and only JSON needs it.
        from harness.shell.documents import ERROR, ErrorDocument, Mistake, json_text

        print(json_text(ERROR, ErrorDocument(error=Mistake(kind=kind, message=renamed(message)))))
    # The kind is appended to the first line. At the end of the usage, it would look like an argument.
    first_line, line_break, usage = message.partition("\n")
    tag = "" if kind == "bug" else f" [{kind}]"
    print(harmless(renamed(f"ratchet: {first_line}{tag}{line_break}{usage}")), file=sys.stderr)
    return code
