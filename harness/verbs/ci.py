"""The verb `ci`: judge what a change does to a repository's contests."""

from pathlib import Path

from harness.records.gate import Gate
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb

# The outcome that each word of --fail-on stands for.
POLICY = {"wrong": "wrong", "regress": "slower", "inconclusive": "inconclusive", "removed": "removed"}


def _failing(prefix: str, **_: object) -> list[str]:
    """Completions of --fail-on: the words not yet typed before the last comma."""
    before, comma, _last = prefix.rpartition(",")
    chosen = before.split(",")
    return [f"{before}{comma}{word}" for word in POLICY if word not in chosen] + ["nothing"] * (not comma)


class Ci(Verb):
    place = "machine", 70
    line = "judge what a change does to a repository's contests"
    example = "ci --base main"
    description = (
        "Judges every contest whose prepare.py, kernel.py or helper modules differ between the head and its merge base "
        "with the base. Both sides are judged in this run, with one compiler and the base's prepare.py. Nothing is "
        "recorded or checked out. Exit code 1 if the change makes a kernel wrong or slower, 3 if a result is "
        "inconclusive."
    )
    examples = 'ratchet.sh ci --base origin/main --annotations --markdown "$GITHUB_STEP_SUMMARY" --out artefacts'
    document = Document(1, Gate)

    def configure(self, parser: Parser) -> None:
        parser.option("--base REF", "the branch or commit to merge into", required=True)
        parser.option("--head REF", "the branch or commit with the change (HEAD)", default="HEAD")
        parser.option(
            "--fail-on WHAT",
            "outcomes that fail the gate, joined by commas: regress, wrong, inconclusive, removed; or the word "
            "`nothing` (default: the first three)",
            default="regress,wrong,inconclusive",
            complete=_failing,
        )
        parser.option(
            "--threshold PERCENT",
            "a kernel counts as slower or faster if its simulated time changes by at least this much (1)",
            type=float,
            default=1.0,
        )
        parser.choice(
            "--compilers",
            ["own", "both"],
            "own: this environment's compiler; both: the other locked compiler too, in an environment of its own (own)",
            default="own",
        )
        parser.option("--markdown FILE", "append a summary to this file", type=Path)
        parser.flag("--annotations", "print GitHub's workflow commands, which annotate the lines that take more cycles")
        parser.option(
            "--out DIR",
            "write an HTML report and timelines for each contest, and benchmark.json, to this folder",
            type=Path,
        )
        parser.json("the findings as JSON")
        parser.quiet()
