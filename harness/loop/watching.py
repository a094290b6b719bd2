"""Watches over judge, ledger and the configuration of git while candidates run, and puts right what they did."""

from harness.contest import PACKAGE, Contest
from harness.judge.sandbox import confinement
from harness.ledger import Ledger
from harness.loop import tamper


def begin(ledger: Ledger, contest: Contest) -> tamper.Watch:
    """What the candidate's processes may not touch: the harness and the contest, the ledger, git's configuration."""
    judge = (*contest.judge_files(), *sorted(PACKAGE.rglob("*.py")), *sorted(contest.directory.glob("*.sh")))
    records = ((ledger.experiments_directory, "*.json"), (ledger.place.state_directory, "*.json"))
    return tamper.watch(ledger.repository, judge, records, ledger.log_ref)


def end(ledger: Ledger, watch: tamper.Watch, name: str, *, is_confined: bool) -> tamper.Tampering:
    """Undoes what was changed since; what was there is kept in the folder `name` of those that are set aside."""
    layers = confinement.offered(is_confined)
    aside = ledger.place.state_directory / "set-aside" / name
    return tamper.put_right(watch, aside, were_confined=layers.landlock is not None)
