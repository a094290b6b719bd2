"""The verb that judges the judge: planted candidates through the real attempt, and which guard caught which."""

import time

from harness.cli.arguments import Parser
from harness.cli.documents import SelftestDocument, json_text
from harness.errors import RatchetError
from harness.judge.sandbox.environment import environment
from harness.records.selftest import Tried
from harness.render import terminal
from harness.render.selftest import selftest_text
from harness.selftest import planted, sweep


def selftest(words: list[str]) -> int:
    parser = Parser(
        prog="ratchet.sh selftest",
        description="Plants bad kernels, good but unusual ones and cheating callers, each in a repository of its own, "
        "and lets the judge judge them. Exit code 0: all bad ones were refused by a guard that they were expected "
        "to be refused by, all good ones accepted.",
        epilog="example: ratchet.sh selftest --only causal_wrong_side",
        allow_abbrev=False,
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="print records instead of the table")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    given = parser.parse_args(words)
    every = sweep.everything()
    wanted = planted.named(every, tuple(given.only)) if given.only else every
    if environment().libtpu is None:
        raise RatchetError("no-libtpu", "expected libtpu, the TPU compiler, found none: nothing can be judged here")
    began = time.monotonic()
    with terminal.Progress(quiet=given.quiet or given.json) as progress:

        def tell(tried: Tried) -> None:
            progress(tried.planted.name, "done" if tried.is_right else "WRONG", tried.seconds)

        tried = tuple(sweep.sweep(wanted, tell))
    if given.json:
        print(json_text("selftest", SelftestDocument(tried=tried)))
    else:
        print(selftest_text(tried, time.monotonic() - began))
    return 0 if all(one.is_right for one in tried) else 1
