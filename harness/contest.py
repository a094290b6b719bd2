"""A contest's folder: its problem, chip and candidate, the files of its judge, and the key of its evidence."""

import ast
import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

import harness
from harness import files
from harness.candidate import Candidate, constants
from harness.dumps.timing_tables import Assumption
from harness.errors import RatchetError, UsageError
from harness.hardware import Chip, chip, with_mesh
from harness.judge import key as keys
from harness.operators import Member, Problem, Suite, controls, prepare_module, timing_inputs
from harness.prepare import confined, data
from harness.records import Key, Source

PACKAGE = Path(harness.__file__).parent
# The constant of prepare.py that names the modules to replace by stand-ins.
STUBS = "STUBS"
_ASSUME = "ASSUME"
# The modules that the judge's own processes import: the standard library, the harness, JAX and their dependencies.
NEVER_STUBS = frozenset((
    *sys.stdlib_module_names, "harness", "jax", "jaxlib", "libtpu", "ml_dtypes", "msgspec", "numpy", "opt_einsum",
    "scipy",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A folder with a prepare.py and a kernel.py: its problem or suite, and the chip that the kernel is judged for.

    `stubs` are modules that the kernel does not need, but that packages import; each is replaced by a stand-in, even if
    it is installed. `assumption` says whether the simulation always or never takes a branch whose condition was read
    from a vector.
    """

    directory: Path
    problem: Problem | Suite
    chip: Chip
    stubs: tuple[str, ...] = ()
    assumption: Assumption | None = None

    @property
    def kernel_path(self) -> Path:
        """The contest's kernel.py."""
        return self.directory / "kernel.py"

    def candidate(self) -> Candidate:
        """The candidate in this folder. Raises as `Candidate.in_folder` does."""
        return Candidate.in_folder(self.directory)

    @property
    def problem_digest(self) -> str:
        """A hash of the problem's statement."""
        return keys.statement_digest(self.problem.statement())

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of the suite; for a single problem, the problem itself, as a member without a name."""
        return data.members_of(self.problem)

    @property
    def is_confined(self) -> bool:
        """True if prepare.py is code, which a confined child runs."""
        return any(isinstance(member.problem, confined.Confined) for member in self.members)

    def member(self, name: str | None) -> Member:
        """The member called `name` (None: the single problem). Raises UsageError as `require_member` does."""
        names = [member.name for member in self.members] if isinstance(self.problem, Suite) else []
        require_member(names, name)
        return self.members[names.index(name) if name in names else 0]

    def require_conforming(self) -> None:
        """Raises RatchetError if no kernel can be judged here.

        `bad-problem`: a problem that prepare.py defines breaks a rule of docs/OPERATORS.md. `weak-contest`: one of the
        wrong answers that operators/controls.py lists passes all checks.
        """
        if self.is_confined:
            path = self.directory / "prepare.py"
            complaints, weak = confined.complaints(path.read_bytes(), str(path))
            if complaints:
                listed = "\n  ".join(complaints)
                raise RatchetError(
                    "bad-problem", f"the problem in prepare.py is invalid (docs/OPERATORS.md):\n  {listed}"
                )
            controls.refuse_weak(weak)
        else:
            self._require_strong()

    def _require_strong(self) -> None:
        """Raises as `controls.require_strong` does, unless this problem has already passed with this judge.

        The check takes a second and always has the same result, so an empty file in the user's cache records that the
        problem passed.
        """
        of_what = [self.key("simulated").judge, repr(self.problem), np.__version__, platform.python_version()]
        folder = files.cache_directory()
        # Without a home directory, the path cannot exist, and nothing is kept.
        note = (folder or Path(os.devnull)) / f"strong-{hashlib.sha256(json.dumps(of_what).encode()).hexdigest()}"
        if note.is_file():
            return
        controls.require_strong(self.problem)
        with suppress(OSError, RatchetError):
            files.write_atomically(note, b"")

    def judge_files(self) -> tuple[Path, ...]:
        """Every file that a verdict can depend on: prepare.py, then the judge's files in the harness."""
        return (self.directory / "prepare.py", *keys.judge_files())

    def key(self, source: Source) -> Key:
        """The Key of new evidence from `source`: the timing key and the checks key in one record."""
        tables: dict[str, Any] = {member.name: {} for member in self.members}
        for member in self.members:
            # If a problem states its tables wrongly, the evaluation reports it.
            with suppress(RatchetError):
                tables[member.name] = timing_inputs(member.problem)
        # An assumption about branches changes the simulated times, as tables do, so the key covers both.
        tables |= {_ASSUME: self.assumption} if self.assumption is not None else {}
        path, statement = self.directory / "prepare.py", self.problem.statement()
        return keys.key(path, statement, tables, self.chip.name, source, is_confined=self.is_confined)


def require_member(names: Sequence[str], name: str | None) -> None:
    """Raises UsageError `which-member` unless `name` is in `names`, or `names` is empty and `name` is None."""
    if not names and name is not None:
        raise UsageError("which-member", f"expected no --member, got {name!r}: the contest is one problem")
    if names and name not in names:
        got = repr(name) if name else "none"
        raise UsageError("which-member", f"expected --member, one of {', '.join(names)} of this suite, got {got}")


def require(directory: Path) -> Path:
    """The folder, resolved. Raises RatchetError `no-contest` if it has no prepare.py or no kernel.py."""
    directory = directory.resolve()
    if not directory.is_dir():
        raise RatchetError("no-contest", f"expected a contest's folder, got {directory}, which does not exist")
    for name in ("prepare.py", "kernel.py"):
        if not (directory / name).is_file():
            raise RatchetError(
                "no-contest",
                f"expected a contest (prepare.py and kernel.py), got no {name} in {directory}; "
                "name a contest's folder with -C DIR, or make one with: ratchet.sh new DIR --like attention",
            )
    return directory


def load(directory: Path, chip_name: str | None = None) -> Contest:
    """The contest in `directory`, for the chip called `chip_name` (None: the chip that its prepare.py names).

    Raises RatchetError
    - `no-contest` if prepare.py or kernel.py is missing;
    - `outside` if a link leads out of the repository;
    - `bad-prepare` if prepare.py does not load, lacks CHIP or problem(), or has an invalid STUBS or ASSUME;
    - `unconfined-prepare` if prepare.py is code that cannot be confined here.

    Raises UsageError `unknown-chip`, and `unknown-slice` if slices of this chip with this mesh cannot be simulated.
    """
    directory = require(directory)
    files.refuse_links(directory)
    path = directory / "prepare.py"
    problem, own_chip = _prepared(path)
    stated = dict(constants(path.read_bytes()))
    return Contest(
        directory=directory,
        problem=problem,
        chip=with_mesh(chip(chip_name or own_chip), problem.statement().mesh),
        stubs=_stubs(path, stated.get(STUBS, "()")),
        assumption=_assumption(path, stated.get(_ASSUME)),
    )


def _assumption(path: Path, stated: str | None) -> Assumption | None:
    """ASSUME of this prepare.py, `never` or `always`. Raises RatchetError `bad-prepare` for anything else."""
    assumption = next((word for word in get_args(Assumption) if stated == repr(word)), None)
    if stated is not None and assumption is None:
        raise RatchetError(
            "bad-prepare",
            f'{path}: expected {_ASSUME} to be "never" or "always" (how often branches on the contents of '
            f"vectors are taken), got {stated}",
        )
    return assumption


def _stubs(path: Path, stated: str) -> tuple[str, ...]:
    """The modules that STUBS of this prepare.py names. Raises RatchetError `bad-prepare` if they cannot be stubs."""
    names = ast.literal_eval(stated) if stated[0] in "([" else None
    is_list = isinstance(names, tuple | list) and all(isinstance(name, str) and name.isidentifier() for name in names)
    if names is None or not is_list or not NEVER_STUBS.isdisjoint(names):
        raise RatchetError(
            "bad-prepare",
            f"{path}: expected {STUBS} to be the names of packages that a kernel does not need, such as "
            f'("vllm",), got {stated}',
        )
    return tuple(names)


def _prepared(path: Path) -> tuple[Problem | Suite, str]:
    """The problem and the chip that this prepare.py states; if it is not data, a confined child runs it.

    Raises RatchetError `bad-prepare` or `unconfined-prepare`.
    """
    source = path.read_bytes()
    stated = data.read(source)
    # If the file is wrong, the child fails too, and its message says why.
    if stated is None or not isinstance(stated[1], str):
        return confined.read(source, str(path))
    problem, own_chip = stated
    if not isinstance(problem, Suite) and prepare_module.missing_methods(problem):
        return confined.read(source, str(path))
    try:
        problem.statement()
    except (ValueError, ArithmeticError, MemoryError) as error:
        raise RatchetError("bad-prepare", f"{path}: {error}") from error
    return problem, own_chip
