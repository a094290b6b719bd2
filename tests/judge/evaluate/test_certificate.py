"""The checked and the compiled program are the same: sent as data, compared in normal form, and certified."""

import dataclasses
import enum
import functools
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import divergences
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import tree_util
from jax._src.interpreters import mlir
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from planted import V5E
from refusals import rejected

from harness.judge.evaluate.compile import certificate
from harness.judge.evaluate.interpret import interpretation
from harness.judge.evaluate.messages import CertifyRequest
from harness.judge.evaluate.trace import constants, jaxprs, normal_form, program_codec
from harness.records import Certificate, Trace
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected

SHAPES = (jax.ShapeDtypeStruct((256, 128), jnp.bfloat16),) * 3


def traced(source: str) -> Any:
    """The program that a kernel.py stands for on v5e."""
    module = ModuleType("kernel")
    exec(compile(source, "kernel.py", "exec"), module.__dict__)
    interpretation.get_ready_for(V5E)
    with asked_device.aiming_at(V5E):
        return constants.own_copy(jax.make_jaxpr(module.__dict__["kernel_fn"])(*SHAPES))


def exported(closed: Any, platform: str) -> Any:
    with asked_device.aiming_at(V5E):
        return interpretation.export(closed, SHAPES, platform, V5E)


PLAIN = traced(divergences.source())
# Its scores are scaled by another number.
OTHER = traced(divergences.source(SCORES="scores = scores * 2"))


def request(folder: Path, *, program: Any = PLAIN, for_chip: Any = PLAIN) -> CertifyRequest:
    """Programs as a candidate's process hands them over, and its report of the program for the chip."""
    chip = exported(for_chip, "tpu")
    (folder / "traced").write_bytes(program_codec.encode(program))
    (folder / "tpu").write_bytes(chip.serialize())
    report = Trace(
        fingerprint=normal_form.of_exported(chip.mlir_module()).digest,
        pallas_calls=(),
        pallas_flops=0,
        outside_flops=0,
        seconds=0.0,
    )
    return CertifyRequest(
        program=str(folder / "traced"),
        for_chip=str(folder / "tpu"),
        chip=V5E,
        trace=report,
        artifact=str(folder / "cpu"),
        fill=None,
    )


@pytest.fixture(autouse=True)
def _steps_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "_require_steps", lambda steps, reported: None)


def refusal(asked: CertifyRequest) -> tuple[str, str]:
    with pytest.raises(Rejected) as refused:
        certificate.certify(asked)
    return refused.value.failure.kind, refused.value.failure.message


@pytest.mark.long
def test_one_program_is_certified(tmp_path: Path) -> None:
    certified = certificate.certify(request(tmp_path))
    assert isinstance(certified, Certificate)
    assert certified.platform == "tpu"
    counted = dict(certified.primitives)
    assert counted["jax._src.lax:dot_general_p"] == 2
    assert all(place.startswith("jax.") for place in counted)
    assert certificate.certify(request(tmp_path)) == certified
    other = certificate.certify(request(tmp_path, program=OTHER, for_chip=OTHER))
    assert other.sha256 != certified.sha256


def test_another_program_for_the_chip_is_named_with_its_line(tmp_path: Path) -> None:
    kind, message = refusal(request(tmp_path, for_chip=OTHER))
    assert kind == "program-differs"
    line = divergences.source(SCORES="scores = scores * 2").splitlines().index("    scores = scores * 2") + 1
    assert f"kernel.py line {line}: in kernel 0: " in message
    assert "value = 2.000000e+00" in message


@pytest.mark.long
def test_what_is_checked_is_made_of_the_traced_program(tmp_path: Path) -> None:
    certificate.certify(request(tmp_path))
    checked = jax.export.deserialize(bytearray((tmp_path / "cpu").read_bytes()))
    assert checked.platforms == ("cpu",)
    with asked_device.aiming_at(V5E):
        expected = interpretation.export(PLAIN, SHAPES, "cpu", V5E)
    assert normal_form.difference(checked.mlir_module(), expected.mlir_module()) is None


def test_another_traced_program_is_refused(tmp_path: Path) -> None:
    assert refusal(request(tmp_path, program=OTHER))[0] == "program-differs"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_program_with_other_types_than_its_values_is_refused(tmp_path: Path, dtype: Any) -> None:
    """A compiler that believes the stated types and an interpreter that computes would run two different programs."""
    closed = traced(divergences.source(SCORES="scores = scores.astype(jnp.bfloat16).astype(jnp.float32)"))
    (call,) = jaxprs.pallas_calls(closed.jaxpr)
    rounded = next(
        equation for equation in call.params["jaxpr"].eqns if equation.primitive is lax.convert_element_type_p
    )
    rounded.params["new_dtype"] = jnp.dtype(dtype)
    if dtype == jnp.bfloat16:
        certificate.certify(request(tmp_path, program=closed, for_chip=closed))
    else:
        kind, message = refusal(request(tmp_path, program=closed, for_chip=PLAIN))
        assert kind == "forged-result"
        assert "expected a program with values of their stated types" in message


