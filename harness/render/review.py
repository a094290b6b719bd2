"""What looking back found, as text: an audit, an attempt or a champion judged again, expectations against results."""

from collections.abc import Sequence

from harness.records import Attempt, Audit, Calibration, Change, Judgement, Replay, Revocation
from harness.render.layout import clean, joined, paint, wrap
from harness.units import change, percent, quantity, seconds


def audit_text(audit: Audit, width: int, colour: bool) -> str:
    """What was checked, then every finding with what to do about it, then facts worth knowing."""
    looked = (
        f"contest {audit.contest}: {quantity(audit.log_commits, 'log commit')}, "
        f"{quantity(audit.files, 'attempt')} in files, {quantity(audit.accepts, 'accept')} on branches; "
        f"{quantity(audit.records, 'record')} decoded and derived anew, "
        f"{audit.kernels} kernel.py hashed"
    )
    lines = wrap(looked, width)
    for finding in audit.findings:
        lines += ["", *wrap(f"{clean(finding.where)}: {clean(finding.what)} [{finding.kind}]", width)]
        lines += wrap(clean(finding.remedy), width, "  -> ", "     ")
    if audit.notes:
        lines += ["", *(line for note in audit.notes for line in wrap(clean(note), width, "note: ", "      "))]
    count = len(audit.findings)
    if count:
        verdict = paint(f"{quantity(count, 'finding')}; nothing was changed", "bad", colour)
    else:
        agree = "log, branch and files agree" if audit.log_commits or not audit.files else "branch and files agree"
        beside = "" if audit.log_commits or not audit.files else "; there is no log here to check them against"
        verdict = paint(f"clean: {agree}{beside}", "good", colour)
    return joined([*lines, "", verdict])


def replay_text(replay: Replay, width: int, colour: bool) -> str:
    """Then against now: latency, verdict, correctness, what differs in between."""
    then, now = replay.then, replay.now
    same = then.outcome == now.outcome and then.failure_kind == now.failure_kind
    title = f"attempt {replay.number}, judged again: {clean(replay.hypothesis)}"
    lines = [*wrap(title, width), ""]
    lines += _pair("latency", _latency(then), _latency(now), width)
    if replay.drift is not None:
        lines += wrap(f"drift {percent(replay.drift - 1, 2)} of the time of then", width, " " * 13)
    elif then.seconds is not None and now.seconds is not None:
        lines += wrap("no drift is stated: other source, chip or problem", width, " " * 13)
    lines += _pair("verdict", _outcome(then), _outcome(now), width)
    lines.append(" " * 13 + paint("the same verdict" if same else "another verdict", "good" if same else "bad", colour))
    lines += _pair("correctness", _checks(then), _checks(now), width)
    lines += _draws(replay, width)
    lines += _pair("program", then.fingerprint[:12] or "none traced", now.fingerprint[:12] or "none traced", width)
    lines.append("")
    lines += wrap("what differs since:" if replay.differences else "key, policy and problem are those of then", width)
    for difference in replay.differences:
        lines += wrap(clean(difference), width, "  ")
    if replay.changes:
        lines += ["", "counters that moved:"]
        lines += [line for moved in replay.changes for line in wrap(_moved(moved), width, "  ", "    ")]
    return joined([*lines, "", *wrap(f"nothing was recorded; files are in {replay.scratch}", width)])


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


def _draws(replay: Replay, width: int) -> list[str]:
    """How the recorded checks came out when their own inputs were made again, and which could not be."""
    if not replay.redrawn:
        return []
    repeated = [one for one in replay.redrawn if one.passes_now is not None]
    said = f"{len(repeated)} of {len(replay.redrawn)} recorded checks repeated with their own seeds"
    if repeated:
        said += f", {sum(one.passes_now is True for one in repeated)} pass"
    shifts = [(abs(one.now - one.then), one) for one in repeated if one.now is not None and one.then is not None]
    if shifts:
        shift, one = max(shifts, key=lambda pair: pair[0])
        moved = f"{one.family} ({one.draw.mode_words}), {percent(one.then or 0)} of its tolerance then"
        said += f"; moved most: {moved}, {percent(one.now or 0)} now" if shift else "; errors are those of then"
    lines = wrap(clean(said), width, f"{'draws':<12} ", " " * 13)
    if not replay.are_same_draws:
        told = "judge or problem changed since: the same seeds need not draw the inputs of then"
        lines += wrap(told, width, " " * 13)
    for why in dict.fromkeys(one.why_not for one in replay.redrawn if one.why_not):
        count = sum(one.why_not == why for one in replay.redrawn)
        lines += wrap(f"{count} not repeated: {clean(why)}", width, " " * 13)
    return lines


def _pair(name: str, then: str, now: str, width: int) -> list[str]:
    return [*wrap(then, width, f"{name:<12} then "), *wrap(now, width, f"{'':<12} now  ")]


def _latency(one: Judgement) -> str:
    if one.seconds is None:
        return "not known"
    spread = f" ± {seconds(one.plus_minus_seconds)}" if one.plus_minus_seconds else ""
    score = f", score {one.score:.1f}" if one.score is not None else ""
    return f"{seconds(one.seconds)}{spread} [{one.source}]{score}"


def _outcome(one: Judgement) -> str:
    kind = f" ({one.failure_kind})" if one.failure_kind else ""
    ratio = f", {change(one.time_ratio)} of time" if one.time_ratio is not None else ""
    return f"{one.outcome}{kind}{ratio}: {clean('; '.join(one.reasons))}"


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
    lines = [line for reason in reasons[:1] for line in wrap(clean(reason), width)]
    lines += [line for reason in reasons[1:] for line in wrap(clean(reason), width, "  ", "    ")]
    if attempt is None:
        return joined([*lines, "the title stays; nothing was recorded"])
    return joined([*lines, f"recorded as attempt {attempt.number}: {show}"])


def revocation_lines(revocation: Revocation, width: int) -> list[str]:
    """Every attempt that was judged again for the title, the champion first."""
    lines = wrap(clean(revocation.reason), width, "Reason:                ") if revocation.reason else []
    for one in revocation.tried:
        if one.same_as is not None:
            said = f"attempt {one.attempt}: the program of attempt {one.same_as}, which fails"
        elif one.failure is not None:
            said = f"attempt {one.attempt}: {one.failure.kind}: {clean(one.failure.message)}"
        else:
            said = f"attempt {one.attempt}: passes, and holds the title"
        lines += wrap(said, width, "Judged again:          ")
    return lines
