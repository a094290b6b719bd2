"""The page of known kernels is read back as it was written, and rows of it can be kept."""

from pathlib import Path

import known_kernels_page
from known_kernels_page import Cell

_PAGE = Path(__file__).parents[2] / "benchmarks" / "KNOWN_KERNELS.md"
_FLASH, _SCAN = ("package", "flash"), ("package", "scan")
_CELLS = {
    _FLASH: {
        "v6e": Cell("yes", "1.000 us", "4"),
        "v7x": Cell("no", "none", "", ("dot-outside-pallas: a product", "the package's")),
    },
    _SCAN: {
        "v6e": Cell("yes", "2.000 us†", "", ("compiled to stay on the TensorCore", "raced")),
        "v7x": Cell("?", "3.000 us‡", "8", ("raced", "compiled by JAX 0.12")),
    },
}


def test_a_page_is_read_as_it_was_written() -> None:
    assert known_kernels_page.read(known_kernels_page.render(_CELLS, "--chips v6e,v7x")) == _CELLS


def test_the_committed_page_is_as_its_program_writes_it() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    arguments = text.partition("known_kernels.py ")[2].partition("`")[0].replace("\n", " ")
    assert known_kernels_page.render(known_kernels_page.read(text), arguments) == text


def test_rows_that_are_made_anew_lose_their_old_reasons_and_others_keep_theirs() -> None:
    anew = {_FLASH: {"v7x": Cell("yes", "5.000 us*", "4", ("1 not understood",)), "v5e": Cell("yes", "9.000 us", "4")}}
    cells = known_kernels_page.merged(_CELLS, anew, [_SCAN, _FLASH])
    assert list(cells) == [_SCAN, _FLASH]
    assert cells[_SCAN] == _CELLS[_SCAN]
    assert cells[_FLASH] == {"v6e": _CELLS[_FLASH]["v6e"], **anew[_FLASH]}
    assert known_kernels_page.read(known_kernels_page.render(cells, "")) == cells


def test_a_kernel_that_is_no_case_any_more_leaves_the_page() -> None:
    assert list(known_kernels_page.merged(_CELLS, {}, [_SCAN])) == [_SCAN]


def test_the_total_counts_each_way_of_compiling_by_itself() -> None:
    assert known_kernels_page.total(_CELLS, "v6e") == (
        "v6e: 2 of 2 enter unchanged, 1 have a latency with nothing unknown (0 of them by another JAX), "
        "and 1 more if compiled as their remark says"
    )
    assert known_kernels_page.total(_CELLS, "v7x") == (
        "v7x: 0 of 2 enter unchanged, 1 have a latency with nothing unknown (1 of them by another JAX), "
        "and 0 more if compiled as their remark says"
    )
