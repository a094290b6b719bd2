"""The reason why a program did not fit, from the compiler's message, and the contents of JAX's memory snapshots."""

import gzip
import io
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from analyses import printed
from memory_examples import STEP
from narrowing import present

from harness.dumps import memory_report
from harness.errors import RatchetError
from harness.records import Table
from harness.shell.main import main
from harness.workbench import memory_reports

GIB = 1 << 30
# In the form of libtpu 0.0.42.1, with names of our own.
HBM = """RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.50G of \
15.75G hbm. Exceeded hbm capacity by 4.75G.

Total hbm usage >= 21.00G:
    reserved        512.00M
    program          20.50G
    arguments            0B

Program hbm requirement 20.50G:
    HLO temp         20.49G (100.0% utilization: Unpadded (16.00G) Padded (20.49G), 0.0% fragmentation (0B))

  Largest program allocations in hbm:

  1. Size: 8.00G
     Operator: op_name="jit(step)/jvp(net)/attention/bhqk/dot_general[precision=None]" source_file="n.py" source_line=7
     Shape: f32[64,8192,4096]{2,1,0:T(8,128)}
     Unpadded size: 8.00G
     XLA label: fusion.1 = fusion(a, b), kind=kOutput, calls=fused_computation
     Allocation type: HLO temp
     ==========================

  2. Size: 4.00G
     Operator: op_name="jit(step)/states" source_file="net.py" source_line=9
     Shape: f32[8388608,3]{1,0:T(8,128)}
     Unpadded size: 96.00M
     Allocation type: HLO temp
     ==========================

  3. Size: 2.00G
     Operator: op_name="jit(step)/logits"
     Shape: bf16[8192,131072]{1,0:T(8,128)(2,1)}
     Unpadded size: 2.00G
     Allocation type: HLO temp
     ==========================
"""
VMEM = (
    "Ran out of memory in memory space vmem. Used 75.08M of 64.00M vmem. Exceeded vmem capacity by 11.08M.\n\n"
    "  Largest program allocations in vmem:\n\n"
    "  1. Size: 32.00M\n     Shape: bf16[2,2048,4096]{2,1,0:T(8,128)(2,1)}\n     Unpadded size: 32.00M\n"
    "     Tag: input window allocation for operator input 0. The window shape is bf16[2048,4096].\n"
    "     Allocation type: scoped\n     ==========================\n"
)


def tables_of(path: Path, text: str) -> tuple[Table, ...]:
    """The tables of a log with this text."""
    path.write_text(text, encoding="utf-8")
    return present(memory_reports.read(path))


