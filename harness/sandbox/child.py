"""Starts child processes, sends them requests, enforces their limits, and ends them with all their descendants."""

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

import harness
from harness.records import Failure, Stage
from harness.sandbox import processes, replies, warm
from harness.sandbox.confinement import Confinement
from harness.sandbox.jobs import Child, Job, is_over
from harness.sandbox.messages import FAILURE, VALUE, Request
from harness.sandbox.worker import HEADER

# The last `_KEPT_OUTPUT` bytes of a child's output are kept. A child may print more, up to a limit: tracebacks and logs
# of JAX have a few hundred KB at most.
_KEPT_OUTPUT = 16 << 10
_OUTPUT_LIMIT = 16 << 20
# The length of the random text that the parent sends with each request, and with which the answer must begin.
_NONCE_DIGITS = 32
# Messages show paths below this folder relative to the folder.
_TOP = Path(harness.__file__).parent.parent
# A child with this confinement may read installed files, and read and write its own folder.
_NOTHING_ELSE = Confinement()
# Replies are records of a few KB; the reply to a trace has about 1.5 KB for each Pallas call.
_REPLY_BYTES = 1 << 20
# JAX and XLA start a few threads for each core; the largest machines have a few hundred cores.
_THREAD_LIMIT = 8192
_PROCESS_LIMIT = 64
# The time between two checks of memory and clock. A child can fill about a GB in this time.
_POLL_SECONDS = 0.2
# The most seconds to wait until processes have ended: a process that is stuck in a system call may never end.
_ENDING_SECONDS = 2.0
_AUTOGROUP_TRIES = 3
_AUTOGROUP_SECONDS = 0.1


