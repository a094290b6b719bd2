"""The limits of a confined child, and how changes by an unconfined one (on an old kernel) are noticed and undone."""

import ast
import os
import re
import socket
import sysconfig
from pathlib import Path

import pytest
from hostile import attack, is_alive
from planted import NAIVE, SMALL, request, tracer, with_wrapper
from refusals import assert_failed

import harness
from harness.judge.evaluate import evaluation
from harness.judge.evaluate.trace.imports import flags
from harness.records import Failure
from harness.sandbox import confinement, handover, readable
from harness.sandbox.messages import Rejected

pytestmark = pytest.mark.long

needs_landlock = pytest.mark.skipif(confinement.landlock_version() is None, reason="this kernel has no Landlock")


def message_of(reply: str | Failure) -> str:
    return f"{reply.kind}: {reply.message}" if isinstance(reply, Failure) else reply


@needs_landlock
@pytest.mark.parametrize(
    "attempt",
    [
        "open({path!r}).read()",
        "open({path!r}, 'w')",
        "open({path!r}, 'a')",
        "os.truncate({path!r}, 0)",
        "os.unlink({path!r})",
        "os.rename({path!r}, 'mine')",
        "os.link({path!r}, 'mine')",
        "os.symlink('x', {path!r} + '2')",
        "os.mkdir({path!r} + '2')",
        "os.listdir(os.path.dirname({path!r}))",
    ],
)
def test_files_outside_are_out_of_reach(tmp_path: Path, attempt: str) -> None:
    outside = tmp_path / "outside" / "judge.py"
    outside.parent.mkdir()
    outside.write_text("honest = True\n")
    attempt = attempt.format(path=str(outside))
    reply, _ = attack(tmp_path / "scratch", f"import os\n{attempt}", are_confined=True)
    # A link or a move between closed and open folders is refused as one between file systems.
    assert "PermissionError" in message_of(reply) or "Invalid cross-device link" in message_of(reply)
    assert outside.read_text() == "honest = True\n"
    assert [path.name for path in outside.parent.iterdir()] == ["judge.py"]
    # Without confinement the same line works, so it is the confinement that stops it.
    reply, _ = attack(tmp_path / "scratch", f"import os\n{attempt}", are_confined=False)
    assert not isinstance(reply, Failure)


# Each path exists on most machines; a missing path cannot be read either.
PRIVATE = """
    /etc/passwd /etc/group /etc/shadow /etc/hostname /etc/hosts /etc/resolv.conf /etc/machine-id /etc/os-release
    /etc/fstab /root/.bashrc /root/.ssh /home /var/log /opt /usr/share/doc /usr/local/etc
    /proc/self/environ /proc/self/net/unix /proc/self/mountinfo /proc/cmdline /proc/1/status
    /proc/sys/kernel/hostname /proc/net/dev /sys/class/net /sys/class/dmi/id/sys_vendor
    /dev/shm /dev/mem /dev/kmsg /dev/tty /tmp / /mnt /run /boot
"""
# Tries to read each path, as a folder and as a file, and puts down how that ended.
READING = """
import os
found = []
for path in {paths!r}:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(64)
    except Exception as error:
        found.append(f"{{type(error).__name__}}: {{error}}")
    else:
        found.append("was read")
"""


@needs_landlock
def test_what_is_about_people_and_services_cannot_be_read(tmp_path: Path) -> None:
    paths = PRIVATE.split()
    reply, _ = attack(tmp_path, READING.format(paths=paths), are_confined=True)
    assert isinstance(reply, str), reply
    endings = dict(zip(paths, ast.literal_eval(reply), strict=True))
    refusal = re.compile(r"PermissionError|FileNotFoundError|OSError: \[Errno 6\]")
    assert {path: ending for path, ending in endings.items() if not refusal.match(ending)} == {}


@needs_landlock
def test_the_repository_around_the_harness_cannot_be_read_or_listed(tmp_path: Path) -> None:
    top = Path(harness.__file__).parents[1]
    for attempt in (
        f"os.listdir({str(top)!r})",
        f"open({str(top / 'SECURITY.md')!r})",
        f"os.listdir({str(top)!r} + '/.git')",
    ):
        reply, _ = attack(tmp_path, f"import os\n{attempt}", are_confined=True)
        assert "PermissionError" in message_of(reply) or "NotADirectory" in message_of(reply), attempt


