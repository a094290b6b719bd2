"""The verb `serve` with the real XProf server, in a process of its own; and a server that answers what a test says."""

import contextlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@contextlib.contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The verb in a process, and its greeting; the process is ended in any case."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        greeting = ""
        # The address for other machines is its last line.
        while "ssh -L" not in greeting and "runs are read when" not in greeting:
            line = process.stdout.readline()
            assert line, f"ended with {process.wait()}: {process.stderr.read() if process.stderr else ''}"
            greeting += line
        yield process, greeting
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def answering(
    answer: Callable[[str], tuple[int, bytes]], headers: Mapping[str, str] = NO_HEADERS
) -> Iterator[tuple[str, list[str]]]:
    """A server with a code and a body for each path, by its address; and the list of the paths asked for."""
    asked: list[str] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            code, body = answer(self.path)
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            """Nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
