"""The files of a candidate in one text, and back; what is a helper and what is not."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from harness.candidate import Candidate
from harness.errors import RatchetError

KERNEL = b"import jax\nfrom tiles import BQ\n"


def folder(path: Path, **files: str) -> Path:
    (path / "kernel.py").write_bytes(KERNEL)
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    return path


def test_a_kernel_without_helpers_is_its_own_text(tmp_path: Path) -> None:
    candidate = Candidate.in_folder(folder(tmp_path, other="X = 1\n"))
    assert candidate == Candidate(text=KERNEL)
    assert candidate.files == {"kernel.py": KERNEL}
    assert candidate.sha256 == hashlib.sha256(KERNEL).hexdigest()


@pytest.mark.parametrize("tiles", ["BQ = 1\n", "BQ = 1", "", "\r\nBQ = 1\r\n", "import deep\nBQ = deep.Q\n"])
def test_what_is_imported_belongs_to_it_and_comes_back_byte_for_byte(tmp_path: Path, tiles: str) -> None:
    place = folder(tmp_path, deep="Q = 2\n")
    (place / "tiles.py").write_bytes(tiles.encode())
    candidate = Candidate.in_folder(place)
    files = candidate.files
    assert list(files)[-1] == "kernel.py"
    assert files["kernel.py"] == KERNEL
    assert files["tiles.py"] == tiles.encode()
    assert ("deep.py" in files) == ("deep" in tiles)
    assert Candidate.of_files(files) == candidate


def test_neither_links_nor_the_judge_nor_installed_names_belong_to_it(tmp_path: Path) -> None:
    place = folder(tmp_path, prepare="X = 1\n", numpy="X = 1\n", real="BQ = 1\n")
    (place / "kernel.py").write_text("import prepare, numpy\nimport tiles\nfrom . import real\nimport absent\n")
    (place / "tiles.py").symlink_to(place / "real.py")
    assert list(Candidate.in_folder(place).files) == ["kernel.py"]


@pytest.mark.parametrize("where", ["kernel", "tiles"])
def test_a_file_that_looks_like_two_is_refused(tmp_path: Path, where: str) -> None:
    place = folder(tmp_path, tiles="BQ = 1\n")
    with (place / f"{where}.py").open("ab") as file:
        file.write(b"\n# ---- beside kernel.py: tiles.py ----\nBQ = 2\n")
    with pytest.raises(RatchetError, match=f"expected {where}.py without the line"):
        Candidate.in_folder(place)


def test_what_is_no_python_has_no_helpers(tmp_path: Path) -> None:
    place = folder(tmp_path, tiles="BQ = 1\n")
    (place / "kernel.py").write_bytes(b"from tiles import = \xff")
    assert Candidate.in_folder(place).text == b"from tiles import = \xff"


def test_constants_of_all_files_can_be_set_and_words_are_not_tuned() -> None:
    candidate = Candidate.of_files(
        {"kernel.py": b'KERNEL_NAME = "a"\nBQ = 1\n', "tiles.py": b'BK = 2\nBK_ENV = "BK"\n'}
    )
    assert candidate.constants == (("KERNEL_NAME", "'a'"), ("BQ", "1"), ("BK", "2"), ("BK_ENV", "'BK'"))
    assert candidate.tunable == (("BQ", "1"), ("BK", "2"))
    assert candidate.set((("BK", "4"), ("BQ", "3"))).files == {
        "kernel.py": b'KERNEL_NAME = "a"\nBQ = 3\n',
        "tiles.py": b'BK = 4\nBK_ENV = "BK"\n',
    }
    assert candidate.set(()) == candidate
    with pytest.raises(RatchetError, match="--set BM: BM is not assigned"):
        candidate.set((("BM", "4"),))
    with pytest.raises(RatchetError, match="--set BQ: expected a number"):
        candidate.set((("BQ", '"a"'),))


def test_records_carry_a_candidate_byte_for_byte() -> None:
    candidate = Candidate(text=b"X = '\xff'\r\n")
    assert msgspec.json.decode(msgspec.json.encode(candidate), type=Candidate) == candidate
    assert candidate.source == "X = '\ufffd'\r\n"
