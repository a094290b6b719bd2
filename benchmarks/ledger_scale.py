"""Times the reading of 10,000 attempts: with the ledger's log, and in a plain clone, which has only experiments/.

Target: `results` prints the table of all rows in under 1 s, process start included.
Run: python benchmarks/ledger_scale.py [ATTEMPTS]
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.ledger import codec, experiments, messages
from harness.records import Array, Attempt, Environment, Evidence, Key, Policy, Row, Statement, Verdict, Work

KERNEL = b"BQ = 128\n\n\ndef kernel_fn(q, k, v):\n    return q\n"
# The length of the counters, checks and reasons of a real record.
PADDING_BYTES = 16_000
ACCEPTED_EVERY = 10
QUESTION = "import sys; from pathlib import Path; from harness.ledger import Ledger, history; "


def attempt(number: int) -> Attempt:
    """A record of the size of a real one; every tenth is an accept."""
    accepted = number % ACCEPTED_EVERY == 1
    array = Array(name="q", shape=(16384, 128), dtype="bfloat16")
    return Attempt(
        number=number,
        contest="root",
        hypothesis=f"idea {number}: raise BQ to {number}",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:09+00:00",
        judged_against="0" * 40,
        kernel_sha256=f"{number:064x}",
        key=Key(judge="j", problem="p", chip="v5e", source="simulated", jax="0.10.2", jaxlib="0.10.2", libtpu="0.0.42"),
        policy=Policy(),
        evidence=Evidence(
            problem=Statement(
                operation="attention",
                title="attention",
                parameters=(),
                inputs=(array,),
                outputs=(array,),
                work=Work(matmul_flops=1, vector_flops=1, minimum_hbm_bytes=1),
            ),
            chip="v5e",
            environment=Environment(python="3", jax="0", jaxlib="0", libtpu="0", machine="m", platform="linux"),
            warnings=("x" * PADDING_BYTES,),
        ),
        verdict=Verdict(outcome="accept" if accepted else "reject", reasons=("1.2 % less time",), time_ratio=0.98),
    )


def row(of: Attempt) -> Row:
    """The row of a record."""
    return Row(
        number=of.number,
        kind=of.kind,
        outcome=of.verdict.outcome,
        failure_kind="",
        hypothesis=of.hypothesis,
        source="simulated",
        chip="v5e",
        key_digest="0123456789",
        kernel_sha256=of.kernel_sha256,
        fingerprint="f" * 64,
        score=0.326,
        seconds=2.16e-3,
        time_ratio=0.98,
        util=0.4,
        regime="compute-bound",
        copies=0,
        spills=9,
        key=of.key,
    )


def stream(attempts: int) -> Iterator[bytes]:
    """The whole history for `git fast-import`: the log, and a branch with the accepts and the losers' files."""
    who = b"committer A User <user@example.org> 1767225600 +0000\n"
    waiting: list[bytes] = []
    for number in range(1, attempts + 1):
        made = attempt(number)
        of = row(made)
        record, message = codec.encode_attempt(made, of), messages.log_message(of).encode()
        name = experiments.file_name(number, made.hypothesis).encode()
        kernel = KERNEL + b"# %d\n" % number
        yield b"commit refs/ratchet/root/log\n" + who + data(message)
        yield b"M 100644 inline attempt.json\n" + data(record) + b"M 100644 inline kernel.py\n" + data(kernel)
        waiting.append(b"M 100644 inline experiments/" + name + b"\n" + data(record))
        if made.verdict.outcome == "accept" or number == attempts:
            text = messages.accept_message(made, of) if made.verdict.outcome == "accept" else "the last losers\n"
            yield (
                b"commit refs/heads/main\n" + who + data(text.encode()) + b"M 100644 inline kernel.py\n" + data(kernel)
            )
            yield from waiting
            waiting.clear()


def data(content: bytes) -> bytes:
    """One data command of fast-import."""
    return b"data %d\n%s\n" % (len(content), content)


def build(folder: Path, history_stream: Iterable[bytes]) -> None:
    """A repository with this history for `git fast-import`, checked out, and its log."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    importer = subprocess.Popen(["git", "-C", str(folder), "fast-import", "--quiet"], stdin=subprocess.PIPE)
    assert importer.stdin is not None
    for part in history_stream:
        importer.stdin.write(part)
    importer.stdin.close()
    if importer.wait() != 0:
        raise SystemExit("git fast-import failed")
    subprocess.run(["git", "-C", str(folder), "reset", "-q", "--hard"], check=True)


def ask(folder: Path, expression: str) -> tuple[float, str]:
    """Seconds from process start to end, and what was printed."""
    begun = time.perf_counter()
    script = f"{QUESTION}ledger = Ledger.open(Path(sys.argv[1])); print({expression})"
    done = subprocess.run([sys.executable, "-c", script, str(folder)], check=True, capture_output=True, text=True)
    return time.perf_counter() - begun, done.stdout.strip()


def results(folder: Path) -> tuple[float, str]:
    """Seconds of the verb `results`, from process start to end, and the number of lines that it printed."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "harness", "results", "-C", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - begun, f"{done.stdout.count(chr(10))} lines"


def main() -> None:
    """Builds both repositories and prints the times."""
    attempts = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as scratch:
        full, clone = Path(scratch) / "full", Path(scratch) / "clone"
        build(full, stream(attempts))
        subprocess.run(["git", "clone", "-q", f"file://{full}", str(clone)], check=True)
        print(f"{attempts} attempts, every {ACCEPTED_EVERY}th accepted; seconds with process start")
        for where, folder in (("log and experiments/", full), ("plain clone", clone)):
            for title, expression in (
                ("rows(limit=50)", "len(history.rows(ledger.place, 50)[0])"),
                ("rows()", "len(history.rows(ledger.place)[0])"),
                ("champion()", "ledger.champion().number"),
                ("next_number()", "ledger.next_number()"),
                ("attempt(7)", "history.attempt(ledger.place, 7).number"),
            ):
                seconds, printed = ask(folder, expression)
                print(f"{where:22} {title:16} {seconds:6.2f} s   -> {printed}")
            seconds, printed = results(folder)
            print(f"{where:22} {'results':16} {seconds:6.2f} s   -> {printed}")


if __name__ == "__main__":
    main()
