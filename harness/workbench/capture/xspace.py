"""An XSpace in text form made a profile on disk, in a child: only there is JAX imported."""

import tempfile
from pathlib import Path

from harness.errors import RatchetError
from harness.files import refusals_in_words, write_atomically
from harness.records import Failure
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.messages import Done
from harness.sandbox.profiles import XspaceRequest
from harness.workbench.profiles.places import host_name

# Importing JAX and reading some MB of text take a few seconds.
_SECONDS = 120.0
_BYTES = 8 << 30


def write(text: str, path: Path) -> None:
    """Makes `path`, called HOST.xplane.pb, the profile that `text` describes.

    Raises RatchetError `bad-profile`, `no-space` or `read-only`; nothing is written then.
    """
    with tempfile.TemporaryDirectory(prefix="ratchet-") as scratch:
        source, profile = Path(scratch) / "xspace.txt", Path(scratch) / "xplane.pb"
        with refusals_in_words(f"writing {source}"):
            source.write_text(text, encoding="utf-8")
        with Children(_BYTES) as children:
            child = children.start("profile", "harness.sandbox.profiling", Path(scratch), environment.on_cpu())
            host = host_name(path)
            request = XspaceRequest(text=str(source), profile=str(profile), host=host)
            children.ask(child, "profile", "profile", "xspace", request, Done, _SECONDS)
            _, reply = children.wait()
        if isinstance(reply, Failure):
            raise RatchetError("bad-profile", f"{path} could not be written: {reply.kind}: {reply.message}")
        write_atomically(path, profile.read_bytes())
