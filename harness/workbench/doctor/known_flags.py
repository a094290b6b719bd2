"""The installed libraries' answers about flags: jaxlib and libtpu are started with the flags, which they check."""

import difflib
import importlib.util
import itertools
import json
import mmap
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from harness.hardware import DEFAULT_CHIP, chip
from harness.records.doctor import Answers, Known, Settings
from harness.sandbox import confinement, environment
from harness.workbench.doctor.settings import is_watched

_SECONDS = 120.0
# jaxlib stops at the first value that it refuses, so every refused value needs one more start.
_TRIES = 6

_CONFINED = """
import sys
from harness import reading_limits
from harness.sandbox.confinement import Confinement, confine
reading_limits.end_with_parent()
reading_limits.confine(0)
confine(Confinement(writable=(sys.argv[1],)))
"""
# Both libraries read their flags when the first device or topology is requested.
_START_XLA = "import jax; jax.devices()"
_START_LIBTPU = (
    "from jax.experimental import topologies; "
    f"topologies.get_topology_desc(topology_name={chip(DEFAULT_CHIP).topology!r}, platform='tpu'); print('flags-taken')"
)
_NAME_JAX = """
import json, pathlib, re, jax
folder = pathlib.Path(jax.__file__).parent
read = {name for path in folder.rglob("*.py") for name in re.findall(r"\\bJAX_[A-Z0-9_]+", path.read_text("utf-8"))}
print(json.dumps(sorted(read | {name.upper() for name in jax.config.values})))
"""
# Messages of tsl (XLA_FLAGS) and abseil (LIBTPU_INIT_ARGS), jaxlib 0.10.2 and 0.12.0, libtpu 0.0.42.1 and 0.0.50.1.
_XLA_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
_XLA_REFUSED = re.compile(r"Couldn't interpret value (.*) for flag (\w+)\.")
_TPU_UNKNOWN = re.compile(r"Unknown command line flag '(\w+)'(?:\. Did you mean: ([\w, ]+?) ?\?)?")
_TPU_REFUSED = re.compile(r"Illegal value '(.*)' specified for flag '(\w+)'(?:; (.*))?")


def ask_libraries(settings: Settings) -> Known:
    """The installed libraries' answers about the flags of `settings`. Starts several processes of a few seconds."""
    xla = _words(settings, "XLA_FLAGS")
    # Libraries ignore words without dashes, but the user may have meant flags, so the words are checked with dashes.
    lacking = [s for s in settings.settings if s.value is not None and not s.word.startswith("-")]
    bare, bare_xla = (
        dict.fromkeys(f"--{s.word}" for s in lacking if s.variable == variable and not is_watched(s.name))
        for variable in ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
    )
    tpu = [*_words(settings, "LIBTPU_INIT_ARGS"), *bare]
    to_xla = _ask_xla([*xla, *bare_xla])
    # A flag that one library does not know may be a flag of the other, set in the wrong variable.
    to_tpu = _ask_libtpu([*tpu, *(word for word in xla if _name(word) in to_xla.unknown)])
    astray = [word for word in tpu if _name(word) in to_tpu.unknown]
    to_both = _ask_xla(astray) if astray else None
    elsewhere = {
        _name(word)
        for word in xla
        if to_tpu.library and _name(word) in to_xla.unknown and _name(word) not in to_tpu.unknown
    }
    if to_both is not None and to_both.library:
        elsewhere |= {_name(word) for word in astray if _name(word) not in to_both.unknown}
    jax = any(setting.variable.startswith("JAX_") for setting in settings.settings)
    return Known(
        jaxlib=to_xla, libtpu=to_tpu, elsewhere=frozenset(elsewhere), jax_variables=_variables() if jax else frozenset()
    )


def _words(settings: Settings, variable: str) -> list[str]:
    """The flags of a variable as written, without repetitions and without words that lack dashes.

    If a libtpu flag has no value, the next word becomes its value, because abseil also accepts `--flag value`.
    """
    written = [s for s in settings.settings if s.variable == variable and s.name]
    words = []
    for setting, following in itertools.zip_longest(written, written[1:]):
        if not setting.word.startswith("-"):
            continue
        is_value = variable == "LIBTPU_INIT_ARGS" and setting.value is None and following is not None
        if is_value and following.value is None and not following.word.startswith("-"):
            words.append(f"{setting.word}={following.word}")
        else:
            words.append(setting.word)
    return list(dict.fromkeys(words))


