"""The evidence about kernel.py as it stands, for the verbs that look into it."""

from argparse import Namespace

from harness.contest import Contest
from harness.errors import RatchetError
from harness.loop import bench
from harness.records import Evidence
from harness.verbs.parts.given import progress_of


def judged(contest: Contest, given: Namespace, *, checked: bool = True, with_lines: bool = False) -> Evidence:
    """Judged now, unless it was before; without `checked` it is compiled and simulated only, in a fifth of the time,
    and what each source line costs is found out only `with_lines`.

    Raises RatchetError `not-judged` where it would have to be judged and may not be.
    """
    if given.only_reads:
        found = bench.kept(contest, checked=checked, with_lines=with_lines)
        if found is None:
            raise RatchetError(
                "not-judged",
                "kernel.py as it stands was not judged yet, and this only reads: judge it first (evaluate, "
                "`ratchet.sh judge`), or name an attempt",
            )
        return found
    with progress_of(given) as progress:
        asked = bench.Bench(contest=contest, progress=progress, checked=checked, with_lines=with_lines)
        return bench.evidence_here(asked)
