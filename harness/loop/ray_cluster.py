"""Kernels screened on the machines of a Ray cluster, or in workers that Ray starts on this machine.

The harness, the contest's prepare.py and the kernel are sent. A machine of the cluster needs the packages of
requirements-tune.lock, but no shared disk. Each place is an actor with its own screening process. This process refuses
to work with another judge or compiler, and confines the kernel as on this machine. If a machine dies, Ray restarts its
actor, and the setting is screened again.
"""

import importlib.util
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from harness import files
from harness.candidate import KERNEL
from harness.contest import PACKAGE
from harness.errors import RatchetError
from harness.loop import screening
from harness.loop.bench import Say
from harness.loop.screening import Answer, Place, Places, Request

# How often an actor is asked whether it is alive, and how long its answer may take; Ray itself notices a dead machine.
_PULSE_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
# Time for an actor to remove its files.
_ENDING_SECONDS = 10.0


@contextmanager
def connected(address: str | None, workers: int | None, say: Say) -> Iterator[Places]:
    """Places on the cluster at `address`, or in Ray on this machine, which then listens only on the loopback.

    `address` is HOST:PORT on a machine of the cluster, ray://HOST:10001 elsewhere, and None for Ray on this machine.
    There are `workers` places, by default one for each CPU that Ray offers. Raises RatchetError `no-ray` if Ray is not
    installed, `no-cluster` if no cluster answers, or if it has another version of Ray or Python.
    """
    if importlib.util.find_spec("ray") is None:
        raise RatchetError(
            "no-ray", "expected Ray, found none; ./ratchet.sh tune installs it (outside a clone: pip install ray)"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # This makes Ray listen only on the loopback, on Linux too.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    else:
        _reach(address)
        if _has_token():
            os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    local_options = (
        {"num_cpus": workers or screening.cores_to_use(), "include_dashboard": False} if address is None else {}
    )
    try:
        ray.init(
            address=address or "local",
            runtime_env={"py_modules": [str(PACKAGE)], "excludes": ["__pycache__"]},
            log_to_driver=False,
            logging_level="ERROR",
            **local_options,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = f"a Ray cluster at {address}" if address else "Ray to start on this machine"
        raise RatchetError("no-cluster", f"expected {what}; Ray says: {_line(error)}") from error
    try:
        count = workers or int(ray.cluster_resources().get("CPU", 0))
        if not count:
            raise RatchetError(
                "no-cluster",
                f"expected CPUs in the cluster at {address}, got none; start Ray on its machines with --num-cpus N",
            )
        cluster = _Cluster(count)
        # Ray reports dead workers on stdout, where only JSON may appear.
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            yield Places(count=count, open=cluster.open, say=say)
            cluster.close()
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raises RatchetError `no-cluster` if nothing listens at `address`; Ray itself would try for ten minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        message = f"expected --ray HOST:PORT or ray://HOST:PORT of a Ray cluster, got {address!r}: {error}"
        raise RatchetError("no-cluster", message) from error


def _has_token() -> bool:
    """True if this user has a token for clusters; Ray uses it only with RAY_AUTH_MODE=token."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return True
    with suppress(RuntimeError):
        return (Path.home() / ".ray" / "auth_token").is_file()
    return False


class _Cluster:
    """At most `count` actors. An actor stays for the next search; one that refused is ended and not replaced."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._free: list[_Worker] = []
        self._turn = threading.Lock()

    def open(self) -> Place | None:
        with self._turn:
            if self._free:
                return self._free.pop()
            self._left -= 1
            return _Worker(self) if self._left >= 0 else None

    def take_back(self, worker: "_Worker") -> None:
        with self._turn:
            self._free.append(worker)

    def close(self) -> None:
        with ThreadPoolExecutor(max_workers=max(1, len(self._free))) as ending:
            list(ending.map(_Worker.end, self._free))


class _Worker:
    """A place for screening: an actor, on whichever machine Ray starts it."""

    def __init__(self, cluster: _Cluster) -> None:
        import ray

        self._ray, self._cluster = ray, cluster
        # Two calls at a time: screening, and the question whether it is alive.
        kind = ray.remote(num_cpus=1, max_restarts=-1, max_concurrency=2)(_Screener)
        self._actor: Any = kind.remote()
        self._hello = self._actor.hello.remote()
        self._refused: Answer | None = None

    def is_ready(self) -> bool:
        if self._hello is None:
            return True
        if not self._ray.wait([self._hello], timeout=1)[0]:
            return False
        try:
            self._ray.get(self._hello)
        except self._ray.exceptions.ActorUnavailableError:
            time.sleep(1)
            self._hello = self._actor.hello.remote()
            return False
        except self._ray.exceptions.RayError as error:
            # The actor never started, usually because packages are missing. The next request gets this answer.
            self._refused = Answer(evidence=None, error_kind="no-worker", error=_line(error))
        self._hello = None
        return True

    def answer(self, request: Request) -> Answer | None:
        if self._refused is None:
            # The contest's folder on this machine is not sent.
            reply = self._actor.answer.remote(msgspec.json.encode(replace(request, directory="")))
            if not self._is_answered(reply):
                self._ray.kill(self._actor, no_restart=False)
            try:
                reply_text = self._ray.get(reply)
            except self._ray.exceptions.RayError:
                self._hello = self._actor.hello.remote()
                return None
            answer = msgspec.json.decode(reply_text, type=Answer) if reply_text else None
            if answer is None or answer.evidence is not None:
                return answer
            self._refused = answer
        return self._refused

    def _is_answered(self, reply: Any) -> bool:
        """Waits for the reply. False if the actor does not answer that it is alive."""
        while not self._ray.wait([reply], timeout=_PULSE_SECONDS)[0]:
            alive = self._actor.hello.remote()
            if len(self._ray.wait([alive, reply], timeout=_PULSE_SECONDS)[0]) == 0:
                return False
        return True

    def close(self, *, is_interrupted: bool) -> None:
        if is_interrupted or self._refused:
            self.end()
        else:
            self._cluster.take_back(self)

    def end(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.end.remote(), timeout=_ENDING_SECONDS)
        self._ray.kill(self._actor)


class _Screener:
    """The actor: it has a folder and a screening process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ratchet-")
        self._process = screening.Process()

    def hello(self) -> None:
        """Answers, to show that the actor is alive."""

    def answer(self, request: bytes) -> bytes | None:
        asked = msgspec.json.decode(request, type=Request)
        try:
            directory = Path(self._folder.name) / sha256(asked.prepare).hexdigest()[:16]
            with files.refusals_in_words(f"writing {directory}"):
                directory.mkdir(exist_ok=True)
                (directory / "prepare.py").write_bytes(asked.prepare)
                (directory / KERNEL).touch()
            answer = self._process.answer(replace(asked, directory=str(directory), work="sweep/000"))
        except RatchetError as error:
            answer = Answer(evidence=None, error_kind=error.kind, error=str(error))
        return msgspec.json.encode(answer) if answer else None

    def end(self) -> None:
        self._process.close(is_interrupted=True)
        self._folder.cleanup()


def _line(error: BaseException) -> str:
    """The last line with text of an error: the lines above it are its traceback."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
