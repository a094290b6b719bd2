"""Files of strangers that would take all memory, time or stack: each is read within its limits, or refused in words."""

import gzip
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from narrowing import present
from schedule_examples import NEWEST, unpack

import harness
from harness import reading_limits
from harness.errors import RatchetError, UsageError
from harness.hlo import parse, sharding
from harness.workbench.hlo.graph import Graph

pytestmark = pytest.mark.long

PROJECT = Path(harness.__file__).parents[1]
# The most memory that a verb may take: a quarter above the limit, because checks come at intervals.
MOST_BYTES = int(1.25 * (1 << 30))


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    cpu_seconds: float
    peak_bytes: int


# A process counts the memory of the process that forked it, so a small process stands between it and the tests.
_BETWEEN = """
import os, resource, sys
told, seconds, *words = sys.argv[1:]
os.set_inheritable(int(told), False)
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "harness", *words], os.environ)
# Where the limits fail, the machine shall not.
resource.prlimit(pid, resource.RLIMIT_CPU, (int(seconds), int(seconds)))
_, status, used = os.wait4(pid, 0)
figures = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
os.write(int(told), " ".join(map(str, figures)).encode())
"""


def ran(*words: str, seconds: int = 100, **variables: str) -> Ran:
    """The result of one command line in its own process, with the resources that it and its children used."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        reading, writing = os.pipe()
        subprocess.run(
            [sys.executable, "-S", "-c", _BETWEEN, str(writing), str(seconds), *words],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=(writing,),
            env={**os.environ, **variables, "PYTHONPATH": str(PROJECT)},
        )
        code, cpu_seconds, peak_bytes = os.read(reading, 1000).split()
        os.close(reading)
        os.close(writing)
        out.seek(0)
        err.seek(0)
        return Ran(int(code), out.read().decode(), err.read().decode(), float(cpu_seconds), int(peak_bytes))


def calls(opcode: str, attribute: str, count: int, times: int) -> str:
    """A module of `count` computations, each of which calls the one before it `times` times."""
    lines = ["HloModule calls", "c0 {", " p = f32[8] parameter(0)", " ROOT q = f32[8] add(p, p)", "}"]
    for number in range(1, count):
        lines += [f"c{number} {{", " v0 = f32[8] parameter(0)"]
        for call in range(times):
            root = "ROOT " if call == times - 1 else ""
            lines.append(f" {root}v{call + 1} = f32[8] {opcode}(v{call}), {attribute}=c{number - 1}")
        lines.append("}")
    return "\n".join([*lines, "ENTRY main {", f" ROOT a = f32[8] {opcode}(p), {attribute}=c{count - 1}", "}", ""])


@pytest.mark.parametrize(
    "text",
    [
        "%a = f32[8]{0} all-reduce(%b), replica_groups=[100000,100000]<=[10000000000]",
        "%a = f32[8]{0} all-reduce(%b), replica_groups={{0,1,...,10000000000}}",
        "%a = f32[8]{0} all-reduce(%b), replica_groups=mesh['x'=100000,'y'=100000] {'x'}",
        "%a = f32[8]{0} parameter(0), sharding={mesh['x'=100000,'y'=100000], [{'x'}]}, replica_groups={{0,1}}\n"
        "%b = f32[8]{0} all-reduce(%a), replica_groups=mesh['x'=100000,'y'=100000] {'x'}",
    ],
)
def test_a_few_signs_for_many_devices_are_refused_before_they_are_listed(text: str) -> None:
    with pytest.raises(RatchetError, match=r"at most 4,194,304 devices.*RATCHET_MAX_DEVICES") as refused:
        parse.module(text)
    assert refused.value.kind == "too-large"


def test_the_same_groups_in_many_places_are_listed_once() -> None:
    lines = (f"%a{place} = f32[8] all-reduce(%b), replica_groups=[1024,1024]<=[1048576]" for place in range(500))
    instructions = parse.module("\n".join(lines)).computations[0].instructions
    assert {id(instruction.groups) for instruction in instructions} == {id(instructions[0].groups)}
    assert present(instructions[0].groups).size == 1024


def test_what_a_sharding_says_of_devices_is_not_listed() -> None:
    module = parse.module("%a = f32[8] parameter(0), sharding={devices=[100000,100000]<=[10000000000]}")
    assert present(module.computations[0].instructions[0].sharding).parts == (100000, 100000)


def test_a_variable_raises_a_limit_and_is_itself_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_MAX_DEVICES", "7")
    with pytest.raises(RatchetError, match="at most 7 devices"):
        sharding.groups("[2,4]<=[8]")
    monkeypatch.setenv("RATCHET_MAX_DEVICES", "8")
    assert sharding.groups("[2,4]<=[8]").size == 4
    monkeypatch.setenv("RATCHET_MAX_DEVICES", "many")
    with pytest.raises(UsageError, match="expected a whole number above 0 in RATCHET_MAX_DEVICES, got 'many'"):
        sharding.groups("[2,4]<=[8]")


@pytest.mark.parametrize(
    ("opcode", "attribute"),
    [("call", "to_apply"), ("fusion", "kind=kLoop, calls"), ("reduce", "dimensions={0}, to_apply")],
)
@pytest.mark.parametrize(("count", "times"), [(45, 2), (2000, 1)])
def test_computations_are_gone_through_once_however_they_call_each_other(
    opcode: str, attribute: str, count: int, times: int, tmp_path: Path
) -> None:
    (tmp_path / "module.txt").write_text(calls(opcode, attribute, count, times))
    process = ran("hlo", str(tmp_path / "module.txt"))
    assert (process.code, process.err) == (0, "")
    assert process.cpu_seconds < 10


def test_how_often_a_computation_runs_stays_right_where_it_is_called_from_many_places() -> None:
    graph = Graph(module=parse.module(calls("call", "to_apply", 21, 2)))
    assert graph.runs["c0"] == 2**20
    beyond = Graph(module=parse.module(calls("call", "to_apply", 100, 2)))
    assert beyond.runs["c0"] is None


def test_a_shape_of_a_million_dimensions_is_refused_in_words() -> None:
    with pytest.raises(RatchetError, match=r"at most 1,000 dimensions in a shape.*RATCHET_MAX_DIMENSIONS"):
        parse.module(f"%a = f32[{','.join(['8'] * 2_000_000)}]{{0}} add(%b, %c)")


@pytest.mark.parametrize("end", ['"}', "", "\\"])
def test_a_long_string_of_escaped_quotes_is_read_once(end: str, tmp_path: Path) -> None:
    text = '%a = f32[8]{0} add(%b, %c), metadata={op_name="' + '\\"' * 600_000 + end
    (tmp_path / "module.txt").write_text(text)
    process = ran("hlo", str(tmp_path / "module.txt"))
    assert process.code == (0 if end == '"}' else 4)
    assert process.cpu_seconds < 10 * len(text) / 1e6
    assert process.peak_bytes < MOST_BYTES


def test_what_a_small_file_unpacks_to_is_bounded(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "module.gz", "wb", 9) as stream:
        for _ in range(300):
            stream.write(bytes(1 << 20))
    process = ran("hlo", str(tmp_path / "module.gz"))
    assert process.code == 4
    assert "at most 268,435,456 bytes unpacked" in process.err
    assert "RATCHET_MAX_UNPACKED_BYTES" in process.err
    assert process.peak_bytes < MOST_BYTES


@pytest.mark.parametrize(
    "backend",
    ['"[' + "[" * 100_000 + '"', '{"known_trip_count":{"n":"' + "9" * 5000 + '"}}', '{"known_trip_count":1e400}'],
)
def test_a_configuration_that_no_parser_follows_says_nothing(backend: str) -> None:
    module = parse.module(f'%a = f32[8] custom-call(%b), custom_call_target="x", backend_config={backend}')
    assert Graph(module=module).trips == {}


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A saved dump in which somebody edited the bound of a loop."""
    edit = partial(re.sub, "%s0_s11, 6 ", "%s0_s11, 2000000000 ")
    return unpack(NEWEST, "v5e-twice-1024", tmp_path / "dumps", edit, where="2-first.*-final_bundles")


