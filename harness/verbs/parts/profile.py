"""The work of `profile`: captures kernel.py on its own, in snapshots as it runs, or when XProf's page asks."""

import secrets
from argparse import Namespace
from pathlib import Path

from harness import contest as contests
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import UsageError
from harness.judge.evaluate.timing import device
from harness.loop import kept_captures
from harness.loop.bench import policy_here
from harness.loop.exported import exported
from harness.records import Row, Table
from harness.records.table import Origin
from harness.sandbox.profiles import TraceMode
from harness.shell.arguments import command, directory, say
from harness.shell.tables import outcome_of
from harness.shell.verb import Outcome
from harness.verbs.parts.context import progress_of, rows_of, tidy
from harness.workbench.capture import capturing, profile_server
from harness.workbench.capture.capturing import CapturedKernel
from harness.workbench.capture.messages import CaptureReply, StepsWindow
from harness.workbench.profiles import remote
from harness.workbench.tables import table

_MODE: TraceMode = "TRACE_COMPUTE"
_LISTENS_BEYOND_LOOPBACK = (
    "JAX's server listens on all interfaces of this machine, not only on loopback, and JAX has no option to change "
    "this: anybody who can reach the port can capture the running program"
)


def run(arguments: Namespace) -> Outcome:
    if arguments.serve is not None and arguments.snapshots is not None:
        raise UsageError("usage", "--snapshots starts its own server: leave --serve out")
    if not 0 < arguments.every < float("inf"):
        raise UsageError("usage", f"expected --every to be a number of seconds above 0, got {arguments.every}")
    contest = contests.load(directory(arguments.directory).resolve(), arguments.chip)
    kernel = _kernel(contest, arguments.on, arguments.member)
    if arguments.mode is not None and kernel.device != "tpu":
        say(f"--mode {arguments.mode} has no effect here: only a TPU's profiler knows modes")
    rows = rows_of(contest.directory)
    is_running = arguments.serve is not None or arguments.steps is not None
    tables = _served(kernel, arguments, rows) if is_running else _captured(kernel, arguments, rows)
    tidy(contest.directory)
    return outcome_of("profile", tables) if tables else Outcome()


def _kernel(contest: Contest, on: str | None, name: str | None) -> CapturedKernel:
    """kernel.py as it stands, to run on the chip if it is here, else on the CPU."""
    member, source = contest.member(name), device.source(contest.chip, on)
    if source == "simulated":
        say(f"no {contest.chip.name} here: kernel.py runs on the CPU, whose times say nothing about a TPU")
        source = "measured cpu"
    return CapturedKernel(
        contest=contest.directory,
        candidate=contest.candidate(),
        problem=member.problem,
        function=member.function,
        chip=contest.chip,
        source=source,
        policy=policy_here(),
        stubs=contest.stubs,
    )


def session_label(candidate: Candidate, rows: tuple[Row, ...], what: str) -> str:
    """The beginning of a capture's name: `0003-profile` if kernel.py is that of attempt 3, else `kernel-profile`."""
    sha256 = candidate.sha256
    number = next((row.number for row in reversed(rows) if row.kernel_sha256 == sha256), None)
    return f"kernel-{what}" if number is None else f"{number:04d}-{what}"


def _captured(kernel: CapturedKernel, arguments: Namespace, rows: tuple[Row, ...]) -> tuple[Table, ...]:
    if arguments.snapshots is not None:
        return _snapshots(kernel, arguments, rows)
    label = session_label(kernel.candidate, rows, "profile")
    with (
        kept_captures.in_use(kernel.profiles),
        progress_of(arguments) as progress,
        exported(kernel, arguments.warmup, progress) as program,
    ):
        reply, text = capturing.capture(program, label=label, mode=arguments.mode or _MODE, calls=arguments.calls)
    return (_calls(reply, program.title, text, kernel, arguments.directory),)


