"""The audit of flags: the rules, as data and pure functions, and tables of their findings and of all settings."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from harness import chips
from harness.hardware import Chip
from harness.records import Table
from harness.records.doctor import Answers, Known, Setting, Settings, Severity
from harness.units import quantity
from harness.workbench.doctor import findings
from harness.workbench.doctor.findings import DoctorFinding
from harness.workbench.doctor.settings import is_watched
from harness.workbench.tables import table

_SECTION_7 = "protocol, section 7"
_SECTION_8 = "protocol, section 8"
_JAX = "JAX documentation, configuration options"
_JAX_MEMORY = "JAX documentation, GPU memory allocation"
_TSL = "tsl's parser of flags, jaxlib 0.10.2"
_TPU = "xla_tpu_enable_"
_BASE = f"{_TPU}async_collective_fusion"
_OVERLAP = "xla_tpu_overlap_compute_collective_tc"
_COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter")
# MaxText calls this set of flags DATA_PARALLEL_OVERLAP; section 7 of the protocol refers to it by this name.
_DATA_PARALLEL_OVERLAP = (
    "xla_tpu_enable_data_parallel_all_reduce_opt",
    "xla_tpu_data_parallel_opt_different_sized_ops",
)
# The chips for which section 7 of the protocol names the offload of collectives to SparseCores.
_OFFLOADING = chips.having(lambda row: row.workbench.offloads_collectives)
_OFF = ("false", "0", "no", "off", "f", "n", "disabled", "")


def _fuse(collective: str) -> str:
    return f"{_BASE}_fuse_{collective}"


def _offload(collective: str) -> str:
    return f"{_TPU}sparse_core_collective_offload_{collective}"


# Symptoms that a user can name, each with alternative sets of flags: all flags of at least one set must be on.
SYMPTOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    **{
        f"{collective.replace('_', '-')}-stalls": ((_BASE, _fuse(collective)), (_offload(collective),))
        for collective in _COLLECTIVES
    },
    "nothing-overlaps": ((_BASE,),),
    "moe-communication": (_DATA_PARALLEL_OVERLAP,),
}
_UNSET = "leave it out of timed runs"


@dataclass(frozen=True, slots=True)
class Harm:
    """A flag or variable that spoils a measurement if its value is in `when` (empty: if its value is not off)."""

    name: str
    why: str
    source: str
    remedy: str = _UNSET
    when: tuple[str, ...] = ()


_DUMPS = (
    "xla_dump_to",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
    "xla_dump_hlo_as_html",
    "xla_dump_hlo_as_dot",
    "xla_dump_hlo_as_url",
    "xla_dump_hlo_snapshots",
    "xla_jf_dump_to",
    "xla_jf_dump_llo_text",
    "xla_mosaic_dump_to",
    "xla_jf_dump_static_llo_profile_to",
    "JAX_DUMP_IR_TO",
)
_GUARDS = ("JAX_TRANSFER_GUARD", "JAX_TRANSFER_GUARD_HOST_TO_DEVICE", "JAX_TRANSFER_GUARD_DEVICE_TO_HOST")
_HARMS = (
    *(
        Harm(
            name,
            "the compiler writes dumps: compilation takes longer and waits for a file system",
            "libtpu's dumps without a filter: 250 MB and 10 s for one kernel",
            f"{_UNSET}, or dump in a separate run",
        )
        for name in _DUMPS
    ),
    Harm("JAX_DEBUG_NANS", "every result is read back and searched for NaN", _JAX),
    Harm("JAX_DEBUG_INFS", "every result is read back and searched for Inf", _JAX),
    Harm("JAX_DISABLE_JIT", "each operation is compiled and dispatched by itself", _JAX),
    Harm("JAX_ENABLE_CHECKS", "JAX checks its internal invariants, which slows tracing", _JAX),
    Harm("JAX_CHECK_TRACER_LEAKS", "tracing is slow and caches are off", _JAX),
    Harm("JAX_DISABLE_MOST_OPTIMIZATIONS", "the compiler does not optimise", _JAX),
    Harm("JAX_LOG_COMPILES", "every compilation is written to stderr", _JAX),
    Harm("JAX_EXPLAIN_CACHE_MISSES", "every trace is explained on stderr", _JAX),
    Harm("JAX_PALLAS_ENABLE_DEBUG_CHECKS", "kernels carry checks that run on the device", _JAX),
    Harm("JAX_NO_EXECUTION", "nothing is executed", _JAX),
    Harm(
        "JAX_ENABLE_X64",
        "types without a stated width become 64-bit types, which a TPU computes in software",
        _JAX,
        "state 32-bit or 16-bit types where the width matters",
    ),
    *(Harm(name, "every transfer is written to stderr", _JAX, when=("log", "log_explicit")) for name in _GUARDS),
    Harm(
        "JAX_DEFAULT_MATMUL_PRECISION",
        "a float32 matrix product takes three or six passes in bfloat16",
        _SECTION_8,
        "leave the precision at its default, with bfloat16 operands and float32 accumulation",
        ("highest", "float32", "high", "bfloat16_3x", "tensorfloat32", "F32_F32_F32", "BF16_BF16_F32_X6"),
    ),
    Harm("XLA_PYTHON_CLIENT_ALLOCATOR", "each array is allocated by the driver", _JAX_MEMORY, when=("platform",)),
    Harm(
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "memory is allocated while the program runs, not at its start (GPU only)",
        _JAX_MEMORY,
        "measure after enough warm-up calls, or leave the variable out",
        ("false", "0"),
    ),
    Harm(
        "PYTHON_TRACER",
        "the profiler's Python tracer was on, which slows the host and fills the trace",
        "protocol, section 4",
        "set ProfileOptions.python_tracer_level = 0",
    ),
    Harm("xla_hlo_profile", "every operation is instrumented", "XLA's help"),
    Harm("xla_disable_all_hlo_passes", "the compiler does not optimise", "XLA's help"),
    Harm("xla_disable_hlo_passes", "compiler passes are left out", "XLA's help"),
    Harm(
        "xla_backend_optimization_level",
        "the optimisation level is below the default of 3",
        "XLA's help",
        when=("0", "1", "2"),
    ),
    Harm("TF_CPP_MIN_LOG_LEVEL", "all logs of XLA are written to stderr", "XLA's logging", when=("0",)),
    Harm("TF_CPP_VMODULE", "verbose logs of XLA are written to stderr", "XLA's logging"),
)
_NO_CACHE = ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES")


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """The input of the rules: settings, the libraries' answers about them, the chip, and the named symptoms."""

    settings: Settings
    libraries: Known
    chip: Chip | None = None
    symptoms: tuple[str, ...] = ()
    is_capture: bool = False
    final: Mapping[str, Setting] = field(init=False)

    def __post_init__(self) -> None:
        # An environment variable written among the flags of another variable is not set, so it is left out.
        last = {s.name or s.variable: s for s in self.settings.settings if s.is_final and not is_watched(s.name)}
        object.__setattr__(self, "final", last)

    def is_on(self, name: str) -> bool:
        """True if a flag or variable is set, and not to a value that means off."""
        setting = self.final.get(name)
        return setting is not None and (setting.value is None or setting.value.lower() not in _OFF)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Severity, source and remedy that the findings of one rule share; "" where they depend on the case."""

    severity: Severity
    source: str = ""
    remedy: str = ""


_KINDS = {
    "wrong-variable": _Kind("ends the process"),
    "unknown-flag": _Kind("ends the process"),
    "bad-value": _Kind("ends the process"),
    "set-twice": _Kind("contradiction", "the parsers of tsl and abseil", "Keep one of the two"),
    "fusion-and-offload": _Kind("contradiction", _SECTION_7),
    "cache-and-dumps": _Kind(
        "contradiction", _SECTION_8, "Turn the cache off where dumps are read: JAX_ENABLE_COMPILATION_CACHE=false"
    ),
    "no-base-flag": _Kind("contradiction", _SECTION_7, f"Add --{_BASE}=true"),
    "no-offload": _Kind("no effect", _SECTION_7),
    "no-tpu": _Kind("no effect", _JAX, "Name the TPU in JAX_PLATFORMS, or leave the flags out"),
    "overwritten": _Kind("no effect", "an assignment replaces the old value"),
    "no-dashes": _Kind("no effect"),
    "too-late": _Kind(
        "no effect", _JAX, "Set the variable before JAX is imported, or in the shell that starts the program"
    ),
    "putenv": _Kind("no effect", _JAX),
    "unknown-variable": _Kind(
        "no effect", "asked the installed JAX", "Check the name: each option jax_name is read from JAX_NAME"
    ),
    "cache-off": _Kind("no effect", _JAX, "Keep one of the two"),
    "no-cache": _Kind("no effect", _JAX, "Set JAX_COMPILATION_CACHE_DIR"),
    "harmful-for-measuring": _Kind("harmful"),
    "no-platform": _Kind("harmful", _SECTION_8, "Set JAX_PLATFORMS=tpu (or cuda): then a missing device is an error"),
    "missing-for-symptom": _Kind("missing", _SECTION_7),
}


def _finding(
    rule: str, setting: Setting, observation: str, remedy: str = "", source: str = "", severity: Severity | None = None
) -> DoctorFinding:
    """A finding about a setting; arguments that are left out come from the rule's kind."""
    kind = _KINDS[rule]
    return DoctorFinding(
        severity=severity or kind.severity,
        rule=rule,
        subject=setting.word,
        place=setting.place,
        observation=observation,
        remedy=remedy or kind.remedy,
        source=source or kind.source,
    )


