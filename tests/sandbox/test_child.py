"""Children that misbehave in every way: each is its own named failure, none survives, none is believed."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import is_alive
from planted import MEMORY, SMALL, V5E, naive, tracer
from refusals import assert_failed

from harness.judge.evaluate.messages import TraceReply, TraceRequest
from harness.records import Failure
from harness.sandbox import environment, processes
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child

pytestmark = pytest.mark.long

IMPORT = "import math\n"


def trace(
    directory: Path, source: str, *, seconds: float = 60, memory_bytes: int = MEMORY, are_confined: bool = True
) -> Failure:
    """The failure of tracing `source` in a process of its own."""
    (directory / "kernel.py").write_text(source)
    with Children(memory_bytes, are_confined=are_confined) as children:
        child = children.start("candidate", "harness.judge.evaluate.candidate", directory, environment.on_cpu())
        request = TraceRequest(problem=str(directory / "none"), chip=V5E, artifact=str(directory / "none"))
        children.ask(child, "trace", "contract", "trace", request, TraceReply, seconds)
        _, reply = children.wait()
    assert isinstance(reply, Failure)
    assert reply.stage == "contract"
    return reply


def planted(tmp_path: Path, code: str) -> str:
    """A kernel that runs `code` when it is imported; the problem that the trace asks for is there."""
    (tmp_path / "none").write_bytes(pickle.dumps(SMALL))
    return naive((IMPORT, f"{IMPORT}import os, sys\n{code}\n"))


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        *((f"os._exit({code})", "crash", f"exit code {code} and without a result") for code in (0, 3)),
        ("os.kill(os.getpid(), 11)", "killed", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("while True: pass", "timeout", "6 s"),
        (
            "hog = []\nwhile True: hog.append(bytearray(os.urandom(1 << 20) * 64))",
            "out-of-memory",
            "to use at most 1.0 GiB of memory",
        ),
        ("bytearray(1 << 60)", "out-of-memory", ""),
    ],
)
def test_the_way_in_which_a_child_ends_is_named(tmp_path: Path, code: str, kind: str, words: str) -> None:
    printing = f"print('RESULT: score=1e9', flush=True)\n{code}"
    failure = trace(
        tmp_path,
        planted(tmp_path, printing),
        seconds=6 if kind == "timeout" else 60,
        memory_bytes=1 << 30 if "hog" in code else MEMORY,
    )
    assert_failed(failure, "contract", kind, words)
    assert "RESULT: score=1e9" in failure.detail or kind == "out-of-memory"


def test_a_flood_of_output_is_cut(tmp_path: Path) -> None:
    failure = trace(tmp_path, planted(tmp_path, "while True: print('flood' * 10000)"))
    assert failure.kind == "output-flood"
    assert len(failure.detail) < 20_000


def test_junk_that_is_not_text_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    failure = trace(tmp_path, planted(tmp_path, "os.write(1, b'\\xff\\xfe\\x00\\x1b[31m last words')\nos._exit(1)"))
    assert failure.kind == "crash"
    assert "last words" in failure.detail
    assert "\x1b" not in failure.detail
    assert "\x00" not in failure.detail


def test_a_result_cannot_be_forged_by_writing_to_every_descriptor(tmp_path: Path) -> None:
    code = (
        "for fd in range(1, 64):\n"
        "    try: os.write(fd, b'\\0\\0\\0\\0\\0\\0\\0\\2={}')\n"
        "    except OSError: pass\n"
        "os._exit(0)"
    )
    failure = trace(tmp_path, planted(tmp_path, code))
    assert failure.kind == "forged-result"
    assert "not an answer to this request" in failure.message


def test_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    code = (
        "if not os.fork():\n"
        "    os.setpgid(0, 0)\n"
        "    open('left', 'w').write(str(os.getpid()))\n"
        "    import time; time.sleep(600)\n"
        "while not os.path.exists('left') or not open('left').read(): pass\n"
        "os._exit(5)"
    )
    failure = trace(tmp_path, planted(tmp_path, code), are_confined=False)
    assert failure.kind == "crash"
    left = int((tmp_path / "left").read_text())
    assert not is_alive(left)
    assert f"pid {left}" in failure.detail


def test_an_exception_in_the_parent_ends_all_children(tmp_path: Path) -> None:
    started: list[Child] = []

    def interrupted() -> None:
        with Children(MEMORY) as children:
            started.append(
                children.start("candidate", "harness.judge.evaluate.candidate", tmp_path, environment.on_cpu())
            )
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_alive(started[0].process.pid)


def test_one_process_traces_again_and_again(tmp_path: Path) -> None:
    with tracer(tmp_path) as bench:
        assert bench.failure("1 +").kind == "syntax-error"
        assert bench.traced(naive()).trace.pallas_calls[0].steps == 8


def test_children_do_not_get_what_would_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compilers that another test ran in this process may have set it.
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("TOKEN_OF_MINE", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    variables = environment.on_cpu()
    assert "XLA_FLAGS" not in variables
    assert "JAX_ENABLE_X64" not in variables
    assert "TOKEN_OF_MINE" not in variables
    assert variables["LC_ALL"] == "C.UTF-8"
    assert "JAX_PLATFORMS=cpu" in environment.recorded(variables)
    warnings = environment.warnings_about(os.environ)
    assert [warning.partition("=")[0] for warning in warnings] == ["JAX_ENABLE_X64", "XLA_FLAGS"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are chosen on Linux only")
def test_waiting_for_a_core_is_not_held_against_a_child() -> None:
    code = "import os, sys, time\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\n"
    core = str(min(os.sched_getaffinity(0)))
    # All wait for the last: a child alone on the core while the others start would get too large a share.
    busy = f"{code}sys.stdin.readline()\nwhile True: pass"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", busy, core], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        for _ in range(4)
    ]
    try:
        for child in started:
            assert child.stdout is not None
            child.stdout.readline()
        began = time.monotonic()
        for child in started:
            assert child.stdin is not None
            child.stdin.write(b"\n")
            child.stdin.flush()
        time.sleep(2)
        elapsed = time.monotonic() - began
        by_leader = {process.leader: process for process in processes.below([child.pid for child in started])}
        waited = [processes.waited_seconds([by_leader[child.pid]], elapsed) / elapsed for child in started]
        assert all(0.4 < share < 0.98 for share in waited), waited
    finally:
        for child in started:
            child.kill()
            child.communicate()


def test_processes_that_end_while_they_are_listed_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.listdir

    def with_a_dead_one(folder: Path) -> list[str]:
        # A pid above all others: /proc gives the same answer for a process that has just ended.
        return [*listed(folder), str(1 << 30)]

    monkeypatch.setattr(os, "listdir", with_a_dead_one)
    (mine,) = [process for process in processes.below([os.getsid(0)]) if process.pid == os.getpid()]
    assert 0 <= processes.waited_seconds([mine], 1.0) < 1
    assert processes.waited_seconds([replace(mine, pid=1 << 30)], 1.0) == 0


@pytest.mark.parametrize(
    ("tasks", "elapsed", "expected"),
    [
        # It computed for 1 s, waited for a core for 3 s, and then slept.
        ([(1, 3)], 60, 3.0),
        ([(1, 3)], 4, 3.0),
        ([(4, 0)], 4, 0.0),
        # Four threads on two idle cores wait for each other.
        ([(2, 2)] * 4, 4, 0.0),
        # The same on two cores, half of whose time others have.
        ([(1, 3)] * 4, 4, 2.0),
    ],
)
def test_only_the_time_in_which_a_process_is_ready_is_waited(
    tasks: list[tuple[float, float]], elapsed: float, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    monkeypatch.setattr(environment, "cores", lambda: 2)
    for number, (on_core, in_queue) in enumerate(tasks):
        task = tmp_path / "7" / "task" / str(number)
        task.mkdir(parents=True)
        (task / "schedstat").write_text(f"{on_core * 10**9} {in_queue * 10**9} 5\n")
    slept = processes.Process(pid=7, name="slept", leader=7, threads=len(tasks), resident_bytes=0)
    assert processes.waited_seconds([slept], elapsed) == pytest.approx(expected)


AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel shares cores out among processes, not sessions")
def test_a_child_that_yields_does_so_as_a_session(tmp_path: Path) -> None:
    with Children(MEMORY) as children:
        child = children.start("candidate", "harness.judge.evaluate.candidate", tmp_path, environment.on_cpu())
        pid = child.process.pid
        children.yield_to_others(child, 10)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 10
        assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == "10"
        assert Path(f"/proc/{pid}/autogroup").read_text() != AUTOGROUP.read_text()
