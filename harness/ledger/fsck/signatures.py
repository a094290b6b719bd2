"""Finds log commits and accepts that are not signed, or whose signature is bad or by another signer, using git."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.ledger import git, history, packed
from harness.ledger.codec import RecordError, value_text
from harness.ledger.fsck.inventory import HeldAttempt, finding
from harness.ledger.git.command import run
from harness.ledger.paths import Place
from harness.records import Finding

_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}")
# git's words on a signature (`%G?`). G is a good signature by a trusted key; U counts only for a named OpenPGP key.
_WORDS = {
    "N": "it is not signed",
    "B": "its signature is bad: it was changed after it was signed",
    "E": "its signature cannot be checked: the key is not known here",
    "U": "its signer is not among the allowed ones",
    "X": "its signature has expired",
    "Y": "the key of its signature has expired",
    "R": "the key of its signature was revoked",
}


def unsigned(
    place: Place,
    commits: Sequence[git.Commit],
    accepted: Sequence[history.Accepted],
    filed: Sequence[HeldAttempt],
    who: str,
) -> list[Finding]:
    """Findings for every log commit and accept that `who` did not sign, and every record that no signed commit holds.

    `who` is a file of allowed signers (ssh-keygen(1), ALLOWED SIGNERS), for signatures by SSH keys, or the
    fingerprint of an OpenPGP key. Raises UsageError `unknown-signers` if it is neither.
    """
    is_openpgp = _FINGERPRINT.fullmatch(who) is not None
    if not is_openpgp and not Path(who).is_file():
        raise UsageError(
            "unknown-signers",
            f"expected --signed-by a file of allowed signers, or an OpenPGP fingerprint (hex digits), got {who!r}",
        )
    checked = [*(commit.id for commit in commits), *(accept.commit for accept in accepted)]
    complaints = _signature_complaints(place, checked, who, is_openpgp=is_openpgp)
    remedy = "trust it no more than any unsigned record; `replay` judges a kernel.py again"
    findings = [
        finding("not-signed", f"{kind} {commit[:12]}", complaints[commit], remedy)
        for kind, ids in (("log commit", checked[: len(commits)]), ("commit", checked[len(commits) :]))
        for commit in ids
        if complaints[commit]
    ]
    signed = {
        entry.blob
        for commit in checked
        if not complaints[commit]
        for folder in ("", place.experiments)
        for entry in git.entries(place.repository, commit, folder).values()
    }
    texts = _texts_in(place, signed) if any(record.is_packed for record in filed) else set()
    for record in filed:
        is_signed = git.hash_of(place.repository, record.data, record.path) in signed
        if not is_signed and not (record.is_packed and value_text(record.data) in texts):
            findings.append(finding("not-signed", record.where, "no signed commit holds this record", remedy))
    return findings


def _texts_in(place: Place, blobs: Iterable[str]) -> set[str]:
    """The `value_text` of each record in these blobs, which are records or attempts.jsonl files."""
    texts = set()
    for data in git.read_blobs(place.repository, tuple(blobs)):
        with contextlib.suppress(RecordError):
            texts.add(value_text(data or b""))
        for record in packed.read(data or b"", "a commit").records:
            with contextlib.suppress(RecordError):
                texts.add(value_text(record.document()))
    return texts


def _signature_complaints(place: Place, commits: Sequence[str], who: str, *, is_openpgp: bool) -> dict[str, str]:
    """The fault of each commit's signature, "" if `who` signed it."""
    if not commits:
        return {}
    # %GP is the primary key; git itself looks up who may sign with an SSH key.
    settings = () if is_openpgp else (f"gpg.ssh.allowedSignersFile={Path(who).resolve()}",)
    output = run(
        place.repository,
        "log",
        "--no-walk=unsorted",
        "--stdin",
        "--format=%H %G? %GP",
        settings=settings,
        stdin="\n".join(dict.fromkeys(commits)).encode(),
    )
    complaint_of = {}
    for line in output.decode("utf-8", "replace").splitlines():
        commit, state, *key = line.split(" ")
        if state == "G" or (state == "U" and is_openpgp):
            is_by_who = bool(key) and key[0].upper() == who.upper() if is_openpgp else _is_ssh(place, commit)
            complaint_of[commit] = "" if is_by_who else _WORDS["U"]
        else:
            complaint_of[commit] = _WORDS.get(state, _WORDS["E"])
    return complaint_of


def _is_ssh(place: Place, commit: str) -> bool:
    """True if the commit is signed with an SSH key. Only such a signature can be by an allowed signer."""
    head = run(place.repository, "cat-file", "commit", commit).partition(b"\n\n")[0]
    return b"-----BEGIN SSH SIGNATURE-----" in head
