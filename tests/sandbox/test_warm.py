"""Children that are forked from a process that has imported JAX: confined like any other, with nothing carried over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hostile import Source, attack, is_alive
from planted import ROWS, norm, request

import harness
from harness.judge.evaluate import evaluation
from harness.records import Failure
from harness.sandbox import confinement, environment, warm
from harness.sandbox.child import Children
from harness.sandbox.messages import Done

_layers = confinement.isolation(is_confined=True)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        _layers.landlock is None or not _layers.system_calls_filtered, reason="without both walls nothing is forked"
    ),
]
MEMORY = 4 << 30
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def fresh() -> Iterator[None]:
    """Ends the forking process before and after the test."""
    warm.close()
    yield
    warm.close()


def run(
    directory: Path, text: str, *, is_confined: bool = True, variables: Mapping[str, str] | None = None
) -> tuple[str, bool]:
    """The value of `found` after running `text` in a child of its own, and whether that was a fork."""
    directory.mkdir(exist_ok=True)
    child_variables = {**(environment.on_cpu() if variables is None else variables)}
    child_variables["PYTHONPATH"] += f"{os.pathsep}{SUPPORT}"
    with Children(MEMORY, are_confined=is_confined) as children:
        child = children.start("candidate", "hostile", directory, child_variables)
        children.ask(child, "run", "contract", "run", Source(text=text), Done, 60)
        _, reply = children.wait()
        return (reply.message if isinstance(reply, Failure) else reply.path), isinstance(child.process, warm.Forked)


def server_pid() -> int:
    assert warm._server is not None
    return warm._server.process.pid


def test_a_fork_has_jax_and_is_confined(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "lines = [line.split() for line in open(f'/proc/{os.getpid()}/status')]\n"
        "status = {line[0]: line[1] for line in lines if len(line) > 1}\n"
        "found = ('jax' in sys.modules, status['NoNewPrivs:'], status['Seccomp:'], status['Threads:'],\n"
        "         os.getcwd(), os.environ['HOME'], os.getsid(0) == os.getpid(), sorted(os.environ))"
    )
    answer, is_fork = run(tmp_path / "child", code)
    assert is_fork
    child = str(tmp_path / "child")
    *status, names = eval(answer)
    assert status == [True, "1", "2", "1", child, child, True]
    # The child has what a fresh interpreter has after the same imports, and nothing of the forking process.
    imports = "\n".join(f"import {name}" for name in warm.PRELOADED)
    cold = run(tmp_path / "cold", f"{imports}\nimport os\nfound = sorted(os.environ)", is_confined=False)
    assert cold == (str(names), False)


def test_it_holds_no_descriptor_but_its_channel(tmp_path: Path) -> None:
    code = (
        "import os\nfound = []\n"
        "for number in range(2048):\n"
        "    try: found.append((number, os.fstat(number).st_mode >> 12))\n"
        "    except OSError: pass"
    )
    answer, is_fork = run(tmp_path, code)
    # Input is a character device, output and errors are the pipe, then there is the socket.
    assert is_fork
    assert eval(answer) == [(0, 2), (1, 1), (2, 1), (3, 12)]


def test_nothing_is_carried_over(tmp_path: Path) -> None:
    first = run(
        tmp_path,
        "import jax, math, os, sys\n"
        "math.pi = 3\nsys.planted = True\nos.environ['PLANTED'] = '1'\njax.config.update('jax_enable_x64', True)\n"
        "jax.jit(lambda x: x + 1)(1)\nfound = (os.getpid(), os.getppid())",
    )
    second = run(
        tmp_path,
        "import jax, math, os, sys\n"
        "found = (math.pi, hasattr(sys, 'planted'), os.environ.get('PLANTED'), jax.config.jax_enable_x64)",
    )
    assert first[1]
    assert second == (str((3.141592653589793, False, None, False)), True)
    # It is not the child of the forking process: whatever it leaves behind is found below the judging process.
    assert eval(first[0])[1] == os.getpid()


def test_random_numbers_differ_from_fork_to_fork(tmp_path: Path) -> None:
    code = "import random, numpy\nfound = (random.random(), numpy.random.random())"
    first, second = (eval(run(tmp_path, code)[0]) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_a_child_without_walls_is_never_a_fork(tmp_path: Path) -> None:
    """It could reach the process that forks."""
    assert run(tmp_path, "found = 1", is_confined=False) == ("1", False)


def test_a_child_cannot_reach_the_process_that_forks(tmp_path: Path) -> None:
    assert run(tmp_path, "found = 1")[1]
    pid = server_pid()
    for code in (
        f"os.kill({pid}, 9)",
        f"open('/proc/{pid}/mem', 'r+b')",
        f"os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    ):
        reply, _ = attack(tmp_path, f"import os\n{code}", are_confined=True)
        assert isinstance(reply, Failure), code
        assert "PermissionError" in reply.message, code
    assert server_pid() == pid
    assert is_alive(pid)


@pytest.mark.usefixtures("fresh")
def test_it_is_replaced_when_it_is_gone_or_the_harness_changed(tmp_path: Path) -> None:
    assert run(tmp_path, "found = 1") == ("1", True)
    first = server_pid()
    os.kill(first, signal.SIGKILL)
    assert warm._server is not None
    warm._server.process.wait()
    assert run(tmp_path, "found = 2") == ("2", True)
    second = server_pid()
    assert second != first
    warm._server.stamp += 1
    assert run(tmp_path, "found = 3") == ("3", True)
    assert server_pid() != second
    assert not is_alive(second)


# The number of kernels that XLA makes for two results of one array.
XLA_OBEYS = """
import jax, jax.numpy as jnp
def both(x):
    return jnp.exp(x[:, :128]), jnp.exp(x[:, 128:])
