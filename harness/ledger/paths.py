"""The place of a contest in its repository, and the names of the ledger's files and refs."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from git import Repo

from harness import files
from harness.ledger import git

RECORD_NAME = "attempt.json"
KERNEL_NAME = "kernel.py"
PACKED_NAME = "attempts.jsonl"
_ROOT_NAME = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a contest: repository, name, and folder (`directory` from the top, empty for the top)."""

    repository: Repo
    root: Path
    directory: str
    name: str

    @property
    def log_ref(self) -> str:
        """The ref of the append-only log, shared by all worktrees."""
        return f"refs/ratchet/{self.name}/log"

    @property
    def kernel(self) -> str:
        """kernel.py as git names it."""
        return self.inside(KERNEL_NAME)

    @property
    def experiments(self) -> str:
        """The folder experiments/ as git names it."""
        return self.inside("experiments")

    @property
    def packed(self) -> str:
        """The file attempts.jsonl as git names it."""
        return self.inside(PACKED_NAME)

    @property
    def kernel_path(self) -> Path:
        """kernel.py in the working tree."""
        return self.root / self.kernel

    @property
    def experiments_directory(self) -> Path:
        """The folder experiments/ in the working tree."""
        return self.root / self.experiments

    @property
    def packed_path(self) -> Path:
        """The file attempts.jsonl in the working tree."""
        return self.root / self.packed

    @property
    def state_directory(self) -> Path:
        """The folder of the journal, in the git directory of this working tree."""
        return git.git_directory(self.repository) / "ratchet" / self.name

    def inside(self, name: str) -> str:
        """A path in the contest's folder as git names it."""
        return f"{self.directory}/{name}" if self.directory else name


def place_of(directory: Path) -> Place:
    """The place of the contest in `directory`.

    Raises RatchetError if there is no usable repository, or `outside` if a file of the contest lies outside of it.
    """
    repository = git.open_repository(directory)
    files.refuse_links(directory)
    relative = git.relative_path(repository, directory)
    relative = "" if relative == "." else relative
    return Place(repository=repository, root=git.root(repository), directory=relative, name=contest_name(relative))


def contest_name(directory: str) -> str:
    """The contest's name, one component of a ref: `root` for the top folder, else its path with `+` for `/`.

    All characters except letters, digits, `_` and `-` are percent-encoded. So is the first letter of a folder that is
    really called `root`, because different folders must have different names.
    """
    if not directory:
        return _ROOT_NAME
    name = quote(directory, errors="surrogateescape").replace("/", "+")
    # `quote` leaves these two alone.
    name = name.replace(".", "%2E").replace("~", "%7E")
    return f"%{ord('r'):02X}oot" if name == _ROOT_NAME else name
