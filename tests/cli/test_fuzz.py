"""Ten thousand mutations of files that strangers hand over: no exit code of a bug, and no limit exceeded."""

import contextlib
import gzip
import io
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_examples import four_devices, one_device, serialized
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from screen_examples import shown

from harness.errors import RatchetError
from harness.ledger import codec
from harness.records import Attempt, Row
from harness.render import results
from harness.shell.main import main
from harness.workbench.doctor import settings as flag_settings

pytestmark = pytest.mark.long

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROJECT = Path(__file__).parents[2]
# Text that breaks parsers: huge numbers, brackets, quotes, line ends, beginnings of comments, words of the grammars.
_PIECES = (
    b"99999999999999999999", b"2147483647", b"-1", b"0", b"9" * 5000, b"9" * 400, b"{", b"}", b"(" * 200, b"[" * 2000,
    b'"', b"\\", b"/*", b"'", b"<=", b"...", b"=", b",", b"\0", b"\xff", b"\n", b"%",
    b"replica_groups=[4096,4096]<=[16777216]",
    b"1e999", b"NaN", b"T(8,128)(2,1)", b"constant(", b"while(", b"fusion(", b"stride=0", b"?", b"s32[]",
)  # fmt: skip
Verb = Callable[[Path, bytes], list[str]]


def texts(pattern: str, most: int = 40_000) -> list[bytes]:
    unpacked = [gzip.decompress(path.read_bytes()) for path in sorted(FIXTURES.glob(pattern))]
    return [text for text in unpacked if len(text) <= most]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one to six edits: text inserted, removed, repeated or moved, or a bit flipped."""
    for _ in range(draw.randint(1, 6)):
        at, end = draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)
        length = draw.choice((1, 4, 40, 400))
        match draw.randrange(6):
            case 0:
                data = data[:at] + draw.choice(_PIECES) + data[at:]
            case 1:
                data = data[:at] + data[at + length :]
            case 2:
                data = data[:at] + data[at : at + length] * draw.choice((2, 50)) + data[at + length :]
            case 3:
                data = data[:at] + data[end : end + length] + data[at:]
            case 4:
                data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
            case _:
                data = data[:at] if draw.random() < 0.2 else data[:at] + draw.choice(_PIECES) + data[at + length :]
    return data


def hlo(folder: Path, data: bytes) -> list[str]:
    (folder / "module").write_bytes(data)
    return ["hlo", str(folder / "module")]


def xprof(command: str) -> Verb:
    def words(folder: Path, data: bytes) -> list[str]:
        (folder / "host.xplane.pb").write_bytes(data)
        return ["xprof", command, str(folder / "host.xplane.pb")]

    return words


def dump(folder: Path, data: bytes) -> list[str]:
    """A directory of dumps as one text, its files behind lines with their names; mutated they are all there."""
    for name, text in zip(_names, data.split(_BETWEEN), strict=False):
        (folder / name).write_bytes(text)
    return ["simulate", str(folder), "--chip", "v5e"]


_BETWEEN = b"\n=====\n"
_names: list[str] = []


def dumps(name: str) -> bytes:
    files = sorted((FIXTURES / "schedules" / "libtpu-0.0.50.1" / name).glob("*.gz"))
    _names[:] = [path.stem for path in files]
    return _BETWEEN.join(gzip.decompress(path.read_bytes()) for path in files)


def record(folder: Path, data: bytes) -> list[str]:
    (folder / "record.json").write_bytes(data)
    return ["record", str(folder / "record.json")]


def read_record(path: Path) -> None:
    """Reads a file as every look at a ledger does: its row from the head, then all of it, shown as a table."""
    data = path.read_bytes()
    rows: list[Row] = []
    for read in (codec.decode_attempt_row, codec.decode_head_row, codec.decode_attempt):
        with contextlib.suppress(RatchetError):
            record = read(data, "record.json")
            if isinstance(record, Attempt):
                codec.encode_attempt(record)
            elif record is not None:
                rows.append(record)
    results.results_table(shown(rows, None), 100)


def script(folder: Path, data: bytes) -> list[str]:
    (folder / "launch.sh").write_bytes(data)
    return ["script", str(folder / "launch.sh")]


def exit_code(words: list[str]) -> tuple[int, str]:
    """The exit code of one command line, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] == "record":
            read_record(Path(words[1]))
            return 0, ""
        if words[0] == "script":
            flag_settings.of_script(Path(words[1]).read_bytes().decode("utf-8", "replace"), "launch.sh")
            return 0, ""
        return main(words), err.getvalue()


