"""What looking back found, as text: an audit, an attempt or a champion judged again, expectations against results."""

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.records import Attempt, Audit, Calibration, Change, Judgement, Replay, Revocation
from harness.render.sections import GAP, Block, Line, Words, named, screen
from harness.units import change, percent, quantity, seconds

# Values stand behind a name of 12, or behind `then` and `now`.
_INDENT = " " * 13


def audit_text(audit: Audit, width: int, colour: bool) -> str:
    """What was checked, then every finding with what to do about it, then facts worth knowing."""
    return screen(_audited(audit), width, colour=colour)


def _audited(audit: Audit) -> Iterator[Block]:
    yield Words(
        f"contest {audit.contest}: {quantity(audit.log_commits, 'log commit')}, "
        f"{quantity(audit.files, 'attempt')} in files, {quantity(audit.accepts, 'accept')} on branches; "
        f"{quantity(audit.records, 'record')} decoded and derived anew, "
        f"{audit.kernels} kernel.py hashed"
    )
    for finding in audit.findings:
        yield from (GAP, Words(f"{finding.where}: {finding.what} [{finding.kind}]"))
        yield Words(finding.remedy, lead="  -> ")
    yield GAP
    yield from (Words(note, lead="note: ") for note in audit.notes)
    yield GAP
    if audit.findings:
        yield Line(f"{quantity(len(audit.findings), 'finding')}; nothing was changed", style="bad", is_whole=True)
        return
    agree = "log, branch and files agree" if audit.log_commits or not audit.files else "branch and files agree"
    beside = "" if audit.log_commits or not audit.files else "; there is no log here to check them against"
    yield Line(f"clean: {agree}{beside}", style="good", is_whole=True)


def replay_text(replay: Replay, width: int, colour: bool) -> str:
    """Then against now: latency, verdict, correctness, what differs in between."""
    return screen(_replayed(replay), width, colour=colour)


def _replayed(replay: Replay) -> Iterator[Block]:
    then, now = replay.then, replay.now
    same = then.outcome == now.outcome and then.failure_kind == now.failure_kind
    yield from (Words(f"attempt {replay.number}, judged again: {replay.hypothesis}"), GAP)
    yield from _pair("latency", _latency(then), _latency(now))
    if replay.drift is not None:
        yield Words(f"drift {percent(replay.drift - 1, 2)} of the time of then", lead=_INDENT)
    elif then.seconds is not None and now.seconds is not None:
        yield Words("no drift is stated: other source, chip or problem", lead=_INDENT)
    yield from _pair("verdict", _outcome(then), _outcome(now))
    verdict = "the same verdict" if same else "another verdict"
    yield Line([(_INDENT, None), (verdict, "good" if same else "bad")])
    yield from _pair("correctness", _checks(then), _checks(now))
    yield from _draws(replay)
    yield from _pair("program", then.fingerprint[:12] or "none traced", now.fingerprint[:12] or "none traced")
    yield from _certificates(then.certificate, now.certificate)
    yield from (
        GAP,
        Words("what differs since:" if replay.differences else "key, policy and problem are those of then"),
    )
    yield from (Words(difference, lead="  ") for difference in replay.differences)
    if replay.changes:
        yield from (GAP, Line("counters that moved:"))
        yield from (Words(_moved(moved), lead="  ", rest="    ") for moved in replay.changes)
    yield from (GAP, Words(f"nothing was recorded; files are in {replay.scratch}"))


def _certificates(then: str, now: str) -> Iterator[Block]:
    """What stands for the certificates, and whether they are of the same program."""
    if not (then or now):
        return
    yield from _pair("certificate", then or "none recorded", now or "none")
    if then and now:
        words = "the same program, checked and compiled" if then == now else "another program"
        yield Line([(_INDENT, None), (words, "good" if then == now else "bad")])


