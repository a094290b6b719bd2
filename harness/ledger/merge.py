"""Takes one change of a candidate's text out of a later text, by git's three-way merge of each file."""

import re
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory

from git import Repo

from harness.candidate import Candidate
from harness.ledger.bare_source import bare
from harness.ledger.git.command import attempted, refusal

# The length of a conflict mark, longer than any line of equal signs under a heading in a kernel.
_MARK = 200
# Git's exit status is the number of conflicts, up to this number.
_MOST_CONFLICTS = 127
_CONFLICT = re.compile(
    rb"<{%d} mine\r?\n(.*?)\|{%d} old\r?\n(.*?)={%d}\r?\n(.*?)>{%d} new\r?\n?" % (_MARK, _MARK, _MARK, _MARK), re.DOTALL
)


def without(repository: Repo, text: Candidate, before: Candidate, after: Candidate) -> Candidate | None:
    """`text` without the change from `before` to `after`; None if `text` and `after` differ in the lines that changed.

    Changes of neighbouring lines are a conflict for git, but not here, unless both change the same line. If comments or
    docstrings prevent the merge of a file, it is merged, and returned, without them. Raises RatchetError.
    """
    sides = [each.files for each in (text, after, before)]
    files = {}
    for name in {name: None for side in sides for name in side}:
        mine, old, new = (side.get(name) for side in sides)
        if new in (mine, old):
            data = mine
        elif mine == old:
            data = new
        else:
            texts = [side or b"" for side in (mine, old, new)]
            data = _merged(repository, *texts)
            if data is None and all(programs := [bare(text) for text in texts]):
                # Comments and docstrings about the lines must not tie changes together.
                data = _merged(repository, *(program or b"" for program in programs))
            if data is None:
                return None
        if data is not None:
            files[name] = data
    return Candidate.of_files(files)


def _merged(repository: Repo, mine: bytes, old: bytes, new: bytes) -> bytes | None:
    with TemporaryDirectory(prefix="ratchet-merge-") as folder:
        names = [Path(folder) / name for name in ("mine", "old", "new")]
        for path, data in zip(names, (mine, old, new), strict=True):
            path.write_bytes(data)
        files = [str(path) for path in names]
        arguments = ("merge-file", "-p", *files)
        status, output, complaint = attempted(repository, *arguments)
        if 0 < status <= _MOST_CONFLICTS:
            labels = ("-L", "mine", "-L", "old", "-L", "new")
            arguments = ("merge-file", "-p", "--diff3", f"--marker-size={_MARK}", *labels, *files)
            status, output, complaint = attempted(repository, *arguments)
            if 0 < status <= _MOST_CONFLICTS:
                return _settled(output)
    if status != 0:
        raise refusal(arguments[:1], status, complaint)
    return output


def _settled(output: bytes) -> bytes | None:
    """The merged text if all conflicts are neighbouring changes without a line that both sides changed; else None."""
    parts: list[bytes] = []
    end = 0
    for conflict in _CONFLICT.finditer(output):
        lines = _merge_edits(*(side.splitlines(keepends=True) for side in conflict.groups()))
        if lines is None:
            return None
        parts += [output[end : conflict.start()], *lines]
        end = conflict.end()
    return b"".join((*parts, output[end:]))


def _merge_edits(mine: list[bytes], old: list[bytes], new: list[bytes]) -> list[bytes] | None:
    """`old` with the changes of both sides; None if they overlap, or insert different lines at one place."""
    edits = sorted(
        {
            (start, end, tuple(side[i:j]))
            for side in (mine, new)
            for tag, start, end, i, j in SequenceMatcher(None, old, side, autojunk=False).get_opcodes()
            if tag != "equal"
        }
    )
    merged, done = [], 0
    for at, (start, end, lines) in enumerate(edits):
        if start < done or (start, end) in [edit[:2] for edit in edits[:at]]:
            return None
        merged += [*old[done:start], *lines]
        done = end
    return [*merged, *old[done:]]
