"""Drives the loop unattended: asks `next --json` what is known, changes one constant with `--set`, and again.

    python examples/driver/drive.py CONTEST [--attempts 10]

It knows nothing of the kernel or of the harness: only what `next` prints, and exit codes. What it
tries is the plainest thing that works, one integer constant of kernel.py doubled or halved at a
time, then two of them; a program with better ideas replaces `moves` and keeps the rest.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HARNESS = Path(__file__).resolve().parents[2]
JUDGED = (0, 1, 3)  # accepted; rejected or failed; inconclusive: all of them recorded
Constants = dict[str, str]


def ratchet(contest: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of one command, run with the Python that runs this."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", "-C", str(contest), *words, "--json"],
        cwd=HARNESS,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, json.loads(done.stdout)


def moves(state: dict[str, Any]) -> Iterator[Constants]:
    """The constants to change and their new values, the most promising first; nothing that was judged before."""
    now: Constants = {constant["name"]: constant["value"] for constant in state["constants"]}
    known = [attempt for attempt in state["tried"] if attempt["constants"] is not None]
    judged = [dict(attempt["constants"]) for attempt in known]
    # Larger than something that failed fails too: it did not fit, or did not divide.
    failed = [dict(attempt["constants"]) for attempt in known if attempt["outcome"] == "failed"]
    numbers = {name: int(value) for name, value in now.items() if value.isdecimal() and int(value) > 0}

    def won_last(name: str) -> int:
        """The newest attempt that was accepted after changing this constant; 0: none."""
        won, before = 0, None
        for attempt in known:
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
    for factors in (*single, *double):
        values = {name: int(numbers[name] * factor) for name, factor in factors.items()}
        move = {name: str(value) for name, value in values.items()}
        changed = {**now, **move}
        is_new = changed not in judged and not any(_is_beyond(changed, one) for one in failed)
        if is_new and min(values.values()) >= 1:
            yield move


def _is_beyond(changed: Constants, failed: Constants) -> bool:
    """Every number of `changed` is at least that of `failed`, which has the same others."""
    pairs = [(changed.get(name), value) for name, value in failed.items()]
    return all(
        mine == theirs or (mine is not None and mine.isdecimal() and theirs.isdecimal() and int(mine) >= int(theirs))
        for mine, theirs in pairs
    )


def drive(contest: Path, attempts: int) -> int:
    """Runs up to `attempts` attempts and returns how many were recorded; ends early where `next` says stop."""
    recorded = 0
    refused: list[Constants] = []
    while recorded < attempts:
        code, state = ratchet(contest, "next", "--plateau", str(attempts))
        if code != 0:
            raise SystemExit(f"next: {state['error']['message']}")
        advice = state["advice"]
        print(advice["sentence"], flush=True)
        if advice["do"] == "stop":
            break
        words = ["experiment: baseline"]
        move = None
        if advice["do"] != "baseline":
            move = next((move for move in moves(state) if move not in refused), None)
            if move is None:
                print("nothing left to double or halve")
                break
            old = {constant["name"]: constant["value"] for constant in state["constants"]}
            changes = ", ".join(f"{name} {old[name]} -> {value}" for name, value in move.items())
            words = [f"experiment: {changes}"]
            for name, value in move.items():
                words += ["--set", f"{name}={value}"]
        code, done = ratchet(contest, *words)
        if code in JUDGED:
            recorded += 1
            refused.clear()
            print(f"  {words[0].removeprefix('experiment: ')}: {done['attempt']['verdict']['outcome']}", flush=True)
        elif move is not None and done["error"]["kind"] in ("identical-candidate", "same-schedule"):
            # Another text of a program that is known: `next` cannot tell, so it is remembered here.
            refused.append(move)
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
    # Only times of one source are compared.
    alike = [one for one in state["tried"] if (one["source"], one["chip"]) == (champion["source"], champion["chip"])]
    first = next(one["seconds"] for one in alike if one["seconds"] is not None)
    where = f"{champion['source']} {champion['chip']}"
    print(f"{recorded} attempts: {1e6 * first:.1f} us -> {1e6 * champion['seconds']:.1f} us [{where}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