def test_the_compilers_message_is_read_entry_by_entry() -> None:
    full = present(memory_report.out_of_memory(HBM))
    assert (full.space, full.used_bytes, full.capacity_bytes) == ("hbm", int(20.5 * GIB), int(15.75 * GIB))
    assert ("reserved", GIB // 2) in full.parts
    scores, states, _ = full.largest
    assert (scores.bytes, scores.source) == (8 * GIB, "n.py:7")
    assert scores.op_name.partition("[")[0] == "jit(step)/jvp(net)/attention/bhqk/dot_general"
    assert (states.bytes, states.needed_bytes) == (4 * GIB, 96 << 20)
    assert memory_report.out_of_memory("no such message") is None


def test_each_allocation_is_told_what_makes_it_smaller() -> None:
    full, window = (present(memory_report.out_of_memory(text)) for text in (HBM, VMEM))
    words = ["fused kernel", "multiples of 8 and 128", "chunks of tokens", "smaller blocks"]
    for allocation, word in zip((*full.largest, *window.largest), words, strict=True):
        assert word in memory_reports.remedy(allocation), allocation


OF_KERNELS = {
    # The form of libtpu 0.0.42.1: the operator's name and the tag that says which buffer it is.
    "use smaller blocks in the BlockSpec": VMEM.replace(
        "     Shape", '     Operator: op_name="jit(f)/pallas_call"\n     Shape'
    ),
    "use shorter tables": "Ran out of memory in memory space smem. Used 1.13M of 1.00M smem.\n\n  1. Size: 1.00M\n"
    '     Operator: op_name="jit(f)/pallas_call" source_file="k.py" source_line=31\n     Shape: s32[262144]{0}\n'
    "     Tag: prefetched scalar operand 0\n     Allocation type: scoped\n",
    "use smaller blocks: blocks, scratch and": "Ran out of memory in memory space vmem while allocating on stack "
    "for %custom-call.2 = bf16[4096,4096]{1,0:T(8,128)(2,1)} custom-call(%p0). Scoped allocation with size 24.50M and "
    "limit 16.00M exceeded scoped vmem limit by 8.50M.",
    "use smaller or fewer scratch_shapes": "RESOURCE_EXHAUSTED: Allocation (size=201326592) would exceed memory "
    "(size=134217728) :: #allocation2 [shape = 'f32[48,256,4096]{2,1,0:T(8,128)}', space=vmem, size = 0xc000000, "
    "scoped, tag = 'scratch operand'] :: f.1",
}


@pytest.mark.parametrize("words", OF_KERNELS)
def test_what_a_kernel_keeps_is_no_tensor_of_a_model(words: str) -> None:
    full = present(memory_report.out_of_memory(OF_KERNELS[words]))
    assert full.used_bytes > full.capacity_bytes
    assert memory_reports.remedy(full.largest[0]).startswith(words)


def test_a_limit_of_vmem_may_be_raised_and_the_chips_own_may_not(tmp_path: Path) -> None:
    for text in OF_KERNELS.values():
        tables = tables_of(tmp_path / "log.txt", text)
        assert ("vmem_limit_bytes" in " ".join(tables[0].notes)) == ("Scoped allocation" in text)


@pytest.mark.parametrize(
    ("text", "size", "free", "what"),
    [
        ("Attempting to allocate 7.50G. That was not possible. There are 3.00G free.", 7.5 * GIB, 3 * GIB, "an array"),
        (
            "Error loading program: Attempting to reserve 13.00G at the bottom of memory. That was not possible. There "
            "are 12.50G free, 0B reserved, and 12.50G reservable.",
            13 * GIB,
            12.5 * GIB,
            "a program",
        ),
        ("Out of memory while trying to allocate 21474836480 bytes.", 20 * GIB, None, "an array"),
        ("ran out of memory trying to allocate 20.00GiB (rounded to 21474836480)", 20 * GIB, None, "an array"),
    ],
)
def test_what_a_device_had_no_room_for_is_told(
    tmp_path: Path, text: str, size: float, free: float | None, what: str
) -> None:
    tables = tables_of(tmp_path / "log.txt", f"XlaRuntimeError: RESOURCE_EXHAUSTED: {text}\n")
    assert tables[0].rows[0][:3] == (size, free, what)


def test_a_message_without_allocations_still_says_how_much(tmp_path: Path) -> None:
    text = "Ran out of memory in memory space HBM. Used 33.1GiB of 31.25GiB hbm."
    tables = tables_of(tmp_path / "log.txt", text)
    assert "needs 35.54 GB of HBM, 1.99 GB more" in tables[0].why_empty


def test_other_text_is_no_broken_capture(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="characters of other text"):
        tables_of(tmp_path / "log.txt", "step 100 loss 2.3\n")


def test_a_snapshot_says_who_asked_for_what(tmp_path: Path) -> None:
    kept = jnp.ones((512, 1024), jnp.float32).block_until_ready()
    path = tmp_path / "device.prof"
    path.write_bytes(jax.profiler.device_memory_profile())
    (table,) = tables = present(memory_reports.read(path))
    assert any(row[0] == kept.nbytes and "test_memory_reports.py" in str(row[4]) for row in table.rows)
    packed = path.read_bytes()
    path.write_bytes(gzip.decompress(packed))
    assert memory_reports.read(path) == tables
    path.write_bytes(packed)
    # Other compressed data, and a truncated file.
    for data in (gzip.compress(b"something else" * 20), path.read_bytes()[:-40]):
        path.write_bytes(data)
        with pytest.raises(RatchetError, match="expected a memory snapshot") as refused:
            memory_reports.read(path)
        assert refused.value.kind == "bad-profile"


def test_xprof_memory_takes_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    path.write_text(HBM, encoding="utf-8")
    for words in (["memory"], ["memory", "diagnose"]):
        (table,) = printed(capsys, "xprof", *words, str(path))
        assert [row["shape"] for row in table["rows"]][:1] == ["f32[64,8192,4096]"]


def test_a_snapshot_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_MAX_UNPACKED_BYTES", "1000")
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as stream:
        stream.write(b"\0" * 10_000)
    (tmp_path / "device.prof").write_bytes(packed.getvalue())
    with pytest.raises(RatchetError, match="bytes unpacked"):
        memory_reports.read(tmp_path / "device.prof")


@pytest.mark.long
def test_a_packed_module_is_no_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_reports.read(STEP) is None
    assert main(["xprof", "memory", str(STEP)]) == 0
    assert "What the compiler planned, by module" in capsys.readouterr().out
