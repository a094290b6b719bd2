"""`python -m harness.xprof_server LOGDIR [PORT]`: XProf's own pages over the runs of LOGDIR, on this machine only."""

import sys

from xprof import server

HOST, PORT = "127.0.0.1", 8791


def main(arguments: list[str]) -> None:
    """Serves until Ctrl-C. The `xprof` command would do the same on all interfaces, and open a gRPC port besides."""
    logdir, port = server.get_abs_path(arguments[0]), int(arguments[1]) if arguments[1:] else PORT
    context = server.TBContext(logdir, server.DataProvider(logdir), server.TBContext.Flags(False))
    # What xprof 2.24's own launcher sets; nothing can be captured from here.
    context.hide_capture_profile_button, context.enable_tab_name_label, context.src_prefix = True, False, None
    server.run_server(server.ProfilePluginLoader().load(context), HOST, port)


if __name__ == "__main__":
    main(sys.argv[1:])
