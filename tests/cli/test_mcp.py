"""`mcp`: the server in a process of its own, asked over stdio by the SDK's own client."""

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from capture_examples import empty_run, four_devices_run, one_device_run
from ledger_fixtures import four_attempts, new_repository
from loop_fixtures import PROJECT, committed_contest, ratchet
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from schedule_examples import NEWEST, unpack

from harness.cli import main
from harness.ledger import Ledger

SECONDS = 300
TOOLS = {
    "xprof_list_runs", "xprof_overview", "xprof_framework_ops", "xprof_compare", "xprof_memory", "xprof_trace_url",
    "evaluate", "run_experiment", "results", "show", "diagnose", "lines",
    "next", "status", "sweep", "checkout", "undo", "whatif", "hlo", "fsck", "replay",
    "predict", "attack", "revoke", "tune", "table",
}  # fmt: skip


def talk(contest: Path, conversation: Callable[[Client], Awaitable[None]]) -> None:
    """Starts the server for `contest` and lets `conversation` talk to it; fails if it takes too long."""

    async def run() -> None:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "harness", "mcp", "-C", str(contest)], cwd=str(contest),
            env={"PYTHONPATH": PROJECT},
        )  # fmt: skip
        with anyio.fail_after(SECONDS):
            async with Client(command) as client:
                await conversation(client)

    anyio.run(run)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert found.structured_content is not None
    # For clients that know no structured content the same stands in the text.
    assert json.loads(text(found)) == found.structured_content
    return dict(found.structured_content)


def text(found: CallToolResult) -> str:
    (content,) = found.content
    assert isinstance(content, TextContent)
    return content.text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error
    return text(found)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What the command prints with --json."""
    main([*words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with four attempts and three captures, one of them broken."""
    folder = new_repository(tmp_path_factory.mktemp("mcp") / "repository")
    four_attempts(Ledger.open(folder))
    for make in (one_device_run, four_devices_run, empty_run):
        make(folder / "profile_data")
    return folder


def test_every_tool_has_a_schema_and_says_what_it_does(contest: Path) -> None:
    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == TOOLS
        for tool in tools.values():
            assert tool.description
            assert tool.input_schema["type"] == "object"
        experiment = tools["run_experiment"].input_schema
        assert experiment["required"] == ["message"]
        assert {"message", "set", "expect"} <= set(experiment["properties"])
        assert tools["show"].input_schema["properties"]["number"]["type"] == "integer"
        assert tools["results"].annotations is not None
        assert tools["results"].annotations.read_only_hint
        assert tools["run_experiment"].annotations is not None
        assert not tools["run_experiment"].annotations.read_only_hint
        assert tools["undo"].annotations is not None
        assert tools["undo"].annotations.destructive_hint

    talk(contest, conversation)


