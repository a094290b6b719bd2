"""Source lines of packages beside what they cost: shown where the installed file is the one that was judged."""

import hashlib
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from breakdown_examples import breakdown
from evidence_examples import V5E, evidence, simulation
from narrowing import present

from harness.advice.report import report
from harness.advice.source_names import name_lines
from harness.candidate import Candidate
from harness.records import Evidence, SourceFile
from harness.render.lines import listing
from harness.render.sections import screen
from harness.verbs.parts.context import with_package_files

KERNEL = "from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention\n"
NAMESAKE = "jax/experimental/pallas/ops/tpu/ragged_paged_attention/kernel.py"
NAME = "jax/experimental/pallas/ops/tpu/flash_attention.py"
HOME = Path(sysconfig.get_path("purelib"))


def judged(name: str, sha256: str | None = None) -> Evidence:
    file = HOME / name
    digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
    measured = evidence()
    trace = replace(present(measured.trace), sources=(SourceFile(name=name, sha256=digest),))
    return replace(measured, trace=trace)


def test_the_file_that_was_judged_is_shown() -> None:
    shown = with_package_files(Candidate(text=KERNEL.encode()), judged(NAME))
    assert shown["kernel.py"] == KERNEL.splitlines()
    assert shown["flash_attention.py"] == (HOME / NAME).read_text().splitlines()


def test_a_package_file_called_kernel_is_not_the_candidates() -> None:
    wrapper = "from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention\n"
    candidate_evidence = judged(NAMESAKE)
    run = present(name_lines(candidate_evidence, replace(simulation(1e-3), breakdown=breakdown())))
    files = with_package_files(Candidate(text=wrapper.encode()), candidate_evidence)
    text = (HOME / NAMESAKE).read_text().splitlines()
    assert files == {"ragged_paged_attention/kernel.py": text, "kernel.py": wrapper.splitlines()}
    listed = screen(listing(run, present(run.breakdown), files, "attempt 1"), 200)
    hottest = next(line for line in listed.splitlines() if " 15,000 " in line)
    assert hottest.endswith(f"ragged_paged_attention/kernel.py:3  {text[2]}".rstrip())
    assert "lines of kernel.py" not in listed
    shares = report(replace(candidate_evidence, simulation=run), V5E).cycle_shares
    assert present(shares).hottest[0].name == "ragged_paged_attention/kernel.py:3"


def test_another_one_is_not() -> None:
    candidate = Candidate(text=KERNEL.encode())
    assert with_package_files(candidate, judged(NAME, "0" * 64)) == candidate.lines


@pytest.mark.parametrize("kind", [".txt", ".py"])
def test_nothing_outside_of_packages_is_read_for_a_record(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"secret{kind}").write_text("secret\n")
    up = "../" * len(HOME.parts)
    candidate = Candidate(text=KERNEL.encode())
    secret = judged(f"{up}{(tmp_path / f'secret{kind}').relative_to('/')}")
    assert with_package_files(candidate, secret) == candidate.lines


def test_a_helper_of_that_name_stays_what_it_is() -> None:
    candidate = Candidate.of_files({"kernel.py": b"import flash_attention\n", "flash_attention.py": b"X = 1\n"})
    assert with_package_files(candidate, judged(NAME)) == candidate.lines
