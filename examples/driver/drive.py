"""Drives the loop unattended: `tune` once, then what `next --json` says and one or two constants at a time.

    python examples/driver/drive.py CONTEST [--attempts 10]

It knows nothing of the kernel or of the harness: only the documents that commands print, and exit
codes. It changes whole numbers and flags at the top of kernel.py and never its text: where nothing is
left for it to change, it prints the advice that needs an editor. A program with better ideas replaces
`moves` and keeps the rest.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RATCHET = Path(__file__).resolve().parents[2] / "ratchet.sh"
JUDGED = (0, 1, 3)  # accepted; rejected or failed; inconclusive
# What the first search may make of a constant. Blocks depend on each other, so that one step at a time ends where no
# single step helps; and the fastest of many has to gain more than a single candidate, which is easy at the beginning.
FACTORS = (0.25, 0.5, 1, 2, 4, 8)
TOO_LARGE = ("vmem-exceeded", "out-of-memory")  # failures that larger blocks repeat
# The constant of the kernels here for the VMEM that the compiler may use, and what to raise it to. Most chips have
# 128 MiB, of which a kernel gets 16 or 32 unless it asks for more.
LIMIT_NAMES = ("VMEM_LIMIT", "VMEM_LIMIT_BYTES")
LIMITS = (64 * 2**20, 100 * 2**20)
Constants = dict[str, str]
Known = list[tuple[Constants, str]]


def ratchet(contest: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of one command."""
    done = subprocess.run([RATCHET, "-C", contest, *words, "--json"], stdout=subprocess.PIPE, text=True)
    if not done.stdout.strip():
        # It was stopped, and why stands on stderr.
        raise SystemExit(f"{words[0]}: no document, exit code {done.returncode}")
    return done.returncode, json.loads(done.stdout)


def moves(state: dict[str, Any], screened: Known) -> Iterator[Constants]:
    """The constants to change and their new values, the most promising first; nothing whose outcome is known.

    `screened` are the constants that were timed or refused without an attempt, each with its kind of failure or "".
    """
    now = constants_of(state)
    tried = [attempt for attempt in state["tried"] if attempt["constants"] is not None]
    known = [(dict(attempt["constants"]), attempt["failure_kind"]) for attempt in tried] + screened
    numbers = numbers_of(now)

    def won_last(name: str) -> int:
        """The newest attempt that was accepted after changing this constant; 0: none."""
        won, before = 0, None
        for attempt in tried:
            constants = dict(attempt["constants"])
            if attempt["outcome"] == "accept":
                won = attempt["attempt"] if before and constants.get(name) != before.get(name) else won
                before = constants
        return won

    # What has just helped may help again, and larger blocks help more often than smaller ones.
    names = sorted(numbers, key=won_last, reverse=True)
    single = [{name: factor} for factor in (2, 4, 0.5, 0.25) for name in names]
    double = [
        {one: factor, other: 1 / factor}
        for factor in (2, 4, 0.5, 0.25)
        for one, other in itertools.combinations(names, 2)
    ]
    scaled = ({name: int(numbers[name] * factor) for name, factor in factors.items()} for factors in (*single, *double))
    flipped = ({name: now[name] == "False"} for name in flags_of(now))
    for values in (*flipped, *(values for values in scaled if min(values.values()) >= 1)):
        move = _with_room({name: str(value) for name, value in values.items()}, now, known)
        if not _is_known(now | move, known):
            yield move


def constants_of(state: dict[str, Any]) -> Constants:
    return {constant["name"]: constant["value"] for constant in state["constants"]}


def numbers_of(constants: Constants) -> dict[str, int]:
    """The whole numbers above zero among the constants, without limits of VMEM."""
    return {
        name: int(value)
        for name, value in constants.items()
        if name not in LIMIT_NAMES and value.isdecimal() and int(value) > 0
    }


def flags_of(constants: Constants) -> list[str]:
    return [name for name, value in constants.items() if value in ("False", "True")]


def _with_room(move: Constants, now: Constants, known: Known) -> Constants:
    """The move, with the least larger limit of VMEM under which it is not known to be too large."""
    for name, limit in itertools.product(LIMIT_NAMES, LIMITS):
        if not _is_too_large(now | move, known):
            break
        if name in now and (now[name] == "None" or (now[name].isdecimal() and int(now[name]) < limit)):
            move = move | {name: str(limit)}
    return move


def _is_too_large(constants: Constants, known: Known) -> bool:
    """True if every number is at least that of something that was too large, and all else is the same."""
    return any(
        kind in TOO_LARGE
        and all(
            mine == theirs
            or (name not in LIMIT_NAMES and mine.isdecimal() and theirs.isdecimal() and int(mine) >= int(theirs))
            for name, theirs in other.items()
            for mine in [constants.get(name, "")]
        )
        for other, kind in known
    )


