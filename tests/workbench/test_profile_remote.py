"""`XPROF_URL`: runs of a real XProf server on the loopback give the same as their files; and the limits of a server."""

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from analyses import printed_by_name
from capture_examples import cpu_run, four_devices_run, one_device_run
from memory_examples import memory_run
from xprof_serving import answering, serving

from harness.shell.main import main
from harness.workbench import xprof_server
from harness.workbench.profiles.remote import URL_VARIABLE, Remote, source

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log directory")
    one_device_run(folder)
    four_devices_run(folder)
    memory_run(folder)
    return folder


@pytest.fixture(scope="module")
def address(logdir: Path) -> Iterator[str]:
    """A real server over the log directory, in a thread."""
    server = xprof_server.bind_server(str(logdir), 0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    host, port = server.bind_addr
    yield f"http://{host}:{port}"
    server.stop()
    thread.join()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["xprof", *words]) in (2, 4)
    return capsys.readouterr().err


def same(ours: object, theirs: object) -> bool:
    """Compares both: peaks have six digits on a server, and times come as decimal microseconds."""
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return theirs == pytest.approx(ours, rel=2e-5, abs=1e-12)
    return ours == theirs


def compare_with_files(
    run: str, command: list[str], logdir: Path, address: str, capsys: pytest.CaptureFixture[str], unknown: str = ""
) -> None:
    """Compares all columns but `unknown`, which the server does not have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(URL_VARIABLE, raising=False)
        here = printed_by_name(capsys, "xprof", *command[:1], str(logdir / "plugins" / "profile" / run), *command[1:])
        patch.setenv(URL_VARIABLE, address)
        there = printed_by_name(capsys, "xprof", *command[:1], run, *command[1:])
    assert here.keys() == there.keys()
    for name, table in here.items():
        assert len(table["rows"]) == len(there[name]["rows"]), name
        for ours, theirs in zip(table["rows"], there[name]["rows"], strict=True):
            differing = [key for key in ours if not same(ours[key], theirs[key])]
            assert differing == [key for key in ours if key == unknown], (name, ours, theirs)
            assert theirs.get(unknown) is None


@pytest.mark.parametrize("run", ["one-device", "four-devices"])
@pytest.mark.parametrize("command", ["ops", "overview", "gaps"])
def test_a_servers_run_says_what_its_file_says(
    run: str, command: str, logdir: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_with_files(run, [command], logdir, address, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["one-device", "four-devices"])
@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in ("framework-ops", "breakdown", "overlap", "roofline", "utilization", "steps", "lines")),
        ["scopes"],
        ["mfu", "--gbs", "8", "--seq", "1024", "--flops-per-token", "1e6"],
        ["graph", "--op", "fusion.5"],
    ],
    ids=lambda command: command[0],
)
def test_so_does_every_other_command(
    run: str, command: list[str], logdir: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_with_files(run, command, logdir, address, capsys)


def test_memory_comes_from_the_servers_own_tools(
    logdir: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_with_files("memory", ["memory"], logdir, address, capsys, unknown="at_seconds")


@pytest.mark.slow
def test_so_does_a_real_capture_of_a_cpu(logdir: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    cpu_run(logdir)
    for command in ("ops", "lines", "breakdown", "memory"):
        compare_with_files("cpu", [command], logdir, address, capsys)


def test_runs_are_listed_and_unknown_ones_named(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"{address}/data/plugin/profile/overview_page?run=memory")
    names = {row["run"]: row["hosts"] for row in printed_by_name(capsys, "xprof", "list-runs")["runs"]["rows"]}
    assert {"one-device": 1, "four-devices": 1, "memory": 1}.items() <= names.items()
    message = refused(capsys, "ops", "absent")
    assert "a run of XProf at" in message
    assert "one-device" in message
    urls = [row["url"] for row in printed_by_name(capsys, "xprof", "url", "memory")["links"]["rows"]]
    assert all(url.startswith(f"{address}/") for url in urls)


def test_a_path_here_stays_a_path_here(
    logdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, "http://127.0.0.1:9")
    assert printed_by_name(capsys, "xprof", "ops", str(logdir / "plugins" / "profile" / "one-device"))["ops"]["rows"]
    message = refused(capsys, "ops", "one-device")
    assert "expected an XProf server at http://127.0.0.1:9 (see XPROF_URL)" in message


def test_another_server_is_told_from_xprof(
    storage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, storage)
    assert "[no-" in refused(capsys, "ops", "one-device")


def test_a_server_sends_nobody_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(lambda _: (200, b"[]")) as (other, asked),
        answering(lambda _: (302, b"over there"), {"Location": other}) as (named, _),
    ):
        monkeypatch.setenv(URL_VARIABLE, named)
        assert "302 Found: over there [no-answer]" in refused(capsys, "ops", "one-device")
    assert asked == []


@pytest.mark.parametrize("code", [200, 500])
def test_what_a_server_breaks_off_or_says_too_much_of_is_refused(
    code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_MAX_FILE_BYTES", "1000")
    for body, sentence in ((gzip.compress(b"[]")[:-4], "begins as gzip and breaks off"), (bytes(1001), "[too-large]")):
        with answering(lambda _, body=body: (code, body)) as (named, _):  # type: ignore[misc]
            monkeypatch.setenv(URL_VARIABLE, named)
            assert sentence in refused(capsys, "ops", "one-device")


@pytest.mark.parametrize(
    "trace",
    [b"[]", b"{", b'{"traceEvents": [{"pid": "x"}]}', b'{"traceEvents": [{"pid": 1, "args": []}]}', b"\x1f\x8bno gzip"],
)
def test_another_answer_than_xprofs_is_one_sentence(
    trace: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = {"runs": b'["run"]', "hosts": b'[{"hostname": "host"}]'}
    with answering(lambda path: (200, bodies.get(path.partition("?")[0].rpartition("/")[2], trace))) as (address, _):
        monkeypatch.setenv(URL_VARIABLE, address)
        sentence = refused(capsys, "ops", "run")
    assert "[no-answer]" in sentence
    assert "Traceback" not in sentence


def test_a_source_is_written_and_read_back() -> None:
    for each in (
        Path("/captures/run one/host.xplane.pb"),
        Remote(server="http://tpu-vm:8791", run="train/first run", host="host&1"),
        Remote(server="https://x", run="a", host="b", folder="gs://bucket/logs/plugins/profile/a"),
    ):
        assert source(str(each)) == each


@pytest.fixture
def storage(logdir: Path) -> Iterator[str]:
    """A cloud's storage on this machine that lists the files of the log directory."""
    names = [path.relative_to(logdir).as_posix() for path in logdir.rglob("*") if path.is_file()]
    body = json.dumps({"kind": "storage#objects", "items": [{"name": name, "size": "1"} for name in names]})
    with answering(lambda _: (200, body.encode()), {"Content-Type": "application/json"}) as (address, _):
        yield address


@pytest.mark.slow
def test_what_the_server_cannot_read_in_a_cloud_is_one_sentence(
    storage: str, logdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", storage)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with serving("serve", str(logdir), "--port", "0") as (_, greeting):
        monkeypatch.setenv(URL_VARIABLE, greeting.split(" at ")[1].split("/ ")[0])
        message = refused(capsys, "ops", "gs://a-bucket/plugins/profile/one-device")
    assert "For gs:// the server needs the network and a login (gcloud auth application-default login)" in message
    assert "Traceback" not in message
