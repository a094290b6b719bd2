"""A confined process has the named system calls of the kernel; every other number is refused."""

import errno
import platform
import re
from pathlib import Path

import pytest
from hostile import attack

from harness.records import Failure
from harness.sandbox import confinement, system_calls

filtered = pytest.mark.skipif(
    not confinement.isolation(True).system_calls_filtered,
    reason="system calls are filtered on x86-64 and aarch64 Linux",
)
CALL = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    # A fork that came through: only the parent may go on.
    if result == 0 and os.getpid() != OWN:
        os._exit(1)
    return ctypes.get_errno() if result < 0 else 0
OWN = os.getpid()
"""
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


def in_child(directory: Path, code: str) -> object:
    """The value of `found` in a confined child that ran `code`."""
    reply, _ = attack(directory, f"{CALL}{code}", are_confined=True)
    assert not isinstance(reply, Failure), reply
    return eval(reply, {"__builtins__": {}})


@filtered
def test_every_number_that_is_not_named_is_refused(tmp_path: Path) -> None:
    machine = platform.machine()
    named = set(system_calls.numbers(machine).values())
    # uretprobe and uprobe of x86-64: Linux shows them to no filter, and ends callers from elsewhere by SIGILL.
    named |= {335, 336} if machine == "x86_64" else set()
    others = [number for number in range(system_calls.NEWEST + 30) if number not in named]
    # With arguments that make no sense: without the filter they would fail in another way, or succeed.
    errors = in_child(tmp_path, f"found = {{n: call(n, -1, -1, -1, -1, -1, -1) for n in {others}}}")
    unknown = {*system_calls.unknown(machine), *range(system_calls.NEWEST + 1, system_calls.NEWEST + 30)}
    assert errors == {number: errno.ENOSYS if number in unknown else errno.EPERM for number in others}
    assert len(others) > 290


@filtered
@pytest.mark.skipif(platform.machine() != "x86_64", reason="these numbers are those of x86-64")
def test_what_gets_at_the_system_or_at_other_processes_is_refused(tmp_path: Path) -> None:
    attempts = {
        "unshare": "call(272, 0x10000000)", "settimeofday": "call(164, 0, 0)", "clock_settime": "call(227, 0, 0)",
        "userfaultfd": "call(323, 1)", "keyctl": "call(250, 0, -3, 0)", "add_key": "call(248, 0, 0, 0, 0, -3)",
        "syslog": "call(103, 10, 0, 0)", "reboot": "call(169, 0, 0, 0, 0)", "shmget": "call(29, 0, 4096, 0o1600)",
        "semget": "call(64, 0, 1, 0o1600)", "msgget": "call(68, 0, 0o1600)", "mq_open": "call(240, 0, 0, 0, 0)",
        "bpf": "call(321, 0, 0, 0)", "perf_event_open": "call(298, 0, 0, -1, -1, 0)", "mount": "call(165, 0, 0, 0, 0)",
        "ptrace": "call(101, 16, os.getppid(), 0, 0)", "process_vm_readv": "call(310, os.getppid(), 0, 0, 0, 0, 0)",
        "io_uring_setup": "call(425, 1, 0)", "pidfd_open": "call(434, os.getppid(), 0)", "socket": "call(41, 1, 1, 0)",
        "socketpair": "call(53, 1, 1, 0, 0)", "sendmsg": "call(46, 3, 0, 0)", "setns": "call(308, 3, 0)",
        "memfd_create": "0 if call(319, 0, 0) != 38 else 1", "inotify_init": "call(294, 0)", "sync": "call(162)",
        "mknod": "call(133, 0, 0, 0)", "splice": "call(275, 0, 0, 1, 0, 1, 0)", "setpriority": "call(141, 0, 0, 5)",
        # By their arguments.
        "fork by clone": "call(56, 17, 0, 0, 0, 0)", "a thread in a namespace": "call(56, 0x10010f00 | 0x20000, 0)",
        "kill the judge": "call(62, os.getppid(), 0)", "kill the group": "call(62, 0, 0)",
        "kill all": "call(62, -1, 0)",
        "tgkill the judge": "call(234, os.getppid(), os.getppid(), 0)",
        "slow the judge": "call(203, os.getppid(), 8, id(call))",
        "the judge's limits": "call(302, os.getppid(), 4, 0, 0)", "own limits": "call(302, 0, 4, id(call), 0)",
        "outlive the judge": "call(157, 1, 0, 0, 0, 0)", "be traced": "call(157, 0x59616d61, -1, 0, 0, 0)",
        "type into a terminal": "call(16, 0, 0x5412, id(call))", "signals by a file": "call(72, 0, 8, os.getppid())",
        "a larger pipe": "call(72, 1, 1031, 1 << 20)", "send elsewhere": "call(44, 3, 0, 0, 0, id(call), 16)",
        "change a register": "call(158, 0x1001, 0)",
    }  # fmt: skip
    listed = ", ".join(f"{name!r}: {code}" for name, code in attempts.items())
    errors = in_child(tmp_path, f"found = {{{listed}}}")
    assert errors == dict.fromkeys(attempts, errno.EPERM)


@filtered
def test_threads_signals_to_itself_and_questions_go_on(tmp_path: Path) -> None:
    code = (
        "import resource, threading, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "signal.raise_signal(signal.SIGUSR1)\n"
        "thread = threading.Thread(target=heard.append, args=(1,))\n"
        "thread.start(); thread.join()\n"
        "found = [len(heard), resource.getrlimit(resource.RLIMIT_CORE), os.sched_getaffinity(0) != set(),"
        " resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 2048]"
    )
    assert in_child(tmp_path, code) == [3, (0, 0), True, True]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.is_file():
        pytest.skip(f"{header} is not installed")
    in_headers = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    in_headers["newfstatat"] = in_headers.get("newfstatat", in_headers.get("fstatat", 0))
    # Some are newer than the installed headers; these have the same number everywhere.
    newer = {"mseal": 462, "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456}
    named = system_calls.numbers(machine)
    assert named == {name: in_headers.get(name, newer.get(name)) for name in named}
    assert len(set(named.values())) == len(named)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_fits_and_every_jump_stays_within_it(machine: str) -> None:
    program = system_calls.program(machine, 4711)
    rows = [(program[at], program[at + 2], program[at + 3]) for at in range(0, len(program), 8)]
    # BPF_MAXINSNS of linux/bpf_common.h; the last one answers.
    assert len(rows) <= 4096
    assert rows[-1][0] == 0x06
    for at, (code, if_true, if_false) in enumerate(rows):
        if code & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(rows)
