"""The keys change with all that a time, or a finding that a kernel is right, depends on, and with nothing else."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import keys_page
import numpy as np
import pytest
from evidence_examples import KEY, statement
from harness_copies import copy_harness

import harness
from harness.contest import Contest
from harness.judge import key as keys
from harness.records import Key

pytestmark = pytest.mark.long

PACKAGE = Path(harness.__file__).parent
# Answers each line with the digests of the harness in its folder. Files are parsed once for all lines: each is answered
# by a fork that imports the harness anew, which reads and hashes every file, and parses those that changed.
ANSWERING = """
import json, os, pathlib, sys
from functools import cache
from harness.judge import key as first
code_digest = first._code_digest = cache(first._code_digest)
imports_of = first._imports
imports = first._imports = cache(lambda *source, **is_contest: tuple(imports_of(*source, **is_contest)))
first._graph()

def answer():
    first._homes.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "harness"]:
        del sys.modules[name]
    from harness.judge import key
    from harness.records import Statement, Work
    key._code_digest, key._imports = code_digest, imports
    work = Work(matmul_flops=1, vector_flops=1, minimum_hbm_bytes=1)
    stated = Statement(operation="attention", title="t", parameters=(), inputs=(), outputs=(), work=work)
    found = key.key(pathlib.Path(sys.argv[1]), stated, {}, "v5e", "simulated")
    print(json.dumps([found.judge, found.timing, found.checks]), flush=True)

for _ in sys.stdin:
    if not os.fork():
        answer()
        os._exit(0)
    if os.wait()[1]:
        print("null", flush=True)
"""
PREPARE = """\
\"\"\"The contest.\"\"\"

SIZE = 512  # rows
TITLE = f"{SIZE:>{4}} rows"


def problem():
    \"\"\"What is computed.\"\"\"
    from harness.operators import Attention

    return SIZE


if __name__ == "__main__":
    from harness.cli import judge_contest
"""
JUDGE, TIMING, CHECKS = "judge", "timing", "checks"


class Copy:
    """The harness as a package of its own, with a prepare.py beside it, and a process that gives its hashes of code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        command = [sys.executable, "-P", "-c", ANSWERING, str(folder / "prepare.py")]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.unchanged = self.digests()

    def digests(self) -> dict[str, str]:
        """The hashes of code as the files are now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return dict(zip((JUDGE, TIMING, CHECKS), json.loads(self.process.stdout.readline()), strict=True))

    def moved(self, name: str, old: str, new: str) -> set[str]:
        """The hashes that differ with `old` replaced by `new` in the file `name`, which is put back."""
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        try:
            after = self.digests()
        finally:
            path.write_text(text)
        return {what for what, digest in self.unchanged.items() if digest != after[what]}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("key")
    copy_harness(folder, "candidates")
    (folder / "prepare.py").write_text(PREPARE)
    opened = Copy(folder)
    yield opened
    opened.process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("harness/judge/simulate/uncertainty.py", '"""\n', '"""\n# A comment.\n\n\n\n'),
        (
            "harness/judge/verdict/ruling.py",
            '"""The ruling on two times: one of three outcomes',
            '"""Two times: one of three outcomes',
        ),
        ("harness/shell/arguments.py", "import", "UNUSED = 1\nimport"),
        ("harness/render/layout.py", '"""\n', '"""\nUNUSED = 1\n'),
        ("prepare.py", "512  # rows", "512"),
        ("prepare.py", "return SIZE", "return (SIZE)"),
        ("prepare.py", "What is computed", "Something"),
    ],
)
def test_what_no_verdict_depends_on_does_not_count(copy: Copy, name: str, old: str, new: str) -> None:
    assert copy.moved(name, old, new) == set()


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("harness/judge/verdict/ruling.py", "ROUNDING = 1e-12", "ROUNDING = 1e-11", {JUDGE}),
        ("harness/operators/tolerance.py", "RMS_FACTOR = 1.5", "RMS_FACTOR = 1.6", {JUDGE, CHECKS}),
        ("harness/operators/attention/probes.py", '"""\n', '"""\nUNUSED = 1\n', {JUDGE, CHECKS}),
        ("harness/operators/paged/probes.py", '"""\n', '"""\nUNUSED = 1\n', {JUDGE}),
        ("harness/operators/norm/__init__.py", '"rmsnorm"', '"rms_norm"', {JUDGE}),
        ("harness/judge/simulate/machine.py", "wait_seconds * chip", "wait_seconds * 2 * chip", {JUDGE, TIMING}),
        ("harness/chips/v5e.py", "xlu=8", "xlu=9", {JUDGE, TIMING, CHECKS}),
        ("harness/chips/v4.py", "xlu=8", "xlu=9", {JUDGE}),
        # The part of the same row that only the workbench reads.
        ("harness/chips/v5e.py", "workbench=Workbench()", "workbench=Workbench(has_counters=True)", {JUDGE}),
        # The process of the simulator, which is reached only by its name.
        ("harness/judge/evaluate/timing/simulation.py", '"simulate":', '"simulated":', {JUDGE, TIMING, CHECKS}),
        ("prepare.py", "SIZE = 512", "SIZE = 513", {JUDGE, CHECKS}),
        ("prepare.py", ":>{4}}", ":<{4}}", {JUDGE, CHECKS}),
        ("prepare.py", "return SIZE", 'return ["", SIZE]', {JUDGE, CHECKS}),
        ("prepare.py", "return SIZE", "return return", {JUDGE, CHECKS}),
        ("prepare.py", "import Attention", "import PagedAttention", {JUDGE, CHECKS}),
    ],
)
def test_each_key_stands_on_what_it_can_depend_on(
    copy: Copy, name: str, old: str, new: str, expected: set[str]
) -> None:
    assert copy.moved(name, old, new) == expected