class Children:
    """All children of one judgement. Use it as a context manager: no child outlives the context.

    - `memory_bytes`: the limit on the resident memory of a child and its descendants together.
    - `reply_bytes`: the limit on the length of a reply.
    - `are_confined`: if False, children have the user's own permissions.
    - `left_behind`: the names, by process id, of processes that outlived their child or left its session. All of them
      were ended.
    """

    def __init__(self, memory_bytes: int, *, are_confined: bool = True, reply_bytes: int = _REPLY_BYTES) -> None:
        self.left_behind: dict[int, str] = {}
        self._memory_bytes = memory_bytes
        self._reply_bytes = reply_bytes
        self._are_confined = are_confined
        self._adopting = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._finished: deque[tuple[Job, Any]] = deque()
        self._looked = 0.0

    def __enter__(self) -> Self:
        self._adopting.enter_context(processes.adopting_orphans())
        return self

    def __exit__(self, *_: object) -> None:
        with self._adopting:
            for child in self._children:
                self._end(child)
        for pid in self.left_behind:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._selector.close()

    def start(
        self,
        name: str,
        module: str,
        directory: Path,
        environment: Mapping[str, str],
        *,
        confinement: Confinement | None = _NOTHING_ELSE,
    ) -> Child:
        """A child that imports `module` and waits for requests, with `directory` as its home and working directory.

        The child may write to `directory` and to the `writable` paths of `confinement`. If `confinement` is None, the
        child is not confined, even if all other children are.
        """
        if confinement is not None:
            confinement = replace(confinement, writable=(*confinement.writable, str(directory)))
        applied = confinement if self._are_confined else None
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        process: subprocess.Popen[bytes] | warm.Forked | None
        try:
            process = warm.fork(name, module, directory, environment, applied, theirs.fileno(), writing)
            if process is None:
                # A new interpreter, which confines itself before it imports `module`.
                confined = msgspec.json.encode(applied).decode()
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "harness.sandbox.worker", module, str(theirs.fileno()), confined],
                    cwd=directory,
                    env={**environment, "HOME": str(directory), "TMPDIR": str(directory)},
                    stdin=subprocess.DEVNULL,
                    stdout=writing,
                    stderr=writing,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            os.close(reading)
            raise
        finally:
            theirs.close()
            os.close(writing)
        ours.setblocking(False)
        os.set_blocking(reading, False)
        child = Child(name, directory, process, ours, reading)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, (child, self._hear))
        self._selector.register(reading, selectors.EVENT_READ, (child, self._read_output))
        return child

    def ask(
        self, child: Child, label: str, stage: Stage, task: str, arguments: object, reply_type: type, limit: float
    ) -> Job:
        """Puts a request in the child's queue.

        `limit`: the most seconds from the start of the request to its answer. Time spent waiting for a core does not
        count, up to a bound (see `jobs.is_over`).
        """
        job = Job(
            child=child,
            label=label,
            stage=stage,
            task=task,
            arguments=arguments,
            reply_type=reply_type,
            limit_seconds=limit,
            nonce=secrets.token_hex(_NONCE_DIGITS // 2),
        )
        child.queue.append(job)
        if len(child.queue) == 1:
            self._send(job)
        return job

    def drop(self, jobs: Collection[Job]) -> None:
        """Removes those of `jobs` that no child has begun; all other requests are still answered."""
        for child in self._children:
            child.queue = deque(job for place, job in enumerate(child.queue) if not place or job not in jobs)

    def yield_to_others(self, child: Child, niceness: int) -> None:
        """Gives other processes priority over this child and its threads; a `niceness` of 0 restores equal priority.

        Linux divides cores among sessions first, by the niceness of each session (autogroup, see sched(7); some Linux
        kernels lack it). Each child has its own session.
        """
        pid = child.process.pid
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, pid, niceness)
        for _ in range(_AUTOGROUP_TRIES):
            try:
                Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
            except BlockingIOError:
                # Linux accepts ten changes a second from all unprivileged processes together.
                time.sleep(_AUTOGROUP_SECONDS)
            except OSError:
                return
            else:
                return

    def wait(self) -> tuple[Job, Any]:
        """The next job that is done, and its reply (of the job's reply type) or its Failure.

        Raises RuntimeError when no child has anything to do.
        """
        while not self._finished:
            if not any(child.queue for child in self._children):
                raise RuntimeError("expected a child with a request to wait for, got none")
            self._turn(_POLL_SECONDS)
        return self._finished.popleft()

    def finished_jobs(self) -> list[tuple[Job, Any]]:
        """The jobs that are done, and their replies or Failures; does not wait."""
        self._turn(0)
        done = list(self._finished)
        self._finished.clear()
        return done

    def _turn(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            child, react = key.data
            if not child.ended:
                react(child)
        if time.monotonic() - self._looked >= _POLL_SECONDS:
            self._look()

    def _look(self) -> None:
        """Ends children that exceed their time or memory, and handles children that have exited."""
        self._looked = time.monotonic()
        living = processes.below({child.process.pid for child in self._children if not child.ended})
        if any(process.leader is None for process in living):
            self._end_processes(None)
        for child in self._children:
            if child.ended:
                continue
            if child.process.poll() is not None:
                # A process that the child started may hold the child's end of the channel open.
                self._hear(child)
                if not child.ended:
                    self._note_death(child)
                continue
            job = child.queue[0] if child.queue else None
            of_child = [process for process in living if process.leader == child.process.pid]
            resident = sum(process.resident_bytes for process in of_child)
            threads = sum(process.threads for process in of_child)
            if resident > self._memory_bytes:
                words = f"to use at most {self._memory_bytes / 2**30:.1f} GiB of memory, got {resident / 2**30:.1f} GiB"
                self._end_for(child, "out-of-memory", words)
            elif len(of_child) > _PROCESS_LIMIT or threads > _THREAD_LIMIT:
                most = f"at most {_PROCESS_LIMIT} processes and {_THREAD_LIMIT} threads"
                self._end_for(child, "too-many-processes", f"to have {most}, got {len(of_child)} and {threads}")
            elif job is not None and is_over(job, time.monotonic() - job.started, of_child):
                words = f"expected {job.label} to end within {job.limit_seconds:g} s, not counting waits for a core"
                self._fail(child, "timeout", f"{words}; it was ended: the kernel loops forever or is too slow")

    def _send(self, job: Job) -> None:
        job.started = time.monotonic()
        if job.child.ended:
            self._fail(job.child, "crash", f"expected a running {job.child.name} process, but it had already ended")
            return
        arguments = msgspec.Raw(msgspec.json.encode(job.arguments))
        request = Request(nonce=job.nonce, task=job.task, stage=job.stage, arguments=arguments)
        body = msgspec.json.encode(request)
        # Requests are far smaller than the socket's buffer, so this does not block. If the child is gone, its missing
        # answer will show that.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            job.child.channel.sendall(HEADER.pack(len(body)) + body)

    def _hear(self, child: Child) -> None:
        try:
            chunk = child.channel.recv(1 << 20)
        except ConnectionResetError:
            chunk = b""
        except BlockingIOError:
            return
        if not chunk:
            self._note_death(child)
            return
        child.received += chunk
        while len(child.received) >= HEADER.size:
            (size,) = HEADER.unpack(child.received[: HEADER.size])
            if not child.queue:
                self._end_for(child, "crash", "to send nothing without a request, got data")
                return
            if size > self._reply_bytes:
                self._end_for(child, "crash", f"to answer with at most {self._reply_bytes:,} bytes, got {size:,}")
                return
            if len(child.received) < HEADER.size + size:
                return
            body = bytes(child.received[HEADER.size : HEADER.size + size])
            del child.received[: HEADER.size + size]
            job = child.queue[0]
            nonce, kind, text = body[:_NONCE_DIGITS], body[_NONCE_DIGITS : _NONCE_DIGITS + 1], body[_NONCE_DIGITS + 1 :]
            try:
                # A process that writes to every open descriptor does not know the request's nonce.
                if nonce != job.nonce.encode():
                    raise msgspec.DecodeError("not an answer to this request")
                if kind not in (VALUE, FAILURE):
                    raise msgspec.DecodeError("neither a value nor a failure")
                value: Any = msgspec.json.decode(text, type=Failure if kind == FAILURE else job.reply_type)
                # All texts are cleaned at this point, before anybody reads them.
                value = replies.clean(value, (child.directory, _TOP))
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                named = "crash" if nonce == job.nonce.encode() else "forged-result"
                self._end_for(child, named, f"to answer a request, got other data ({error})")
                return
            self._finish(job, value)

    def _finish(self, job: Job, value: Any) -> None:
        job.seconds = time.monotonic() - job.started
        job.child.queue.popleft()
        self._finished.append((job, value))
        if job.child.queue:
            self._send(job.child.queue[0])

    def _read_output(self, child: Child) -> None:
        chunk = os.read(child.output, 1 << 16)
        if not chunk:
            self._selector.unregister(child.output)
            os.close(child.output)
            child.output = -1
            return
        child.printed_bytes += len(chunk)
        child.printed = (child.printed + chunk)[-_KEPT_OUTPUT:]
        if child.printed_bytes > _OUTPUT_LIMIT:
            self._end_for(child, "output-flood", f"to print at most {_OUTPUT_LIMIT >> 20} MiB, got more")

    def _note_death(self, child: Child) -> None:
        """Fails a child whose channel is closed: the child has ended, or it has closed the channel itself."""
        try:
            code = child.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._fail(child, "crash", f"the {child.name} process closed its result channel and was ended")
            return
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
            remark = "; perhaps by the system because memory ran out" if -code == signal.SIGKILL else ""
            self._fail(child, "killed", f"the {child.name} process was killed by signal {-code} ({name}){remark}")
        else:
            self._fail(child, "crash", f"the {child.name} process ended with exit code {code} and without a result")

    def _end_for(self, child: Child, kind: str, expectation: str) -> None:
        """Ends a child that breaks a rule, and reports the expectation, such as `to print at most 16 MiB, got more`."""
        self._fail(child, kind, f"expected the {child.name} process {expectation}; it was ended")

    def _fail(self, child: Child, kind: str, message: str) -> None:
        """Ends the child; its first job fails with this kind and message, and all other jobs are dropped."""
        before = set(self.left_behind)
        self._end(child)
        if child.queue:
            job = child.queue[0]
            shown = child.last_output()
            detail = f"its last output:\n{shown}" if shown else "it printed nothing"
            strays = [words for pid, words in self.left_behind.items() if pid not in before]
            if strays:
                detail = f"processes that it left behind were ended: {', '.join(strays)}\n{detail}"
            child.queue = deque((job,))
            failure = Failure(stage=job.stage, kind=kind, message=message, detail=detail)
            self._finish(job, replies.clean(failure, (child.directory, _TOP)))

    def _end_processes(self, leader: int | None) -> None:
        """Ends all processes of the child `leader` (None: of no child), and all processes that left their child."""
        leaders = {child.process.pid for child in self._children if not child.ended} | ({leader} if leader else set())
        deadline = time.monotonic() + _ENDING_SECONDS
        # Until a process has ended, it may start new processes.
        while time.monotonic() < deadline:
            left = [process for process in processes.below(leaders) if process.leader in (leader, None)]
            if not left:
                return
            for process in left:
                if process.pid != leader:
                    self.left_behind[process.pid] = process.words
                processes.kill(process)
            time.sleep(0.001)

    def _end(self, child: Child) -> None:
        """Kills every process of the child, reads its last output, and releases its descriptors."""
        if child.ended:
            return
        child.ended = True
        leader = child.process.pid
        self._end_processes(leader)
        # Without /proc the search above finds nothing, so the whole process group is killed.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        child.process.wait()
        self._selector.unregister(child.channel)
        child.channel.close()
        if child.output >= 0:
            with contextlib.suppress(BlockingIOError):
                # A pipe holds 64 KiB, so output beyond 1 MiB comes from a process that left the child's session.
                for _ in range(16):
                    child.printed = (child.printed + os.read(child.output, 1 << 16))[-_KEPT_OUTPUT:]
            self._selector.unregister(child.output)
            os.close(child.output)
            child.output = -1
