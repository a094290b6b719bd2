"""A module's own file (`*.hlo_proto.pb`, as XProf and XLA's dumps write it) as a capture that holds nothing else."""

import zlib
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness import limits
from harness.dumps.hlo import message_of
from harness.dumps.schema import message_class
from harness.errors import RatchetError
from harness.files import refusals_in_words

SUFFIXES = (".hlo_proto.pb", ".hlo.pb", ".hlo_proto.pb.gz", ".hlo.pb.gz")
# The part of xplane.proto that holds a module, see harness/dumps/xplane.py.
_SCHEMA = {
    "XSpace": (("planes", 1, "XPlane*"), ("hostnames", 4, "string*")),
    "XPlane": (("name", 2, "string"), ("event_metadata", 4, "EventEntry*"), ("stat_metadata", 5, "StatEntry*")),
    "EventEntry": (("key", 1, "int64"), ("value", 2, "XEventMetadata")),
    "StatEntry": (("key", 1, "int64"), ("value", 2, "XStatMetadata")),
    "XEventMetadata": (("id", 1, "int64"), ("name", 2, "string"), ("stats", 5, "XStat*")),
    "XStatMetadata": (("id", 1, "int64"), ("name", 2, "string")),
    "XStat": (("metadata_id", 1, "int64"), ("bytes_value", 6, "bytes!")),
}
# Any number does: it ties a module's name to nothing else in the capture.
_PROGRAM = 1


def is_module(path: Path) -> bool:
    """Whether the file is a module's by its name."""
    return path.name.endswith(SUFFIXES)


def xspace(path: Path) -> bytes:
    """The profile in which the module in `path` is the only one. Raises RatchetError `bad-hlo` or `too-large`."""
    with refusals_in_words(f"reading {path}"):
        data = limits.read(path)
    try:
        data = limits.unpacked(data, str(path)) if data[:2] == b"\x1f\x8b" else data
        proto = message_of("HloProto")()
        proto.ParseFromString(data)
        is_whole = bool(proto.hlo_module.computations)
    except (message.DecodeError, OSError, EOFError, zlib.error):
        is_whole = False
    if not is_whole:
        raise RatchetError(
            "bad-hlo",
            f"expected a serialized HloProto, a module with its buffer assignment, in {path}, got something else. A "
            "module alone says nothing of memory; `ratchet.sh hlo` explains it",
        )
    space = _message_class()()
    space.hostnames.append(path.name.partition(".")[0])
    plane = space.planes.add(name="/host:metadata")
    kind = plane.stat_metadata.add(key=1).value
    kind.id, kind.name = 1, "Hlo Proto"
    module = plane.event_metadata.add(key=_PROGRAM).value
    module.id, module.name = _PROGRAM, f"{proto.hlo_module.name}({_PROGRAM})"
    module.stats.add(metadata_id=1, bytes_value=data)
    return bytes(space.SerializeToString())


@cache
def _message_class() -> Any:
    return message_class("module_file", _SCHEMA, "XSpace")