def test_a_library_path_does_not_open_a_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/:/etc:{Path.home()}:/home::lib:{tmp_path}")
    named = set(readable.installed())
    assert str(tmp_path) in named
    assert not named & {"/", "/etc", "/home", "", "lib", str(Path.home())}


def test_packages_can_be_read_also_where_the_harness_is_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = sysconfig.get_path("purelib")
    monkeypatch.setattr(harness, "__file__", f"{packages}/harness/__init__.py")
    assert packages in set(readable.installed())


@needs_landlock
def test_no_pipe_socket_or_device_is_made_even_in_its_own_folder(tmp_path: Path) -> None:
    for attempt in ("os.mkfifo('x')", "os.mknod('x', 0o20600, 0x103)", "os.execv('./run', ['run'])"):
        (tmp_path / "run").write_text("#!/bin/sh\n")
        (tmp_path / "run").chmod(0o755)
        reply, _ = attack(tmp_path, f"import os\n{attempt}", are_confined=True)
        assert "PermissionError" in message_of(reply), attempt


@needs_landlock
def test_other_processes_are_out_of_reach(tmp_path: Path) -> None:
    code = "import os, pathlib\n{}"
    for attempt in (
        "os.kill(os.getppid(), 0)",
        "pathlib.Path(f'/proc/{os.getppid()}/environ').read_bytes()",
        "open(f'/proc/{os.getppid()}/mem', 'rb')",
    ):
        reply, _ = attack(tmp_path / "scratch", code.format(attempt), are_confined=True)
        assert "PermissionError" in message_of(reply), attempt


def test_limits_of_other_processes_are_out_of_reach(tmp_path: Path) -> None:
    if not confinement.isolation(True).system_calls_filtered:
        pytest.skip("Landlock leaves these open; they are filtered on Linux on x86-64 and aarch64")
    code = "import os, resource\nfound = resource.prlimit({}, resource.RLIMIT_CORE)"
    reply, _ = attack(tmp_path, code.format("os.getppid()"), are_confined=True)
    assert "PermissionError" in message_of(reply)
    reply, _ = attack(tmp_path, code.format("0"), are_confined=True)
    assert reply == "(0, 0)"


def test_no_process_and_no_socket_can_be_started(tmp_path: Path) -> None:
    if not confinement.isolation(True).system_calls_filtered:
        pytest.skip("system calls are filtered on Linux on x86-64 and aarch64")
    with socket.create_server(("127.0.0.1", 0)) as server:
        for attempt in (
            "os.fork()",
            "os.posix_spawn('/bin/true', ['true'], {})",
            "os.execv('/bin/true', ['true'])",
            "subprocess.run(['true'])",
            f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))",
            "socket.socket(socket.AF_UNIX)",
        ):
            reply, left = attack(tmp_path, f"import os, subprocess, socket\n{attempt}", are_confined=True)
            assert "PermissionError" in message_of(reply), attempt
            assert left == ()


@pytest.mark.parametrize(
    "attempt",
    [
        "os.chmod({path!r}, 0)",
        "os.chmod(os.open({path!r}, os.O_PATH), 0)",
        "os.chown({path!r}, os.getuid(), -1)",
        "os.lchown({path!r}, -1, -1)",
        "os.utime({path!r}, (0, 0))",
        "os.setxattr({path!r}, 'user.mine', b'x')",
        "os.removexattr({path!r}, 'user.yours')",
    ],
)
def test_modes_owners_and_times_outside_are_out_of_reach(tmp_path: Path, attempt: str) -> None:
    if not confinement.isolation(True).system_calls_filtered:
        pytest.skip("Landlock leaves these open; they are filtered on Linux on x86-64 and aarch64")
    outside = tmp_path / "judge.py"
    outside.write_text("honest = True\n")
    before = outside.stat()
    reply, _ = attack(tmp_path / "scratch", f"import os\n{attempt.format(path=str(outside))}", are_confined=True)
    assert "PermissionError" in message_of(reply)
    assert outside.stat() == before


