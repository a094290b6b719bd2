"""The system calls that a confined child may make, by name, and the seccomp filter (seccomp(2)) made of them.

All other calls are refused. The names were found by tracing every kind of child (candidate, checker, compiler,
simulator, timer on the CPU) under CPython 3.11 and 3.12 with JAX 0.10 and 0.12. Calls that glibc 2.28 and later makes
in their place were added. No allowed call acts on another process, starts a process, or opens a channel out of the
process. None changes an attribute of a file (which Landlock does not see), or holds memory that the limit on resident
memory does not count.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# linux/audit.h: EM_X86_64 and EM_AARCH64 with the bits for 64 bit and little-endian.
AUDIT_ARCHITECTURES: dict[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Each name is followed by its number in asm/unistd_64.h (x86-64) and in asm-generic/unistd.h (aarch64; "-" if there is
# no such call). A comment says why each group is needed. `_conditions` limits the arguments of some calls.
ALLOWED: dict[str, str] = {
    # malloc, mmap of libraries and programs that XLA compiles, NUMA placement by OpenBLAS, memory protection keys.
    "memory": """
        mmap 9 222  munmap 11 215  mprotect 10 226  mremap 25 216  madvise 28 233  brk 12 214  msync 26 227
        mincore 27 232  mlock 149 228  munlock 150 229  mlock2 325 284  mbind 237 235  set_mempolicy 238 237
        get_mempolicy 239 236  pkey_mprotect 329 288  pkey_alloc 330 289  pkey_free 331 290  mseal 462 462
    """,
    # Threads of JAX, XLA and BLAS; arch_prctl is how oneDNN asks for the AMX registers.
    "threads": """
        clone 56 220  exit 60 93  exit_group 231 94  futex 202 98  futex_waitv 449 449  futex_wake 454 454
        futex_wait 455 455  futex_requeue 456 456  set_robust_list 273 99  rseq 334 293  set_tid_address 218 96
        membarrier 324 283  restart_syscall 219 128  sched_yield 24 124  sched_getaffinity 204 123
        sched_setaffinity 203 122  sched_getparam 143 121  sched_getscheduler 145 120  sched_get_priority_max 146 125
        sched_get_priority_min 147 126  sched_getattr 315 275  getpriority 140 141  getcpu 309 168  prctl 157 167
        arch_prctl 158 -
    """,
    # Clocks, which are read only, and timers of the process itself.
    "time": """
        clock_gettime 228 113  clock_getres 229 114  clock_nanosleep 230 115  nanosleep 35 101  gettimeofday 96 169
        time 201 -  times 100 153  getitimer 36 102  setitimer 38 103  alarm 37 -  timer_create 222 107
        timer_settime 223 110  timer_gettime 224 108  timer_getoverrun 225 109  timer_delete 226 111
        timerfd_create 283 85  timerfd_settime 286 86  timerfd_gettime 287 87
    """,
    # Handlers of signals, and signals to the process itself: abort() and the crash handlers of absl.
    "signals": """
        rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  rt_sigpending 127 136  rt_sigtimedwait 128 137
        rt_sigsuspend 130 133  sigaltstack 131 132  pause 34 -  kill 62 129  tgkill 234 131
    """,
    # Files that are open, the channel to the judging process, pipes and polls between threads.
    "descriptors": """
        read 0 63  write 1 64  readv 19 65  writev 20 66  pread64 17 67  pwrite64 18 68  preadv 295 69  pwritev 296 70
        preadv2 327 286  pwritev2 328 287  lseek 8 62  close 3 57  close_range 436 436  dup 32 23  dup2 33 -
        dup3 292 24  fcntl 72 25  ioctl 16 29  fstat 5 80  ftruncate 77 46  fallocate 285 47  fsync 74 82
        fdatasync 75 83  flock 73 32  fadvise64 221 223  readahead 187 213  sendfile 40 71  copy_file_range 326 285
        poll 7 -  ppoll 271 73  select 23 -  pselect6 270 72  epoll_create 213 -  epoll_create1 291 20
        epoll_ctl 233 21  epoll_wait 232 -  epoll_pwait 281 22  epoll_pwait2 441 441  eventfd 284 -  eventfd2 290 19
        pipe 22 -  pipe2 293 59  sendto 44 206  recvfrom 45 207
    """,
    # Files by path: Landlock decides which files may be opened. Of all other files, a child can read only names, sizes
    # and times.
    "files": """
        open 2 -  openat 257 56  creat 85 -  stat 4 -  lstat 6 -  newfstatat 262 79  statx 332 291  access 21 -
        faccessat 269 48  faccessat2 439 439  readlink 89 -  readlinkat 267 78  statfs 137 43  fstatfs 138 44
        getcwd 79 17  chdir 80 49  fchdir 81 50  getdents 78 -  getdents64 217 61  mkdir 83 -  mkdirat 258 34
        rmdir 84 -  unlink 87 -  unlinkat 263 35  rename 82 -  renameat 264 38  renameat2 316 276  link 86 -
        linkat 265 37  symlink 88 -  symlinkat 266 36  truncate 76 45  umask 95 166
    """,
    # Questions about the process itself, and random bits.
    "questions": """
        getpid 39 172  gettid 186 178  getppid 110 173  getuid 102 174  geteuid 107 175  getgid 104 176  getegid 108 177
        getresuid 118 148  getresgid 120 150  getgroups 115 158  getpgid 121 155  getpgrp 111 -  getsid 124 156
        capget 125 90  uname 63 160  sysinfo 99 179  getrusage 98 165  getrlimit 97 163  prlimit64 302 261
        getrandom 318 278
    """,
}

# clone3 and openat2 hide their flags from a filter; a memfd holds memory that belongs to no process. Libraries do
# without these three calls on kernels that lack them, so the filter answers as such a kernel does.
_ANSWERED_AS_UNKNOWN = "clone3 435 435  openat2 437 437  memfd_create 319 279"
# The newest call that this table covers (Linux 6.19, listns). A newer call, or a call with the bit of the x32 ABI, gets
# the answer of an older kernel, so that a future library finds another way.
NEWEST = 470

# linux/sched.h: clone may have only the flags of pthread_create and must have CLONE_THREAD, so that it makes neither a
# process nor a namespace.
_CLONE_THREAD = 0x00010000
_OF_A_THREAD = (
    # VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID, DETACHED, CHILD_SETTID.
    0x00000100
    | 0x00000200
    | 0x00000400
    | 0x00000800
    | _CLONE_THREAD
    | 0x00040000
    | 0x00080000
    | 0x00100000
    | 0x00200000
    | 0x00400000
    | 0x01000000
)
# linux/prctl.h: SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, GET_TIMERSLACK, GET_NO_NEW_PRIVS, GET_THP_DISABLE,
# SVE_GET_VL, GET_AUXV, SET_VMA. Not SET_PDEATHSIG: the child ends with its parent.
_PRCTL = (15, 16, 21, 23, 30, 39, 42, 51, 0x41555856, 0x53564D41)
# asm/prctl.h: ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM.
_ARCH_PRCTL = (0x1021, 0x1022, 0x1023)
# asm-generic/ioctls.h: TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TCGETS2: isatty(), open().
_IOCTL = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)
# linux/fcntl.h: DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD locks, DUPFD_CLOEXEC. Not SETOWN and
# SETSIG, which send signals, and not SETPIPE_SZ, which takes memory that belongs to no process.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, ALU|AND|K, JEQ, JGE, RET
_ALLOW, _NOT_PERMITTED, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026  # SECCOMP_RET_ALLOW, ERRNO | EPERM, | ENOSYS
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    """A condition: the half of an argument at `offset` of seccomp_data, after applying `mask`, is one of `values`."""

    offset: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


def _low(argument: int) -> int:
    return 16 + 8 * argument


def _is_null(argument: int) -> tuple[_Condition, ...]:
    """The conditions that both halves of a pointer are zero."""
    return tuple(_Condition(offset=_low(argument) + half, values=(0,)) for half in (0, 4))


def numbers(machine: str) -> dict[str, int]:
    """The allowed system calls of `machine` (x86_64 or aarch64): number by name."""
    return {name: number for group in ALLOWED.values() for name, number in _read(group, machine)}


def unknown(machine: str) -> frozenset[int]:
    """The numbers up to `NEWEST` that are answered as unknown (ENOSYS); all others that are not allowed get EPERM."""
    return frozenset(number for _, number in _read(_ANSWERED_AS_UNKNOWN, machine))


def _read(table: str, machine: str) -> Iterator[tuple[str, int]]:
    column = tuple(AUDIT_ARCHITECTURES).index(machine)
    words = table.split()
    for name, *both in zip(words[::3], words[1::3], words[2::3], strict=True):
        if both[column] != "-":
            yield name, int(both[column])


def _conditions(own_pid: int) -> dict[str, tuple[_Condition, ...]]:
    """Conditions on arguments of some calls, by name; except for pointers, the kernel uses only their low halves."""
    to_itself = (_Condition(offset=_low(0), values=(own_pid,)),)
    return {
        "clone": (
            _Condition(offset=_low(0), values=(0,), mask=0xFFFFFFFF & ~_OF_A_THREAD),
            _Condition(offset=_low(0), values=(_CLONE_THREAD,), mask=_CLONE_THREAD),
        ),
        "kill": to_itself,
        "tgkill": to_itself,
        # Only for the process itself: otherwise it could slow down another process of the same user.
        "sched_setaffinity": (_Condition(offset=_low(0), values=(0,)),),
        # Only for reading the process's own limits: root could raise them.
        "prlimit64": (_Condition(offset=_low(0), values=(0, own_pid)), *_is_null(2)),
        "prctl": (_Condition(offset=_low(0), values=_PRCTL),),
        "arch_prctl": (_Condition(offset=_low(0), values=_ARCH_PRCTL),),
        "ioctl": (_Condition(offset=_low(1), values=_IOCTL),),
        "fcntl": (_Condition(offset=_low(1), values=_FCNTL),),
        # Only to the other end of a connected channel.
        "sendto": _is_null(4),
    }


def program(machine: str, own_pid: int) -> bytes:
    """The filter for the process `own_pid` on `machine`: struct sock_filter, 8 bytes each."""
    conditions = _conditions(own_pid)
    # Each test jumps over the answer that follows the test, or to that answer.
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, AUDIT_ARCHITECTURES[machine]),
        (_ANSWER, 0, 0, _NOT_PERMITTED),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, NEWEST + 1),
        (_ANSWER, 0, 0, _UNKNOWN),
    ]
    for number in sorted(unknown(machine)):
        code += [(_EQUAL, 0, 1, number), (_ANSWER, 0, 0, _UNKNOWN)]
    for name, number in numbers(machine).items():
        body = [instruction for condition in conditions.get(name, ()) for instruction in _test(condition)]
        code += [(_EQUAL, 0, len(body) + 1, number), *body, (_ANSWER, 0, 0, _ALLOW)]
    code.append((_ANSWER, 0, 0, _NOT_PERMITTED))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _test(condition: _Condition) -> list[tuple[int, int, int, int]]:
    """Instructions that continue if the condition holds, and otherwise refuse the call."""
    values = condition.values
    return [
        (_LOAD, 0, 0, condition.offset),
        (_AND, 0, 0, condition.mask),
        # The first test that succeeds jumps over the other tests and the refusal.
        *((_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)),
        (_ANSWER, 0, 0, _NOT_PERMITTED),
    ]