def test_a_loop_that_does_not_end_runs_out_of_time_and_is_told_what_gives_it_more(endless: Path) -> None:
    process = ran("simulate", str(endless), "--chip", "v5e", RATCHET_MAX_SECONDS="1")
    assert process.code == 1
    words = " ".join(process.out.split())
    assert "the time limit of the simulation ran out; raise it with RATCHET_MAX_SECONDS" in words
    assert process.cpu_seconds < 10


def test_a_number_of_more_digits_than_python_reads_is_refused_in_words(tmp_path: Path) -> None:
    edit = partial(re.sub, r'(?<=loc\("kernel\.py":)', "9" * 5000)
    unpack(NEWEST, "v5e-planned-1024", tmp_path, edit)
    process = ran("simulate", str(tmp_path), "--chip", "v5e")
    assert process.code == 4
    assert "a number of more digits than Python reads" in process.err


@pytest.mark.slow
def test_a_table_that_xla_never_finishes_is_ended_from_outside(tmp_path: Path) -> None:
    """A loop in the module's own text runs in XLA, where the simulator's checks do not reach it."""
    folder = unpack(NEWEST, "v5e-planned-1024", tmp_path / "dumps")
    (text,) = folder.glob("*TLP-hlo.txt")
    text.write_text(_with_a_loop(text.read_text()))
    process = ran("simulate", str(folder), "--chip", "v5e", RATCHET_MAX_SECONDS="1")
    assert process.code == 4
    assert "takes more than 4 s of CPU time" in process.err
    assert "RATCHET_MAX_SECONDS" in process.err


