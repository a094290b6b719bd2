"""The VMEM of buffers, held against the allocations that libtpu names in its dumps, and the figures made of it."""

import math
import re
import subprocess
import sys
from pathlib import Path

import compiled_buffers
import pytest
from evidence_examples import evidence
from narrowing import present
from rule_examples import with_call

from harness.advice.buffers import padded_bytes, tile_rows, with_compiled_sizes
from harness.advice.report import report
from harness.dumps.allocations import parse_allocations
from harness.hardware import chip
from harness.records import Evidence, Scratch
from harness.render.report_sections import vmem
from harness.render.sections import screen
from harness.sandbox import environment


@pytest.mark.long
@pytest.mark.parametrize("name", ["v5e", "v6e"])
def test_a_buffer_takes_what_the_compiler_allocates_for_it(name: str, tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    working = tmp_path / "work" / "here"
    working.mkdir(parents=True)
    (tmp_path / "dumps").mkdir()
    compiler = environment.compiling(chip(name), with_lines=False)
    flags = "--xla_jf_dump_to=../../dumps --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=post-delay"
    subprocess.run(
        [sys.executable, compiled_buffers.__file__, name],
        cwd=working,
        env={**compiler, "LIBTPU_INIT_ARGS": flags, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        timeout=300,
    )
    sizes = {}
    for path in (tmp_path / "dumps").glob("*-buffers*post-delay*.txt"):
        for allocation in parse_allocations(path.read_text()):
            if allocation.space == "vmem" and (shape := re.match(r"(\w+)\[([\d,]+)\]", allocation.shape)):
                sizes[shape[1], tuple(map(int, shape[2].split(",")))] = allocation.size
    words = {"float32": "f32", "bfloat16": "bf16", "int8": "s8"}
    expected = {(words[dtype], shape): padded_bytes(shape, dtype) for shape, dtype in compiled_buffers.BUFFERS}
    assert {key: size for key, size in sizes.items() if key in expected} == expected


@pytest.mark.parametrize(
    ("rows", "dtype", "tile"),
    [(1, "float32", 1), (3, "float32", 4), (4, "bfloat16", 4), (1, "bfloat16", 2), (1, "int8", 4), (512, "int8", 8)],
)
def test_a_tile_has_no_more_rows_than_its_buffer_needs(rows: int, dtype: str, tile: int) -> None:
    assert tile_rows(rows, dtype) == tile


def paged() -> Evidence:
    """A ring of 64 chunks of pages, 4 combined heads of keys and values, recorded with 16 rows in a tile."""
    base = evidence(1e-3)
    ring = Scratch(shape=(64, 4, 128, 4, 128), dtype="bfloat16", memory_space="vmem", vmem_bytes=128 << 20)
    counted = Scratch(shape=(64,), dtype="dma_sem", memory_space="semaphore", vmem_bytes=0)
    return with_call(base, windows=(), scratch=(ring, counted))


def test_four_rows_of_bfloat16_are_counted_once_in_every_figure() -> None:
    kernel = paged()
    figures = report(kernel, chip(kernel.chip))
    assert figures.vmem_bytes == 64 * 4 * 128 * 4 * 128 * 2
    (call,) = present(with_compiled_sizes(kernel).trace).pallas_calls
    assert [each.vmem_bytes for each in call.scratch] == [math.prod(call.scratch[0].shape) * 2, 0]
    assert "32.00 MiB" in screen(vmem(figures, (call,), full=True), 120)
