"""The process that attempts a planted kernel in a scratch repository, as an experiment does; prints the verdict."""

import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from harness import contest as contests
from harness.errors import RatchetError
from harness.loop import attempt as ratchet
from harness.loop.bench import Bench
from harness.loop.options import Options
from harness.records import Policy
from harness.records.selftest import PlantedVerdict, Refusal
from harness.selftest.callers import judgement

# Honest candidates of this size trace within 3 s on an idle core, and none of their processes has held more than
# 0.4 GiB (the compiler's). So these limits soon end the candidates that are planted to take more, and no others.
LIMITS = Policy(trace_seconds=30.0, child_memory_bytes=1 << 30)


def judge(folder: Path, attempts: int) -> PlantedVerdict:
    """The judgement of the last of `attempts` attempts at the kernel.py in `folder`.

    From one attempt to the next, only a comment changes.
    """
    contest = contests.load(folder)
    bench = Bench(contest=contest, policy=LIMITS, on="simulated")
    for number in range(attempts):
        if number:
            with contest.kernel_path.open("a", encoding="utf-8") as kernel:
                kernel.write("\n# Once more.\n")
        try:
            judged = ratchet.attempt(bench, "planted", Options(), lambda *_: None)
        except RatchetError as error:
            return PlantedVerdict(
                outcome="refused", refusal=Refusal(stage="ratchet", kind=error.kind), message=str(error)
            )
    attempt = judged.attempt
    return replace(judgement(attempt.verdict), warnings=attempt.evidence.warnings)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(judge(Path(sys.argv[1]), int(sys.argv[2]))))
