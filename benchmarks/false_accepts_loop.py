"""Runs the whole ratchet on this machine's CPU for attempts that change nothing, and records their outcomes and noise.

Before each attempt, the kernel.py of a scratch contest with a small problem gets one more comment; the attempt is
judged with `--on cpu --again`. The raw seconds of all paired benchmarks are written to benchmarks/data/cpu_pairs.tsv.
Run: python benchmarks/false_accepts_loop.py [ATTEMPTS] (about a minute each)
"""

import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.loop.scaffold import scaffold

DATA = Path(__file__).parent / "data" / "cpu_pairs.tsv"
ATTEMPTS = 16
SEQUENCE = 256


def contest(folder: Path) -> Path:
    """A small contest in a repository of its own."""
    scaffold(folder, "attention", (("SEQUENCE", str(SEQUENCE)),))
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "A User"],
        ["config", "user.email", "user@example.org"],
        ["add", "-A"],
        ["commit", "-qm", "A contest"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def attempt(folder: Path, message: str) -> dict[str, Any]:
    """The record of one attempt by the command line, as `--json` prints it."""
    command = [sys.executable, "-m", "harness", "-C", str(folder), f"experiment: {message}"]
    done = subprocess.run([*command, "--on", "cpu", "--again", "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"expected a verdict, got exit code {done.returncode}:\n{done.stderr}")
    record: dict[str, Any] = json.loads(done.stdout)["attempt"]
    return record


def main() -> None:
    """Makes the attempts, prints their outcomes and writes their samples."""
    attempts = int(sys.argv[1]) if len(sys.argv) > 1 else ATTEMPTS
    lines = ["attempt\toutcome\tchampion_seconds\tcontrol_seconds\tcandidate_seconds"]
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = contest(Path(scratch) / "null")
        attempt(folder, "baseline")
        kernel = folder / "kernel.py"
        for number in range(1, attempts + 1):
            with kernel.open("a") as file:
                file.write(f"# Nothing changes, for the {number}th time.\n")
            attempt_record = attempt(folder, f"nothing changes, for the {number}th time")
            paired, verdict = attempt_record["paired"], attempt_record["verdict"]
            outcomes[verdict["outcome"]] += 1
            print(f"{number:3} {verdict['outcome']:12} {verdict['reasons'][0]}", flush=True)
            slots = (paired["champion_seconds"], paired["control_seconds"], paired["candidate_seconds"])
            lines += [
                f"{number}\t{verdict['outcome']}\t" + "\t".join(f"{seconds:.6g}" for seconds in taken_in_round)
                for taken_in_round in zip(*slots, strict=True)
            ]
    DATA.write_text("\n".join(lines) + "\n")
    print(f"{attempts} attempts that change nothing: {dict(outcomes)}; {len(lines) - 1} rounds in {DATA.name}")


if __name__ == "__main__":
    main()
