"""XProf's pages on the runs of a log directory: served on loopback or, on request, by xprof's own launcher."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator

from cheroot import wsgi
from gcsfs.retry import HttpError  # type: ignore[import-untyped]
from xprof import server

from harness.errors import RatchetError

HOST = "127.0.0.1"


def bind_server(logdir: str, port: int) -> wsgi.Server:
    """A server for `logdir` that listens only on 127.0.0.1; if `port` is 0, the system chooses the port.

    xprof's own launcher would listen on all interfaces, and also open a gRPC port. Raises RatchetError `port-in-use` or
    `no-port`; `no-log-directory` if `logdir` is remote and cannot be reached.
    """
    _expect_free(port)
    try:
        data = server.DataProvider(logdir)
        context = server.TBContext(logdir, data, server.TBContext.Flags(False))
    except (OSError, HttpError) as error:
        raise RatchetError(
            "no-log-directory", f"expected to read {logdir}, got: {error}. Check the network, the name and the login"
        ) from error
    # xprof 2.24's own launcher sets these, too. The capture button stays visible: it requests a capture from a program
    # that called jax.profiler.start_server, and writes the capture to `logdir`.
    context.hide_capture_profile_button, context.enable_tab_name_label, context.src_prefix = False, False, None
    pages = server.make_wsgi_app(server.ProfilePluginLoader().load(context))
    listening = wsgi.Server((HOST, port), pages)
    listening.prepare()
    return listening


def _expect_free(port: int) -> None:
    """Raises RatchetError if the port is in use: cheroot 11 would leak a socket and hide the error number."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        is_used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise RatchetError(
            "port-in-use" if is_used else "no-port",
            f"expected to listen on {HOST}:{port}, got: {error}. "
            + ("Another viewer may be running there; " if is_used else "")
            + "choose another port with --port N",
        ) from error


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """Ends the body of the `with` without an error on Ctrl-C or SIGTERM."""
    # Ctrl-C needs a handler too: a script's background processes start with SIGINT ignored.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_as_xprof_does(arguments: list[str]) -> int:
    """The exit code of xprof's own launcher, run with `arguments`. The launcher listens on all interfaces.

    Raises RatchetError `xprof-refused`.
    """
    with until_stopped():
        try:
            return int(server.main(arguments))
        except SystemExit as stopped:
            return stopped.code if isinstance(stopped.code, int) else 2
        except (ValueError, OSError) as error:
            raise RatchetError("xprof-refused", f"xprof did not start with {' '.join(arguments)}: {error}") from error
    return 0
