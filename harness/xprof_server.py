"""XProf's own pages over the runs of a log directory: on loopback, or on request as xprof itself starts them."""

import signal
from types import FrameType

from cheroot import wsgi
from xprof import server

from harness.errors import RatchetError

HOST = "127.0.0.1"


def bound(logdir: str, port: int) -> wsgi.Server:
    """A server for `logdir` that listens on 127.0.0.1 and nowhere else; 0 lets the system choose the port.

    xprof's own launcher would listen on all interfaces, and open a gRPC port besides.
    Raises RatchetError `port-in-use` or `no-port`.
    """
    context = server.TBContext(logdir, server.DataProvider(logdir), server.TBContext.Flags(False))
    # What xprof 2.24's own launcher sets. The capture button stays: it asks a program that called
    # jax.profiler.start_server for a capture, and writes it to `logdir`.
    context.hide_capture_profile_button, context.enable_tab_name_label, context.src_prefix = False, False, None
    pages = server.make_wsgi_app(server.ProfilePluginLoader().load(context))
    found = wsgi.Server((HOST, port), pages)
    try:
        found.prepare()
    except OSError as error:
        # cheroot 11 wraps the error in a new one without its number.
        is_used = "Address already in use" in str(error)
        raise RatchetError(
            "port-in-use" if is_used else "no-port",
            f"expected to listen on {HOST}:{port}, got: {error}. "
            + ("Another viewer may be running there; " if is_used else "")
            + "choose another port with --port N",
        ) from error
    return found


def run(found: wsgi.Server) -> None:
    """Answers requests until Ctrl-C or SIGTERM, then closes the port."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        found.serve()
    except KeyboardInterrupt:
        pass
    finally:
        found.stop()
        signal.signal(signal.SIGTERM, before)


def run_as_xprof_does(arguments: list[str]) -> int:
    """Hands `arguments` to xprof's own launcher, which listens on all interfaces; returns its exit code."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return int(server.main(arguments))
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 2
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