# A text that is no JSON, and JSON of another form.
@pytest.mark.parametrize("text", ["{", "[1, []]"])
def test_a_broken_cache_is_computed_anew(copy: Copy, text: str) -> None:
    kept = list((copy.folder / "cache" / "kernel-ratchet").iterdir())
    assert kept
    for path in kept:
        path.write_text(text)
    assert copy.digests() == copy.unchanged


# --- whose keys a file moves -------------------------------------------------------------------


@pytest.fixture(scope="module")
def contests() -> dict[str, Contest]:
    return keys_page.loaded()


@pytest.fixture(scope="module")
def before(contests: dict[str, Contest]) -> dict[str, Key]:
    return keys_page.keys_of(contests)


def test_a_probe_of_paged_attention_moves_the_checks_of_paged_contests_alone(
    contests: dict[str, Contest], before: dict[str, Key]
) -> None:
    timing, checks = keys_page.moved_by(PACKAGE / "operators/paged/probes.py", contests, before)
    assert (timing, checks) == (frozenset(), frozenset({"paged attention"}))


def test_a_constant_of_v4_moves_no_contest_of_another_chip(
    contests: dict[str, Contest], before: dict[str, Key]
) -> None:
    assert {contest.chip.name for contest in contests.values()} == {"v5e", "v6e"}
    assert keys_page.moved_by(PACKAGE / "chips/v4.py", contests, before) == (frozenset(), frozenset())


def test_no_contest_has_another_chip_in_its_keys(contests: dict[str, Contest], before: dict[str, Key]) -> None:
    timing, checks = keys_page.moved_by(PACKAGE / "chips/v6e.py", contests, before)
    assert timing == checks == {name for name, contest in contests.items() if contest.chip.name == "v6e"}


def test_no_judge_asks_what_the_keys_leave_out_of_a_chips_row() -> None:
    trees = (ast.parse(path.read_bytes()) for path in keys.judge_files())
    asked = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "relative_uncertainty" in asked
    assert "workbench" not in asked


def test_the_page_says_whose_keys_every_file_moves() -> None:
    written = keys_page.PAGE.read_text(encoding="utf-8").splitlines()
    assert written == list(keys_page.lines()), "python tests/support/keys_page.py writes it anew"


# --- what is timed -----------------------------------------------------------------------------


def test_a_title_and_expected_counts_are_not_timed_and_a_shape_is() -> None:
    plain = statement()
    assert keys.problem_digest(replace(plain, title="another", expected=())) == keys.problem_digest(plain)
    assert keys.statement_digest(replace(plain, title="another")) != keys.statement_digest(plain)
    assert keys.problem_digest(statement(8192)) != keys.problem_digest(plain)


def test_keys_from_before_a_field_was_there_fit_where_it_says_nothing() -> None:
    plain = statement()
    forms = keys.problem_digests(plain, is_timed=True)
    assert keys.problem_digest(plain) in forms
    assert len(forms) == 4
    spread = replace(plain, mesh=(("x", 4),))
    assert keys.problem_digests(spread, is_timed=True).isdisjoint(forms)
    over = replace(plain, overwrites=("q",))
    assert keys.problem_digests(over, is_timed=True).isdisjoint(forms)
    assert keys.statement_digest(plain) in keys.problem_digests(plain, is_timed=False)


def test_tables_of_timed_calls_are_part_of_the_timing_key() -> None:
    prepare = PACKAGE.parent / "prepare.py"

    def timing(pages: list[int]) -> str:
        return keys.key(prepare, statement(), {"": {"full": {"pages": np.array(pages)}}}, "v5e", "simulated").timing

    assert timing([3, 1, 2]) == timing([3, 1, 2]) != timing([1, 2, 3])


def test_keys_of_before_and_of_now_are_never_the_same() -> None:
    new = replace(KEY, timing="0" * 16, checks="1" * 16)
    assert not KEY.counts_for(new)
    assert keys.key_digest(KEY) != keys.key_digest(new)
    assert keys.checks_digest(KEY) == ""
    assert "another timing key" in keys.key_difference(KEY, new)


def test_the_hash_of_the_whole_judge_decides_nothing_where_there_are_two_keys() -> None:
    new = replace(KEY, timing="0" * 16, checks="1" * 16)
    assert new.counts_for(replace(new, judge="another"))
    assert not new.counts_for(replace(new, checks="another"))
    assert keys.key_digest(new) == keys.key_digest(replace(new, checks="another"))
    assert keys.key_difference(new, replace(new, judge="another")) == "the same keys"
    assert "another checks key" in keys.key_difference(new, replace(new, checks="another"))
