"""Runs on an XProf server, local or remote: their names, and the answers of the server's tools about them."""

import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from harness import reading_limits
from harness.errors import RatchetError, UsageError

# xprof's own default port; ratchet.sh serve uses it too.
PORT = 8791
LOCAL = f"http://127.0.0.1:{PORT}"
# The environment variable that names the server, as in the published workflows.
URL_VARIABLE = "XPROF_URL"
# Where XProf's pages and data are on a server.
ROUTE = "/data/plugin/profile"
# A capture of some GB takes minutes to convert.
_SECONDS = 600.0
# The length of a server's error text that is shown.
_ERROR_CHARACTERS = 300
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One host of a run on a server, used like the path of a file.

    `folder` is the run's folder (possibly at gs://) if the run is addressed by it (`session_path`); "" if the server
    lists the run.
    """

    server: str
    run: str
    host: str
    folder: str = ""

    @property
    def name(self) -> str:
        """The name of the host's file on the server."""
        return f"{self.host}.xplane.pb"

    def __str__(self) -> str:
        return f"{self.server}{ROUTE}/data?{query(self._parameters | {'host': self.host})}"

    @property
    def _parameters(self) -> dict[str, str]:
        return {"run": self.run, **({"session_path": self.folder} if self.folder else {})}

    def ask(self, tool: str, more: Mapping[str, object]) -> bytes:
        """The answer of the server's `tool`. Raises RatchetError `no-answer` or `no-server`."""
        return _fetch(self.server, "data", {**self._parameters, "tag": tool, **{key: str(more[key]) for key in more}})

    def modules(self) -> list[str]:
        """The names of the run's modules: `jit_f(4)`."""
        names = _fetch(self.server, "module_list", self._parameters).decode("utf-8", "replace").split(",")
        # If a run has no module, XProf writes NO_MODULE.
        return [name for name in names if name.endswith(")")]


# The source of a capture: a file, or a host of a run on a server.
Source: TypeAlias = Path | Remote


def source(text: str) -> Source:
    """The source that `str` turns into `text`."""
    if not text.startswith(("http://", "https://")):
        return Path(text)
    server, _, query = text.partition(f"{ROUTE}/data?")
    named = dict(urllib.parse.parse_qsl(query))
    return Remote(server=server, run=named["run"], host=named["host"], folder=named.get("session_path", ""))


def server() -> str:
    """The server named by the environment variable XPROF_URL, or ""."""
    return os.environ.get(URL_VARIABLE, "")


def root(server: str) -> str:
    """The root address of a server, `http://host:port` plus the path below which XProf is served, if any.

    `server` may be the address of any of its pages. Raises UsageError `usage`.
    """
    parts = urllib.parse.urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("usage", f"expected the address of an XProf server such as {LOCAL}, got {server!r}")
    path = parts.path.split(ROUTE)[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def runs(server: str, **where: str) -> list[str]:
    """The names of the server's runs in its order, the last name first.

    If `session_path` or `run_path` is given, only the runs in that folder.
    """
    return decode(_fetch(server, "runs", where), server, list[str])


def hosts(server: str, run: str, folder: str = "") -> tuple[Remote, ...]:
    """The hosts of a run. Raises RatchetError `no-profile` if the run has no hosts."""
    where = {"run": run, "tag": "trace_viewer", **({"session_path": folder} if folder else {})}
    listed = decode(_fetch(server, "hosts", where), server, list[dict[str, str]])
    if not listed:
        raise RatchetError("no-profile", f"XProf at {server} has no capture of a host in its run {run}")
    return tuple(Remote(server=server, run=run, host=host.get("hostname", ""), folder=folder) for host in listed)


def answers(hosts: Sequence[Remote], tool: str, option_sets: Sequence[Mapping[str, object]]) -> tuple[bytes, ...]:
    """The tool's answer for each set of options; each answer is about all hosts together."""
    which = {"host": hosts[0].host} if len(hosts) == 1 else {"hosts": ",".join(host.host for host in hosts)}
    return tuple(hosts[0].ask(tool, {**which, **options}) for options in option_sets)


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    """Refuses redirections, so that only the named server is asked."""

    def redirect_request(self, *_: Any) -> None:
        """Always None, which makes urllib raise an error for the redirection."""


_OPENER = urllib.request.build_opener(_NotElsewhere)


def _fetch(server: str, what: str, parameters: Mapping[str, str]) -> bytes:
    """The bytes of one answer. Raises RatchetError `no-server`, or `no-answer` if the server has no answer."""
    where = f"{server}{ROUTE}/{what}?{query(parameters)}"
    try:
        with _OPENER.open(where, timeout=_SECONDS) as answer:
            data = reading_limits.read_stream(answer, where)
            kind = answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        text = _unpack(reading_limits.read_stream(error, where), where).decode("utf-8", "replace").strip()
        raise RatchetError(
            "no-answer",
            f"XProf at {server} has no answer to {what}?{query(parameters)}: {error.code} {error.reason}: "
            f"{text[:_ERROR_CHARACTERS]}",
        ) from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(getattr(error, "reason", error), http.client.BadStatusLine):
            raise RatchetError(
                "no-answer",
                f"XProf at {server} broke off its answer to {what}?{query(parameters)}; see the server's log for the "
                "reason. For gs:// the server needs the network and a login (gcloud auth application-default login)",
            ) from error
        raise RatchetError(
            "no-server", f"expected an XProf server at {server} (see {URL_VARIABLE}), got: {error}"
        ) from error
    if kind == "text/html":
        raise RatchetError("no-server", f"expected an XProf server at {server}, got a page of a different server")
    return _unpack(data, where)


def _unpack(data: bytes, where: str) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return reading_limits.unpacked(data, where)
    except (OSError, EOFError, zlib.error) as error:
        raise RatchetError("no-answer", f"{where} begins as gzip and breaks off: {error}") from error


def decode(data: bytes, server: str, kind: type[T]) -> T:
    """The JSON of an answer. Raises RatchetError `no-answer` if it is not JSON, or not of type `kind`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RatchetError("no-answer", f"expected XProf's JSON from {server}, got {data[:80]!r}: {error}") from error


def query(named: Mapping[str, str]) -> str:
    """The query part of an address, after `?`."""
    return urllib.parse.urlencode(named, safe="@/", quote_via=urllib.parse.quote)
