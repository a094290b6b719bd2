"""Operation counts inside real kernels, saved with the compiler that made them (fixtures/modules/make.py)."""

import io
from pathlib import Path

import pytest
from jaxlib.mlir import ir
from module_fixtures import modules, readable

from harness.dumps import hlo, mosaic
from harness.errors import RatchetError
from harness.records import MosaicCounts


def body(path: Path) -> bytes:
    (kernel,) = hlo.kernel_bodies(path.read_bytes())
    return kernel.body


def bodies(program: str) -> list[bytes]:
    read_bodies = [body(path) for path in modules(program) if readable(path)]
    assert read_bodies
    return read_bodies


def test_the_naive_kernel_has_two_matmuls_exponentials_and_reductions() -> None:
    for kernel in bodies("naive"):
        counts = mosaic.counts([kernel])
        assert (counts.matmul, counts.exp, counts.reduction, counts.dma) == (2, 2, 2, 0)
        # 3 stores to start, 3 each step, 1 of the output; nested regions are walked.
        assert counts.store == 7
        assert counts.load > 7
        assert counts.operations > 100
        assert counts.not_understood == ()


def test_dma_and_base_2_exponentials_are_seen() -> None:
    for kernel in bodies("moved_by_hand"):
        counts = mosaic.counts([kernel])
        assert (counts.matmul, counts.exp, counts.reduction, counts.dma) == (2, 1, 2, 1)
        assert (counts.load, counts.store) == (4, 1)


def test_several_bodies_add_up() -> None:
    first, second = bodies("naive")[0], bodies("moved_by_hand")[0]
    both = mosaic.counts([first, second])
    assert (both.matmul, both.exp) == (4, 3)
    assert both.operations == mosaic.counts([first]).operations + mosaic.counts([second]).operations
    assert mosaic.counts([]) == MosaicCounts(matmul=0, exp=0, reduction=0, load=0, store=0, dma=0, operations=0)


def test_operations_of_an_unknown_dialect_are_named() -> None:
    assert mosaic.counts([_bytecode('"stable_mosaic.mystery.op"() : () -> ()')]).not_understood == ("mystery.op",)


@pytest.mark.parametrize("operation", ['"stable_mosaic.tpu.unheard_of"() : () -> ()', '"mystery.op"() : () -> ()'])
def test_what_the_compiler_could_not_read_is_refused(operation: str) -> None:
    with pytest.raises(RatchetError) as caught:
        mosaic.counts([_bytecode(operation)])
    assert caught.value.kind == "bad-mosaic"


@pytest.mark.parametrize("data", [b"", b"junk", b"ML\xefR\x01"])
def test_what_is_no_bytecode_is_a_named_error(data: bytes) -> None:
    with pytest.raises(RatchetError, match=f"got {len(data)} bytes") as caught:
        mosaic.fingerprint_text(data)
    assert caught.value.kind == "bad-mosaic"


def test_a_body_of_a_newer_compiler_is_refused_with_the_reason() -> None:
    with pytest.raises(RatchetError, match="Unsupported version"):
        mosaic.counts([_bytecode('"stable_mosaic.func.return"() : () -> ()', version=999)])


def test_a_fingerprint_has_no_locations_and_tells_kernels_apart() -> None:
    naive, by_hand = bodies("naive")[0], bodies("moved_by_hand")[0]
    # The bytecode itself carries source locations; the text does not.
    assert b"make.py" in naive
    assert "make.py" not in mosaic.fingerprint_text(naive)
    assert "loc(" not in mosaic.fingerprint_text(naive)
    assert "tpu.matmul" in mosaic.fingerprint_text(naive)
    assert mosaic.fingerprint_text(naive) != mosaic.fingerprint_text(by_hand)


def test_the_same_kernel_in_two_programs_has_one_fingerprint() -> None:
    for alone, inside in zip(bodies("naive"), bodies("wrapped"), strict=True):
        assert mosaic.fingerprint_text(alone) == mosaic.fingerprint_text(inside)


def _bytecode(operation: str, version: int = 15) -> bytes:
    """A kernel body with one operation in the frozen form, of a version that every jaxlib here reads unless told."""
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        text = f"module attributes {{stable_mosaic.version = {version} : i64}} {{ {operation} }}"
        buffer = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(buffer)
        return buffer.getvalue()
