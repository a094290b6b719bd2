"""The modules that a capture's file knows: names by program number, and where instructions come from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.dumps.xplane import Space, Value
from harness.errors import RatchetError
from harness.workbench.hlo.proto import Origin, origins

_METADATA = "/host:metadata"
_PROGRAM = re.compile(r"\((\d+)\)$")
# The names under which releases have stored a module's proto.
_HLO_PROTOS = ("Hlo Proto", "hlo_proto")


def protos(space: Space) -> Iterator[tuple[str, bytes]]:
    """Name and serialized HloProto of every module that the file carries."""
    for plane in space.planes:
        if plane.name == _METADATA:
            for module in plane.described:
                proto = next((module.stats[name] for name in _HLO_PROTOS if name in module.stats), None)
                if isinstance(proto, bytes):
                    yield module.name, proto


@dataclass(slots=True)
class Modules:
    """The modules of a file: their names by program number, and where their instructions come from."""

    protos: Mapping[str, bytes]
    names: dict[int, str] = field(default_factory=dict)
    origins: dict[str, Mapping[str, Origin]] = field(default_factory=dict)
    not_understood: int = 0

    def __post_init__(self) -> None:
        for name in self.protos:
            self.learn(name)

    def learn(self, name: str) -> None:
        """Remembers the name of the module `jit_f(4)` by its number."""
        match = _PROGRAM.search(name)
        if match:
            self.names.setdefault(int(match[1]), name)

    def name(self, program: Value | None, plain: str) -> str:
        """The module's name with its number, as XProf's tools call it; `plain` where the number says nothing."""
        if not isinstance(program, int):
            return plain
        return self.names.get(program) or (f"{plain}({program})" if plain else "")

    def origin(self, module: str, instruction: str) -> Origin | None:
        """Where an instruction of a module comes from, None where the file does not say."""
        if module not in self.origins:
            try:
                self.origins[module] = origins(self.protos[module]) if module in self.protos else {}
            except RatchetError:
                self.origins[module] = {}
                self.not_understood += 1
        return self.origins[module].get(instruction)
