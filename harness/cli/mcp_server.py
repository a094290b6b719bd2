"""The ratchet as tools of a Model Context Protocol server: each answers with its verb's document."""

import json
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as Described

from harness import __version__
from harness.cli import answer_size, reading_process
from harness.cli.documents import json_object, json_text
from harness.cli.roots import Roots
from harness.cli.tools import CONTEST, PART, START, Tool, tools
from harness.cli.verb import Verb
from harness.errors import RatchetError, UsageError
from harness.files import write_atomically

_INSTRUCTIONS = """\
A ratchet for accelerator kernels: kernel.py is edited, judged, and kept only if it is right and really faster.
Loop: next says where the search stands and whether to go on, diagnose what to try; change one thing in kernel.py,
run_experiment judges and records it (sweep: the best of a grid of settings, tune: of a search), results shows all.
evaluate judges without recording; diagnose, lines, whatif and hlo without a number are about what it judged last.
xprof_* tools read profiles of XLA programs. Numbers are in SI base units; `origin` or `source` says whether they are
measured or simulated; the two are never compared. Where an answer is too long, `cut` says how to ask for the rest."""
# Where a tool that writes leaves an answer too long to send: asking again would do it again.
_ANSWERS = Path("profile_data") / "answers"


def serve(contest: Path, roots: Sequence[Path], verbs: Mapping[str, Verb]) -> None:
    """Serves `verbs` on stdin and stdout until the client goes, for the contest in `contest` unless a call names one.

    Nothing outside `roots` is opened. Raises UsageError `outside`.
    """
    found = _Tools(contest, Roots(folders=tuple(root.resolve() for root in roots)), verbs)

    async def run() -> None:
        # Standard output is the protocol's: the SDK keeps it to itself and sends what anyone else prints to stderr.
        async with stdio_server() as (reading, writing):
            server = found.server()
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


class _Tools:
    def __init__(self, contest: Path, roots: Roots, verbs: Mapping[str, Verb]) -> None:
        self._contest = roots.contest(contest)
        self._roots = roots
        self._tools = {tool.name: tool for tool in tools(verbs)}
        # Calls come in threads, and two judges at a time would disturb each other's measurements.
        self._one_at_a_time = threading.Lock()

    def server(self) -> Server[Any]:
        """The server of the tools."""

        async def listed(_: Any, __: Any) -> ListToolsResult:
            return ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

        async def called(_: Any, asked: CallToolRequestParams) -> CallToolResult:
            return await anyio.to_thread.run_sync(self._called, asked.name, asked.arguments or {})

        return Server(
            "kernel-ratchet", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
        )

    def _called(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        try:
            with self._one_at_a_time:
                answer = self._answer(name, arguments)
        except RatchetError as error:
            return _refusal(str(error), error.kind)
        except OSError as error:
            return _refusal(f"{error.strerror or error}: {error.filename or ''}", "os-error")
        except Exception:  # noqa: BLE001
            traceback.print_exc(file=sys.stderr)
            return _refusal(f"a bug in the ratchet, not in your kernel: {traceback.format_exc(-1)}", "bug")
        return CallToolResult(
            content=[TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))], structured_content=answer
        )

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The verb's document, no longer than answers may be. Raises RatchetError."""
        if name not in self._tools:
            raise UsageError("usage", f"expected one of {', '.join(self._tools)}, got {name!r}")
        tool = self._tools[name]
        meant = tool.checked(arguments)
        contest = self._roots.contest(Path(meant[CONTEST])) if CONTEST in meant else self._contest
        for text, is_path in tool.paths(meant):
            self._roots.path(text) if is_path else self._roots.text(text)
        if "message" in meant and not meant["message"].startswith("experiment:"):
            meant["message"] = f"experiment: {meant['message']}"
        # The verb's own parser: options are checked, and have their defaults, in one place.
        place = ["-C", str(contest)] if tool.verb.takes_contest else []
        words = [*tool.command_line(meant), *place, "--json", *(["--only-reads"] if tool.effect == "reads" else [])]
        if tool.effect == "reads":
            return _read(reading_process.answer(tool.verb.name, words), meant)
        document = tool.verb.run(tool.verb.parse(words)).document
        answer = json_object(tool.verb.name, document)
        whole = contest / _ANSWERS / f"{name}.json"

        def kept(path: str, shown: int) -> str:
            write_atomically(whole, json_text(tool.verb.name, document).encode())
            return f"the whole answer is in {whole}"

        return answer_size.fitted(answer, kept)


def _read(answer: dict[str, Any], meant: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, or the part of it that is asked for."""
    if PART not in meant:
        return answer_size.fitted(answer, _again)
    path, start = meant[PART].rstrip("/"), meant.get(START, 0)

    def rest(cut: str, shown: int) -> str:
        at, slash, inner = cut.removeprefix("/values").removeprefix("/").partition("/")
        return _again(f"{path}/{start + int(at)}{slash}{inner}", shown) if at else _again(path, start + shown)

    return answer_size.fitted(answer_size.part(answer, path, start), rest)


def _again(path: str, start: int) -> str:
    return f"for the rest call again with {PART}={path!r} and {START}={start}"


def _refusal(text: str, kind: str) -> CallToolResult:
    short = text if len(text) <= answer_size.LARGEST // 10 else f"{text[: answer_size.LARGEST // 10]} ..."
    return CallToolResult(content=[TextContent(type="text", text=f"{short} [{kind}]")], is_error=True)


def _described(tool: Tool) -> Described:
    return Described(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        output_schema={"type": "object"},
        annotations=ToolAnnotations(
            read_only_hint=tool.effect == "reads", destructive_hint=tool.effect == "overwrites"
        ),
    )
