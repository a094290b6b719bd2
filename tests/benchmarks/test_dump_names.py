"""Kernels whose names the compiler cut off get short ones throughout a dump."""

from pathlib import Path

import dump_names

_NAME = "a_kernel_" + "with_its_blocks_" * 16 + "1"
_OTHER = _NAME + "0"


def _dump(directory: Path, *cut: tuple[int, str]) -> None:
    program = f"%{_NAME} = f32[8]{{0}} custom-call(%x)\n%{_OTHER} = f32[8]{{0}} fusion(%{_NAME})"
    (directory / "12-TLP-hlo.txt").write_text(program, encoding="utf-8")
    (directory / "12-TLP-03-final_bundles.txt").write_text(f"/* %{_NAME} = custom-call(%x) */", encoding="utf-8")
    for number, kind in cut:
        tail = f"-{number}-{kind}.txt"
        (directory / f"13-{_NAME[: 250 - 3 - len(tail)]}{tail}").write_text("schedule", encoding="utf-8")


def _one_kernel(directory: Path) -> None:
    for path in directory.iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace(_OTHER, "other"), encoding="utf-8")


def test_a_kernel_with_a_cut_name_has_one_short_name_everywhere(tmp_path: Path) -> None:
    _dump(tmp_path, (9087203777108430925, "03-final_bundles"), (325947558392244665, "00-pre-delay"))
    _one_kernel(tmp_path)
    dump_names.shorten(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "12-TLP-03-final_bundles.txt",
        "12-TLP-hlo.txt",
        "13-cut-1-00-pre-delay.txt",
        "13-cut-1-03-final_bundles.txt",
    ]
    assert (tmp_path / "12-TLP-03-final_bundles.txt").read_text(encoding="utf-8") == "/* %cut-1 = custom-call(%x) */"
    hlo = (tmp_path / "12-TLP-hlo.txt").read_text(encoding="utf-8")
    assert hlo == "%cut-1 = f32[8]{0} custom-call(%x)\n%other = f32[8]{0} fusion(%cut-1)"


def test_a_name_that_could_be_of_two_kernels_stays(tmp_path: Path) -> None:
    _dump(tmp_path, (9087203777108430925, "03-final_bundles"))
    before = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    dump_names.shorten(tmp_path)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == before


def test_a_dump_without_cut_names_stays(tmp_path: Path) -> None:
    _dump(tmp_path)
    (tmp_path / "13-fusion.1-03-final_bundles.txt").write_text("schedule", encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    dump_names.shorten(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
