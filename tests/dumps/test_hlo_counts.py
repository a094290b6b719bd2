"""HLO counts and kernel bodies from real modules, saved with the compiler that made them (fixtures/modules/make.py)."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]
from module_fixtures import modules

from harness.dumps import hlo
from harness.errors import RatchetError
from harness.records import HloCounts


def name(path: Path) -> str:
    return path.name.removesuffix(".hlo.pb")


@pytest.mark.parametrize("path", modules("naive"), ids=name)
def test_a_plain_kernel_is_one_custom_call_and_nothing_else(path: Path) -> None:
    assert hlo.counts(path.read_bytes(), "one\ntwo\n") == HloCounts(
        copy=0, transpose=0, fusion=0, dot=0, exponential=0, reduce=0, custom_call=1, instructions=4, text_lines=2
    )


@pytest.mark.parametrize("path", modules("wrapped"), ids=name)
def test_work_around_the_kernel_is_counted_inside_fusions_too(path: Path) -> None:
    counts = hlo.counts(path.read_bytes(), "")
    # Two asynchronous prefetches, each counted at its start only, and the transpose behind as a copy.
    assert (counts.copy, counts.fusion, counts.custom_call) == (3, 1, 1)
    # 11 instructions in the entry, 7 in the fusion.
    assert (counts.instructions, counts.text_lines) == (18, 0)


@pytest.mark.parametrize("path", modules("plain"), ids=name)
def test_xla_attention_has_its_dots_exponentials_and_reductions(path: Path) -> None:
    counts = hlo.counts(path.read_bytes(), "")
    assert (counts.dot, counts.exponential, counts.reduce, counts.custom_call) == (2, 2, 2, 0)
    assert hlo.kernel_bodies(path.read_bytes()) == ()


@pytest.mark.parametrize("path", modules("wrapped"), ids=name)
def test_a_kernel_body_is_bytecode_with_its_name_and_origin(path: Path) -> None:
    (kernel,) = hlo.kernel_bodies(path.read_bytes())
    assert kernel.name == "naive.1"
    assert kernel.op_name == "jit(wrapped)/naive/pallas_call"
    assert kernel.body.startswith(b"ML\xefR")
    assert kernel.vmem_bytes is not None
    # Three float32 scratch buffers of 256 x 128 at least.
    assert kernel.vmem_bytes >= 3 * 256 * 128 * 4


@pytest.mark.parametrize("path", modules("naive"), ids=name)
def test_custom_calls_name_their_target(path: Path) -> None:
    assert [call.target for call in hlo.custom_calls(path.read_bytes())] == ["tpu_custom_call"]


def test_collectives_are_named_once_an_asynchronous_one_by_its_start() -> None:
    opcodes = ("all-gather", "all-gather", "collective-permute-start", "collective-permute-done", "copy-start")
    body = hlo.message_of("HloModuleProto")(name="m")
    computation = body.computations.add(name="main")
    for opcode in opcodes:
        computation.instructions.add(name=opcode, opcode=opcode)
    assert hlo.collectives(body.SerializeToString()) == ("all-gather", "collective-permute")
    (plain,) = modules("naive")[:1]
    assert hlo.collectives(plain.read_bytes()) == ()


@pytest.mark.parametrize("data", [b"", b"junk", b"\x00\x01\x02", b"\x0a\x04name"])
def test_what_is_no_module_is_a_named_error(data: bytes) -> None:
    with pytest.raises(RatchetError, match="expected a serialized HloModuleProto") as caught:
        hlo.counts(data, "")
    assert caught.value.kind == "bad-hlo"


def test_another_message_is_no_module() -> None:
    other = descriptor_pb2.FileDescriptorProto(name="x", package="y", dependency=["a", "b"]).SerializeToString()
    with pytest.raises(RatchetError, match="HloModuleProto"):
        hlo.counts(other, "")


def test_a_truncated_module_is_a_named_error() -> None:
    data = modules("naive")[0].read_bytes()
    with pytest.raises(RatchetError, match="HloModuleProto"):
        hlo.counts(data[: len(data) // 2], "")


def test_a_kernel_without_a_body_is_a_named_error() -> None:
    data = modules("naive")[0].read_bytes()
    # The replacement has the same length, so that the protobuf stays valid.
    with pytest.raises(RatchetError, match=r"naive\.1: expected JSON with custom_call_config\.body") as caught:
        hlo.kernel_bodies(data.replace(b'"body":', b'"b0dy":'))
    assert caught.value.kind == "bad-hlo"
