"""The text form of a draw, for command lines: `reduced:512x128:far-values:1234`."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import get_args

from harness.errors import UsageError
from harness.records import Check, Draw, Evidence
from harness.records.evidence import Mode

_PROBE = "probe"
_FORM = re.compile(rf"({'|'.join(get_args(Mode))}):(\d+(?:x\d+)*):(.+):(\d+)", re.DOTALL)


def text(draw: Draw) -> str:
    """The draw as `mode:shape:family:seed`, which `parse` reads."""
    return f"{draw.mode}:{'x'.join(map(str, draw.shape))}:{draw.family or _PROBE}:{draw.seed}"


def parse(words: str) -> Draw:
    """The draw that `words` describes, in the form that `text` returns. Raises UsageError `bad-draw`."""
    match = _FORM.fullmatch(words)
    if match is None:
        raise UsageError(
            "bad-draw",
            f"expected a draw as MODE:SHAPE:FAMILY:SEED, such as reduced:512x128:far-values:1234, got {words!r}; "
            f"MODE is one of {', '.join(get_args(Mode))}, FAMILY `{_PROBE}` stands for the probes",
        )
    mode, shape, family, seed = match.groups()
    mode_: Mode = next(known_mode for known_mode in get_args(Mode) if known_mode == mode)
    family = "" if family == _PROBE else family
    return Draw(mode=mode_, shape=tuple(map(int, shape.split("x"))), family=family, seed=int(seed))


def failing(evidence: Evidence) -> tuple[Draw, ...]:
    """The draws of the checks that did not pass."""
    return of(check for check in evidence.all_checks if not check.passed)


def options(draws: Sequence[Draw]) -> str:
    """The option ` --draw ...` for each draw, to append to a command."""
    return "".join(f" --draw {shlex.quote(text(draw))}" for draw in draws)


def of(checks: Iterable[Check]) -> tuple[Draw, ...]:
    """The draws of these checks, each once."""
    return tuple(dict.fromkeys(check.draw for check in checks))
