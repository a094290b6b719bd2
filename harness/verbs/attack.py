"""The verb `attack`: search the space of inputs for the worst error."""

import sys
from argparse import Namespace
from pathlib import Path

from harness.records.attack import Attack as Record
from harness.records.attack import WorstInput
from harness.shell.arguments import command, minutes
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Attack(Verb):
    place = "machine", 110
    line = "search the space of inputs for the worst error"
    example = "attack --minutes 5"
    description = "Searches the space of inputs for the worst error of kernel.py, or of an attempt; records nothing."
    examples = "ratchet.sh attack 3 --minutes 5"
    document = Document(5, Record)
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        parser.attempt("an attempt instead of kernel.py")
        parser.add_argument("--minutes", type=minutes, default=5.0, help="minutes to search (default: 5)")
        parser.add_argument("--seed", type=int, help="repeat the search that had this seed")
        parser.option("--repeat FILE", "try the input in this file again", type=Path)
        parser.flag("--first", "stop at the first input on which the kernel is wrong")
        parser.member()
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.ledger import history
        from harness.ledger.paths import place_of
        from harness.loop import attack as attacking
        from harness.verbs.parts.context import contest_of

        contest = contest_of(arguments)
        member = contest.member(arguments.member)
        number = arguments.number
        candidate = contest.candidate() if number is None else history.candidate(place_of(contest.directory), number)

        def tell(inputs: int, worst: WorstInput) -> None:
            if not (arguments.quiet or arguments.json):
                print(f"  input {inputs}: {_ratio(worst)} ({worst.words})", file=sys.stderr)

        if arguments.repeat is not None:
            attack = attacking.repeat(contest, member, candidate, arguments.repeat)
        else:
            attack = attacking.attack(
                contest,
                member,
                candidate,
                minutes=arguments.minutes,
                seed=arguments.seed,
                first=arguments.first,
                tell=tell,
            )
        return Outcome(
            document=attack,
            text=lambda: attack_text(attack, arguments.directory, member.name),
            exit_code=1 if attack.worst is not None and attack.worst.is_wrong else 0,
        )


def attack_text(attack: Record, directory: Path | None, member: str) -> str:
    """The result as text, with commands: to repeat the worst input and, after a wrong output, to revoke a champion."""
    from harness.loop import draw_text

    amount = f"{attack.tried} input{'s' * (attack.tried != 1)} in {attack.seconds:.0f} s, seed {attack.seed}"
    if attack.worst is None:
        return f"{amount}: none was checked in time"
    worst, member_option = attack.worst, f" --member {member}" if member else ""
    lines = [
        f"{attack.problem}: {amount}",
        f"outputs compared: {_compared(attack)}",
        f"worst error: {_ratio(worst)}, at {worst.title} ({worst.shape} shape)"
        + "; no error above the tolerance was found" * (not worst.is_wrong),
        f"input: {worst.words}; seed {worst.seed}",
        *([worst.said] if worst.said else []),
        f"repeat it: {command(f'attack{member_option} --repeat {attack.file}', directory)}",
    ]
    if worst.is_wrong and worst.is_doubtful:
        lines.append(
            f"on this input the error of the judge's own honest computation is {worst.honest_ratio:.3g} times the "
            "tolerance: rounding errors that are usually independent add up here, so the kernel may still be right "
            "(docs/DECIDING.md)"
        )
    elif worst.is_wrong and worst.output:
        revoke = command(f"revoke{draw_text.options([worst.draw])}", directory)
        lines.append(f"if this kernel is the champion, revoke its title: {revoke}")
    return "\n".join(lines)


def _compared(attack: Record) -> str:
    """The outputs and how they are compared, such as `c exactly; o against the tolerance`."""
    ways = (("exactly", attack.exact_outputs), ("against the tolerance", attack.tolerated_outputs))
    return "; ".join(f"{', '.join(names)} {how}" for how, names in ways if names)


def _ratio(worst: WorstInput) -> str:
    return "beyond any tolerance" if worst.ratio is None else f"{worst.ratio:.3g} times the tolerance"
