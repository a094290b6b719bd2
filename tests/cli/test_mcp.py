"""`mcp`: the server in a process of its own, asked over stdio by the SDK's own client."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from anyio.from_thread import start_blocking_portal
from capture_examples import V6E, Ran, empty_run, four_devices_run, one_device_run, plane, run_folder, serialized, space
from command_line import Shell
from evidence_examples import evidence
from ledger_fixtures import four_attempts, new_repository
from loop_fixtures import PROJECT, committed_contest, copied, ratchet
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from schedule_examples import NEWEST, unpack

from harness import reading_limits
from harness.advice import dump_directory
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.shell.answer_size import LARGEST
from harness.shell.documents import documents, schema
from harness.shell.mcp_server import print_document
from harness.shell.tools import tools

pytestmark = pytest.mark.long

SECONDS = 300
REPAIRING = {"next", "status"}
READING = {
    "audit", "diagnose", "diff", "doctor", "fsck", "hlo", "lines", "predict", "results", "show", "simulate", "whatif",
    "xprof_breakdown", "xprof_compare", "xprof_counters", "xprof_diagnose", "xprof_framework_ops",
    "xprof_gaps",
    "xprof_graph", "xprof_lines", "xprof_list_runs", "xprof_memory", "xprof_memory_diagnose", "xprof_mfu", "xprof_ops",
    "xprof_overlap", "xprof_overview", "xprof_planes", "xprof_report", "xprof_roofline", "xprof_scopes", "xprof_sql",
    "xprof_steps",
    "xprof_trace_url", "xprof_utilization", "xprof_waste",
}  # fmt: skip
WRITING = {"evaluate", "run_experiment", "sweep", "tune", "table", "attack", "replay", "rescale"}
OVERWRITING = {"checkout", "undo", "revoke"}
# The arguments that each reading tool needs in the contest of these tests.
NEEDED: dict[str, dict[str, Any]] = {
    "hlo": {"what": "f32[3,5]{1,0:T(2,2)}"}, "lines": {"number": 1}, "diagnose": {"number": 1}, "whatif": {"what": 1},
    "predict": {"what": "shapes", "arrays": "bf16[8,8192]"}, "simulate": {"what": "dumps", "chip": "v5e"},
    "show": {"number": 2}, "xprof_compare": {"run_a": "one-device", "run_b": "four-devices"},
    "xprof_report": {"run_a": "one-device", "run_b": "four-devices"},
    "xprof_graph": {"run": "one-device", "op": "fusion.3"},
    "xprof_sql": {"run": "four-devices", "query": "select count(*) as count from executions"},
    "xprof_mfu": {"run": "four-devices", "gbs": 8, "seq": 128, "flops_per_token": 1.3e8},
    **{f"xprof_{name}": {"run": "four-devices"} for name in (
        "breakdown", "counters", "diagnose", "framework_ops", "gaps", "lines", "memory", "memory_diagnose", "ops",
        "overlap", "overview", "planes", "roofline", "scopes", "steps", "trace_url", "utilization", "waste",
    )},
}  # fmt: skip


SERVER = {"PYTHONPATH": PROJECT}


Conversation = Callable[[Client], Awaitable[None]]
Converse = Callable[[Conversation], None]


def server(contest: Path) -> StdioServerParameters:
    words = ["-m", "harness", "mcp", "-C", str(contest)]
    return StdioServerParameters(command=sys.executable, args=words, cwd=str(contest), env=SERVER)


async def held(conversation: Conversation, client: Client) -> None:
    """A conversation, which fails if it takes too long."""
    with anyio.fail_after(SECONDS):
        await conversation(client)


def talk(contest: Path, conversation: Conversation) -> None:
    """Starts a server for `contest` and lets `conversation` talk to it."""

    async def run() -> None:
        async with Client(server(contest)) as client:
            await held(conversation, client)

    anyio.run(run)


@pytest.fixture(scope="module")
def converse(contest: Path) -> Iterator[Converse]:
    """Lets a conversation talk to a server for `contest`, the same for all tests that need none of their own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server(contest))) as client:
        yield lambda conversation: portal.call(held, conversation, client)


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    # The text has the same content, for clients that know no structured content.
    assert json.loads(text(result)) == result.structured_content
    return dict(result.structured_content)


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is not None
    jsonschema.validate(result.structured_content, schema(documents()["error"]))
    error = result.structured_content["error"]
    assert text(result) == f"{error['message']} [{error['kind']}]"
    return text(result)


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest with four attempts and three captures, one of them broken."""
    folder = new_repository(tmp_path_factory.mktemp("mcp") / "repository")
    four_attempts(Ledger.open(folder))
    for make in (one_device_run, four_devices_run, empty_run):
        make(folder / "profile_data")
    return folder


def test_every_tool_has_a_schema_and_says_what_it_does(converse: Converse) -> None:
    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        effects = {name: tool.annotations for name, tool in tools.items() if tool.annotations is not None}
        assert {name for name, effect in effects.items() if effect.read_only_hint} == READING
        assert {name for name, effect in effects.items() if effect.destructive_hint} == OVERWRITING
        assert set(tools) == READING | REPAIRING | WRITING | OVERWRITING
        for tool in tools.values():
            assert tool.description
            assert tool.input_schema["type"] == "object"
            assert "ray" not in tool.input_schema["properties"], "Ray runs here what a cluster sends back"
        experiment = tools["run_experiment"].input_schema
        assert experiment["required"] == ["message"]
        assert {"message", "set", "expect"} <= set(experiment["properties"])
        assert tools["show"].input_schema["properties"]["number"]["type"] == "integer"

    converse(conversation)


def test_tools_answer_with_what_the_commands_print(contest: Path, shell: Shell, converse: Converse) -> None:
    one_device, four_devices = (
        str(contest / "profile_data" / "plugins" / "profile" / run) for run in ("one-device", "four-devices")
    )
    asked: list[tuple[str, dict[str, Any], list[str]]] = [
        ("xprof_overview", {"where": "one-device"}, ["xprof", "overview", one_device]),
        (
            "xprof_framework_ops",
            {"where": one_device, "category": ["attention"], "top": 1},
            ["xprof", "framework-ops", one_device, "--category", "attention", "--top", "1"],
        ),
        (
            "xprof_compare",
            {"first": one_device, "second": four_devices},
            ["xprof", "compare", one_device, four_devices],
        ),
        ("xprof_memory_diagnose", {"where": one_device}, ["xprof", "memory", "diagnose", one_device]),
        ("results", {"limit": 2}, ["results", "--limit", "2"]),
        ("show", {"number": 2}, ["show", "2"]),
        ("hlo", {"what": "f32[3,5]{1,0:T(2,2)}", "chip": "v5e"}, ["hlo", "f32[3,5]{1,0:T(2,2)}", "--chip=v5e"]),
        ("predict", {"what": "shapes", "arrays": "bf16[8,8192]"}, ["predict", "shapes", "bf16[8,8192]"]),
        ("xprof_graph", {"run": "one-device", "op": "fusion.3"}, ["xprof", "graph", one_device, "--op", "fusion.3"]),
        (
            "xprof_mfu",
            {"run": "four-devices", "gbs": 8, "seq": 128, "flops_per_token": 1.3e8},
            ["xprof", "mfu", four_devices, "--gbs", "8", "--seq", "128", "--flops-per-token", "1.3e8"],
        ),
        ("xprof_breakdown", {"run": "four-devices"}, ["xprof", "breakdown", four_devices]),
        ("xprof_waste", {"run": "four-devices"}, ["xprof", "waste", four_devices]),
    ]
    answers: list[dict[str, Any]] = []

    async def conversation(client: Client) -> None:
        for tool, arguments, _ in asked:
            answers.append(await answer(client, tool, **arguments))

    converse(conversation)
    for (tool, _, words), answered in zip(asked, answers, strict=True):
        assert answered == shell.document(*words, "-C", contest), tool
    kernel = answers[0]["tables"][2]["rows"][0]
    assert (kernel["operation"], kernel["self_seconds"]) == ("splash_mha_fwd.1", pytest.approx(120e-6))
    assert len(answers[4]["rows"]) == 2


@pytest.mark.parametrize(
    "name", ["counters", "gaps", "lines", "ops", "overlap", "roofline", "scopes", "steps", "utilization"]
)
def test_a_tool_is_a_command_line(name: str) -> None:
    (tool,) = (tool for tool in tools() if tool.name == f"xprof_{name}")
    assert (tool.verb.name, tool.effect) == ("xprof", "reads")
    assert tool.command_line(tool.valid({"run": "four-devices"})) == [name, "four-devices"]


def test_errors_are_errors_of_the_tool_with_their_kind(contest: Path, converse: Converse) -> None:
    async def conversation(client: Client) -> None:
        empty = str(contest / "profile_data" / "plugins" / "profile" / "empty")
        assert (await refusal(client, "xprof_overview", where=empty)).endswith("[bad-profile]")
        assert "[unknown-attempt]" in await refusal(client, "show", number=99)
        assert "[usage]" in await refusal(client, "xprof_overview", where="--help")
        assert "[usage]" in await refusal(client, "results", limit=0)
        assert "[no-message]" in await refusal(client, "run_experiment", message=" ")
        assert "[no-such-place]" in await refusal(client, "xprof_memory", where="absent")
        # The newest run is another one: a question about the old run must not be answered from it.
        for tool in ("xprof_overview", "xprof_memory", "xprof_trace_url"):
            assert "got 'aaa'" in await refusal(client, tool, run="aaa")
        # Arguments that do not fit the schema never reach the command.
        assert "'number' is a required property" in await refusal(client, "checkout")
        assert "top: 'many' is not of type 'integer'" in await refusal(client, "xprof_ops", top="many")
        assert "run_b, which is missing" in await refusal(client, "xprof_compare", run_a="one-device")
        assert "is greater than the maximum" in await refusal(client, "checkout", number=2**60)
        assert "is too long" in await refusal(client, "run_experiment", message="m" * 10_001)
        assert "without NUL" in await refusal(client, "hlo", what="a\0b")
        many = await refusal(client, "run_experiment", message="m", set=["B=1"] * 1001)
        assert "is not valid under any of the given schemas" in many
        assert "run are two names of one argument" in await refusal(client, "xprof_ops", where="a", run="b")
        # And it goes on answering.
        assert (await answer(client, "results"))["rows"]

    converse(conversation)


def test_an_argument_that_a_tool_does_not_know_is_an_error(converse: Converse) -> None:
    async def conversation(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            names = [name for name in tool.input_schema["properties"] if len(name) > 2]
            misspelt = f"{names[0][:-1]}_"
            complaint = await refusal(client, tool.name, **NEEDED.get(tool.name, {}), **{misspelt: "aaa"})
            assert complaint.startswith(f"{tool.name} takes {names[0]}"), complaint
            assert f"got '{misspelt}'; did you mean `{names[0]}`? [usage]" in complaint
            assert not tool.input_schema["additionalProperties"]

    converse(conversation)


def test_a_capture_is_named_by_run(converse: Converse) -> None:
    """The newest run is the broken one, so an ignored argument would show."""

    async def conversation(client: Client) -> None:
        for run, devices in (("one-device", 1), ("four-devices", 4)):
            overview = await answer(client, "xprof_overview", run=run)
            assert overview == await answer(client, "xprof_overview", where=run)
            assert len(overview["tables"][0]["rows"]) == devices
        assert "one-device" in json.dumps(await answer(client, "xprof_trace_url", run="one-device"))
        named = await answer(client, "xprof_compare", run_a="one-device", run_b="four-devices")
        assert named == await answer(client, "xprof_compare", first="one-device", second="four-devices")
        by_category = await answer(client, "xprof_framework_ops", run="one-device", category="attention")
        assert by_category == await answer(client, "xprof_framework_ops", run="one-device", category=["attention"])
        assert {row["category"] for row in by_category["tables"][1]["rows"]} == {"attention"}

    converse(conversation)


def test_nothing_outside_the_roots_is_opened(contest: Path, tmp_path: Path, converse: Converse) -> None:
    outside = one_device_run(tmp_path / "elsewhere")
    secret = tmp_path / "secret.txt"
    secret.write_text("HloModule secret")
    (contest / "link").symlink_to(secret)
    linked = contest / "linked" / "plugins" / "profile" / "run"
    linked.mkdir(parents=True)
    (linked / "host.xplane.pb").symlink_to(outside)
    other = copied(contest, tmp_path / "other")
    # A record is only a claim: its paths of dumps must open nothing elsewhere.
    asked: list[tuple[str, dict[str, Any]]] = [
        ("xprof_ops", {"run": str(outside)}),
        ("xprof_ops", {"run": str(tmp_path / "elsewhere")}),
        ("xprof_ops", {"run": "linked"}),
        ("xprof_ops", {"run": str(linked / "host.xplane.pb")}),
        ("xprof_ops", {"run": os.path.relpath(tmp_path / "elsewhere", contest)}),
        ("xprof_list_runs", {"log_directory": str(tmp_path / "elsewhere")}),
        ("xprof_ops", {"run": "gs://bucket/dir"}),
        ("xprof_ops", {"contest": str(other)}),
        ("hlo", {"what": str(secret)}),
        ("hlo", {"what": "link"}),
        ("audit", {"file": str(secret)}),
        ("simulate", {"what": str(tmp_path), "chip": "v5e"}),
        ("whatif", {"what": str(tmp_path), "chip": "v5e"}),
        ("results", {"contest": str(other)}),
        ("whatif", {"what": "dumps", "chip": "v5e", "operand": f"x={secret}"}),
        ("table", {"kernel": str(other), "shapes": "shapes.json"}),
        ("table", {"kernel": "jax:splash", "shapes": "shapes.json", "out": str(tmp_path / "out")}),
        ("attack", {"repeat": str(secret)}),
        ("run_experiment", {"message": "x", "contest": str(other)}),
    ]

    async def conversation(client: Client) -> None:
        for tool, arguments in asked:
            complaint = await refusal(client, tool, **arguments)
            assert complaint.endswith("[outside]"), (tool, arguments, complaint)
        for tool in ("hlo", "simulate"):
            complaint = await refusal(client, tool, what=f"{contest / 'kernel.py'}:kernel_fn", chip="v5e")
            assert complaint.endswith("[runs-a-program]"), complaint
        # A run's name is one folder, not a way out of the log directory.
        assert "[no-such-place]" in await refusal(client, "xprof_ops", run="one-device/../../../../../..")

    try:
        converse(conversation)
    finally:
        (contest / "link").unlink()
        shutil.rmtree(contest / "linked")


def test_a_record_does_not_say_which_folder_is_opened(tmp_path: Path) -> None:
    dumps = tmp_path / "contest" / "profile_data" / "0001" / "dumps"
    dumps.mkdir(parents=True)
    recorded = evidence(2.16e-3)
    for named, opened in (("profile_data/0001/dumps", dumps), (str(tmp_path), None), ("../..", None), (None, None)):
        assert dump_directory.of(replace(recorded, dump_directory=named), tmp_path / "contest") == opened


OF_CAPTURES = {tool for tool in READING if tool.startswith("xprof_")}


@pytest.mark.parametrize("names", [READING - OF_CAPTURES, pytest.param(OF_CAPTURES, marks=pytest.mark.slow)])
def test_reading_tools_change_nothing(names: set[str], contest: Path, converse: Converse) -> None:
    async def conversation(client: Client) -> None:
        for tool in sorted(names):
            await client.call_tool(tool, NEEDED.get(tool, {}))

    # As after a kill in the middle of an attempt: a verb of the command line would put kernel.py back.
    journal = contest / ".git" / "ratchet"
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.begin(Candidate(text=b"# the original\n"), "attempt 5")
        ledger.restore(Candidate(text=b"# judged at present\n"))
    try:
        before = tree(contest)
        converse(conversation)
        assert tree(contest) == before
        assert any(journal.rglob("*"))
    finally:
        with ledger.lock():
            ledger.abandon()


@pytest.mark.parametrize("tool", sorted(REPAIRING))
def test_an_attempt_that_was_cut_off_is_undone_and_the_answer_says_so(tool: str, tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest")
    cut_off(folder)
    answers: list[dict[str, Any]] = []

    async def conversation(client: Client) -> None:
        answers.append(await answer(client, tool))
        answers.append(await answer(client, tool))

    talk(folder, conversation)
    assert "did not end: kernel.py has its earlier text again" in " ".join(answers[0]["messages"])
    assert (folder / "kernel.py").read_bytes() == b"# the original\n"
    assert "did not end" not in " ".join(answers[1]["messages"])
    cut_off(folder)
    printed = ratchet(folder, tool, "--json", expect=0)
    assert "did not end: kernel.py has its earlier text again" in " ".join(json.loads(printed.stdout)["messages"])
    assert "did not end" not in printed.stderr


def cut_off(contest: Path) -> None:
    """Leaves the contest as a kill in the middle of an attempt does."""
    ledger = Ledger.open(contest)
    with ledger.lock():
        ledger.begin(Candidate(text=b"# the original\n"), "attempt 1")
        ledger.restore(Candidate(text=b"# judged at present\n"))


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its contents and the time it was written; git renews its index as it looks."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("index", "lock")
    }


def test_what_a_tool_reads_has_the_limits_of_the_command_line(tmp_path: Path) -> None:
    """The reading process is ended from outside, and the server goes on."""
    (tmp_path / "module.txt").write_text("\n".join(f"%a{n} = f32[8] add(%b, %c)" for n in range(60_000)))

    async def conversation(client: Client) -> None:
        complaint = await refusal(client, "hlo", what="module.txt")
        assert "RATCHET_MAX_MEMORY_BYTES (1)" in complaint
        assert complaint.endswith("[too-large]")
        assert await answer(client, "hlo", what="f32[8]")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SERVER, "RATCHET_MAX_MEMORY_BYTES", "1")
        talk(tmp_path, conversation)


async def silent(line: str) -> None:
    """Reports nothing."""


def test_an_answer_that_is_too_long_to_read_is_refused(contest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_MAX_ANSWER_BYTES", "1000")
    with pytest.raises(RatchetError, match=r"answer of show: expected at most 1,000 bytes .*RATCHET_MAX_ANSWER_BYTES"):
        anyio.run(print_document, "show", ["2", "-C", str(contest), "--json"], silent, reading_limits.ANSWER)


def test_a_long_answer_says_how_to_ask_for_the_rest(tmp_path: Path) -> None:
    """Twelve hundred operations: 240 kB of JSON come in three parts, and nothing is lost."""
    count = 1_200
    ops = [
        Ran(
            (f"%add.{at} = f32[8]{{0}} add(f32[8]{{0}} %a, f32[8]{{0}} %b)", {"hlo_category": "non-fusion"}),
            10.0 + at,
            0.5,
        )
        for at in range(count)
    ]
    run_folder(tmp_path / "logs", "long", serialized(space(plane(1, "/device:TPU:0", {"XLA Ops": ops}, V6E))))
    names: list[str] = []

    async def conversation(client: Client) -> None:
        part = await answer(client, "xprof_ops", run="logs", top=0)
        assert len(json.dumps(part)) <= LARGEST
        (cut,) = part["cut"]
        assert " of 1,200 items are shown; for the rest call again with part='/tables/0/rows' and start=" in cut
        names.extend(row["operation"] for row in part["tables"][0]["rows"])
        while len(names) < count:
            part = await answer(client, "xprof_ops", run="logs", top=0, part="/tables/0/rows", start=len(names))
            assert len(json.dumps(part)) <= LARGEST
            assert (part["start"], part["of"]) == (len(names), count)
            names.extend(row["operation"] for row in part["values"])
            assert len(names) == count or f"part='/tables/0/rows' and start={len(names)}" in part["cut"][0]
        assert "[unknown-part]" in await refusal(client, "xprof_ops", run="logs", part="/tables/7")

    talk(tmp_path, conversation)
    assert sorted(names) == sorted(f"add.{at}" for at in range(count))


def test_a_program_can_drive_the_loop(tmp_path: Path, shell: Shell) -> None:
    folder = committed_contest(tmp_path / "contest")
    dumps = str(unpack(NEWEST, "v5e-dot-8192", folder / "profile_data"))
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
    place = ["-C", folder]
    assert answers[0] == shell.document("next", "--plateau=3", *place)
    assert answers[1] == shell.document("status", *place)
    assert answers[2] == shell.document("whatif", dumps, "--chip=v5e", "--mxu=2", "--dma-latency=0.5", *place)
    assert answers[3] == shell.document("predict", "matmul", *product, "--chip=v5e", *place)


def test_a_cancelled_call_interrupts_the_verb(tmp_path: Path) -> None:
    """Progress is reported, status is answered while the attempt runs, and the attempt is undone."""
    folder = committed_contest(tmp_path / "contest")
    lines: list[str] = []

    async def conversation(client: Client) -> None:
        judging = anyio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            lines.append(message or "")
            assert (progress, total) == (len(lines), None)
            judging.set()

        async with anyio.create_task_group() as group:
            call = anyio.CancelScope()

            async def judge() -> None:
                with call:
                    await client.call_tool("run_experiment", {"message": "baseline"}, progress_callback=note)

            group.start_soon(judge)
            await judging.wait()
            (under_way,) = (await answer(client, "status"))["messages"]
            assert "an attempt is under way and not recorded yet" in under_way
            call.cancel()
        while (await answer(client, "status"))["messages"]:
            await anyio.sleep(0.2)

    talk(folder, conversation)
    assert lines
    assert not Ledger.open(folder).is_unfinished()
    assert Ledger.open(folder).next_number() == 1


def test_a_server_whose_client_is_gone_interrupts_the_verb_and_ends(tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
    call = {"name": "run_experiment", "arguments": {"message": "baseline"}, "_meta": {"progressToken": 1}}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    command = [sys.executable, "-m", "harness", "mcp", "-C", str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, text=True, env={**os.environ, **SERVER}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in asked:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
        while "notifications/progress" not in process.stdout.readline():
            assert process.poll() is None
        assert Ledger.open(folder).is_unfinished()
        process.stdin.close()
        assert process.wait(timeout=SECONDS) == 0
    assert not Ledger.open(folder).is_unfinished()
    assert Ledger.open(folder).next_number() == 1


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
        assert [row["row"]["number"] for row in rows] == [1, 2]
        assert (await answer(client, "lines", number=1))["cycles"] > 0

    talk(folder, conversation)
    assert "smaller blocks" in ratchet(folder, "results", expect=0).stdout
