"""`serve`: the real XProf server in a process of its own, its addresses, where it listens, how it stops."""

import contextlib
import gzip
import json
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from capture_examples import one_device_run
from xprof_serving import answering, serving

from harness.shell.main import main
from harness.workbench.profiles import links

pytestmark = pytest.mark.long

SECONDS = 120


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log directory")
    one_device_run(folder)
    one_device_run(folder / "train")
    return folder


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        data = bytes(answer.read())
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def listening(pid: int) -> set[str]:
    """The local addresses, in the kernel's hexadecimal, at which the process accepts connections."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes |= set(re.findall(r"^socket:\[(\d+)\]$", str(descriptor.readlink())))
    texts = (Path(f"/proc/{pid}/net/{table}").read_text() for table in ("tcp", "tcp6"))
    sockets = [line.split() for text in texts for line in text.splitlines()[1:]]
    # State 0A is LISTEN.
    return {fields[1] for fields in sockets if fields[3] == "0A" and fields[9] in inodes}


def test_it_serves_the_runs_on_loopback_alone_and_stops_when_asked(logdir: Path) -> None:
    with serving("serve", str(logdir), "--port", "0") as (process, greeting):
        base = re.search(r"http://127\.0\.0\.1:\d+", greeting)
        assert base is not None
        assert set(json.loads(get(f"{base[0]}/data/plugin/profile/runs"))) == {"one-device", "train/one-device"}
        port = int(base[0].rpartition(":")[2])
        assert listening(process.pid) == {f"0100007F:{port:04X}"}
        assert f"ssh -L {port}:127.0.0.1:{port}" in greeting
        # A page's address gives it the data of that run and tool.
        shown = re.findall(r"http://\S+", greeting)
        overview = next(url for url in shown if "/overview_page?" in url and "train" in url)
        assert "run=train/one-device" in overview
        assert b"html" in get(overview)[:200].lower()
        data = json.loads(get(overview.replace("/overview_page?", "/data?")))
        assert data[2]["p"]["device_type"] == "TPU v6 lite"
        by_folder = next(url for url in shown if "session_path" in url)
        assert json.loads(get(re.sub(r"/trace_viewer@\?", "/runs?", by_folder))) == ["one-device"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def test_ctrl_c_stops_it(logdir: Path) -> None:
    with serving("xprof", "serve", str(logdir), "--port", "0") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        printed = process.stderr.read()
        assert "stopped" in printed
        assert "Traceback" not in printed


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that a cloud's storage on this machine, with nothing in it, is asked for."""

    def answer(path: str) -> tuple[int, bytes]:
        no_object, nothing = b'{"error": {"code": 404}}', b'{"kind": "storage#objects", "items": []}'
        return (404, no_object) if "/o/" in path else (200, nothing)

    with answering(answer, {"Content-Type": "application/json"}) as (address, asked):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        yield asked


def test_a_cloud_path_is_passed_on_as_it_is(storage: list[str]) -> None:
    with serving("serve", "gs://a-bucket/logs", "--port", "0") as (process, greeting):
        assert greeting.startswith("XProf over gs://a-bucket/logs at http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert any("/b/a-bucket/o" in path and "logs" in path for path in storage)


def test_a_port_in_use_is_said(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert main(["serve", str(logdir), "--port", str(other.getsockname()[1])]) == 4
    printed = capsys.readouterr().err
    assert "[port-in-use]" in printed
    assert "--port N" in printed


def test_other_arguments_go_to_xprof_with_a_warning(logdir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Arguments that xprof itself refuses: nothing listens on all interfaces for a test's sake.
    assert main(["serve", str(logdir), "--no_such_flag"]) == 2
    printed = capfd.readouterr().err
    assert "WARNING" in printed
    assert "ALL interfaces" in printed
    assert "unrecognized arguments: --no_such_flag" in printed
    assert main(["serve", str(logdir), "--distributed", "--port", "50051", "--grpc_port=50051"]) == 4
    assert "must be different" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"), [(["absent"], "[no-such-place]"), ([".", "elsewhere"], "one log directory")]
)
def test_anything_but_a_log_directory_is_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_every_page_of_the_installed_xprof_is_linked() -> None:
    from xprof.profile_plugin import XPLANE_TOOLS

    # The trace viewer without @ is that of old TensorFlow.
    assert {tool for tool, _ in links.TOOLS} >= set(XPLANE_TOOLS) - {"trace_viewer"}