def checked(words: list[str], size: int) -> None:
    """Runs it in a fork: a bug's exit, a signal, more than 1 GB or ten times the file, or 10 s a MB is a failure."""
    reading, writing = os.pipe()
    before = time.process_time()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(before) + 10 + 10 * size // 1_000_000,) * 2)
            code, printed = exit_code(words)
            os.write(writing, printed.encode()[-4000:] if code == 5 else b"")
        except BaseException as error:  # noqa: BLE001
            os.write(writing, repr(error).encode()[-4000:])
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as stream:
        printed = stream.read().decode("utf-8", "replace")
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1, 2, 4), f"{code}: {printed}"
    assert used.ru_maxrss * 1024 <= max(1 << 30, 10 * size)


def saved(name: str) -> tuple[list[bytes], Verb]:
    """The real files of one kind, and the verb that reads them."""
    if name == "hlo text":
        return texts("schedules/*/*/*TLP-hlo.txt.gz"), hlo
    if name == "hlo proto":
        return [path.read_bytes() for path in sorted(FIXTURES.glob("modules/*.hlo.pb"))], hlo
    if name == "script":
        python = b"import os\nos.environ['XLA_FLAGS'] = '--xla_a=' + str(1)\nos.environ['XLA_FLAGS'] += ' --b'\n"
        return [(PROJECT / "ratchet.sh").read_bytes(), python, b"export XLA_FLAGS='--xla_a=1'\n" * 9], script
    if name == "record":
        return [path.read_bytes() for path in sorted((PROJECT / "experiments").glob("00*.json"))[::6]], record
    if name.startswith("dump "):
        return [dumps(name.removeprefix("dump "))], dump
    return [serialized(one_device()), serialized(four_devices())], xprof(name.removeprefix("capture "))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("hlo text", 4000),
        ("hlo proto", 100),
        ("script", 1000),
        ("record", 2000),
        ("capture ops", 600),
        ("capture overview", 600),
        ("capture overlap", 500),
        ("capture export", 200),
        ("dump v5e-twice-1024", 400),
        ("dump v5e-planned-1024", 300),
        ("dump v5e-converged-1024", 300),
    ],
)
def test_no_edit_of_a_real_file_is_a_bug_or_takes_more_than_its_share(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_MAX_SECONDS", "2")
    monkeypatch.chdir(tmp_path)
    files, verb = saved(name)
    # The verb's imports are made once, here.
    exit_code(verb(tmp_path, files[0]))
    for number in range(count):
        draw = random.Random(f"{name} {number}")
        data = mutated(draw.choice(files), draw)
        try:
            checked(verb(tmp_path, data), len(data))
        except AssertionError as error:
            kept = Path(os.environ.get("RATCHET_FUZZ_KEPT", tmp_path)) / f"{name.replace(' ', '-')}-{number}"
            kept.write_bytes(data)
            raise AssertionError(f"{name}, edit {number}, kept as {kept}: {error}") from error


_WORDS = st.sampled_from(
    ["%a", "%b", "f32[8,128]{1,0:T(8,128)}", "s32[]", "(f32[8], s32[2])", "fusion", "while", "dot", "convolution",
     "all-reduce", "tuple", "parameter", "(", ")", "{", "}", "=", ",", "calls=", "body=", "ROOT", "ENTRY",
     "window={size=3x3 stride=2x2 pad=0_1x1_1}", "dim_labels=b01f_01io->b01f", "lhs_contracting_dims={1}",
     "replica_groups=[4,2]<=[2,4]T(1,0)", "sharding={devices=[2,2]<=[4]}", "metadata={op_name=\"x\"}", "\n",
     "backend_config={\"known_trip_count\":{\"n\":\"3\"}}", "to_apply=%c", "%c", "{\n", "\n}\n", "constant(5)"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.one_of(_WORDS, st.text(max_size=8), st.integers().map(str)), max_size=60))
def test_no_words_of_hlo_in_any_order_are_a_bug(words: list[str], tmp_path: Path) -> None:
    code, printed = exit_code(hlo(tmp_path, " ".join(words).encode("utf-8", "replace")))
    assert code in (0, 2, 4), printed