def _name(word: str) -> str:
    return word.lstrip("-").partition("=")[0]


def _ask_xla(words: Sequence[str]) -> Answers:
    """jaxlib's answers. jaxlib stops at the first value that it refuses, so it is started again without that value."""
    library, left, refused = _library("jaxlib"), list(words), dict[str, str]()
    unknown: list[str] = []
    for _ in range(_TRIES if left else 0):
        code, output = _run_python(_START_XLA, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(left)})
        bad = {name: value for value, name in _XLA_REFUSED.findall(output)}
        if bad:
            refused |= bad
            left = [word for word in left if _name(word) not in bad]
            continue
        if match := _XLA_UNKNOWN.search(output):
            unknown = [_name(word) for word in match[1].split()]
        elif code != 0:
            return _no_answer(f"{library} did not start: {_last(output)}")
        break
    return Answers(
        library=library, unknown=dict.fromkeys(unknown, ""), refused=refused, similar=_similar(unknown, "jaxlib")
    )


def _ask_libtpu(words: Sequence[str]) -> Answers:
    """libtpu's answers; a single start reports all unknown flags and all refused values."""
    library = _library("libtpu")
    if not words:
        return Answers(library=library, unknown={}, refused={}, similar={})
    if importlib.util.find_spec("libtpu") is None:
        return _no_answer("libtpu is not installed here")
    variables = {
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": "v5litepod-1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "LIBTPU_INIT_ARGS": " ".join(words),
    }
    code, output = _run_python(_START_LIBTPU, variables)
    unknown = {name: suggested.strip() for name, suggested in _TPU_UNKNOWN.findall(output)}
    refused = {name: value for value, name, _ in _TPU_REFUSED.findall(output)}
    if code != 0 and not unknown and not refused:
        return _no_answer(f"{library} did not start: {_last(output)}")
    without_suggestion = [name for name, suggested in unknown.items() if not suggested]
    return Answers(library=library, unknown=unknown, refused=refused, similar=_similar(without_suggestion, "libtpu"))


def _no_answer(why: str) -> Answers:
    return Answers(library=None, why_not=why, unknown={}, refused={}, similar={})


def _run_python(program: str, variables: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a Python process that runs `program`, confined because flags may name files."""
    if confinement.isolation(True).landlock is None:
        return 1, "flags are checked only in a confined process, which needs Landlock; this Linux kernel lacks it"
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        try:
            process = subprocess.run(
                [sys.executable, "-P", "-c", f"{_CONFINED}{program}", folder],
                cwd=folder,
                env={**environment.base(), "TMPDIR": folder, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {_SECONDS:g} s"
    return process.returncode, process.stdout.decode("utf-8", "replace")


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:200] if lines else "it printed nothing"


def _library(package: str) -> str | None:
    installed = environment.environment()
    version = {"jaxlib": installed.jaxlib, "libtpu": installed.libtpu}[package]
    return f"{package} {version}" if version else None


def _similar(unknown: Iterable[str], package: str) -> dict[str, str]:
    """The most similar name in the library for each flag, if any; only a guess, because it may not be a flag."""
    wanted = [name for name in unknown if len(name) > 4]
    if not wanted:
        return {}
    names = _names(package)
    matches = ((name, difflib.get_close_matches(name, names, n=1, cutoff=0.8)) for name in wanted)
    return {name: near[0] for name, near in matches if near}


@cache
def _names(package: str) -> tuple[str, ...]:
    """Strings of a library that look like a flag's name."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0]) / {"jaxlib": "libjax_common.so", "libtpu": "libtpu.so"}[package] if folders else None
    if path is None or not path.is_file():
        return ()
    with path.open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return tuple(sorted({name.decode() for name in re.findall(rb"xla_[a-z0-9_]{4,100}(?=\0)", text)}))


@cache
def _variables() -> frozenset[str]:
    """The variables that JAX reads: one for each option, and those in its sources; empty if JAX does not start."""
    code, output = _run_python(_NAME_JAX, {"JAX_PLATFORMS": "cpu"})
    return frozenset(json.loads(output.splitlines()[-1])) if code == 0 and output else frozenset()
