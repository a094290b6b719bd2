"""What `selftest` does: it judges the judge, planted candidates through the real attempt, which guard caught which."""

import time
from argparse import Namespace

from harness.cli.documents import SelftestDocument
from harness.cli.verb import Outcome
from harness.errors import RatchetError
from harness.records.selftest import Tried
from harness.render.progress import Progress
from harness.render.selftest import selftest_text
from harness.sandbox.environment import environment
from harness.selftest import planted, runner


def selftest(given: Namespace) -> Outcome:
    every = runner.everything()
    wanted = planted.named(every, tuple(given.only)) if given.only else every
    if environment().libtpu is None:
        raise RatchetError("no-libtpu", "expected libtpu, the TPU compiler, found none: nothing can be judged here")
    began = time.monotonic()
    with Progress(quiet=given.quiet or given.json) as progress:

        def tell(tried: Tried) -> None:
            progress(tried.planted.name, "done" if tried.is_right else "WRONG", tried.seconds)

        tried = tuple(runner.sweep(wanted, tell))
    seconds = time.monotonic() - began
    return Outcome(
        document=SelftestDocument(tried=tried),
        text=lambda: selftest_text(tried, seconds),
        exit_code=0 if all(one.is_right for one in tried) else 1,
    )
