"""The ratchet as tools of a Model Context Protocol server: each answers with what its command prints with --json."""

import contextlib
import io
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from harness import __version__, cli

Answer = dict[str, Any]

_INSTRUCTIONS = """\
A ratchet for accelerator kernels: kernel.py is edited, judged, and kept only if it is right and really faster.
Loop: diagnose says what to try, change one thing in kernel.py, run_experiment judges and records it, results shows all.
evaluate judges without recording. xprof_* tools read profiles of XLA programs. Numbers are in SI base units; `origin`
or `source` says whether they are measured or simulated, and the two are never compared."""
_READS = ToolAnnotations(read_only_hint=True)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False)


def server(contest: Path) -> MCPServer:
    """The server, for the contest in `contest` where a call names no other."""
    tools = _Tools(contest)
    found: MCPServer[Any] = MCPServer(
        "kernel-ratchet", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    reading: tuple[Callable[..., Answer], ...] = (
        tools.xprof_list_runs,
        tools.xprof_overview,
        tools.xprof_framework_ops,
        tools.xprof_compare,
        tools.xprof_memory,
        tools.xprof_trace_url,
        tools.results,
        tools.show,
        tools.diagnose,
        tools.lines,
    )
    writing: tuple[Callable[..., Answer], ...] = (tools.evaluate, tools.run_experiment)
    for tool in (*reading, *writing):
        found.add_tool(tool, annotations=_READS if tool in reading else _WRITES)
    return found


class _Tools:
    """The tools; a method's docstring is what a client reads about it, its parameters are the tool's arguments."""

    def __init__(self, contest: Path) -> None:
        self._contest = contest
        # Answers are taken off standard output, of which there is one.
        self._one_at_a_time = threading.Lock()

    def xprof_list_runs(self, log_directory: str | None = None) -> Answer:
        """Lists the captured profiles of a log directory (default: those of the contest), newest first."""
        return self._answer(["xprof", "list-runs"], [log_directory])

    def xprof_overview(self, where: str | None = None) -> Answer:
        """Devices and steps of a profile, the program against the roofline, and what took longest.

        `where` is a log directory, the folder or name of a run, an .xplane.pb file, or the number of an attempt;
        without it the newest profile of the contest.
        """
        return self._answer(["xprof", "overview"], [where])

    def xprof_framework_ops(
        self, where: str | None = None, category: list[str] | None = None, top: int | None = None
    ) -> Answer:
        """Time by framework operation (tf_op) and category: attention, moe, norm, embedding, collective, matmul ..."""
        named = [("--category", one) for one in category or ()]
        return self._answer(["xprof", "framework-ops"], [where], [*named, ("--top", top)])

    def xprof_compare(self, first: str, second: str, top: int | None = None) -> Answer:
        """What changed from one profile to another, by operation, the largest change first; new and vanished ones."""
        return self._answer(["xprof", "compare"], [first, second], [("--top", top)])

    def xprof_memory(
        self, where: str | None = None, diagnose: bool = False, module: str | None = None, top: int | None = None
    ) -> Answer:
        """Device memory of a profile: peak, capacity, composition, what is alive then, the heap over time.

        With `diagnose` what is wrong with it: padding, buffers kept long or as large as a vocabulary.
        """
        words = ["xprof", "memory", *(["diagnose"] if diagnose else [])]
        return self._answer(words, [where], [("--module", module), ("--top", top)])

    def xprof_trace_url(self, where: str | None = None, url: str | None = None) -> Answer:
        """The addresses of a profile in XProf's pages, the trace viewer among them; `url` is a server elsewhere."""
        return self._answer(["xprof", "url"], [where], [("--url", url)])

    def evaluate(self, contest: str | None = None, chip: str | None = None, on: str | None = None) -> Answer:
        """Judges kernel.py as it stands (is it right, how fast, where does the time go) and records nothing."""
        return self._answer(["judge"], [], [("--chip", chip), ("--on", on)], contest)

    def run_experiment(
        self,
        message: str,
        set: list[str] | None = None,
        expect: str | None = None,
        contest: str | None = None,
        on: str | None = None,
    ) -> Answer:
        """Judges kernel.py against the champion, records the attempt, and commits it only if it is really faster.

        `message` is the hypothesis: what was changed, and the observation behind it. `set` rewrites constants of
        kernel.py (`BQ=2048`). `expect` is how much less time you expect (`5%`). A rejected kernel.py is put back.
        """
        hypothesis = message if message.startswith("experiment:") else f"experiment: {message}"
        named = [*(("--set", one) for one in set or ()), ("--expect", expect), ("--on", on)]
        return self._answer([hypothesis], [], named, contest)

    def results(self, limit: int | None = None, contest: str | None = None) -> Answer:
        """The table of all attempts: verdict, time, what was expected, what was tried."""
        return self._answer(["results"], [], [("--limit", limit)], contest)

    def show(self, number: int, contest: str | None = None) -> Answer:
        """The whole record of one attempt: evidence, verdict with reasons, diff."""
        return self._answer(["show"], [number], (), contest)

    def diagnose(self, number: int | None = None, contest: str | None = None) -> Answer:
        """What to try next for kernel.py or attempt `number`, ranked: observation, rule, gain at most, one change."""
        return self._answer(["diagnose"], [number], (), contest)

    def lines(self, number: int | None = None, contest: str | None = None) -> Answer:
        """The simulated cycles, stalls and spills of each line of kernel.py, or of attempt `number`."""
        return self._answer(["lines"], [number], (), contest)

    def _answer(
        self,
        verb: Sequence[str],
        places: Sequence[str | int | None],
        options: Sequence[tuple[str, str | int | None]] = (),
        contest: str | None = None,
    ) -> Answer:
        """The document that the command prints. Raises ToolError with the text and kind of its error."""
        words = [*verb, *(_plain(place) for place in places if place is not None)]
        words += [f"{name}={value}" for name, value in options if value is not None]
        printed = io.StringIO()
        with self._one_at_a_time, contextlib.redirect_stdout(printed):
            cli.main([*words, "-C", contest or str(self._contest), "--json"])
        document: Answer = msgspec.json.decode(printed.getvalue())
        error = document.get("error")
        if error is not None:
            raise ToolError(f"{error['message']} [{error['kind']}]")
        return document


def _plain(word: str | int) -> str:
    """A word that cannot be taken for an option. Raises ToolError."""
    if str(word).startswith("-"):
        raise ToolError(f"expected a path, a name or a number, got {word!r} [usage]")
    return str(word)
