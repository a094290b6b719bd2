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
# Findings of these kinds make the audit fail: the program does not start, or not as intended.
_FAILING = ("ends the process", "contradiction")


def audit(subject: RuleSubject) -> tuple[tuple[Table, ...], bool]:
    """The findings, and all settings with the findings about each; and True if the audit fails."""
    settings = subject.settings
    listed, ranked = findings.table(
        (finding for rule in RULES for finding in rule(subject)),
        title=f"flags of {settings.subject}",
        origin="static",
        notes=(*_answering_libraries(subject), *settings.notes, *_not_understood(settings)),
        why_empty="no rule finds anything here",
    )
    return (listed, _settings(settings, ranked)), any(finding.severity in _FAILING for finding in ranked)


def _answering_libraries(subject: RuleSubject) -> Iterator[str]:
    """Notes on the libraries that answered, and on those that could not."""
    for answers, variable in ((subject.libraries.jaxlib, "XLA_FLAGS"), (subject.libraries.libtpu, "LIBTPU_INIT_ARGS")):
        count = sum(s.variable == variable and s.is_final for s in subject.settings.settings)
        if not count:
            continue
        flags, were = f"{quantity(count, 'flag')} of {variable}", "was" if count == 1 else "were"
        if answers.library is None:
            yield f"{flags} could not be checked: {answers.why_not}"
        else:
            yield f"{flags} {were} checked with {answers.library}: it accepts all flags that are not listed"


def _not_understood(settings: Settings) -> Iterator[str]:
    if settings.not_understood:
        yield f"not understood: {quantity(len(settings.not_understood), 'place')}: {'; '.join(settings.not_understood)}"


def _settings(settings: Settings, ranked: tuple[DoctorFinding, ...]) -> Table:
    rows = []
    for setting in settings.settings:
        findings_here = [f.rule for f in ranked if f.subject == setting.word and f.place == setting.place]
        judgement = ", ".join(dict.fromkeys(findings_here)) or "harmless"
        rows.append((setting.variable, setting.name or None, setting.value, setting.place, judgement))
    why = f"{settings.subject} sets no flag and no variable of JAX, XLA or libtpu"
    return table("settings", f"settings of {settings.subject}", "static", _COLUMNS, rows, (), why)
