"""The files of a candidate in one text, and back; what is a helper and what is not."""

from pathlib import Path

import pytest

from harness import candidate_text
from harness.errors import RatchetError

KERNEL = b"import jax\nfrom tiles import BQ\n"


def folder(path: Path, **files: str) -> Path:
    (path / "kernel.py").write_bytes(KERNEL)
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    return path


def test_a_kernel_without_helpers_is_its_own_text(tmp_path: Path) -> None:
    assert candidate_text.in_folder(folder(tmp_path, other="X = 1\n")) == KERNEL
    assert candidate_text.files_of(KERNEL) == {"kernel.py": KERNEL}


@pytest.mark.parametrize("tiles", ["BQ = 1\n", "BQ = 1", "", "\r\nBQ = 1\r\n", "import deep\nBQ = deep.Q\n"])
def test_what_is_imported_belongs_to_it_and_comes_back_byte_for_byte(tmp_path: Path, tiles: str) -> None:
    place = folder(tmp_path, deep="Q = 2\n")
    (place / "tiles.py").write_bytes(tiles.encode())
    text = candidate_text.in_folder(place)
    files = candidate_text.files_of(text)
    assert list(files)[-1] == "kernel.py"
    assert files["kernel.py"] == KERNEL
    assert files["tiles.py"] == tiles.encode()
    assert ("deep.py" in files) == ("deep" in tiles)
    assert candidate_text.text_of(files) == text


def test_neither_links_nor_the_judge_nor_installed_names_belong_to_it(tmp_path: Path) -> None:
    place = folder(tmp_path, prepare="X = 1\n", numpy="X = 1\n", real="BQ = 1\n")
    (place / "kernel.py").write_text("import prepare, numpy\nimport tiles\nfrom . import real\nimport absent\n")
    (place / "tiles.py").symlink_to(place / "real.py")
    assert list(candidate_text.files_of(candidate_text.in_folder(place))) == ["kernel.py"]


@pytest.mark.parametrize("where", ["kernel", "tiles"])
def test_a_file_that_looks_like_two_is_refused(tmp_path: Path, where: str) -> None:
    place = folder(tmp_path, tiles="BQ = 1\n")
    with (place / f"{where}.py").open("ab") as file:
        file.write(b"\n# ---- beside kernel.py: tiles.py ----\nBQ = 2\n")
    with pytest.raises(RatchetError, match=f"in {where}.py"):
        candidate_text.in_folder(place)


def test_what_is_no_python_has_no_helpers(tmp_path: Path) -> None:
    place = folder(tmp_path, tiles="BQ = 1\n")
    (place / "kernel.py").write_bytes(b"from tiles import = \xff")
    assert candidate_text.in_folder(place) == b"from tiles import = \xff"