def _calls(reply: CaptureReply, title: str, text: Path, kernel: CapturedKernel, directory: Path | None) -> Table:
    overview = command(f"xprof overview {Path(reply.profile).parent.name}", directory)
    on_device: tuple[float | None, ...] = reply.device_seconds
    if len(on_device) != len(reply.host_seconds):
        on_device = (None,) * len(reply.host_seconds)
    shape: tuple[str, ...] = ()
    if kernel.device == "cpu" and title != kernel.problem.statement().title:
        shape = (f"On the CPU kernel.py ran at a reduced shape: {title}.",)
    rows = [(number, *times) for number, times in enumerate(zip(reply.host_seconds, on_device, strict=True))]
    notes = (
        *shape,
        f"Capture: {reply.profile}",
        f"HLO:     {text}",
        f"Look at it: {overview}   or   xprof --port={remote.PORT} {kernel.profiles}",
    )
    named = "call:count;host_seconds=on the host;device_seconds=on the device"
    return table("calls", f"captured calls on {reply.device_kind}", _origin(kernel), named, rows, notes)


def _snapshots(kernel: CapturedKernel, arguments: Namespace, rows: tuple[Row, ...]) -> tuple[Table, ...]:
    label = session_label(kernel.candidate, rows, "snapshot")
    snapshots: list[tuple[int, str]] = []
    say(f"warning, while the snapshots are taken: {_LISTENS_BEYOND_LOOPBACK}")
    with (
        progress_of(arguments) as progress,
        exported(kernel, arguments.warmup, progress) as program,
        profile_server.serving(program, profile_server.free_port()) as served,
    ):
        for files in profile_server.snapshots(
            served, arguments.snapshots, arguments.every, lambda _: f"{label}-{secrets.token_hex(4)}"
        ):
            snapshots += [(len(snapshots), str(file)) for file in files]
    title = f"snapshots of the running kernel on {served.reply.device_kind}"
    note = f"Look at the newest: {command('xprof overview', arguments.directory)}"
    return (table("snapshots", title, _origin(kernel), "snapshot:count;profile=capture", snapshots, (note,)),)


def _served(kernel: CapturedKernel, arguments: Namespace, rows: tuple[Row, ...]) -> tuple[Table, ...]:
    """Runs kernel.py until Ctrl-C or, without --serve, until the steps are captured. Returns no tables."""
    port = profile_server.free_port() if arguments.serve is None else arguments.serve
    # The port is checked first, because tracing the kernel takes longer.
    profile_server.require_free(port)
    window = None
    if arguments.steps is not None:
        kept_captures.make_folder(kernel.profiles)
        session = f"{session_label(kernel.candidate, rows, 'profile')}-{secrets.token_hex(4)}"
        window = StepsWindow(
            first=arguments.steps[0],
            last=arguments.steps[1],
            mode=arguments.mode or _MODE,
            session=session,
            profile_directory=str(kernel.profiles),
        )
    with (
        progress_of(arguments) as progress,
        exported(kernel, arguments.warmup, progress) as program,
        profile_server.serving(program, port, window) as served,
    ):
        if window is not None:
            folder = served.capture_folder()
            say(f"steps {window.first} to {window.last}: {folder}")
            say(f"look at them: {command(f'xprof steps {folder.name}', arguments.directory)}")
            if arguments.serve is None:
                return ()
        try:
            print(_how_to_capture(served, kernel, arguments.directory), flush=True)
            served.wait()
        except KeyboardInterrupt:
            print("stopped", flush=True)
    return ()


def _how_to_capture(served: profile_server.Served, kernel: CapturedKernel, directory: Path | None) -> str:
    port = served.address.rpartition(":")[2]
    return "\n".join(
        (
            f"kernel.py runs on {served.reply.device_kind}, {served.reply.call_seconds:.3g} s a call by the host's "
            f"clock [{_origin(kernel)}]; JAX's profiler server listens on {served.address}",
            f"  from XProf's page: {command('serve', directory)}, and there CAPTURE PROFILE, {served.address}",
            f"  without a browser: python -m jax.collect_profile {port} 2000 --log_dir {kernel.profiles} "
            "--no_perfetto_link",
            f"  warning: {_LISTENS_BEYOND_LOOPBACK}",
            "Ctrl-C ends it.",
        )
    )


def _origin(kernel: CapturedKernel) -> Origin:
    assert kernel.source != "simulated"
    return kernel.source