def test_tools_answer_with_what_the_commands_print(contest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, four = (str(contest / "profile_data" / "plugins" / "profile" / run) for run in ("one-device", "four-devices"))
    asked: list[tuple[str, dict[str, Any], list[str]]] = [
        ("xprof_list_runs", {}, ["xprof", "list-runs"]),
        ("xprof_overview", {"where": "one-device"}, ["xprof", "overview", one]),
        ("xprof_framework_ops", {"where": one, "category": ["attention"], "top": 1},
         ["xprof", "framework-ops", one, "--category", "attention", "--top", "1"]),
        ("xprof_compare", {"first": one, "second": four}, ["xprof", "compare", one, four]),
        ("xprof_memory", {"where": one}, ["xprof", "memory", one]),
        ("xprof_memory", {"where": one, "diagnose": True}, ["xprof", "memory", "diagnose", one]),
        ("xprof_trace_url", {"where": one, "url": "http://tpu-vm:8791"}, ["xprof", "url", one, "--url=http://tpu-vm:8791"]),
        ("results", {"limit": 2}, ["results", "--limit", "2"]),
        ("show", {"number": 2}, ["show", "2"]),
        ("diagnose", {"number": 1}, ["diagnose", "1"]),
        ("fsck", {}, ["fsck"]),
        ("hlo", {"what": "f32[3,5]{1,0:T(2,2)}", "chip": "v5e"}, ["hlo", "f32[3,5]{1,0:T(2,2)}", "--chip=v5e"]),
    ]  # fmt: skip
    answers: list[dict[str, Any]] = []

    async def conversation(client: Client) -> None:
        for tool, arguments, _ in asked:
            answers.append(await answer(client, tool, **arguments))

    talk(contest, conversation)
    for (tool, _, words), found in zip(asked, answers, strict=True):
        assert found == printed(capsys, *words, "-C", str(contest)), tool
    kernel = answers[1]["tables"][2]["rows"][0]
    assert (kernel["operation"], kernel["self_seconds"]) == ("splash_mha_fwd.1", pytest.approx(120e-6))
    assert len(answers[7]["rows"]) == 2


def test_errors_are_errors_of_the_tool_with_their_kind(contest: Path) -> None:
    async def conversation(client: Client) -> None:
        empty = str(contest / "profile_data" / "plugins" / "profile" / "empty")
        assert (await refusal(client, "xprof_overview", where=empty)).endswith("[bad-profile]")
        assert "[unknown-attempt]" in await refusal(client, "show", number=99)
        assert "[usage]" in await refusal(client, "xprof_overview", where="--help")
        assert "[usage]" in await refusal(client, "results", limit=0)
        assert "[no-message]" in await refusal(client, "run_experiment", message=" ")
        assert "[no-such-place]" in await refusal(client, "xprof_memory", where="absent")
        # Arguments that do not fit the schema never reach the command.
        assert "number" in await refusal(client, "show")
        # And it goes on answering.
        assert (await answer(client, "results"))["rows"]

    talk(contest, conversation)


def test_a_program_can_drive_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = committed_contest(tmp_path / "contest")
    dumps = str(unpack(NEWEST, "v5e-dot-8192", tmp_path))
    answers: list[dict[str, Any]] = []
    product = ["X[1024,8192]", "W[8192,4096]"]

    async def conversation(client: Client) -> None:
        answers.append(await answer(client, "next", plateau=3))
        answers.append(await answer(client, "status"))
        answers.append(await answer(client, "whatif", what=dumps, chip="v5e", mxu=2, dma_latency=0.5))
        assert "[bad-factor]" in await refusal(client, "whatif", what=dumps, chip="v5e", mxu=-1)
        assert "[unknown-attempt]" in await refusal(client, "checkout", number=1)
        assert "[nothing-to-undo]" in await refusal(client, "undo")
        answers.append(await answer(client, "predict", what="matmul", arrays=product, chip="v5e"))
        assert "[no-champion]" in await refusal(client, "revoke")
        assert "[unknown-attempt]" in await refusal(client, "attack", number=7)
        assert "--jobs: expected a whole number, 1 or more" in await refusal(
            client, "sweep", message="x", set=["BQ=1,2"], jobs=0
        )

    talk(folder, conversation)
    place = ["-C", str(folder)]
    assert answers[0] == printed(capsys, "next", "--plateau=3", *place)
    assert answers[1] == printed(capsys, "status", *place)
    assert answers[2] == printed(capsys, "whatif", dumps, "--chip=v5e", "--mxu=2", "--dma-latency=0.5", *place)
    assert answers[3] == printed(capsys, "predict", "matmul", *product, "--chip=v5e", *place)


@pytest.mark.slow
def test_a_kernel_is_judged_and_recorded(tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest")

    async def conversation(client: Client) -> None:
        judged = await answer(client, "evaluate")
        assert judged["verdict"]["outcome"] == "accept"
        first = await answer(client, "run_experiment", message="the first")
        assert first["attempt"]["number"] == 1
        await answer(client, "run_experiment", message="smaller blocks", set=["BQ=256"], expect="5%")
        rows = (await answer(client, "results"))["rows"]
        assert [row["number"] for row in rows] == [1, 2]
        assert (await answer(client, "lines", number=1))["cycles"] > 0

    talk(folder, conversation)
    assert "smaller blocks" in ratchet(folder, "results", expect=0).stdout
