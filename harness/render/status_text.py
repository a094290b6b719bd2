"""The text of `status`: the state of a contest."""

from collections.abc import Iterator

from harness.records import LogState, Row, Status
from harness.records.report_words import champion_words, with_chip
from harness.render.sections import SHORT_FIELD, Words, named
from harness.units import milliseconds

_LOGS: dict[LogState, str] = {
    "none": "none here: the next attempt begins one, unless a log is fetched first",
    "no remote": "kept here only: there is no remote to push it to",
    "pushed": "pushed",
    "not pushed": "not pushed: clones elsewhere have only what the branch carries",
    "not fetched": "not fetched: a remote has it; attempts made here without it start a separate log",
}


def status_blocks(status: Status) -> Iterator[Words]:
    """The state of a contest: champion, kernel.py, judge, key, log."""
    key, dirty = status.key, ", ".join(status.dirty_judge_files)
    machine = f", {key.machine}" if key.machine else ""
    versions = f"{key.source} {key.chip}, jax {key.jax}, libtpu {key.libtpu or 'none'}{machine}"
    for name, text in (
        ("Contest", f"{status.contest} on branch {status.branch}"),
        ("Champion", _champion(status.champion, status.won_by)),
        ("kernel.py", status.kernel_state),
        ("Next", f"attempt {status.next_number}"),
        ("Key", f"{status.key_digest} ({versions})"),
        ("Judge", f"differs from HEAD: {dirty}" if dirty else "as committed"),
        ("Log", _LOGS[status.log]),
    ):
        yield named(name, text, SHORT_FIELD)
    yield from (Words(text, lead="note: ") for text in status.messages)


def _champion(champion: Row | None, won_by: Row | None) -> str:
    if champion is None or won_by is None:
        return "none yet; the first attempt that passes becomes the champion"
    time = "latency unknown" if champion.seconds is None else milliseconds(champion.seconds, " ")
    score = "score unknown" if champion.score is None else f"score {champion.score:.1f}"
    figures = f"{score}, {time} [{with_chip(champion.source, champion.chip)}]"
    return f"{champion_words(won_by.number, champion.number)}, {figures}, {won_by.hypothesis}"
