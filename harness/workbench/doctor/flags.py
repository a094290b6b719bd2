"""The audit of flags: every rule on every setting, as tables."""

from collections.abc import Iterator

from harness.records import Table
from harness.records.doctor import Settings
from harness.units import quantity
from harness.workbench.doctor import findings
from harness.workbench.doctor.findings import DoctorFinding
from harness.workbench.doctor.flag_rules import RULES, RuleSubject
from harness.workbench.tables import columns, table

_COLUMNS = columns("variable;flag;value;place=where;judgement")
# Findings of these kinds make the audit fail: the program does not start, or not as somebody meant it.
_FAILING = ("ends the process", "contradiction")


def audit(subject: RuleSubject) -> tuple[tuple[Table, ...], bool]:
    """The findings and all settings with what was found about each; and whether the audit fails."""
    found = subject.found
    listed, ranked = findings.table(
        (finding for rule in RULES for finding in rule(subject)),
        title=f"flags of {found.subject}",
        origin="static",
        notes=(*_answering_libraries(subject), *found.notes, *_left_out(found)),
        why_empty="no rule finds anything here",
    )
    return (listed, _settings(found, ranked)), any(finding.severity in _FAILING for finding in ranked)


def _answering_libraries(subject: RuleSubject) -> Iterator[str]:
    """Which libraries answered, and which could not."""
    for answers, variable in ((subject.known.jaxlib, "XLA_FLAGS"), (subject.known.libtpu, "LIBTPU_INIT_ARGS")):
        count = sum(s.variable == variable and s.is_final for s in subject.found.settings)
        if not count:
            continue
        if answers.library is None:
            yield f"{count} flags of {variable} could not be checked: {answers.why_not}"
        else:
            yield f"{count} flags of {variable} were put to {answers.library}: it knows and takes what is not listed"


def _left_out(found: Settings) -> Iterator[str]:
    if found.not_understood:
        yield f"not understood: {quantity(len(found.not_understood), 'place')}: {'; '.join(found.not_understood)}"


def _settings(found: Settings, ranked: tuple[DoctorFinding, ...]) -> Table:
    rows = []
    for setting in found.settings:
        own = [f.rule for f in ranked if f.subject == setting.word and f.place == setting.place]
        judgement = ", ".join(dict.fromkeys(own)) or "harmless"
        rows.append((setting.variable, setting.name or None, setting.value, setting.place, judgement))
    why = "it sets no flag and no variable of JAX, XLA or libtpu"
    return table("settings", f"settings of {found.subject}", "static", _COLUMNS, rows, (), why)