def _is_known(constants: Constants, known: Known) -> bool:
    """True if they are too large, or something else is known of them: no limit of VMEM changes that."""
    return _is_too_large(constants, known) or any(
        kind not in TOO_LARGE and _without_limits(constants) == _without_limits(other) for other, kind in known
    )


def _without_limits(constants: Constants) -> Constants:
    return {name: value for name, value in constants.items() if name not in LIMIT_NAMES}


def first_search(now: Constants) -> list[str]:
    """The command that searches all whole numbers and flags of kernel.py at once."""
    numbers, flags = numbers_of(now), flags_of(now)
    words = ["tune", f"experiment: a search over {', '.join((*numbers, *flags))}"]
    for name, number in numbers.items():
        values = dict.fromkeys(int(number * factor) for factor in FACTORS if number * factor >= 1)
        words += ["--set", f"{name}={','.join(map(str, values))}"]
    for name in flags:
        words += ["--set", f"{name}=False,True"]
    for name in LIMIT_NAMES:
        if now.get(name) == "None":
            words += ["--set", f"{name}={LIMITS[0]}"]
    return words


def drive(contest: Path, attempts: int) -> int:
    """Runs up to `attempts` attempts and returns how many were recorded; ends early where `next` says stop."""
    recorded = 0
    screened: Known = []
    while recorded < attempts:
        code, state = ratchet(contest, "next")
        if code != 0:
            raise SystemExit(f"next: {state['error']['message']}")
        advice, now = state["advice"], constants_of(state)
        print(advice["sentence"], flush=True)
        if advice["do"] == "stop":
            break
        is_untouched = all(kind["kind"] != "constants" for kind in state["kinds"])
        move: Constants = {}
        if advice["do"] == "baseline":
            words = ["experiment: baseline"]
        elif is_untouched and not screened and (numbers_of(now) or flags_of(now)):
            words = first_search(now)
        else:
            move = next(moves(state, screened), {})
            if not move:
                print("no multiple of a constant is left to try", flush=True)
                break
            changes = ", ".join(f"{name} {now[name]} -> {value}" for name, value in move.items())
            words = [f"experiment: {changes}"]
            for name, value in move.items():
                words += ["--set", f"{name}={value}"]
        code, done = ratchet(contest, *words)
        if code in JUDGED and words[0] == "tune":
            screened += [(now | dict(one["settings"]), one["failure_kind"]) for one in done["sweep"]["screened"]]
            recorded += done["attempt"] is not None
            best = " ".join(f"{name}={value}" for name, value in done["best"] or ())
            judged = done["why_none"] or f"{best}: {done['outcome']}"
            print(f"  the best of {len(screened)} settings: {judged}", flush=True)
        elif code in JUDGED:
            recorded += done["recorded"]
            print(f"  {words[0].removeprefix('experiment: ')}: {done['attempt']['verdict']['outcome']}", flush=True)
        elif move and done["error"]["kind"] in ("identical-candidate", "same-schedule"):
            # Another text of a program that is known: `next` cannot tell, so it is remembered here.
            screened.append((now | move, ""))
        else:
            raise SystemExit(f"{words[0]}: {done['error']['message']} [{done['error']['kind']}]")
    return recorded


def main() -> int:
    parser = argparse.ArgumentParser(description="Drives the loop unattended.")
    parser.add_argument("contest", type=Path, help="the contest's folder")
    parser.add_argument("--attempts", type=int, default=10, help="how many attempts to record (10)")
    given = parser.parse_args()
    recorded = drive(given.contest.resolve(), given.attempts)
    _, state = ratchet(given.contest.resolve(), "next")
    champion = state["champion"]
    if champion is None or champion["seconds"] is None:
        print(f"{recorded} attempts, no champion with a latency")
        return 1
    for hint in state["hints"]:
        # The kind is "" where the advice is to stop, or to try something else.
        if hint["kind"] not in ("", "constants") and state["advice"]["why"] != "floor reached":
            print(f"for an editor of kernel.py ({hint['kind']}): {hint['observation']}\n  -> {hint['suggestion']}")
    # Only times of one source are compared.
    alike = [one for one in state["tried"] if (one["source"], one["chip"]) == (champion["source"], champion["chip"])]
    first = next(one["seconds"] for one in alike if one["seconds"] is not None)
    where = f"{champion['source']} {champion['chip']}"
    print(f"{recorded} attempts: {1e6 * first:.1f} us -> {1e6 * champion['seconds']:.1f} us [{where}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
