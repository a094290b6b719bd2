"""Source lines of packages beside what they cost: shown where the installed file is the one that was judged."""

import hashlib
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_examples import evidence

from harness import candidate_text
from harness.cli.ledger import with_packages
from harness.records import Evidence, SourceFile

KERNEL = "from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention\n"
NAME = "jax/experimental/pallas/ops/tpu/flash_attention.py"
HOME = Path(sysconfig.get_path("purelib"))


def judged(name: str, sha256: str | None = None) -> Evidence:
    file = HOME / name
    digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
    found = evidence()
    assert found.trace is not None
    return replace(found, trace=replace(found.trace, sources=(SourceFile(name=name, sha256=digest),)))


def files(text: str) -> dict[str, bytes]:
    return candidate_text.files_of(text.encode())


def test_the_file_that_was_judged_is_shown() -> None:
    shown = files(with_packages(KERNEL, judged(NAME)))
    assert shown["kernel.py"] == KERNEL.encode()
    assert shown["flash_attention.py"] == (HOME / NAME).read_bytes()


def test_another_one_is_not() -> None:
    assert with_packages(KERNEL, judged(NAME, "0" * 64)) == KERNEL


@pytest.mark.parametrize("kind", [".txt", ".py"])
def test_nothing_outside_of_packages_is_read_for_a_record(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"secret{kind}").write_text("secret\n")
    up = "../" * len(HOME.parts)
    assert with_packages(KERNEL, judged(f"{up}{(tmp_path / f'secret{kind}').relative_to('/')}")) == KERNEL


def test_a_helper_of_that_name_stays_what_it_is() -> None:
    own = candidate_text.text_of({"kernel.py": b"import flash_attention\n", "flash_attention.py": b"X = 1\n"}).decode()
    assert with_packages(own, judged(NAME)) == own
