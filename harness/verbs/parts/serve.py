"""The work of `serve`: XProf's own pages for the captures of a log directory, with the addresses of each capture."""

from argparse import Namespace
from pathlib import Path

from harness.errors import UsageError
from harness.render.layout import harmless
from harness.shell.arguments import directory, say
from harness.shell.verb import Outcome
from harness.workbench import xprof_server
from harness.workbench.profiles import links, places
from harness.workbench.profiles.places import CLOUD, PROFILE_DATA

# The number of addresses that fit a screen; XProf's pages list all runs.
_SHOWN = 10


def run(arguments: Namespace) -> Outcome:
    rest = arguments.rest
    where = _log_directory(arguments.log_directory, directory(arguments.directory))
    if any(not word.startswith("-") for word in rest[:1]):
        raise UsageError("usage", f"expected one log directory, got {where!r} and {rest[0]!r}")
    if arguments.distributed or rest:
        say(
            "WARNING: xprof itself listens on ALL interfaces, and on a gRPC port: whoever reaches this machine can "
            "read every capture on it. Without --distributed and without arguments for xprof, the pages can be read on "
            "this machine only"
        )
        code = xprof_server.run_as_xprof_does([f"--logdir={where}", f"--port={arguments.port}", *rest])
        return Outcome(text=lambda: "", exit_code=code)
    server = xprof_server.bind_server(where, arguments.port)
    host, port = server.bind_addr
    try:
        with xprof_server.until_stopped():
            # Printed here and not as the outcome: people need the address while the server runs.
            print(harmless(_greeting(where, f"http://{host}:{port}")), flush=True)
            server.serve()
    finally:
        server.stop()
    return Outcome(text=lambda: "", messages=("stopped",))


def _log_directory(word: str | None, contest: Path) -> str:
    """The log directory for xprof: a local folder as an absolute path, anything else unchanged.

    Raises UsageError `no-such-place`.
    """
    if word is not None and word.startswith(CLOUD):
        return word
    path = Path(word).expanduser() if word else contest / PROFILE_DATA
    if not path.is_dir():
        raise UsageError(
            "no-such-place",
            f"expected a log directory with captures (plugins/profile/RUN/), got {path}, and there is no such folder. "
            "To capture kernel.py: ratchet.sh profile",
        )
    return str(path.resolve())


def _greeting(where: str, base: str) -> str:
    lines = [f"XProf over {where} at {base}/ (only on this machine; Ctrl-C stops it)"]
    if where.startswith(CLOUD):
        return "\n".join((*lines, "  runs are read when the page asks for them"))
    runs = places.runs(Path(where))
    for place in runs[:_SHOWN]:
        run, host = links.run_name(place, Path(where)), places.host_name(place.files[0])
        folder = str(place.files[0].resolve().parent)
        lines += [
            f"  {run}",
            f"    overview:      {links.page(base, 'overview_page', run, host)}",
            f"    trace viewer:  {links.page(base, 'trace_viewer@', run, host)}",
            f"    by its folder: {links.page(base, 'trace_viewer@', place.name, host, {'session_path': folder})}",
        ]
    if len(runs) > _SHOWN:
        lines.append(f"  older runs, which the page lists: {len(runs) - _SHOWN}")
    if not runs:
        lines.append("  there is no capture yet; reload the page to see new ones")
    lines.append(
        f"from another machine: ssh -L {base.rpartition(':')[2]}:127.0.0.1:{base.rpartition(':')[2]} THIS_HOST"
    )
    return "\n".join(lines)