def test_its_own_folder_threads_and_arithmetic_are_left_to_it(tmp_path: Path) -> None:
    code = (
        "import threading, tempfile, pathlib\n"
        "pathlib.Path('mine').write_text('kept')\n"
        "place = pathlib.Path(tempfile.gettempdir(), 'thread')\n"
        "thread = threading.Thread(target=place.write_text, args=('ran',))\n"
        "thread.start()\n"
        "thread.join()\n"
        "found = sum(range(10))"
    )
    reply, _ = attack(tmp_path, code, are_confined=True)
    assert reply == "45"
    assert (tmp_path / "mine").read_text() == "kept"
    assert (tmp_path / "thread").read_text() == "ran"


def test_a_file_without_end_is_cut(tmp_path: Path) -> None:
    reply, _ = attack(tmp_path, f"open('x', 'wb').truncate({confinement.FILE_BYTES + 1})", are_confined=True)
    assert message_of(reply).startswith("file-too-large: expected files of at most 4 GiB")


DAEMON = (
    "import os, time, pathlib\n"
    "if not os.fork():\n"
    "    os.setsid()\n"
    "    if not os.fork():\n"
    "        os.closerange(0, 64)\n"
    "        pathlib.Path('left').write_text(str(os.getpid()))\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
    "while not os.path.exists('left') or not open('left').read(): pass\n"
)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("ending", ["found = 'done'", "os._exit(0)", "os.kill(os.getpid(), 9)", "time.sleep(600)"])
def test_a_daemon_that_forked_twice_into_a_session_of_its_own_is_found_and_named(tmp_path: Path, ending: str) -> None:
    # Only the ending that sleeps uses up its time.
    seconds = 2 if "sleep" in ending else 60
    reply, left = attack(tmp_path, DAEMON + ending, are_confined=False, seconds=seconds)
    pid = int((tmp_path / "left").read_text())
    assert not is_alive(pid)
    assert any(f"pid {pid}" in words for words in left)
    assert isinstance(reply, Failure) == (ending != "found = 'done'")


def test_too_many_processes_are_ended(tmp_path: Path) -> None:
    code = "import os, time\nfor _ in range(100):\n    if not os.fork(): time.sleep(600)\nwhile True: pass"
    reply, left = attack(tmp_path, code, are_confined=False, memory_bytes=64 << 30)
    assert message_of(reply).startswith("too-many-processes: expected the candidate process to have at most ")
    assert len(left) > 64


def test_a_blindly_forged_answer_is_told_from_a_crash(tmp_path: Path) -> None:
    code = (
        "import os, struct\n"
        "answer = b'0' * 32 + b'={\"path\": \"forged\"}'\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, struct.pack('!Q', len(answer)) + answer)\n"
        "    except OSError: pass\n"
    )
    for ending in ("os._exit(0)", "while True: pass"):
        reply, _ = attack(tmp_path, code + ending, are_confined=True)
        assert message_of(reply).startswith("forged-result")


