"""Judges the execution of the whole schedule by rules that every correct program obeys."""

from harness.records import Evidence, Failure, Offence, OffenceKind

# The rule that each kind of offence breaks, and advice: its reason and a remedy. If one error causes several offences,
# the kind that explains it best comes first: a transfer without a wait also causes a failed check, because the compiler
# checks that semaphores are zero at a kernel's end.
_RULES: dict[OffenceKind, tuple[str, str]] = {
    "transfer-pending": (
        "a wait for every transfer before its kernel ends",
        "its data may be read too early or written too late; wait for each copy that is started",
    ),
    "transfer-part-waited": (
        "each wait to cover whole transfers",
        "a semaphore counts how much has arrived, not which part; wait for the whole copy, or start two copies with a "
        "semaphore each",
    ),
    "semaphore-not-zero": (
        "every semaphore to be zero when its kernel ends",
        "the next kernel expects it to be zero; pair each signal and each copy with a wait",
    ),
    "chip-halts": (
        "all checks of the compiler to pass",
        "the chip halts at a failed check; keep every transfer within its arrays, at the contest's own shape too",
    ),
    "memory-nobody-wrote": (
        "the program to write every word of scalar memory before a decision depends on it",
        "the word may hold anything; initialise it",
    ),
}


def failure(evidence: Evidence) -> Failure | None:
    """The Failure (stage `latency`, with the kind of the offence) if the executed program breaks a rule; else None.

    The simulator executes the compiled program at the contest's shape, which is the program that is timed. The earlier
    checks run other programs from the same trace. In the CPU's program, transfers take no time, and indices past the
    end are clamped. The interpreter often runs only a reduced shape.
    """
    for kind, (expected, advice) in _RULES.items():
        if offences := _offences(evidence, kind):
            message = f"expected {expected}, got {_words(offences)} (simulated): {advice}"
            return Failure(stage="latency", kind=kind, message=message)
    return None


def doubts(evidence: Evidence) -> tuple[str, ...]:
    """Reasons why the program may not run to its end, or not compute the checked result; empty if there are none.

    A race is only a doubt here. The interpreter detects races too, and a race in its run fails the attempt. So if only
    the schedule shows a race, either the simulator or the interpreter is wrong.
    """
    expected: dict[OffenceKind, str] = {
        "check-unknown": "the simulator cannot tell whether the chip halts: {}",
        "transfer-raced": (
            "the executed schedule and the interpreter disagree: the schedule has {}, but the interpreter found no race"
        ),
    }
    by_kind = ((_offences(evidence, kind), words) for kind, words in expected.items())
    return tuple(words.format(_words(offences)) for offences, words in by_kind if offences)


def _offences(evidence: Evidence, kind: OffenceKind) -> list[Offence]:
    offences = evidence.simulation.offences if evidence.simulation is not None else ()
    return [offence for offence in offences if offence.kind == kind]


def _words(offences: list[Offence]) -> str:
    """The first offence in words, and the number of further offences."""
    first = offences[0]
    line = f" at {first.line}" if first.line else ""
    more = f", and {len(offences) - 1} more like it" if len(offences) > 1 else ""
    return f"{first.what} in {first.op}{line} ({first.count} times){more}"
