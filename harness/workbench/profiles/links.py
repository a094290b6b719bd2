"""Addresses of XProf's pages on a capture: by the run's name in the server's log directory, and by the run's folder."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from harness.records import Table
from harness.workbench.profiles.places import CaptureFiles, host_name
from harness.workbench.profiles.remote import LOCAL, ROUTE, Remote, query, root
from harness.workbench.tables import columns, table

# The pages of xprof 2.24, the most useful first. The last nine are empty if a capture lacks the data that they need.
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
_COLUMNS = columns("tool=page;finds_by=found by;url=address")


def links(place: CaptureFiles, server: str = LOCAL) -> tuple[Table, ...]:
    """The address of each page for the capture at `place` on the server at `server`.

    Addresses with `session_path` (the run's folder) or `run_path` (the folder of all runs) do not depend on the
    server's log directory: any server on a machine with these folders finds them. Raises UsageError `usage` if `server`
    is not an address.
    """
    base = root(server)
    first = place.paths[0]
    host = host_name(first)
    run = first.run if isinstance(first, Remote) else run_name(place)
    rows = [(title, "run", page(base, tool, run, host)) for tool, title in TOOLS]
    folder = first.folder if isinstance(first, Remote) else str(first.resolve().parent)
    if folder:
        at = {"session_path": folder}
        above, _, name = folder.rpartition("/")
        rows.append(("trace viewer", "session_path", page(base, "trace_viewer@", name, host, at)))
        rows.append(("overview", "session_path", page(base, "overview_page", name, host, at)))
        rows.append(("all runs", "run_path", f"{base}/?{query({'run_path': above})}"))
    notes = [
        "Pages from `input pipeline` on need data that some captures lack: steps, hardware counters, several hosts.",
        f"Addresses found by `run` work only if the server serves the log directory {place.log_directory}: ratchet.sh "
        f"serve {place.log_directory}"
        if not isinstance(first, Remote)
        else f"Addresses found by `run` work, because {base} lists the run.",
        "The pages HLO op stats and roofline load a library from the web; `xprof ops` and `xprof roofline` print the "
        "same tables without the web.",
    ]
    return (table("links", f"{place.name} in XProf's pages", "static", _COLUMNS, rows, notes),)


def page(base: str, tool: str, run: str, host: str | None, more: dict[str, str] | None = None) -> str:
    """The address of one page of one run."""
    named = {"run": run, "tag": tool, **({"host": host} if host else {}), **(more or {})}
    return f"{base}{ROUTE}/{quote(tool, safe='@')}?{query(named)}"


def run_name(place: CaptureFiles, log_directory: Path | None = None) -> str:
    """XProf's name of the run: its path below the log directory."""
    whole = (log_directory or place.log_directory).resolve()
    directory = place.log_directory.resolve()
    above = directory.relative_to(whole).as_posix() if directory.is_relative_to(whole) else "."
    return place.name if above == "." else f"{above}/{place.name}"


def plain(tables: Sequence[Table]) -> str:
    """The full addresses, one on each line, so that people can copy them."""
    lines = []
    for listed in tables:
        width = max(len(f"{tool}, by {by}") for tool, by, _ in listed.rows)
        lines += [listed.title, *(f"  {f'{tool}, by {by}':<{width}}  {url}" for tool, by, url in listed.rows)]
        lines += [f"  {note}" for note in listed.notes]
    return "\n".join(lines)
