"""Times the report page of 1,000 attempts: writing it, and loading it in a real browser.

Target: the page loads in under 2 s on an idle machine. On a busy machine "main thread at work" is the figure to watch.
Run: python benchmarks/report_page.py [ATTEMPTS] [-C DIR]

Every attempt is made from the newest record of the contest's ledger that has a simulated run: it has the same size and
structure, but another number, hypothesis, kernel, diff and latency. Needs Debian's package chromium.
"""

import argparse
import hashlib
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ledger_scale import build, data
from playwright.sync_api import Browser, sync_playwright

from harness.advice import report as reporting
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.ledger import Ledger, codec, diff, history, messages
from harness.records import Attempt, Champion, Row, Verdict
from harness.shell.main import main as ratchet

LOADS = 5
ACCEPTED_EVERY = 10
TARGET_SECONDS = 2.0
CHROMIUM = shutil.which("chromium")


_TELL = """new MutationObserver(() => {
  if (document.documentElement.dataset.charts) console.log("drawn");
}).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-charts"] });"""


def seed(directory: Path) -> tuple[Attempt, bytes]:
    """The newest attempt with a simulated run, and its kernel."""
    ledger = Ledger.open(directory)
    for row in reversed(history.rows(ledger.place)[0]):
        record = history.attempt(ledger.place, row.number)
        if record.evidence.simulation is not None and record.evidence.simulation.seconds is not None:
            return record, history.candidate(ledger.place, row.number).text
    raise SystemExit(f"no attempt in {directory} has a simulated run")


def attempts(made_from: Attempt, kernel: bytes, count: int) -> Iterator[tuple[Attempt, Row, bytes]]:
    """`count` attempts like `made_from`, each with its own kernel; every tenth is faster and accepted."""
    chance = random.Random(0)
    assert made_from.evidence.simulation is not None
    assert made_from.evidence.latency is not None
    first = made_from.evidence.simulation.seconds
    assert first is not None
    champion, best, best_kernel = 0, 6 * first, b""
    for number in range(1, count + 1):
        is_accepted = number % ACCEPTED_EVERY == 1
        # Wins get smaller and approach the time of the real attempt; losers take up to twice as long.
        seconds = first + (best - first) * 0.95 if is_accepted else best * chance.uniform(1.0, 2.0)
        made_kernel = kernel.replace(b"\n\n\n", b"\n\n# Idea %d.\nIDEA = %d\n\n\n" % (number, number), 1)
        run = replace(made_from.evidence.simulation, seconds=seconds)
        latency = replace(made_from.evidence.latency, seconds=seconds, plus_minus_seconds=0.05 * seconds)
        made = replace(
            made_from,
            number=number,
            contest="root",
            hypothesis=f"idea {number}: {made_from.hypothesis}",
            kernel_sha256=hashlib.sha256(made_kernel).hexdigest(),
            evidence=replace(made_from.evidence, simulation=run, latency=latency),
            verdict=Verdict(
                outcome="accept" if is_accepted else "reject", reasons=("synthetic",), time_ratio=seconds / best
            ),
            champion=Champion(attempt=champion, commit="", score=None, seconds=best) if champion else None,
            champion_evidence=None,
            diff=diff.unified(best_kernel, made_kernel),
        )
        made_report = reporting.report(made.evidence, chip(made.evidence.chip))
        yield made, reporting.row(made, made_report, key_digest(made.key)), made_kernel
        if is_accepted:
            champion, best, best_kernel = number, seconds, made_kernel


def stream(made_from: Attempt, kernel: bytes, count: int) -> Iterator[bytes]:
    """The log and the branch of accepts for `git fast-import`."""
    who = b"committer A User <user@example.org> 1767225600 +0000\n"
    for made, row, made_kernel in attempts(made_from, kernel, count):
        yield b"commit refs/ratchet/root/log\n" + who + data(messages.log_message(row).encode())
        yield b"M 100644 inline attempt.json\n" + data(codec.encode_attempt(made, row))
        yield b"M 100644 inline kernel.py\n" + data(made_kernel)
        if made.verdict.outcome == "accept":
            yield b"commit refs/heads/main\n" + who + data(messages.accept_message(made, row).encode())
            yield b"M 100644 inline kernel.py\n" + data(made_kernel)


def load(browser: Browser, page_path: Path) -> tuple[float, float, float, float]:
    """Seconds until the table is shown, until the charts are drawn, to open an attempt, and of work on the main
    thread.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.add_init_script(_TELL)
    session = context.new_cdp_session(page)
    # The run time of the tab's main thread does not include other programs on the machine.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    # The page reports it, because polling it would be additional work.
    with page.expect_console_message(lambda message: message.text == "drawn", timeout=120_000):
        page.goto(page_path.as_uri())
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    marks = "name => performance.getEntriesByName(name)[0].startTime / 1000"
    table, charts = (page.evaluate(marks, name) for name in ("table", "charts"))
    begun = time.perf_counter()
    page.evaluate("location.hash = '#attempt-' + overview.rows[0].id")
    page.wait_for_selector("#attempt[open] .diff")
    opened = time.perf_counter() - begun
    context.close()
    return table, charts, opened, metrics["TaskDuration"]


def main() -> None:
    """Builds the ledger, writes its page, loads it a few times, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attempts", type=int, nargs="?", default=1000)
    parser.add_argument("-C", dest="directory", type=Path, default=Path(__file__).parent.parent)
    options = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("there is no program called chromium: apt-get install chromium")
    made_from, kernel = seed(options.directory)
    simulated = made_from.evidence.simulation
    lines = "with" if simulated and simulated.breakdown else "without"
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(scratch) / "ledger"
        build(folder, stream(made_from, kernel, options.attempts))
        begun, used = time.perf_counter(), time.process_time()
        assert ratchet(["report", "-C", str(folder)]) == 0
        written, cpu = time.perf_counter() - begun, time.process_time() - used
        page_path = folder / "profile_data" / "report.html"
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        load_times = [load(browser, page_path) for _ in range(LOADS)]
        size = page_path.stat().st_size / 1e6
    print(f"{options.attempts} attempts like attempt {made_from.number}, {lines} cycles per line; {size:.1f} MB")
    print(f"report writes it in {written:.1f} s ({cpu:.1f} s of this process's CPU)")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; median and range of {LOADS} loads:")
    for title, values in zip(
        ("table shown", "charts drawn", "first attempt opened after", "main thread at work"),
        zip(*load_times, strict=True),
        strict=True,
    ):
        print(f"  {title:26} {statistics.median(values):5.2f} s   {min(values):.2f} to {max(values):.2f} s")
    ratio = statistics.median(charts for _, charts, _, _ in load_times) / TARGET_SECONDS
    print(f"charts drawn / target of {TARGET_SECONDS:.0f} s: {ratio:.2f}")


if __name__ == "__main__":
    main()