def test_what_no_chip_may_be_given_is_refused_here_too(tmp_path: Path) -> None:
    outside = traced(divergences.source(CALL="return attention(q, k, jnp.exp(v))"))
    assert refusal(request(tmp_path, program=outside, for_chip=outside))[0] == "exp-outside-pallas"


def test_a_false_report_of_the_program_is_noticed(tmp_path: Path) -> None:
    asked = request(tmp_path)
    forged = request(tmp_path, for_chip=OTHER)
    assert refusal(CertifyRequest(**{**as_fields(forged), "trace": asked.trace}))[0] == "forged-result"


def as_fields(asked: CertifyRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in CertifyRequest.__dataclass_fields__}


def test_a_rule_for_one_platform_shows_around_kernels(tmp_path: Path) -> None:
    """If JAX lowers an operation differently for a chip, both lowerings are JAX's, but may be different programs."""
    closed = traced(divergences.source(CALL="return attention(q, k, -(-v))"))
    table = mlir._platform_specific_lowerings["tpu"]
    kept = dict(table)
    mlir.register_lowering(jax.lax.neg_p, mlir.lower_fun(lambda x: x, multiple_results=False), platform="tpu")
    try:
        kind, message = refusal(request(tmp_path, program=closed, for_chip=closed))
    finally:
        table.clear()
        table.update(kept)
    assert kind == "program-differs"
    assert "expected the same operations around kernels on the v5e and on the CPU" in message
    assert "stablehlo.negate" in message


@pytest.mark.parametrize(
    "operation",
    [
        "lax.erf_inv(v)",
        "jnp.arctan2(v, v)",
        "jnp.sinh(v)",
        "jnp.cbrt(v)",
        "jnp.sin(v)",
        "lax.argmin(v, 0, jnp.int32)",
        "lax.population_count(v.astype(jnp.int32))",
        "lax.clz(v.astype(jnp.int32))",
        "lax.reduce_and(v > 0, (0,))",
        "v % 2",
        "lax.nextafter(v.astype(jnp.float32), v.astype(jnp.float32))",
        "jnp.floor_divide(v.astype(jnp.int32), 3)",
        "lax.shift_left(v.astype(jnp.int32), 2)",
        "lax.integer_pow(v, 3)",
        "v.astype(jnp.int8).astype(v.dtype)",
        "lax.reduce_window(v, -jnp.inf, lax.max, (2, 1), (1, 1), 'SAME')",
        "lax.reduce_prod(v, (0,))",
        "lax.reduce_window(v, 0.0, lax.add, (2, 1), (1, 1), 'SAME')",
        "v.at[jnp.array([1, 2])].max(v[:2])",
        "v.at[jnp.array([1, 2])].multiply(v[:2])",
        "lax.reduce_xor(v.astype(jnp.int32), (0,))",
        "jax.device_put(v, jax.memory.Space.Device)",
        "lax.optimization_barrier(v)",
        *divergences.BESIDE,
    ],
)
def test_what_may_stand_around_kernels_is_lowered_alike(operation: str) -> None:
    with asked_device.aiming_at(V5E):
        closed = jax.make_jaxpr(lambda v: eval(operation, {"v": v, "jnp": jnp, "jax": jax, "lax": lax}))(SHAPES[0])
        certificate._require_same_around(closed, SHAPES[:1], V5E)


# --- as data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", list(divergences.honest())[::7], ids=lambda case: case.name)
def test_a_program_comes_back_as_it_was(case: divergences.Case) -> None:
    closed = traced(case.files["kernel.py"].decode())
    with asked_device.aiming_at(V5E):
        back = program_codec.decode(program_codec.encode(closed))
    assert normal_form.of_traced(back) == normal_form.of_traced(closed)
    straight, other = (exported(program, "tpu").mlir_module() for program in (closed, back))
    assert normal_form.difference(straight, other) is None


class _Way(enum.StrEnum):
    LEFT = "left"


@functools.partial(jax.tree_util.register_dataclass, data_fields=["starts"], meta_fields=["way"])
@dataclasses.dataclass(frozen=True)
class _Tables:
    starts: Any
    way: _Way