def calibration_line(found: Calibration) -> str:
    """One sentence on expected against got; empty where no attempt stated an expectation."""
    if not found.stated:
        return ""
    if found.median_ratio is None:
        return f"expected gains: {found.stated} stated, {found.compared} compared: too few to say how good they are"
    return (
        f"expected gains: {found.same_sign} of {found.compared} went the right way, {found.within_factor} within a "
        f"factor of 2; median: {found.median_ratio:.2f} of the expected"
    )


def _draws(replay: Replay) -> Iterator[Block]:
    """How the recorded checks came out when their own inputs were made again, and which could not be."""
    if not replay.redrawn:
        return
    repeated = [one for one in replay.redrawn if one.passes_now is not None]
    said = f"{len(repeated)} of {len(replay.redrawn)} recorded checks repeated with their own seeds"
    if repeated:
        said += f", {sum(one.passes_now is True for one in repeated)} pass"
    shifts = [(abs(one.now - one.then), one) for one in repeated if one.now is not None and one.then is not None]
    if shifts:
        shift, one = max(shifts, key=lambda pair: pair[0])
        moved = f"{one.family} ({one.draw.mode_words}), {percent(one.then or 0)} of its tolerance then"
        said += f"; moved most: {moved}, {percent(one.now or 0)} now" if shift else "; errors are those of then"
    yield Words(said, lead=f"{'draws':<13}")
    if not replay.are_same_draws:
        yield Words("judge or problem changed since: the same seeds need not draw the inputs of then", lead=_INDENT)
    for why, count in Counter(one.why_not for one in replay.redrawn if one.why_not).items():
        yield Words(f"{count} not repeated: {why}", lead=_INDENT)


def _pair(name: str, then: str, now: str) -> Iterator[Block]:
    yield from (Words(then, lead=f"{name:<13}then "), Words(now, lead=f"{_INDENT}now  "))


def _latency(one: Judgement) -> str:
    if one.seconds is None:
        return "not known"
    spread = f" ± {seconds(one.plus_minus_seconds)}" if one.plus_minus_seconds else ""
    score = f", score {one.score:.1f}" if one.score is not None else ""
    return f"{seconds(one.seconds)}{spread} [{one.source}]{score}"


def _outcome(one: Judgement) -> str:
    kind = f" ({one.failure_kind})" if one.failure_kind else ""
    ratio = f", {change(one.time_ratio)} of time" if one.time_ratio is not None else ""
    return f"{one.outcome}{kind}{ratio}: {'; '.join(one.reasons)}"


def _checks(one: Judgement) -> str:
    if not one.checks:
        return "not checked"
    nearest = f"; nearest to its tolerance: {one.tightest[0]}, {percent(one.tightest[1])} of it" if one.tightest else ""
    return f"{one.checks_passed} of {quantity(one.checks, 'check')} passed{nearest}"


def _moved(one: Change) -> str:
    unit = f" {one.unit}" if one.unit else ""
    return f"{one.name}: {one.before:,.6g} -> {one.after:,.6g}{unit}"


def revoked_text(reasons: Sequence[str], attempt: Attempt | None, show: str, width: int) -> str:
    """What a revoke came to: a line for the whole, then one for every attempt that was judged; `show` shows its own."""
    came = "the title stays; nothing was recorded"
    if attempt is not None:
        came = f"recorded as attempt {attempt.number}: {show}"
    each = (Words(reason, lead="  ", rest="    ") for reason in reasons[1:])
    return screen([*map(Words, reasons[:1]), *each, Line(came, is_whole=True)], width)


def revocation(found: Revocation) -> Iterator[Words]:
    """Every attempt that was judged again for the title, the champion first."""
    if found.reason:
        yield named("Reason", found.reason)
    for one in found.tried:
        if one.same_as is not None:
            said = f"attempt {one.attempt}: the program of attempt {one.same_as}, which fails"
        elif one.failure is not None:
            said = f"attempt {one.attempt}: {one.failure.kind}: {one.failure.message}"
        else:
            said = f"attempt {one.attempt}: passes, and holds the title"
        yield named("Judged again", said)
