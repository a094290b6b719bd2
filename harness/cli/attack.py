"""What `attack` does: it searches the space of inputs for the worst error of a kernel."""

import sys
from argparse import Namespace
from pathlib import Path

from harness import contest as contests
from harness.cli.arguments import command, directory
from harness.cli.verb import Outcome
from harness.ledger import history
from harness.ledger.paths import place_of
from harness.loop import attack as attacking
from harness.loop import draw_text
from harness.records.attack import Attack, Found


def attack(given: Namespace) -> Outcome:
    contest = contests.load(directory(given.directory))
    member = contest.member(given.member)
    candidate = (
        contest.candidate() if given.number is None else history.candidate(place_of(contest.directory), given.number)
    )

    def tell(tried: int, found: Found) -> None:
        if not (given.quiet or given.json):
            print(f"  input {tried}: {_ratio(found)} ({found.words})", file=sys.stderr)

    if given.repeat is not None:
        done = attacking.repeat(contest, member, candidate, given.repeat)
    else:
        done = attacking.attack(
            contest, member, candidate, minutes=given.minutes, seed=given.seed, first=given.first, tell=tell
        )
    return Outcome(
        document=done,
        text=lambda: _text(done, given.directory, member.name),
        exit_code=1 if done.worst is not None and done.worst.is_wrong else 0,
    )


def _text(done: Attack, given: Path | None, member: str) -> str:
    tried = f"{done.tried} input{'s' * (done.tried != 1)} in {done.seconds:.0f} s, seed {done.seed}"
    if done.worst is None:
        return f"{tried}: none was checked in time"
    worst, own = done.worst, f" --member {member}" if member else ""
    lines = [
        f"{done.problem}: {tried}",
        f"worst error: {_ratio(worst)}, at {worst.title} ({worst.shape} shape)"
        + "; no input above the tolerance was found" * (not worst.is_wrong),
        f"input: {worst.words}; seed {worst.seed}",
        *([worst.said] if worst.said else []),
        f"repeat it: {command(f'attack{own} --repeat {done.file}', given)}",
    ]
    if worst.is_wrong and worst.output:
        revoke = command(f"revoke{draw_text.options([worst.draw])}", given)
        lines.append(f"if this kernel is the champion, revoke its title: {revoke}")
    return "\n".join(lines)


def _ratio(found: Found) -> str:
    return "output not finite" if found.ratio is None else f"{found.ratio:.3g} times the tolerance"