def test_a_program_handed_over_is_a_file_of_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (tmp_path / "program").write_bytes(b"bytes")
    assert handover.take_over(tmp_path / "program", kept, "static") is None
    assert kept.read_bytes() == b"bytes"
    (tmp_path / "link").symlink_to(tmp_path / "program")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "nothing"):
        failure = handover.take_over(tmp_path / name, tmp_path / "other", "static")
        assert failure is not None
        assert failure.kind == "forged-result"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "code",
    [
        "import ctypes",
        "from subprocess import run",
        "import importlib.util as u",
        "import jax\nimport gc",
        "eval('1')",
        "import sys\nsys._getframe(1)",
        "getattr(f, '__globals__')",
        "x = ().__class__.__base__.__subclasses__()",
        "import harness.sandbox.child",
        "def f():\n    import socket",
        "import numpy as np\nnp.ctypeslib",
        "from numpy import ctypeslib",
        "from numpy.core._internal import ctypes",
        "x.ctypes._ctypes",
        "np.f2py.compile(x)",
        "getattr(np, 'ctypeslib')",
        "getattr(np, 'core._internal.ctypes')",
        "import sys\nsys.modules['ctypes']",
        "import functools\nfunctools.sys",
        "from functools import sys",
        "import random\nrandom._os.system('ls')",
        "import enum\nenum.bltns",
        "import enum as e\nb = e.bltns",
        "import warnings\nwarnings.sys.modules",
        "print.__self__",
        "import typing\ntyping.get_type_hints(x)",
        "x = typing.ForwardRef('f()')",
        "match np:\n    case object(ctypeslib=c): pass",
        "import dataclasses\ndataclasses.inspect.sys",
        "import contextlib\ncontextlib.os.environ",
        "import jax\njax.numpy.np.ctypeslib",
        "import jax.monitoring",
        "from jax import monitoring",
        "import jax\njax._src.monitoring.register_event_listener(f)",
    ],
)
def test_what_has_no_business_in_a_kernel_is_refused_by_its_line(code: str) -> None:
    with pytest.raises(Rejected) as caught:
        flags(ast.parse(code))
    assert caught.value.failure.kind == "forbidden-import"
    assert f"line {len(code.splitlines())}" in caught.value.failure.message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("getattr(x, name)", "calls getattr with a computed name"),
        ("x = vars(y)", "names vars"),
        ("x.__dict__", "names __dict__"),
        ("sys.modules", "names modules"),
        ("import dataclasses\ndataclasses.inspect", "reaches inspect"),
        ("import jax\njax._src.core", "names _src"),
    ],
)
def test_what_does_not_say_where_it_leads_is_named(code: str, words: str) -> None:
    assert words in "; ".join(flags(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nnp.linalg.norm(x)",
        "import jax.numpy as jnp\njnp.select(x, y)",
        "getattr(x, 'shape')",
        "import jax\njax.lax.rsqrt(x)",
        "KERNEL_NAME = 'os'",
        "import functools\nfunctools.partial(f, 1)",
        "from jax.experimental.pallas import tpu as pltpu\npltpu.CompilerParams()",
        "'a text about ctypes and sockets'",
        "import collections\ncollections.abc.Mapping",
    ],
)
def test_what_kernels_do_is_not_named(code: str) -> None:
    assert flags(ast.parse(code)) == ()


def test_what_is_unusual_is_named_and_what_a_kernel_needs_is_not() -> None:
    assert flags(ast.parse(NAIVE)) == ()
    (first, second) = flags(ast.parse("import os\nfrom jax._src import core"))
    assert "line 1 imports os" in first
    assert "line 2 imports jax._src.core" in second


# The means of a hostile kernel_fn: the serialisation that the candidate's process uses.
FORGED = """    return honest(q, k, v)


from jax import export

honest_serialize = export.Exported.serialize


def serialize(exported, *arguments, **options):
    if exported.platforms == ("tpu",):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]
        exported = export.export(jax.jit(cheap), platforms=["tpu"])(*shapes)
    return honest_serialize(exported, *arguments, **options)


def cheap(q, k, v):
    return honest(q, k[:256], v[:256])


type.__setattr__(export.Exported, "serialize", serialize)
UNTOUCHED = lambda before: None
import sys
"""


def test_a_class_of_jax_that_was_patched_is_noticed(tmp_path: Path) -> None:
    with tracer(tmp_path) as bench:
        assert_failed(bench.failure(with_wrapper(FORGED)), "static", "judge-patched", "Exported.serialize")


@pytest.mark.parametrize(
    "left",
    [
        "getattr(jax, 'moni' + 'toring').register_event_listener(print)",
        "import warnings\nwarnings.showwarning = print",
        "import logging\nlogging.getLogger('jax').addFilter(print)",
        "import sys\ngetattr(sys, 'path_' + 'hooks').append(print)",
    ],
)
def test_what_is_called_while_other_code_runs_is_noticed(tmp_path: Path, left: str) -> None:
    with tracer(tmp_path) as bench:
        assert_failed(bench.failure(f"{NAIVE}\n{left}\n"), "static", "settings-changed", "listener of JAX")


def test_another_program_for_the_tpu_than_was_traced_is_noticed_where_kernel_py_never_ran(tmp_path: Path) -> None:
    """This holds even if the candidate controls the tracing process: here it switches its guard off."""
    silent = FORGED + 'sys.modules["harness.judge.evaluate.trace.integrity"].require_untouched = UNTOUCHED\n'
    assert_failed(evaluated(tmp_path, with_wrapper(silent)), "static", "forged-result")


def evaluated(tmp_path: Path, kernel: str) -> Failure:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    evidence = evaluation.evaluate(request(tmp_path, kernel, SMALL))
    assert evidence.failure is not None
    assert evidence.isolation is not None
    assert evidence.isolation.landlock == confinement.landlock_version()
    assert "JAX_PLATFORMS=cpu" in evidence.isolation.variables
    return evidence.failure
