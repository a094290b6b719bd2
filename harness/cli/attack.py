"""The verb that searches the space of inputs for the worst error of a kernel."""

import argparse
import sys
from pathlib import Path

from harness import contest as contests
from harness.cli.arguments import attempt_number, command, directory, verb_parser
from harness.cli.documents import json_text
from harness.ledger import Ledger
from harness.loop import attack as attacking
from harness.loop import draws
from harness.records.attack import Attack, Found


def attack(words: list[str]) -> int:
    parser = verb_parser(
        "attack",
        "Searches the space of inputs for the worst error of kernel.py, or of an attempt; records nothing.",
        "ratchet.sh attack 3 --minutes 5",
    )
    parser.add_argument("number", nargs="?", type=attempt_number, metavar="N", help="an attempt instead of kernel.py")
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="how long to search (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="search as the search with this seed did")
    parser.add_argument(
        "--repeat", type=Path, default=None, metavar="FILE", help="try the input in this file once more"
    )
    parser.add_argument("--first", action="store_true", help="stop at the first error above its tolerance")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    contest = contests.load(directory(given.directory))
    kernel = (
        contest.kernel_path.read_bytes()
        if given.number is None
        else Ledger.open(contest.directory).kernel(given.number)
    )

    def tell(tried: int, found: Found) -> None:
        if not (given.quiet or given.json):
            print(f"  input {tried}: {_ratio(found)} ({found.words})", file=sys.stderr)

    if given.repeat is not None:
        done = attacking.repeat(contest, kernel, given.repeat)
    else:
        done = attacking.attack(contest, kernel, minutes=given.minutes, seed=given.seed, first=given.first, tell=tell)
    if given.json:
        print(json_text("attack", done))
    else:
        print(_text(done, given.directory))
    return 1 if done.worst is not None and done.worst.is_wrong else 0


def _text(done: Attack, given: Path | None) -> str:
    tried = f"{done.tried} input{'s' * (done.tried != 1)} in {done.seconds:.0f} s, seed {done.seed}"
    if done.worst is None:
        return f"{tried}: none was checked in time"
    worst = done.worst
    lines = [
        f"{done.problem}: {tried}",
        f"worst error: {_ratio(worst)}, at {worst.title} ({worst.shape} shape)"
        + "; no input above the tolerance was found" * (not worst.is_wrong),
        f"input: {worst.words}; seed {worst.seed}",
        *([worst.said] if worst.said else []),
        f"repeat it: {command(f'attack --repeat {done.file}', given)}",
    ]
    if worst.is_wrong and worst.output:
        revoke = command(f"revoke{draws.options([worst.draw])}", given)
        lines.append(f"if this kernel is the champion, revoke its title: {revoke}")
    return "\n".join(lines)


def _ratio(found: Found) -> str:
    return "output not finite" if found.ratio is None else f"{found.ratio:.3g} times the tolerance"


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text!r}")
    return minutes
