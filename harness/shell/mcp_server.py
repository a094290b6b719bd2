"""The ratchet as tools of a Model Context Protocol server: each answers with its verb's document.

The text for the client's model is in verbs/mcp.py; the text for each tool is its verb's description.
"""

import json
import os
import subprocess
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

from harness import __version__, reading_limits
from harness.errors import RatchetError, UsageError
from harness.files import write_atomically
from harness.shell import answer_size
from harness.shell.documents import json_object, json_text
from harness.shell.roots import Roots
from harness.shell.tools import CONTEST, PART, START, Tool, tools
from harness.shell.verb import MESSAGE

# The folder for answers too long to send, of tools that write: the rest cannot be had by a second call, which would
# write again.
_ANSWERS = Path("profile_data") / "answers"


def serve(contest: Path, roots: Sequence[Path], instructions: str) -> None:
    """Serves the verbs on stdin and stdout until the client goes; a call that names no contest uses `contest`.

    `instructions` tell the client how the verbs work together.
    Nothing outside `roots` is opened. Raises UsageError `outside`.
    """
    served = _Tools(contest, Roots(folders=tuple(root.resolve() for root in roots)))

    async def run() -> None:
        # Standard output is for the protocol alone: the SDK redirects all other output to stderr.
        async with stdio_server() as (reading, writing):
            server = served.server(instructions)
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


class _Tools:
    def __init__(self, contest: Path, roots: Roots) -> None:
        self._contest = roots.contest(contest)
        self._roots = roots
        self._tools = {tool.name: tool for tool in tools()}
        # Each call has a thread, and two evaluations at a time would disturb each other's measurements.
        self._one_at_a_time = threading.Lock()

    def server(self, instructions: str) -> Server[Any]:
        """The server of the tools."""

        async def listed(_: Any, __: Any) -> ListToolsResult:
            return ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

        async def called(_: Any, call: CallToolRequestParams) -> CallToolResult:
            return await anyio.to_thread.run_sync(self._called, call.name, call.arguments or {})

        return Server(
            "kernel-ratchet", version=__version__, instructions=instructions, on_list_tools=listed, on_call_tool=called
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
        """The verb's document, cut to the size that answers may have. Raises RatchetError."""
        if name not in self._tools:
            raise UsageError("usage", f"expected a tool, one of {', '.join(self._tools)}, got {name!r}")
        tool = self._tools[name]
        meant = tool.valid(arguments)
        contest = self._roots.contest(Path(meant[CONTEST])) if CONTEST in meant else self._contest
        for text, is_path in tool.paths(meant):
            self._roots.path(text) if is_path else self._roots.text(text)
        if "message" in meant and not meant["message"].startswith(f"{MESSAGE}:"):
            meant["message"] = f"{MESSAGE}: {meant['message']}"
        # The verb's own parser checks the options and adds defaults, as on the command line.
        place = ["-C", str(contest)] if tool.verb.takes_contest else []
        words = [*tool.command_line(meant), *place, "--json", *(["--only-reads"] if tool.effect == "reads" else [])]
        if tool.effect == "reads":
            return _read(read_answer(tool.verb.name, words), meant)
        record, document = tool.verb.run(tool.verb.parse(words)).document, tool.verb.document
        assert document is not None, f"{tool.verb.name} has no document to answer with"
        answer = json_object(document, record)
        whole = contest / _ANSWERS / f"{name}.json"

        def keep(path: str, shown: int) -> str:
            write_atomically(whole, json_text(document, record).encode())
            return f"the whole answer is in {whole}"

        return answer_size.fit(answer, keep)


def read_answer(verb: str, words: Sequence[str]) -> dict[str, Any]:
    """The document that the verb prints for `words`, which contain --json, within the limits of a command line.

    The verb runs in a process of its own, so that a bad file cannot end the server.

    Raises RatchetError: the verb's own refusal, `too-large` if it prints more than an answer may have, or `reader-died`
    if it prints no JSON.
    """
    command = [sys.executable, "-P", "-m", "harness", verb, *words]
    in_utf8 = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, env=in_utf8, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            printed = reading_limits.read_stream(process.stdout, f"the answer of {verb}", reading_limits.ANSWER)
        finally:
            if process.poll() is None:
                process.terminate()
    try:
        document: dict[str, Any] = json.loads(printed)
    except ValueError as error:
        raise RatchetError(
            "reader-died",
            f"the process that reads for this tool ended without an answer, exit code {process.returncode}",
        ) from error
    if "error" in document:
        raise RatchetError(document["error"]["kind"], document["error"]["message"])
    return document


def _read(answer: dict[str, Any], meant: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, or the part of it that was asked for."""
    if PART not in meant:
        return answer_size.fit(answer, _again)
    path, start = meant[PART].rstrip("/"), meant.get(START, 0)

    def rest(cut: str, shown: int) -> str:
        at, slash, inner = cut.removeprefix("/values").removeprefix("/").partition("/")
        return _again(f"{path}/{start + int(at)}{slash}{inner}", shown) if at else _again(path, start + shown)

    return answer_size.fit(answer_size.part(answer, path, start), rest)


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
