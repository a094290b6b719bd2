"""The ratchet as tools of a Model Context Protocol server: each answers with its verb's document.

The text for the client's model is in verbs/mcp.py; the text for each tool is its verb's description.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, ToolAnnotations
from mcp_types import Tool as Described

from harness import __version__, reading_limits
from harness.errors import Limit, RatchetError, UsageError
from harness.files import write_atomically
from harness.shell import answer_size
from harness.shell.documents import ERROR, ErrorDocument, Mistake, json_object
from harness.shell.roots import Roots
from harness.shell.tools import CONTEST, PART, START, Tool, tools
from harness.shell.verb import MESSAGE

# The folder for long answers of tools that write. The rest of such an answer is read from a file, because a second call
# would write again.
_ANSWERS = Path("profile_data") / "answers"
# How long an interrupted verb may take to put kernel.py back before it is killed; the next command does the rest.
_GRACE_SECONDS = 20.0

# Reports one line of progress to the client.
Report = Callable[[str], Awaitable[None]]


def serve(contest: Path, roots: Sequence[Path], instructions: str) -> None:
    """Serves the verbs on stdin and stdout until the client disconnects; a call that names no contest uses `contest`.

    `instructions` tell the client how the verbs work together.
    Nothing outside `roots` is opened. Raises UsageError `outside`.
    """
    served = _Tools(contest, Roots(folders=tuple(root.resolve() for root in roots)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs with SIGINT ignored; verbs would inherit this and could not be interrupted.
        signal.signal(signal.SIGINT, signal.default_int_handler)

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
        # Two evaluations at a time would disturb each other's measurements. Tools that only read may run meanwhile.
        self._reading, self._writing = anyio.Lock(), anyio.Lock()

    def server(self, instructions: str) -> Server[Any]:
        """The server of the tools."""

        async def listed(_: Any, __: Any) -> ListToolsResult:
            return ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

        async def called(context: ServerRequestContext[Any, Any], call: CallToolRequestParams) -> CallToolResult:
            lines = 0

            async def report(line: str) -> None:
                nonlocal lines
                lines += 1
                await context.session.report_progress(lines, None, line)

            return await self._called(call.name, call.arguments or {}, report)

        return Server(
            "kernel-ratchet", version=__version__, instructions=instructions, on_list_tools=listed, on_call_tool=called
        )

    async def _called(self, name: str, arguments: Mapping[str, Any], report: Report) -> CallToolResult:
        try:
            answer = await self._answer(name, arguments, report)
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

    async def _answer(self, name: str, arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
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
        place = ["-C", str(contest)] if tool.verb.takes_contest else []
        words = [*tool.command_line(meant), *place, "--json", *(["--only-reads"] if tool.effect == "reads" else [])]
        # The verb's own parser checks the options and adds defaults, as on the command line.
        tool.verb.parse(words)
        if tool.is_reading:
            async with self._reading:
                printed = await print_document(tool.verb.name, words, report, reading_limits.ANSWER)
            return _read(_document(printed), meant)
        async with self._writing:
            printed = await print_document(tool.verb.name, words, report)
        whole = contest / _ANSWERS / f"{name}.json"

        def keep(path: str, shown: int) -> str:
            write_atomically(whole, printed)
            return f"the whole answer is in {whole}"

        return answer_size.fit(_document(printed), keep)


async def print_document(verb: str, words: Sequence[str], report: Report, most: Limit | None = None) -> bytes:
    """The text that the verb prints for `words`, which contain --json; each line of its stderr is reported at once.

    The verb runs in a process of its own, so that a bad file cannot end the server. If the call is cancelled, the verb
    is interrupted, as by Ctrl-C.

    Raises RatchetError `too-large` if the verb prints more than `most`, or `reader-died` if it prints nothing.
    """
    command = [sys.executable, "-P", "-m", "harness", verb, *words, "--for-server"]
    in_utf8 = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    process = await anyio.open_process(command, env=in_utf8, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stderr is not None
    printed = bytearray()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_report_lines, process.stderr, report)
            async for chunk in process.stdout:
                printed += chunk
                if most is not None and len(printed) > most.value:
                    process.kill()
                    break
        await process.wait()
    finally:
        await _end(process)
    if most is not None:
        most.check(len(printed), f"the answer of {verb}")
    if not printed:
        raise RatchetError(
            "reader-died",
            f"the process that works for this tool ended without an answer, exit code {process.returncode}",
        )
    return bytes(printed)


async def _report_lines(stream: ByteReceiveStream, report: Report) -> None:
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in filter(None, lines):
            print(line, file=sys.stderr, flush=True)
            await report(line.strip())
    if rest.strip():
        print(rest, file=sys.stderr, flush=True)
        await report(rest.strip())


async def _end(process: Process) -> None:
    """Interrupts the process if it still runs, and waits for its end; kills it after a time of grace."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            with anyio.move_on_after(_GRACE_SECONDS):
                process.send_signal(signal.SIGINT)
                await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()


def _document(printed: bytes) -> dict[str, Any]:
    """The document that a verb printed. Raises RatchetError: the verb's own refusal, or `reader-died`."""
    try:
        document: dict[str, Any] = json.loads(printed)
    except ValueError as error:
        raise RatchetError("reader-died", f"the process that works for this tool ended early: {error}") from error
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
    return CallToolResult(
        content=[TextContent(type="text", text=f"{short} [{kind}]")],
        structured_content=json_object(ERROR, ErrorDocument(error=Mistake(kind=kind, message=short))),
        is_error=True,
    )


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