text = jax.jit(both).lower(jnp.zeros((256, 256))).compile().as_text()
found = text[text.index("ENTRY"):].count("fusion(")
"""


@pytest.mark.parametrize(
    ("variables", "kernels"),
    [
        (environment.on_cpu(), "2"),
        (environment.interpreting(), "1"),
        (environment.checking(1), "2"),
        (environment.checking(1_000_000), "1"),
    ],
)
def test_a_fork_obeys_the_settings_of_xla_that_it_is_given(
    tmp_path: Path, variables: Mapping[str, str], kernels: str
) -> None:
    assert run(tmp_path, XLA_OBEYS, variables=variables) == (kernels, True)


@pytest.mark.skipif(find_spec("libtpu") is None, reason="the TPU compiler exists for x86-64 Linux only")
def test_every_process_of_a_judgement_is_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, bool] = {}
    fork = warm.fork

    def noted(name: str, *arguments: Any) -> warm.Forked | None:
        forked = fork(name, *arguments)
        started[name] = forked is not None
        return forked

    monkeypatch.setattr(warm, "fork", noted)
    evaluation.evaluate(request(tmp_path, norm(), ROWS))
    assert started == dict.fromkeys(("candidate", "certifier", "checker", "compiler", "simulator"), True)


@pytest.mark.usefixtures("fresh")
def test_with_a_second_thread_it_does_not_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"
    )
    base = environment.base
    monkeypatch.setattr(warm, "PRELOADED", ("threaded",))
    monkeypatch.setattr(
        environment, "base", lambda: {**base(), "PYTHONPATH": f"{base()['PYTHONPATH']}{os.pathsep}{tmp_path}"}
    )
    assert run(tmp_path / "child", "found = 1") == ("1", False)
    monkeypatch.setattr(warm, "_failures", 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_outlives_the_judging_process(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from harness.sandbox import environment, warm\nfrom harness.sandbox.child import Children\n"
        "with Children(1 << 32) as children:\n"
        f"    child = children.start('candidate', 'harness.judge.evaluate.candidate', Path({str(tmp_path)!r}),\n"
        "                            environment.on_cpu())\n"
        "    print(type(child.process).__name__, child.process.pid, warm._server.process.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    judge = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(harness.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert judge.stdout is not None
    kind, *pids = judge.stdout.readline().split()
    assert kind == "Forked"
    judge.send_signal(number)
    judge.wait(20)
    judge.stdout.close()
    deadline = time.monotonic() + 20
    while any(is_alive(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if is_alive(int(pid))]