def test_a_program_may_pass_its_tables_and_names_in_classes_of_its_own() -> None:
    def kernel(tables: _Tables, x_ref: Any, o_ref: Any) -> None:
        # The index of the last row is one of JAX's own trees, without leaves.
        o_ref[...] = x_ref[...] + x_ref[7:8] + tables.starts[pl.program_id(0)]

    def scaled(starts: Any, x: Any) -> Any:
        def block(step: Any, tables: _Tables) -> Any:
            return tables.starts[step], 0

        spec = pl.BlockSpec((8, 128), block)
        grid_spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), in_specs=[spec], out_specs=spec)
        call = pl.pallas_call(kernel, out_shape=x, grid_spec=grid_spec, metadata={"way": _Way.LEFT})
        return call(_Tables(starts, _Way.LEFT), x)

    shapes = jax.ShapeDtypeStruct((2,), jnp.int32), jax.ShapeDtypeStruct((16, 128), jnp.int32)
    with asked_device.aiming_at(V5E):
        closed = jax.make_jaxpr(scaled)(*shapes)
        back = program_codec.decode(program_codec.encode(closed))
    straight, other = (
        jax.export.export(jax.jit(core.jaxpr_as_fun(program)), platforms=("tpu",))(*shapes).mlir_module()
        for program in (closed, back)
    )
    assert normal_form.difference(straight, other) is None


def test_a_copy_with_parts_that_are_none_comes_back_as_it_was() -> None:
    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref, o_ref, semaphore).wait()

    def copied(x: Any) -> Any:
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        scratch = [pltpu.SemaphoreType.DMA(())]
        return pl.pallas_call(kernel, out_shape=x, in_specs=[anywhere], out_specs=anywhere, scratch_shapes=scratch)(x)

    closed = jax.make_jaxpr(copied)(jax.ShapeDtypeStruct((16, 128), jnp.float32))
    back = program_codec.decode(program_codec.encode(closed))
    assert normal_form.of_traced(back) == normal_form.of_traced(closed)


def test_what_is_not_of_jax_does_not_travel() -> None:
    imitation = core.Primitive("neg")
    imitation.def_abstract_eval(lambda x: x)
    with rejected("not-portable", "the primitive 'neg', which no module of JAX has"):
        program_codec.encode(jax.make_jaxpr(imitation.bind)(1.0))


class _Own:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Path("x"), "forged-result"),
        (_Own(), "forged-result"),
        (functools.partial(print, 1), "forged-result"),
        (jnp.zeros(3), "forged-result"),
    ],
)
def test_bytes_that_name_something_else_are_refused(value: Any, words: str) -> None:
    with rejected(words):
        program_codec.decode(pickle.dumps(value))


class _Hostile(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return ("primitive", program_codec.place(obj)) if isinstance(obj, core.Primitive) else None


def built_upon(what: Any) -> bytes:
    """Bytes that set an attribute of something that was there before."""
    written = io.BytesIO()
    _Hostile(written, 2).dump(what)
    # PROTO 2, the thing, a state, BUILD, STOP.
    state = pickle.dumps((None, {"name": "another"}), 2)[2:-1]
    return written.getvalue()[:-1] + state + pickle.BUILD + pickle.STOP


@pytest.mark.parametrize("what", [jax.lax.neg_p, jax.core.ShapedArray, jax.lax.Precision, tree_util.default_registry])
def test_bytes_change_nothing_that_was_there_before(what: Any) -> None:
    with rejected("forged-result", "changes an object of this process"):
        program_codec.decode(built_upon(what))
    assert jax.lax.neg_p.name == "neg"


@pytest.mark.parametrize(
    "name", [b"cjaxlib.mlir.ir\nOperation\n.", b"cos\nsystem\n.", b"cjax._src.xla_bridge\nos.system\n."]
)
def test_bytes_name_no_function_and_no_class_of_another(name: bytes) -> None:
    with pytest.raises(Rejected, match=r"names a forbidden object|KeyError|AttributeError"):
        program_codec.decode(name)


# --- in normal form ----------------------------------------------------------------------------


def form(function: Callable[..., Any]) -> tuple[str, ...]:
    return normal_form.of_traced(jax.make_jaxpr(function)(jnp.ones((8, 128)), jnp.ones((8, 128))))


def test_names_are_no_part_of_a_program() -> None:
    def kernel_of_two(x: Any, y: Any) -> Any:
        return jax.jit(lambda a, b: a * b)(x, y)

    @jax.jit
    def product(left: Any, right: Any) -> Any:
        return left * right

    def another(first: Any, second: Any) -> Any:
        with jax.named_scope("product"):
            return product(first, second)

    assert form(kernel_of_two) == form(another)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: y * x + 1.0,
        lambda x, y: x * y + 2.0,
        lambda x, y: x * y - 1.0,
        lambda x, y: x * x + 1.0,
        lambda x, y: jax.jit(lambda x, y: x * y + 1.0)(x, y),
        lambda x, y: x * y + np.ones((8, 128), np.float32),
        lambda x, y: (x * y + 1.0, x),
    ],
)
def test_whatever_is_computed_is_part_of_it(other: Callable[..., Any]) -> None:
    assert form(lambda x, y: x * y + 1.0) == form(lambda a, b: a * b + 1.0) != form(other)


def test_constants_count_by_what_they_hold() -> None:
    first, same, other = (np.full((8, 128), value, np.float32) for value in (3, 3, 4))
    assert form(lambda x, y: x + first) == form(lambda x, y: x + same) != form(lambda x, y: x + other)
