"""Reviews of the ledger as text: an audit, an attempt or a champion judged again, expected and actual gains."""

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.records import Attempt, Audit, Calibration, Judgement, Replay, Revocation
from harness.render.sections import GAP, Block, Line, Words, named
from harness.units import change, percent, quantity, seconds

# Values stand after a name of 12 columns, or after `then` and `now`.
_INDENT = " " * 13


def audit_blocks(audit: Audit) -> Iterator[Block]:
    """The numbers of checked objects, then every finding with its remedy, then notes."""
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


def replay_blocks(replay: Replay) -> Iterator[Block]:
    """The recorded and the new judgement: latency, verdict, correctness, and the differences between them."""
    then, now = replay.then, replay.now
    same = then.outcome == now.outcome and then.failure_kind == now.failure_kind
    yield from (Words(f"attempt {replay.number}, judged again: {replay.hypothesis}"), GAP)
    yield from _pair("latency", _latency(then), _latency(now))
    if replay.drift is not None:
        yield Words(f"drift {percent(replay.drift - 1, 2)} of the recorded time", lead=_INDENT)
    elif then.seconds is not None and now.seconds is not None:
        yield Words("no drift is given: source, chip or problem differs", lead=_INDENT)
    yield from _pair("verdict", _outcome(then), _outcome(now))
    verdict = "the same verdict" if same else "another verdict"
    yield Line([(_INDENT, None), (verdict, "good" if same else "bad")])
    yield from _pair("correctness", _checks(then), _checks(now))
    yield from _draws(replay)
    yield from _pair("program", then.fingerprint[:12] or "none traced", now.fingerprint[:12] or "none traced")
    yield from _certificates(then.certificate, now.certificate)
    same_inputs = "key, policy and problem are as recorded"
    yield from (GAP, Words("differences since then:" if replay.differences else same_inputs))
    yield from (Words(difference, lead="  ") for difference in replay.differences)
    if replay.changes:
        yield from (GAP, Line("counters that moved:"))
        for counter in replay.changes:
            moved = f"{counter.name}: {counter.before:,.6g} -> {counter.after:,.6g} {counter.unit}"
            yield Words(moved, lead="  ", rest="    ")
    yield from (GAP, Words(f"nothing was recorded; files are in {replay.scratch}"))


def _certificates(then: str, now: str) -> Iterator[Block]:
    """The certificates in short, and a line that says whether both are of the same program."""
    if not (then or now):
        return
    yield from _pair("certificate", then or "none recorded", now or "none")
    if then and now:
        words = "the same program, checked and compiled" if then == now else "another program"
        yield Line([(_INDENT, None), (words, "good" if then == now else "bad")])


def calibration_line(calibration: Calibration) -> str:
    """One sentence on expected and actual gains; "" if no attempt stated an expectation."""
    if not calibration.stated:
        return ""
    if calibration.median_ratio is None:
        compared = f"{calibration.stated} stated, {calibration.compared} compared"
        return f"expected gains: {compared}: too few to judge the expectations"
    return (
        f"expected gains: {calibration.same_sign} of {calibration.compared} had the right sign, "
        f"{calibration.within_factor} within a factor of 2; median: {calibration.median_ratio:.2f} of the expected gain"
    )


def _draws(replay: Replay) -> Iterator[Block]:
    """The results of the recorded checks on their own inputs, and the checks that could not be repeated."""
    if not replay.redrawn:
        return
    repeated = [check for check in replay.redrawn if check.passes_now is not None]
    words = f"{len(repeated)} of {len(replay.redrawn)} recorded checks repeated with their own seeds"
    if repeated:
        words += f", {sum(check.passes_now is True for check in repeated)} pass"
    shifts = [
        (abs(check.now - check.then), check) for check in repeated if check.now is not None and check.then is not None
    ]
    if shifts:
        shift, check = max(shifts, key=lambda pair: pair[0])
        moved = f"{check.family} ({check.draw.mode_words}), {percent(check.then or 0)} of its tolerance then"
        words += f"; moved most: {moved}, {percent(check.now or 0)} now" if shift else "; errors are as recorded"
    yield Words(words, lead=f"{'draws':<13}")
    if not replay.are_same_draws:
        yield Words("judge or problem changed since: the same seeds may draw other inputs now", lead=_INDENT)
    for why, count in Counter(check.why_not for check in replay.redrawn if check.why_not).items():
        yield Words(f"{count} not repeated: {why}", lead=_INDENT)


def _pair(name: str, then: str, now: str) -> Iterator[Block]:
    yield from (Words(then, lead=f"{name:<13}then "), Words(now, lead=f"{_INDENT}now  "))


def _latency(judgement: Judgement) -> str:
    if judgement.seconds is None:
        return "not known"
    spread = f" ± {seconds(judgement.plus_minus_seconds)}" if judgement.plus_minus_seconds else ""
    score = f", score {judgement.score:.1f}" if judgement.score is not None else ""
    return f"{seconds(judgement.seconds)}{spread} [{judgement.source}]{score}"


def _outcome(judgement: Judgement) -> str:
    kind = f" ({judgement.failure_kind})" if judgement.failure_kind else ""
    ratio = f", {change(judgement.time_ratio)} of time" if judgement.time_ratio is not None else ""
    return f"{judgement.outcome}{kind}{ratio}: {'; '.join(judgement.reasons)}"


def _checks(judgement: Judgement) -> str:
    if not judgement.checks:
        return "not checked"
    nearest = (
        f"; nearest to its tolerance: {judgement.tightest[0]}, {percent(judgement.tightest[1])} of it"
        if judgement.tightest
        else ""
    )
    return f"{judgement.checks_passed} of {quantity(judgement.checks, 'check')} passed{nearest}"


def revoked_blocks(reasons: Sequence[str], attempt: Attempt | None, show: str) -> Iterator[Block]:
    """The result of a revoke: the outcome, the other reasons of the verdict, one a line, and whether it was recorded.

    `show` is the command that shows the record.
    """
    came = "the title stays; nothing was recorded"
    if attempt is not None:
        came = f"recorded as attempt {attempt.number}: {show}"
    yield from map(Words, reasons[:1])
    yield from (Words(reason, lead="  ", rest="    ") for reason in reasons[1:])
    yield Line(came, is_whole=True)


def revocation(revocation: Revocation) -> Iterator[Words]:
    """Every attempt that was judged again for the title, the champion first."""
    if revocation.reason:
        yield named("Reason", revocation.reason)
    for rejudged in revocation.tried:
        if rejudged.same_as is not None:
            words = f"attempt {rejudged.attempt}: the program of attempt {rejudged.same_as}, which fails"
        elif rejudged.failure is not None:
            words = f"attempt {rejudged.attempt}: {rejudged.failure.kind}: {rejudged.failure.message}"
        else:
            words = f"attempt {rejudged.attempt}: passes, and holds the title"
        yield named("Judged again", words)