def _with_a_loop(hlo: str) -> str:
    """The module with a table that a loop of two thousand million steps makes."""
    lines = hlo.splitlines(keepends=True)
    entry = next(place for place, line in enumerate(lines) if line.startswith("ENTRY"))
    table = next(place for place, line in enumerate(lines) if line.startswith("  %counts_ref.1 = "))
    lines[table] = """\
  %zero = s32[] constant(0)
  %ones = s32[8]{0} constant({1, 1, 1, 1, 1, 1, 1, 1})
  %start = (s32[], s32[8]{0}) tuple(%zero, %ones)
  %loop = (s32[], s32[8]{0}) while(%start), condition=%goes_on, body=%step
  %counts_ref.1 = s32[8]{0:T(128)} get-tuple-element(%loop), index=1
"""
    lines[entry] = """\
%goes_on (p: (s32[], s32[8])) -> pred[] {
  %p = (s32[], s32[8]{0}) parameter(0)
  %at = s32[] get-tuple-element(%p), index=0
  %end = s32[] constant(2000000000)
  ROOT %less = pred[] compare(%at, %end), direction=LT
}

%step (q: (s32[], s32[8])) -> (s32[], s32[8]) {
  %q = (s32[], s32[8]{0}) parameter(0)
  %before = s32[] get-tuple-element(%q), index=0
  %one = s32[] constant(1)
  %after = s32[] add(%before, %one)
  %old = s32[8]{0} get-tuple-element(%q), index=1
  %new = s32[8]{0} multiply(%old, %old)
  ROOT %both = (s32[], s32[8]{0}) tuple(%after, %new)
}

""" + lines[entry]
    return "".join(lines)


def test_memory_is_taken_away_and_the_limit_named(tmp_path: Path) -> None:
    (tmp_path / "module.txt").write_text("\n".join(f"%a{n} = f32[8] add(%b, %c)" for n in range(60_000)))
    process = ran("hlo", str(tmp_path / "module.txt"), RATCHET_MAX_MEMORY_BYTES="1000")
    assert process.code == 4
    assert "bytes of memory, more than" in process.err
    assert "RATCHET_MAX_MEMORY_BYTES (1,000)" in process.err
    as_json = ran("hlo", str(tmp_path / "module.txt"), "--json", RATCHET_MAX_MEMORY_BYTES="1000")
    assert '"kind": "too-large"' in as_json.out


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RatchetError, match="a regular file, got a pipe"):
        reading_limits.read(tmp_path / "pipe")
    with pytest.raises(RatchetError, match="a regular file, got a pipe"):
        reading_limits.read(Path("/dev/zero"))


def test_an_operand_whose_header_promises_more_than_its_file_holds_is_refused(endless: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros(4, np.int32))
    data = (tmp_path / "table.npy").read_bytes().replace(b"(4,), }            ", b"(1000000000000,), }")
    assert b"1000000000000" in data
    (tmp_path / "table.npy").write_bytes(data)
    process = ran("simulate", str(endless), "--chip", "v5e", "--operand", f"x_ref.1={tmp_path / 'table.npy'}")
    assert process.code == 2
    assert "[bad-operand]" in process.err
    assert "expected an array in FILE.npy: " in process.err
