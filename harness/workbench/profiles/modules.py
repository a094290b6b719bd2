"""The modules in a capture's file, and a module's own file (`*.hlo_proto.pb`) read as a capture of just this module."""

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import message  # type: ignore[import-untyped]

from harness import reading_limits
from harness.dumps.hlo import message_of
from harness.dumps.xplane import Space, Value
from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.workbench.hlo.proto import Origin, origins
from harness.workbench.traces.messages import Names, new_space, text

_METADATA = "/host:metadata"
_PROGRAM = re.compile(r"\((\d+)\)$")
# The names of the statistic with a module's proto, in different releases.
_HLO_PROTOS = ("Hlo Proto", "hlo_proto")


def protos(space: Space) -> Iterator[tuple[str, bytes]]:
    """Name and serialized HloProto of every module in the file."""
    for plane in space.planes:
        if plane.name == _METADATA:
            for module in plane.described:
                proto = next((module.stats[name] for name in _HLO_PROTOS if name in module.stats), None)
                if isinstance(proto, bytes):
                    yield module.name, proto


@dataclass(slots=True)
class Modules:
    """The modules of a file: names by program number, and the origins of the instructions."""

    protos: Mapping[str, bytes]
    names: dict[int, str] = field(default_factory=dict)
    origins: dict[str, Mapping[str, Origin]] = field(default_factory=dict)
    not_understood: int = 0

    def __post_init__(self) -> None:
        for name in self.protos:
            self.learn(name)

    def learn(self, name: str) -> None:
        """Records the name of a module, such as `jit_f(4)`, under its number."""
        match = _PROGRAM.search(name)
        if match:
            self.names.setdefault(int(match[1]), name)

    def name(self, program: Value | None, plain: str) -> str:
        """The module's name with its number, as in XProf's tools; `plain` if `program` is not a number."""
        if not isinstance(program, int):
            return plain
        return self.names.get(program) or (f"{plain}({program})" if plain else "")

    def origin(self, module: str, instruction: str) -> Origin | None:
        """The origin of an instruction of a module; None if the file does not state it."""
        if module not in self.origins:
            try:
                self.origins[module] = origins(self.protos[module]) if module in self.protos else {}
            except RatchetError:
                self.origins[module] = {}
                self.not_understood += 1
        return self.origins[module].get(instruction)


# --- a module's own file, as XProf and XLA's dumps write it ---------------------------------------

SUFFIXES = (".hlo_proto.pb", ".hlo.pb", ".hlo_proto.pb.gz", ".hlo.pb.gz")
# An arbitrary number, because nothing else in the capture refers to it.
_ONLY_PROGRAM = 1


def is_module(path: Path) -> bool:
    """True if the file's name is that of a module."""
    return path.name.endswith(SUFFIXES)


def xspace(path: Path) -> bytes:
    """A profile with the module in `path` and nothing else. Raises RatchetError `bad-hlo` or `too-large`."""
    with refusals_in_words(f"reading {path}"):
        data = reading_limits.read(path)
    try:
        data = reading_limits.unpacked(data, str(path)) if data[:2] == b"\x1f\x8b" else data
        proto = message_of("HloProto")()
        proto.ParseFromString(data)
        is_whole = bool(proto.hlo_module.computations)
    except (message.DecodeError, OSError, EOFError, zlib.error):
        is_whole = False
    if not is_whole:
        raise RatchetError(
            "bad-hlo",
            f"expected a serialized HloProto, a module with its buffer assignment, in {path}, got something else. A "
            "module alone says nothing about memory; `ratchet.sh hlo` explains such a module",
        )
    space, names = new_space(path.name.partition(".")[0]), Names()
    plane = space.planes.add(name=text(_METADATA))
    module = plane.event_metadata.add(key=_ONLY_PROGRAM).value
    module.id, module.name = _ONLY_PROGRAM, text(f"{proto.hlo_module.name}({_ONLY_PROGRAM})")
    names.add(module.stats, {"Hlo Proto": data})
    names.into(plane)
    return bytes(space.SerializeToString())