def _absent(word: str, subject: RuleSubject) -> Setting:
    """A stand-in for a setting that is missing; its place is the subject as a whole."""
    return Setting(variable=word, name="", value=None, word=word, place=subject.settings.subject)


def unknown_flags(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Flags unknown to the library that reads their variable; such a flag ends the process."""
    for setting in subject.settings.settings:
        answers = _answers(subject, setting)
        if answers is None or setting.name not in answers.unknown or not setting.is_final:
            continue
        if not setting.word.startswith("-") or _is_value_behind(subject, setting):
            # words_without_dashes reports it.
            continue
        source = f"asked {answers.library}"
        if setting.name in subject.libraries.elsewhere:
            other = "LIBTPU_INIT_ARGS" if setting.variable == "XLA_FLAGS" else "XLA_FLAGS"
            observation = (
                f"{answers.library} does not know {setting.name} in {setting.variable}; the other library does"
            )
            yield _finding("wrong-variable", setting, observation, f"Move it to {other}", source)
            continue
        near = answers.unknown[setting.name] or answers.similar.get(setting.name, "")
        if is_watched(setting.name):
            remedy = f"{setting.name} is an environment variable: export {setting.word.lstrip('-')}"
        elif near:
            remedy = f"Did you mean {near}? Otherwise leave the flag out"
        else:
            remedy = "Leave the flag out: the library has no similar name"
        yield _finding("unknown-flag", setting, f"{answers.library} does not know {setting.name}", remedy, source)


def bad_values(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Values that the library cannot read; they end the process."""
    for setting in subject.settings.settings:
        answers = _answers(subject, setting)
        if answers is not None and setting.name in answers.refused and setting.is_final:
            observation = f"{answers.library} does not accept {answers.refused[setting.name]!r} for {setting.name}"
            remedy = "Write a value of the flag's type: true or false for a switch, otherwise an integer or a name"
            yield _finding("bad-value", setting, observation, remedy, f"asked {answers.library}")


def _is_value_behind(subject: RuleSubject, setting: Setting) -> bool:
    """True if the next word of XLA_FLAGS is the value of the flag `setting`."""
    listed = [s for s in subject.settings.settings if (s.variable, s.scope) == ("XLA_FLAGS", setting.scope)]
    following = next((after for here, after in itertools.pairwise(listed) if here is setting), None)
    return following is not None and setting.value is None and not following.word.startswith("-")


def _answers(subject: RuleSubject, setting: Setting) -> Answers | None:
    return {"XLA_FLAGS": subject.libraries.jaxlib, "LIBTPU_INIT_ARGS": subject.libraries.libtpu}.get(setting.variable)


def duplicate_flags(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Flags that occur in a variable twice with different values; the last value counts."""
    seen: dict[tuple[str, str, int], Setting] = {}
    for setting in subject.settings.settings:
        if not setting.is_final or not setting.is_certain or not setting.name:
            continue
        scopes = (setting.scope, 0)
        before = next(filter(None, (seen.get((setting.variable, setting.name, scope)) for scope in scopes)), None)
        if before is not None and before.value != setting.value:
            both = f"{before.word} ({before.place}) and {setting.word} ({setting.place})"
            yield _finding("set-twice", setting, f"{both}: the last one counts")
        seen[setting.variable, setting.name, setting.scope] = setting


def exclusive_flags(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Continuation fusion and SparseCore offload that are both on for one collective."""
    for collective in _COLLECTIVES:
        if subject.is_on(_fuse(collective)) and subject.is_on(_offload(collective)):
            fusing, offloading = subject.final[_fuse(collective)], subject.final[_offload(collective)]
            both = f"{fusing.word} ({fusing.place}) and {offloading.word} ({offloading.place})"
            remedy = f"Set one of them to false; to keep the offload, --{_fuse(collective)}=false"
            yield _finding("fusion-and-offload", offloading, f"{both} exclude each other for {collective}", remedy)


def missing_base_flags(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Flags that have no effect because the base flag of continuation fusion is not on."""
    dependent = [*map(_fuse, _COLLECTIVES), _OVERLAP]
    needy = [subject.final[name] for name in dependent if subject.is_on(name)]
    if needy and not subject.is_on(_BASE):
        base = subject.final.get(_BASE)
        observation = f"{_BASE} is {'off' if base else 'not set'}; needed by {', '.join(s.name for s in needy)}"
        yield _finding("no-base-flag", needy[0], observation, severity=None if base else "missing")


def flags_of_other_chips(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """SparseCore offload on a chip for which it is not documented; TPU flags if JAX_PLATFORMS excludes the TPU."""
    if subject.chip is not None and subject.chip.name not in _OFFLOADING:
        for collective in _COLLECTIVES:
            if subject.is_on(_offload(collective)):
                where = f"on {', '.join(_OFFLOADING)}, not on {subject.chip.name}"
                observation = f"collectives are offloaded to SparseCores {where}"
                remedy = f"Use continuation fusion: --{_BASE}=true --{_fuse(collective)}=true"
                yield _finding("no-offload", subject.final[_offload(collective)], observation, remedy)
    platforms = subject.final.get("JAX_PLATFORMS")
    flags = [s for s in subject.settings.settings if s.variable == "LIBTPU_INIT_ARGS" and s.is_final]
    if platforms is not None and platforms.value and "tpu" not in platforms.value and flags:
        observation = f"LIBTPU_INIT_ARGS is set (flags: {len(flags)}), but {platforms.word} excludes the TPU"
        yield _finding("no-tpu", platforms, observation)


def overwritten_flags(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Flags that a later assignment of their variable discards."""
    for setting in subject.settings.settings:
        if not setting.is_final and setting.name:
            observation = f"a later assignment of {setting.variable} discards {setting.word}"
            remedy = f'Append instead: {setting.variable}="${setting.variable} ..."'
            yield _finding("overwritten", setting, observation, remedy)


def words_without_dashes(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Words without a leading dash among the flags.

    The libraries ignore such words. But if XLA_FLAGS begins with such a word, jaxlib reads the whole variable as the
    name of a file.
    """
    before: dict[tuple[str, int], Setting] = {}
    for setting in subject.settings.settings:
        answers = _answers(subject, setting)
        if answers is None or not setting.is_final:
            continue
        last = before.get((setting.variable, setting.scope))
        before[setting.variable, setting.scope] = setting
        if setting.word.startswith("-"):
            continue
        is_xla = setting.variable == "XLA_FLAGS"
        if last is not None and last.word.startswith("-") and last.value is None and setting.value is None:
            if is_xla:
                observation = f"jaxlib reads the value of {last.name} only after an equals sign"
                yield _finding("bad-value", last, observation, f"Write {last.word}={setting.word}", _TSL)
            continue
        remedy, source = _without_dashes(setting, answers)
        if is_xla and last is None:
            # A file name is allowed.
            if setting.value is not None:
                observation = (
                    f"jaxlib reads XLA_FLAGS as the name of a file, because {setting.word} does not begin with dashes"
                )
                yield _finding("no-dashes", setting, observation, remedy, source, "ends the process")
            continue
        library = "jaxlib" if is_xla else "libtpu"
        observation = f"{library} ignores {setting.word}: it does not begin with dashes"
        yield _finding("no-dashes", setting, observation, remedy, source)


def _without_dashes(setting: Setting, answers: Answers) -> tuple[str, str]:
    """The remedy for a word without dashes, and its source."""
    if is_watched(setting.name):
        return f"{setting.name} is an environment variable: export {setting.word}", "the names of variables"
    if setting.value is None and not setting.name.startswith("xla"):
        return "Leave it out: it is not a flag", "the form of the word"
    library = "jaxlib" if setting.variable == "XLA_FLAGS" else "libtpu"
    if answers.library is None:
        return f"Write --{setting.word}, if {library} knows that flag", answers.why_not
    if setting.name not in answers.unknown:
        return f"Write --{setting.word}", f"asked {answers.library}"
    near = answers.unknown[setting.name] or answers.similar.get(setting.name, "")
    return (
        f"Write --{near}, if you mean that; else leave it out" if near else f"Leave it out: {library} has no such flag",
        f"asked {answers.library}",
    )


def late_settings(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Variables that are set after JAX or its backend has read them."""
    for setting in subject.settings.settings:
        if setting.too_late:
            yield _finding("too-late", setting, f"{setting.word} is set too late: {setting.too_late}")


def unreached_settings(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Variables that os.putenv sets, but that do not reach the library that reads them."""
    for setting in subject.settings.settings:
        if setting.unreached:
            observation = f"{setting.word} does not reach the library that reads it: {setting.unreached}"
            remedy = f"Write os.environ[{setting.variable!r}] = ... before JAX is imported: this calls os.putenv too"
            yield _finding("putenv", setting, observation, remedy)


def unknown_variables(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Variables beginning with JAX_ that JAX does not read."""
    names = subject.libraries.jax_variables
    for setting in subject.settings.settings:
        if names and setting.is_final and setting.variable.startswith("JAX_") and setting.variable not in names:
            yield _finding("unknown-variable", setting, f"the installed JAX reads no {setting.variable}")


def cache_conflicts(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """A persistent compilation cache that spoils dumps, or that is configured but not used."""
    folder = subject.final.get("JAX_COMPILATION_CACHE_DIR")
    switch = subject.final.get("JAX_ENABLE_COMPILATION_CACHE")
    is_off = switch is not None and not subject.is_on("JAX_ENABLE_COMPILATION_CACHE")
    dumping = [subject.final[name] for name in _DUMPS if subject.is_on(name)]
    if folder is not None and folder.value and is_off and switch is not None:
        yield _finding("cache-off", folder, f"{folder.word} names a cache, but {switch.word} turns it off")
    elif folder is not None and folder.value and dumping:
        nothing = f"is not compiled, so {dumping[0].word} writes nothing for it"
        yield _finding("cache-and-dumps", folder, f"a program loaded from the cache ({folder.word}) {nothing}")
    for name in _NO_CACHE:
        if name in subject.final and (folder is None or not folder.value):
            yield _finding("no-cache", subject.final[name], f"{name} has no effect without a compilation cache")


def harmful_settings(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Settings that spoil a measurement."""
    for harm in _HARMS:
        setting = subject.final.get(harm.name)
        if setting is None or (not subject.is_on(harm.name) and not harm.when):
            continue
        if harm.when and (setting.value or "").lower() not in (value.lower() for value in harm.when):
            continue
        remedy = harm.remedy[:1].upper() + harm.remedy[1:]
        yield _finding("harmful-for-measuring", setting, harm.why, remedy, harm.source)


def missing_platform(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """A finding if no setting names the platform: without one, JAX may fall back to the CPU with only a warning."""
    if not subject.is_capture and not any(name in subject.final for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME")):
        observation = "JAX_PLATFORMS is not set: if the accelerator does not start, JAX falls back to the CPU"
        yield _finding("no-platform", _absent("JAX_PLATFORMS", subject), observation)


def flags_missing_for_symptoms(subject: RuleSubject) -> Iterator[DoctorFinding]:
    """Flags that are missing for a named symptom."""
    for symptom in subject.symptoms:
        ways = [
            way
            for way in SYMPTOMS[symptom]
            if subject.chip is None
            or subject.chip.name in _OFFLOADING
            or not any("sparse_core" in name for name in way)
        ]
        if any(all(subject.is_on(name) for name in way) for way in ways):
            continue
        or_on = f", or on {' or '.join(_OFFLOADING)} "
        lacking = [" ".join(f"--{name}=true" for name in way if not subject.is_on(name)) for way in ways]
        remedy = f"Add to LIBTPU_INIT_ARGS {or_on.join(lacking)}"
        yield _finding(
            "missing-for-symptom", _absent(symptom, subject), f"no complete set of flags for {symptom} is on", remedy
        )


RULES: tuple[Callable[[RuleSubject], Iterator[DoctorFinding]], ...] = (
    unknown_flags,
    bad_values,
    duplicate_flags,
    exclusive_flags,
    missing_base_flags,
    flags_of_other_chips,
    overwritten_flags,
    words_without_dashes,
    late_settings,
    unreached_settings,
    unknown_variables,
    cache_conflicts,
    flags_missing_for_symptoms,
    harmful_settings,
    missing_platform,
)
# Findings of these severities make the audit fail: the program does not start, or not as intended.
_FAILING = ("ends the process", "contradiction")


def audit(subject: RuleSubject) -> tuple[tuple[Table, ...], bool]:
    """Two tables (the findings, and all settings with their findings), and True if the audit fails."""
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
    """Notes that name the libraries that checked the flags, and those that could not."""
    for answers, variable in ((subject.libraries.jaxlib, "XLA_FLAGS"), (subject.libraries.libtpu, "LIBTPU_INIT_ARGS")):
        count = sum(s.variable == variable and s.is_final for s in subject.settings.settings)
        if not count:
            continue
        flags, were = f"{quantity(count, 'flag')} of {variable}", "was" if count == 1 else "were"
        if answers.library is None:
            yield f"{flags} could not be checked: {answers.why_not}"
        else:
            yield f"{flags} {were} checked with {answers.library}: it accepts all flags without a finding"


def _not_understood(settings: Settings) -> Iterator[str]:
    if settings.not_understood:
        yield f"not understood: {quantity(len(settings.not_understood), 'place')}: {'; '.join(settings.not_understood)}"


def _settings(settings: Settings, ranked: tuple[DoctorFinding, ...]) -> Table:
    columns, rows = "variable;flag;value;place=where;judgement", []
    for setting in settings.settings:
        findings_here = [f.rule for f in ranked if f.subject == setting.word and f.place == setting.place]
        judgement = ", ".join(dict.fromkeys(findings_here)) or "no finding"
        rows.append((setting.variable, setting.name or None, setting.value, setting.place, judgement))
    why = f"{settings.subject} sets no flag and no variable of JAX, XLA or libtpu"
    return table("settings", f"settings of {settings.subject}", "static", columns, rows, (), why)
