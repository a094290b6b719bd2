"""What `status` prints: where one stands in a contest."""

from harness.records import LogState, Status
from harness.records.report_words import with_chip
from harness.render.layout import clean, joined, terminal_width, wrap
from harness.units import milliseconds


def status_text(status: Status, width: int | None = None) -> str:
    """Where one stands: champion, kernel.py, judge, key, log."""
    width = terminal_width() if width is None else width
    champion = status.champion
    best = "none yet; the first attempt that passes becomes it"
    if champion is not None:
        time = "latency unknown" if champion.seconds is None else milliseconds(champion.seconds, " ")
        score = "score unknown" if champion.score is None else f"score {champion.score:.1f}"
        figures = f"attempt {champion.number}, {score}, {time} [{with_chip(champion.source, champion.chip)}]"
        best = f"{figures}, {clean(champion.hypothesis)}"
    key = status.key
    logs: dict[LogState, str] = {
        "none": "none here: the next attempt begins one, unless it is fetched first",
        "no remote": "kept here only: there is no remote to push it to",
        "pushed": "pushed",
        "not pushed": "not pushed: clones elsewhere have only what the branch carries",
        "not fetched": "not fetched: a remote has it; attempts made here without it start a log of their own",
    }
    dirty = ", ".join(status.dirty_judge_files)
    machine = f", {key.machine}" if key.machine else ""
    versions = f"{key.source} {key.chip}, jax {key.jax}, libtpu {key.libtpu or 'none'}{machine}"
    lines = [
        *wrap(f"{clean(status.contest)} on branch {clean(status.branch)}", width, "Contest:      "),
        *wrap(best, width, "Champion:     "),
        *wrap(clean(status.kernel_state), width, "kernel.py:    "),
        *wrap(f"attempt {status.next_number}", width, "Next:         "),
        *wrap(f"{status.key_digest} ({clean(versions)})", width, "Key:          "),
        *wrap(f"differs from HEAD: {dirty}" if dirty else "as committed", width, "Judge:        "),
        *wrap(logs[status.log], width, "Log:          "),
    ]
    return joined([*lines, *(line for text in status.messages for line in wrap(clean(text), width, "note: "))])
