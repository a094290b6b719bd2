"""Addresses of a capture in XProf's pages, by its run in the server's log directory and by its folder."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from harness.errors import UsageError
from harness.records import Column, Table
from harness.workbench.profiles.places import Place
from harness.workbench.tables import table

# xprof's own default port; ratchet.sh serve uses it too.
PORT = 8791
LOCAL = f"http://127.0.0.1:{PORT}"
_ROUTE = "/data/plugin/profile"
# The pages of xprof 2.24, the most useful first; the last nine show something only where a capture has what they read.
TOOLS = (
    ("overview_page", "overview"),
    ("trace_viewer@", "trace viewer"),
    ("op_profile", "op profile"),
    ("hlo_stats", "HLO op stats"),
    ("roofline_model", "roofline"),
    ("framework_op_stats", "framework op stats"),
    ("memory_profile", "memory profile"),
    ("memory_viewer", "memory viewer"),
    ("graph_viewer", "graph viewer"),
    ("input_pipeline_analyzer", "input pipeline"),
    ("utilization_viewer", "utilization"),
    ("perf_counters", "perf counters"),
    ("kernel_stats", "kernel stats"),
    ("kernel_utilization", "kernel utilization"),
    ("megascale_stats", "megascale"),
    ("pod_viewer", "pod viewer"),
    ("inference_profile", "inference profile"),
    ("smart_suggestion", "suggestions"),
)
_COLUMNS = (
    Column(name="tool", title="page"),
    Column(name="finds_by", title="found by"),
    Column(name="url", title="address"),
)


def links(place: Place, server: str = LOCAL) -> tuple[Table, ...]:
    """The address of each page for the capture at `place` on the server at `server`.

    The trace viewer also by `session_path`, the run's folder, and all runs beside it by `run_path`: any server on a
    machine that has these folders finds them, whatever its log directory. Raises UsageError `usage`: no address of a
    server.
    """
    base = root(server)
    folder = place.paths[0].resolve().parent
    host = place.paths[0].name.removesuffix(".xplane.pb")
    run = run_name(place)
    rows = [(title, "run", page(base, tool, run, host)) for tool, title in TOOLS]
    at = {"session_path": str(folder)}
    rows.append(("trace viewer", "session_path", page(base, "trace_viewer@", folder.name, host, at)))
    rows.append(("overview", "session_path", page(base, "overview_page", folder.name, host, at)))
    rows.append(("all runs", "run_path", f"{base}/?{_query({'run_path': str(folder.parent)})}"))
    notes = (
        "Pages from `input pipeline` on need what not every capture has: steps, hardware counters, several hosts.",
        f"by run: the server must have the log directory {place.log_directory} "
        f"(ratchet.sh serve {place.log_directory}).",
        "HLO op stats and the roofline page draw with a library from the web; `xprof ops` and `xprof roofline` "
        "print the same without it.",
    )
    return (table("links", f"{place.name} in XProf's pages", "static", _COLUMNS, rows, notes),)


def page(base: str, tool: str, run: str, host: str | None, more: dict[str, str] | None = None) -> str:
    """The address of one page of one run."""
    named = {"run": run, "tag": tool, **({"host": host} if host else {}), **(more or {})}
    return f"{base}{_ROUTE}/{quote(tool, safe='@')}?{_query(named)}"


def run_name(place: Place, log_directory: Path | None = None) -> str:
    """What XProf calls the run: its name, with the way to it below the log directory in front."""
    whole = (log_directory or place.log_directory).resolve()
    own = place.log_directory.resolve()
    above = own.relative_to(whole).as_posix() if own.is_relative_to(whole) else "."
    return place.name if above == "." else f"{above}/{place.name}"


def root(server: str) -> str:
    """`server` as `http://host:port`, whatever page of it was given. Raises UsageError `usage`."""
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("usage", f"expected the address of an XProf server such as {LOCAL}, got {server!r}")
    path = parts.path.split(_ROUTE)[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def plain(tables: Sequence[Table]) -> str:
    """The addresses whole, a line each: none is cut, so that they can be copied."""
    lines = []
    for one in tables:
        width = max(len(f"{tool}, by {by}") for tool, by, _ in one.rows)
        lines += [one.title, *(f"  {f'{tool}, by {by}':<{width}}  {url}" for tool, by, url in one.rows)]
        lines += [f"  {note}" for note in one.notes]
    return "\n".join(lines)


def _query(named: dict[str, str]) -> str:
    return urlencode(named, safe="@/", quote_via=quote)
