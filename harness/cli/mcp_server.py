"""The ratchet as tools of a Model Context Protocol server: each answers with its verb's document."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from harness import __version__
from harness.cli.documents import json_object
from harness.cli.verb import Verb
from harness.errors import RatchetError

Answer = dict[str, Any]

_INSTRUCTIONS = """\
A ratchet for accelerator kernels: kernel.py is edited, judged, and kept only if it is right and really faster.
Loop: next says where the search stands and whether to go on, diagnose what to try; change one thing in kernel.py,
run_experiment judges and records it (sweep: the best of a grid of settings, tune: of a search), results shows all.
evaluate judges without recording. xprof_* tools read profiles of XLA programs. Numbers are in SI base units; `origin`
or `source` says whether they are measured or simulated, and the two are never compared."""
_READS = ToolAnnotations(read_only_hint=True)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False)
# They replace the text of kernel.py.
_OVERWRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True)


def server(contest: Path, verbs: Mapping[str, Verb]) -> MCPServer:
    """The server of `verbs`, for the contest in `contest` where a call names no other."""
    tools = _Tools(contest, verbs)
    found: MCPServer[Any] = MCPServer(
        "kernel-ratchet", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    reading = (
        tools.xprof_list_runs, tools.xprof_overview, tools.xprof_framework_ops, tools.xprof_compare,
        tools.xprof_memory, tools.xprof_trace_url, tools.next, tools.status, tools.results, tools.show,
        tools.diagnose, tools.lines, tools.whatif, tools.hlo, tools.fsck, tools.replay, tools.predict,
    )  # fmt: skip
    writing = (tools.evaluate, tools.run_experiment, tools.sweep, tools.tune, tools.table, tools.attack)
    offered: tuple[tuple[ToolAnnotations, tuple[Callable[..., Answer], ...]], ...] = (
        (_READS, reading), (_WRITES, writing), (_OVERWRITES, (tools.checkout, tools.undo, tools.revoke)),
    )  # fmt: skip
    for annotations, several in offered:
        for tool in several:
            found.add_tool(tool, annotations=annotations)
    return found


class _Tools:
    """The tools; a method's docstring is what a client reads about it, its parameters are the tool's arguments."""

    def __init__(self, contest: Path, verbs: Mapping[str, Verb]) -> None:
        self._contest = contest
        self._verbs = verbs
        # Calls come in threads, and two judges at a time would disturb each other's measurements.
        self._one_at_a_time = threading.Lock()

    def xprof_list_runs(self, log_directory: str | None = None) -> Answer:
        """Lists the captured profiles of a log directory (default: those of the contest), newest first."""
        return self._answer("xprof", ["list-runs"], [log_directory])

    def xprof_overview(self, where: str | None = None) -> Answer:
        """Devices and steps of a profile, the program against the roofline, and what took longest.

        `where` is a log directory, the folder or name of a run, an .xplane.pb file, or the number of an attempt;
        without it the newest profile of the contest.
        """
        return self._answer("xprof", ["overview"], [where])

    def xprof_framework_ops(
        self, where: str | None = None, category: list[str] | None = None, top: int | None = None
    ) -> Answer:
        """Time by framework operation (tf_op) and category: attention, moe, norm, embedding, collective, matmul ..."""
        named = [("--category", one) for one in category or ()]
        return self._answer("xprof", ["framework-ops"], [where], [*named, ("--top", top)])

    def xprof_compare(self, first: str, second: str, top: int | None = None) -> Answer:
        """What changed from one profile to another, by operation, the largest change first; new and vanished ones."""
        return self._answer("xprof", ["compare"], [first, second], [("--top", top)])

    def xprof_memory(
        self, where: str | None = None, diagnose: bool = False, module: str | None = None, top: int | None = None
    ) -> Answer:
        """Device memory of a profile: peak, capacity, composition, what is alive then, the heap over time.

        With `diagnose` what is wrong with it: padding, buffers kept long or as large as a vocabulary.
        """
        words = ["memory", *(["diagnose"] if diagnose else [])]
        return self._answer("xprof", words, [where], [("--module", module), ("--top", top)])

    def xprof_trace_url(self, where: str | None = None, url: str | None = None) -> Answer:
        """The addresses of a profile in XProf's pages, the trace viewer among them; `url` is a server elsewhere."""
        return self._answer("xprof", ["url"], [where], [("--url", url)])

    def next(self, plateau: int | None = None, limit: int | None = None, contest: str | None = None) -> Answer:
        """Where the search stands: champion, distance to the chip's floor, what was tried, whether to go on.

        `plateau` is after how many attempts without a win to advise to stop, `limit` how many attempts to look into.
        """
        return self._answer("next", [], [], [("--plateau", plateau), ("--limit", limit)], contest)

    def status(self, contest: str | None = None) -> Answer:
        """Branch, champion, number of the next attempt, and whether the log is pushed and kernel.py changed."""
        return self._answer("status", contest=contest)

    def evaluate(self, contest: str | None = None, chip: str | None = None, on: str | None = None) -> Answer:
        """Judges kernel.py as it stands (is it right, how fast, where does the time go) and records nothing."""
        return self._answer("judge", [], [], [("--chip", chip), ("--on", on)], contest)

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
        named = [*(("--set", one) for one in set or ()), ("--expect", expect), ("--on", on)]
        return self._answer("experiment", [_hypothesis(message)], [], named, contest)

    def sweep(
        self,
        message: str,
        set: list[str],
        expect: str | None = None,
        jobs: int | None = None,
        contest: str | None = None,
        on: str | None = None,
    ) -> Answer:
        """Compiles and times every setting of a grid, then judges the best one as one recorded attempt.

        `set` has the values of each constant of kernel.py (`BQ=512,1024`); `jobs` settings are screened at a time.
        `message` and `expect` are those of run_experiment.
        """
        named = [*(("--set", one) for one in set), ("--expect", expect), ("--jobs", jobs), ("--on", on)]
        return self._answer("sweep", [_hypothesis(message)], [], named, contest)

    def tune(
        self,
        message: str,
        set: list[str],
        trials: int | None = None,
        where: list[str] | None = None,
        minutes: float | None = None,
        expect: str | None = None,
        jobs: int | None = None,
        contest: str | None = None,
        on: str | None = None,
    ) -> Answer:
        """Searches settings with Optuna, compiles and times them, judges the best one as one recorded attempt.

        `set` has the values of each constant of kernel.py (`BQ=128..4096:pow2`), of which those are tried for which
        each of `where` holds (`BKV % BKV_COMPUTE == 0`); no more than `trials`, none begun after `minutes`. The rest is
        that of sweep.
        """
        named = [
            *(("--set", one) for one in set), *(("--where", one) for one in where or ()), ("--trials", trials),
            ("--minutes", minutes), ("--expect", expect), ("--jobs", jobs), ("--on", on),
        ]  # fmt: skip
        return self._answer("tune", [_hypothesis(message)], [], named, contest)

    def table(
        self,
        kernel: str,
        shapes: str,
        chip: str | None = None,
        out: str | None = None,
        format: str | None = None,
        trials: int | None = None,
        missing: str | None = None,
    ) -> Answer:
        """Fills a table of tuned constants of a shipped kernel: a row for each shape on each chip.

        `kernel` is jax:splash, tokamax:ragged_dot, ... (an unknown one names all), `shapes` a JSON file, `chip` one or
        more with commas. Written to the folder `out` as json, python or tokamax; `missing` names a table whose
        entries are left out. The same call again goes on where it was.
        """
        named = [
            ("--kernel", kernel), ("--shapes", shapes), ("--chip", chip), ("--out", out), ("--format", format),
            ("--trials", trials), ("--missing", missing),
        ]  # fmt: skip
        return self._answer("table", [], [], named)

    def results(self, limit: int | None = None, contest: str | None = None) -> Answer:
        """The table of all attempts: verdict, time, what was expected, what was tried."""
        return self._answer("results", [], [], [("--limit", limit)], contest)

    def show(self, number: int, contest: str | None = None) -> Answer:
        """The whole record of one attempt: evidence (of a suite that of each member), verdict with reasons, diff."""
        return self._answer("show", [], [number], contest=contest)

    def checkout(self, number: int, force: bool = False, contest: str | None = None) -> Answer:
        """Puts the kernel.py of attempt `number` into the working tree.

        Refused where kernel.py holds what no attempt and no commit has; `force` overwrites it.
        """
        return self._answer("checkout", ["--force"] if force else [], [number], contest=contest)

    def undo(self, contest: str | None = None) -> Answer:
        """Takes the last accepted attempt back: a new commit with the kernel.py of the champion before it."""
        return self._answer("undo", contest=contest)

    def diagnose(self, number: int | None = None, member: str | None = None, contest: str | None = None) -> Answer:
        """What to try next for kernel.py or attempt `number`, ranked: observation, rule, gain at most, one change.

        Of a suite, at the `member` of that name.
        """
        return self._answer("diagnose", [], [number], [("--member", member)], contest)

    def lines(self, number: int | None = None, member: str | None = None, contest: str | None = None) -> Answer:
        """The simulated cycles, stalls and spills of each line of kernel.py, or of attempt `number`.

        Of a suite, at the `member` of that name.
        """
        return self._answer("lines", [], [number], [("--member", member)], contest)

    def whatif(
        self,
        what: str | None = None,
        chip: str | None = None,
        clock: float | None = None,
        bandwidth: float | None = None,
        dma_latency: float | None = None,
        transfer_cost: float | None = None,
        mxu: float | None = None,
        member: str | None = None,
        contest: str | None = None,
    ) -> Answer:
        """The simulated time on a chip with scaled resources; without factors each resource in turn.

        `what` is an attempt's number or a directory of compiler dumps, for which `chip` is needed (default: kernel.py
        as it stands), `member` one of a suite.
        """
        factors = [("--clock", clock), ("--bandwidth", bandwidth), ("--dma-latency", dma_latency),
                   ("--transfer-cost", transfer_cost), ("--mxu", mxu)]  # fmt: skip
        return self._answer("whatif", [], [what], [("--chip", chip), ("--member", member), *factors], contest)

    def hlo(
        self, what: str | None = None, op: str | None = None, chip: str | None = None, contest: str | None = None
    ) -> Answer:
        """Explains HLO (shapes, layouts, padding, cost, copies, collectives): a file, HLO itself, or an attempt's.

        Without `what` it is kernel.py's module as last judged; `op` is one operation of it.
        """
        return self._answer("hlo", [], [what], [("--op", op), ("--chip", chip)], contest)

    def fsck(self, contest: str | None = None) -> Answer:
        """Checks log, branch and experiments/ of the ledger against each other; changes nothing."""
        return self._answer("fsck", contest=contest)

    def replay(self, number: int, contest: str | None = None) -> Answer:
        """Judges attempt `number` again under the present judge and says what differs; records nothing."""
        return self._answer("replay", [], [number], contest=contest)

    def attack(
        self,
        number: int | None = None,
        minutes: float | None = None,
        seed: int | None = None,
        member: str | None = None,
        contest: str | None = None,
    ) -> Answer:
        """Searches the space of inputs for the worst error of kernel.py, or of attempt `number`; records nothing.

        Of a suite, at the `member` of that name.
        """
        named = [("--minutes", minutes), ("--seed", seed), ("--member", member)]
        return self._answer("attack", [], [number], named, contest)

    def revoke(
        self, reason: str | None = None, draw: list[str] | None = None, force: bool = False, contest: str | None = None
    ) -> Answer:
        """Judges the champion again; one that fails loses its title to the latest accepted attempt that passes.

        `draw` names inputs to check on too, as the message about a failing champion does. `force` believes a failure
        that may be this machine's (timeout, crash, no memory).
        """
        named = [("--draw", one) for one in draw or ()]
        return self._answer("revoke", ["--force"] if force else [], [reason], named, contest)

    def predict(
        self,
        what: str,
        arrays: list[str],
        chip: str | None = None,
        mesh: str | None = None,
        dtype: str | None = None,
        contest: str | None = None,
    ) -> Answer:
        """The least time of a `matmul` or a `collective` from shapes, mesh and chip, or true `shapes` from parts.

        `arrays` are written as `X[32@data,1024,8192]`, or name a collective's kind; `mesh` is `data=4,model=2`.
        """
        named = [("--chip", chip), ("--mesh", mesh), ("--dtype", dtype)]
        return self._answer("predict", [], [what, *arrays], named, contest)

    def _answer(
        self,
        name: str,
        words: Sequence[str] = (),
        places: Sequence[str | int | None] = (),
        options: Sequence[tuple[str, str | int | float | None]] = (),
        contest: str | None = None,
    ) -> Answer:
        """The verb's document. Raises ToolError with the text and kind of its error."""
        words = [*words, *(_plain(place) for place in places if place is not None)]
        words += [f"{option}={value}" for option, value in options if value is not None]
        verb = self._verbs[name]
        try:
            # The verb's own parser: options are checked, and have their defaults, in one place.
            place = ["-C", contest or str(self._contest)] if verb.takes_contest else []
            given = verb.parse([*words, *place, "--json"])
            with self._one_at_a_time:
                outcome = verb.run(given)
        except RatchetError as error:
            raise ToolError(f"{error} [{error.kind}]") from error
        except OSError as error:
            raise ToolError(f"{error.strerror or error}: {error.filename or ''} [os-error]") from error
        return json_object(name, outcome.document)


def _hypothesis(message: str) -> str:
    return message if message.startswith("experiment:") else f"experiment: {message}"


def _plain(word: str | int) -> str:
    """A word that cannot be taken for an option. Raises ToolError."""
    if str(word).startswith("-"):
        raise ToolError(f"expected a path, a name or a number, got {word!r} [usage]")
    return str(word)
