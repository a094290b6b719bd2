"""Findings of the trace: broken contracts, foreign work, false claims; identity, traffic and buffers of good ones."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from planted import NAIVE, SMALL, Tracer, naive, tracer, with_wrapper
from refusals import assert_failed

from harness.hardware import chip
from harness.judge.evaluate.messages import ShapesReply, TraceReply
from harness.judge.evaluate.trace import packages
from harness.operators import Attention

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracer]:
    with tracer(tmp_path_factory.mktemp("tracer")) as opened:
        yield opened


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Tracer]:
    """A tracer of its own, which a test may spoil or whose folder it fills."""
    with tracer(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def contests_own(bench: Tracer) -> TraceReply:
    """The trace of the contest's kernel."""
    return bench.traced(NAIVE)


CONTRACT = {
    "syntax-error": (naive(("BQ = 128\n", "BQ = = 128\n")), "line 34: invalid syntax"),
    "import-error": (naive(("import math\n", "import math\nimport no_such_module\n")), "no_such_module"),
    "missing-kernel-fn": (naive(("def kernel_fn(", "def kernel_function(")), "to define kernel_fn(q, k, v)"),
    "wrong-signature": (
        naive(("def kernel_fn(q, k, v):", "def kernel_fn(q, kv):")),
        "expected kernel_fn(q, k, v), got kernel_fn(q, kv)",
    ),
    "bad-claim": (naive(("return batch", "return 0.5 + batch")), "whole numbers"),
    "trace-error": (naive(("BQ = 128\n", "BQ = 384\n")), "expected BQ to divide the sequence of 512, got BQ=384"),
    "wrong-shape": (with_wrapper("    return honest(q, k, v)[:256]\n"), "[512, 128], got [256, 128]"),
    "wrong-dtype": (with_wrapper("    return honest(q, k, v).astype(jnp.float32)\n"), "bfloat16, got float32"),
    "wrong-structure": (with_wrapper("    return (honest(q, k, v),)\n"), "got tuple of 1"),
}


@pytest.mark.parametrize("kind", CONTRACT)
def test_a_broken_contract_is_named(bench: Tracer, kind: str) -> None:
    source, words = CONTRACT[kind]
    assert_failed(bench.failure(source), "contract", kind, words)


def test_an_exception_names_its_line(bench: Tracer) -> None:
    line = NAIVE.splitlines().index("    accumulator = pltpu.VMEM((BQ, d), jnp.float32)") + 1
    source = naive(("    accumulator = pltpu.VMEM(", "    accumulator = undefined.VMEM("))
    assert_failed(bench.failure(source), "contract", "trace-error", f"kernel.py line {line}: NameError")


@pytest.mark.parametrize(
    "source", [b"\x00\x01", "a = 'ü".encode("latin-1"), b"raise SystemExit(0)", b"raise KeyboardInterrupt"]
)
def test_odd_files_are_failures_too(bench: Tracer, source: bytes) -> None:
    assert bench.failure(source).kind in ("syntax-error", "import-error")


LOOPED = (
    "    more = lambda state: (state[0] + 1, state[1] + q * q)\n"
    "    _, x = jax.lax.while_loop(lambda state: state[0] < 64, more, (0, q))\n"
    "    return honest(x, k, v)\n"
)
BRANCHED = (
    "    outside, inside = (lambda x: honest(x + x * x, k, v)), (lambda x: honest(honest(x, k, v), k, v))\n"
    "    step = lambda x, _: (jax.lax.cond(jnp.arange(8).sum() == 28, outside, inside, x), None)\n"
    "    return jax.lax.scan(step, q, None, length=100_000)[0]\n"
)
HIDDEN = (
    "    def step(i, x):\n        return jax.jit(lambda y: y @ jnp.eye(128, dtype=y.dtype))(x)\n"
    "    return honest(jax.lax.fori_loop(0, 2, step, q), k, v)\n"
)
# What foreign work is refused as, and the function around the kernel that does it.
STATIC = [
    ("no-pallas-call", "    return q * 2\n"),
    ("dot-outside-pallas", "    return honest(q @ jnp.eye(128, dtype=q.dtype), k, v)\n"),
    ("dot-outside-pallas", HIDDEN),
    ("exp-outside-pallas", "    return honest(jnp.exp(q), k, v)\n"),
    ("host-callback", "    jax.debug.callback(lambda x: None, q[0, 0])\n    return honest(q, k, v)\n"),
    (
        "work-outside-pallas",
        "    big = jnp.broadcast_to(q, (512, 512, 128))\n    return honest(q + (big * big).sum(axis=0), k, v)\n",
    ),
    ("work-outside-pallas", LOOPED),
    ("work-outside-pallas", BRANCHED),
    (
        "platform-dependent",
        "    q = jax.lax.platform_dependent(q, tpu=lambda x: x, default=lambda x: x * 0)\n    return honest(q, k, v)\n",
    ),
]
# A kernel of JAX itself, without claims and names.
BARE = """\
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention


def kernel_fn(q, k, v):
    return flash_attention(*(x[None, None] for x in (q, k, v)), sm_scale=q.shape[-1] ** -0.5)[0, 0]
"""


def test_a_kernel_may_leave_its_claims_and_names_out(bench: Tracer) -> None:
    claims = bench.traced(BARE).claims
    assert (claims.flops, claims.tiling, claims.kernel_name) == (None, None, "kernel_fn")
    assert claims.problem_description == SMALL.statement().title
    assert bench.failure(BARE + "\n\nKERNEL_NAME = 3\n").kind == "bad-claim"


_ON_A_MESH = "    mesh = jax.make_mesh((1,), ('x',))\n    rows = jax.sharding.PartitionSpec('x')\n"
SEVERAL = {
    "shard_map": "    return jax.shard_map(honest, mesh=mesh, in_specs=(rows, jax.sharding.PartitionSpec(), "
    "jax.sharding.PartitionSpec()), out_specs=rows, check_vma=False)(q, k, v)\n",
    "sharding_constraint": "    return honest(jax.lax.with_sharding_constraint(q, "
    "jax.sharding.NamedSharding(mesh, rows)), k, v)\n",
    "jit with NamedSharding": "    place = jax.sharding.NamedSharding(mesh, rows)\n"
    "    return jax.jit(honest, in_shardings=(place, place, place))(q, k, v)\n",
    "kernel.py names NamedSharding": "    place = jax.sharding.NamedSharding(mesh, rows)\n"
    "    return honest(jax.device_put(q, place), k, v)\n",
    "device_count": "    return honest(q, k, v) if jax.device_count() == 1 else None\n",
    "make_mesh": "    jax.make_mesh((4,), ('x',))\n    return honest(q, k, v)\n",
    "shard_map inside a loop": "    f = jax.shard_map(honest, mesh=mesh, in_specs=(rows, jax.sharding.PartitionSpec(), "
    "jax.sharding.PartitionSpec()), out_specs=rows, check_vma=False)\n"
    "    return jax.lax.scan(lambda c, _: (f(q, k, v), None), q, None, length=2)[0]\n",
}


@pytest.mark.parametrize("what", SEVERAL)
def test_a_function_of_several_devices_is_refused(bench: Tracer, what: str) -> None:
    assert_failed(
        bench.failure(with_wrapper(_ON_A_MESH + SEVERAL[what])), "static", "sharded", what.split(" inside")[0]
    )


@pytest.mark.parametrize(
    ("chip_name", "dtype"), [("v5e", "float16"), ("v6e", "float16"), ("v4", "int8"), ("v4", "float8_e5m2")]
)
def test_a_dtype_that_the_chip_lacks_is_named(bench: Tracer, chip_name: str, dtype: str) -> None:
    body = naive(
        ("    scores = scores * scale\n", f"    scores = scores.astype(jnp.{dtype}).astype(jnp.float32) * scale\n")
    )
    if chip_name == "v4":
        body = naive(
            (
                "weights.astype(v_ref.dtype), v_ref[...],",
                f"weights.astype(jnp.{dtype}), v_ref[...].astype(jnp.{dtype}),",
            )
        )
    assert_failed(bench.failure(body, chip=chip(chip_name)), "static", "dtype-not-on-chip", chip_name, dtype)


@pytest.mark.parametrize(("kind", "body"), STATIC)
def test_foreign_work_is_refused_and_found_inside_jit_loops_and_branches(bench: Tracer, kind: str, body: str) -> None:
    words = ("kernel.py line",) if body is HIDDEN else ()
    assert_failed(bench.failure(with_wrapper(body)), "static", kind, *words)


@pytest.mark.parametrize(("dtype", "is_taken"), [("float32", True), ("bfloat16", False)])
def test_a_sum_of_products_row_by_row_may_be_outside_in_float32(bench: Tracer, dtype: str, is_taken: bool) -> None:
    source = with_wrapper(
        f'    rows = jnp.einsum("sd,sd->s", q.astype("{dtype}"), k.astype("{dtype}"))\n'
        "    return honest(q + rows[:, None].astype(q.dtype), k, v)\n"
    )
    if is_taken:
        bench.traced(source)
    else:
        assert bench.failure(source).kind == "dot-outside-pallas"


def test_a_host_callback_inside_the_kernel_is_refused(bench: Tracer) -> None:
    source = naive(("    step, steps = ", '    pl.debug_print("step")\n    step, steps = '))
    assert bench.failure(source).kind == "host-callback"


def test_an_overstated_flop_claim_fails_with_both_values(bench: Tracer) -> None:
    values = f"{8 * 512**2 * 128 + 5 * 512**2:,}", f"{SMALL.work().flops:,}"
    assert_failed(bench.failure(naive(("(4 * sequence", "(8 * sequence"))), "static", "flop-claim", *values)


def test_a_false_tiling_claim_is_a_warning_with_both_values(bench: Tracer) -> None:
    source = naive(('"k": reads * once', '"k": once'), ('"grid": grid', '"grid": (1, 1)'))
    warnings = tuple(warning for warning in bench.traced(source).warnings if warning.startswith("get_tiling_meta()"))
    once = 2 * 512 * 128
    assert warnings == (
        "get_tiling_meta() claims grid (1, 1), the trace shows (4, 2)",
        f"get_tiling_meta() claims inputs with re-reads in bytes {6 * once}, the trace shows {9 * once}",
    )


def test_the_contests_kernel_claims_the_truth(contests_own: TraceReply) -> None:
    assert not [warning for warning in contests_own.warnings if warning.startswith("get_tiling_meta()")]
    assert contests_own.claims.kernel_name == "naive_attention"


def test_inputs_may_come_in_another_order_by_name(bench: Tracer, contests_own: TraceReply) -> None:
    swapped = naive(("def kernel_fn(q, k, v):", "def kernel_fn(v, k, q):"))
    assert bench.traced(swapped).trace.fingerprint == contests_own.trace.fingerprint
    # JAX takes no keyword arguments if a jitted function states its shardings.
    jitted = "\nkernel_fn = jax.jit(kernel_fn, in_shardings=(None, None, None))\n"
    bench.traced(swapped + jitted)


SAME = {
    "comments": (("BQ = 128\n", "# a comment\n\nBQ = 128  # another\n"),),
    "function names": (("attend", "one_step"), ("def start", "def begin"), ("def finish", "def end")),
    "kernel name": (("name=KERNEL_NAME,", 'name="something_else",'),),
    "no kernel name": (("        name=KERNEL_NAME,\n", ""),),
    "variables": (("rescale", "correction"), ("new_max", "m_new")),
}
OTHER = {
    "block size": (("BQ = 128\n", "BQ = 256\n"),),
    "index map": (("lambda i, j: (j, 0)", "lambda i, j: (1 - j, 0)"),),
    "index map of the output": (
        ("out_specs=pl.BlockSpec((BQ, d), lambda i, j: (i", "out_specs=pl.BlockSpec((BQ, d), lambda i, j: (3 - i"),
    ),
    "constant": (("scale=1 / math.sqrt(d)", "scale=1.0001 / math.sqrt(d)"),),
    "compiler parameters": (('("parallel", "arbitrary")', '("arbitrary", "arbitrary")'),),
    "VMEM limit": (("VMEM_LIMIT = None", "VMEM_LIMIT = 1 << 25"),),
    "precision": (("weights.sum(", "weights.astype(jnp.bfloat16).astype(jnp.float32).sum("),),
    "work around the kernel": (("    )(q, k, v)\n", "    )(q * 1.5, k, v)\n"),),
}


@pytest.mark.parametrize("edit", SAME)
def test_the_same_program_spelled_differently_has_the_same_fingerprint(
    bench: Tracer, contests_own: TraceReply, edit: str
) -> None:
    assert bench.traced(naive(*SAME[edit])).trace.fingerprint == contests_own.trace.fingerprint


@pytest.mark.parametrize("edit", OTHER)
def test_another_program_has_another_fingerprint(bench: Tracer, contests_own: TraceReply, edit: str) -> None:
    assert bench.traced(naive(*OTHER[edit])).trace.fingerprint != contests_own.trace.fingerprint


def test_traffic_and_buffers_of_the_naive_kernel(bench: Tracer) -> None:
    """K and V are read once for every block of queries, Q and O once: 2 S d bytes each time."""
    reply = bench.traced(NAIVE, Attention(sequence=16384, head_dim=128))
    (call,) = reply.trace.pallas_calls
    once = 2 * 16384 * 128
    assert call.grid == (128, 64)
    assert call.dimension_semantics == ("parallel", "arbitrary")
    moved = {window.name: (window.fetches, window.hbm_bytes) for window in call.windows}
    assert moved == {"q": (128, once), "k": (8192, 128 * once), "v": (8192, 128 * once), "o": (128, once)}
    assert [window.role for window in call.windows] == ["input", "input", "input", "output"]
    assert [window.vmem_bytes for window in call.windows] == [
        2 * 128 * 256,
        2 * 256 * 256,
        2 * 256 * 256,
        2 * 128 * 256,
    ]
    assert [scratch.vmem_bytes for scratch in call.scratch] == [128 * 128 * 4] * 3
    pairs = 16384**2
    # The dots exactly; of the elementwise work at least the five of the softmax for each pair.
    assert reply.trace.pallas_flops - 4 * pairs * 128 > 5 * pairs * 0.99
    assert reply.trace.outside_flops == 0


@pytest.mark.parametrize("power", ["jnp.exp", "jnp.exp2", "jnp.power(2.0, ", ""])
def test_exponentials_are_counted_however_they_are_written(bench: Tracer, power: str) -> None:
    """The naive kernel has one exponential for each score, and one for each row and step that rescales."""
    call = f"{power}{'' if '(' in power else '('}scores - new_max)"
    reply = bench.traced(naive(("weights = jnp.exp(scores - new_max)", f"weights = {call}")))
    rescaling = 512 * (512 // 256)
    assert reply.trace.exponentials == (512**2 if power else 0) + rescaling


def test_a_block_that_never_changes_is_read_once_and_held_once(bench: Tracer) -> None:
    reply = bench.traced(naive(("BKV = 256\n", "BKV = 512\n")))
    windows = {window.name: window for window in reply.trace.pallas_calls[0].windows}
    assert (windows["k"].fetches, windows["k"].buffers, windows["k"].hbm_bytes) == (1, 1, 512 * 256)
    assert (windows["q"].fetches, windows["q"].buffers) == (4, 2)


def test_an_index_map_that_computes_is_walked_too(bench: Tracer) -> None:
    """Every second query block walks the keys backwards: at each turn one block of keys is not fetched again."""
    zigzag = naive(("lambda i, j: (j, 0)", "lambda i, j: (jnp.where(i % 2 == 0, j, kv_sequence // BKV - 1 - j), 0)"))
    windows = {window.name: window for window in bench.traced(zigzag).trace.pallas_calls[0].windows}
    assert windows["k"].fetches == 4 * 2 - 3


def test_the_reduced_shape_keeps_several_blocks_along_each_axis(bench: Tracer) -> None:
    """The first of 256, 512, 1024, ... at which every axis with several steps still has two."""
    large = Attention(sequence=4096, head_dim=128)
    sequences = [problem.sequence for problem in large.reduced()]
    for edits, expected in (
        ((), 512),
        ((("BQ = 128\n", "BQ = 1024\n"),), 2048),
        ((("BKV = 256\n", "BKV = 4096\n"),), None),
    ):
        bench.traced(naive(*edits), large)
        shapes = bench.shapes()
        assert isinstance(shapes, ShapesReply)
        position = shapes.reduced
        assert (None if position is None else sequences[position]) == expected


def test_a_file_beside_the_kernel_is_not_imported_unseen(fresh: Tracer) -> None:
    imported = "import math\nimport pathlib\nimport sys\npathlib.Path('stranger.py').write_text('BQ = 128\\n')\n"
    imported += "sys.path.insert(0, '')\nfrom stranger import BQ as ROWS\n"
    assert_failed(fresh.failure(naive(("import math\n", imported))), "contract", "foreign-import", "stranger")


def test_helpers_belong_to_the_candidate(tmp_path: Path, fresh: Tracer) -> None:
    """Helpers run as modules under their own names, and are searched in the same way as kernel.py."""
    (tmp_path / "sizes.py").write_text("from deeper import ROWS\n\nBQ = ROWS\n")
    (tmp_path / "deeper.py").write_text("ROWS = 256\n")
    kernel = naive(("import math\n", "import math\n\nfrom sizes import BQ\n"), ("BQ = 128\n", ""))
    reply = fresh.traced(kernel)
    assert isinstance(fresh.shapes(), ShapesReply)
    assert reply.trace.pallas_calls[0].grid[0] == 2
    assert not [warning for warning in reply.warnings if "sizes" in warning]
    (tmp_path / "deeper.py").write_text("import math\nROWS = math.no_such_number\n")
    assert "deeper.py line 2: AttributeError" in fresh.failure(kernel).message
    (tmp_path / "deeper.py").write_text("import socket\nROWS = 128\n")
    failure = fresh.failure(kernel)
    assert (failure.kind, failure.message[:26]) == ("forbidden-import", "deeper.py line 1 imports s")
    (tmp_path / "deeper.py").write_text("ROWS = = 128\n")
    assert "deeper.py line 1" in fresh.failure(kernel).message


@pytest.mark.parametrize("name", ["numpy", "math", "ml_dtypes", "harness", "tabulate"])
def test_a_helper_must_not_be_called_like_an_installed_module(tmp_path: Path, fresh: Tracer, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("BQ = 128\n")
    assert_failed(fresh.failure(NAIVE), "contract", "helper-name", name)


def test_packages_that_are_imported_count(fresh: Tracer) -> None:
    trace = fresh.traced(BARE).trace
    assert [package.name for package in trace.imported] == ["jax"]
    assert trace.imported[0].files >= 2
    assert [source.name for source in trace.sources] == ["jax/experimental/pallas/ops/tpu/flash_attention.py"]
    program = "0" * 64
    assert packages.digested(program, ()) == program
    other = replace(trace.imported[0], sha256="1" * 64)
    assert len({packages.digested(program, packages_used) for packages_used in ((), trace.imported, (other,))}) == 3


# Changes that a kernel.py may make to the process that traces it: the line, and the failure's name for it.
PATCHES = {
    "interpretation.export": ("judge-patched", "real = judge.export\njudge.export = lambda *a, **k: real(*a, **k)"),
    "jax.export.export": (
        "judge-patched",
        "import jax.export\nreal = jax.export.export\njax.export.export = lambda *a, **k: real(*a, **k)",
    ),
    "Exported.serialize": ("judge-patched", "from jax import export\nexport.Exported.serialize = len"),
    "numpy.allclose": ("judge-patched", "import numpy as np\nnp.allclose = lambda *a, **k: True"),
    "builtins.sum": ("judge-patched", "real = sum\nsys.modules['builtins'].sum = lambda *a, **k: real(*a, **k)"),
    "jax_default_matmul": ("settings-changed", "jax.config.update('jax_default_matmul_precision', 'highest')"),
    "signal handler": ("settings-changed", "sys.modules['signal'].signal(14, lambda *a: None)"),
    "Thread": (
        "left-behind",
        "t = sys.modules['threading']\nt.Thread(target=t.Event().wait, daemon=True, name='Thread').start()",
    ),
}


SETTINGS = {
    "the environment variable XLA_FLAGS": "import os\nos.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=true'",
    "the environment variables RATCHET_A, RATCHET_B": "import os\nos.environ.update(RATCHET_B='', RATCHET_A='')",
    "the environment variable HOME": "import os\ndel os.environ['HOME']",
    "JAX's setting jax_compilation_cache_dir": "jax.config.update('jax_compilation_cache_dir', '/nowhere')",
}


@pytest.mark.parametrize("what", SETTINGS)
def test_what_an_import_sets_is_put_back_and_said(fresh: Tracer, what: str) -> None:
    patch = f"import math\nimport jax\n{SETTINGS[what]}\n"
    reply = fresh.traced(naive(("import math\n", patch)))
    assert isinstance(fresh.shapes(), ShapesReply)
    again = fresh.traced(naive())
    (warning,) = [warning for warning in reply.warnings if "put back" in warning]
    assert f"importing kernel.py sets {what}, which {'are' if ', ' in what else 'is'} put back" in warning
    assert not [warning for warning in again.warnings if "put back" in warning]
    assert reply.trace.fingerprint == again.trace.fingerprint


def test_a_variable_that_is_set_while_it_is_traced_is_refused(fresh: Tracer) -> None:
    setting = "os.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=true'"
    source = with_wrapper(f"    import os\n    {setting}\n    return honest(q, k, v)\n")
    assert_failed(fresh.failure(source), "static", "settings-changed", "XLA_FLAGS")


@pytest.mark.parametrize("name", PATCHES)
def test_a_kernel_that_changes_the_process_that_traces_it_is_refused(fresh: Tracer, name: str) -> None:
    kind, code = PATCHES[name]
    patch = "import math\nimport sys\nimport jax\n"
    if name.startswith("interpretation"):
        patch += "judge = sys.modules['harness.judge.evaluate.interpret.interpretation']\n"
    assert_failed(fresh.failure(naive(("import math\n", f"{patch}{code}\n"))), "static", kind, name)


def test_a_kernel_may_import_what_jax_has_for_sparsecores(fresh: Tracer) -> None:
    importing = fresh.traced(naive(("import math\n", "import math\nimport jax.experimental.pallas.tpu_sc\n")))
    plain = fresh.traced(naive())
    assert importing.trace.fingerprint == plain.trace.fingerprint


def test_a_kernel_over_a_mesh_of_cores_is_named_as_what_it_is(fresh: Tracer) -> None:
    over_cores = """    mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)

    @functools.partial(pl.kernel, out_type=jax.ShapeDtypeStruct(q.shape, q.dtype), mesh=mesh)
    def copy(q_ref, o_ref):
        pltpu.sync_copy(q_ref, o_ref)

    return copy(q)
"""
    source = with_wrapper(over_cores) + "\nimport functools\nfrom jax.experimental.pallas import tpu as pltpu\n"
    words = "got mpmd_map over a mesh of cores"
    assert_failed(fresh.failure(source), "static", "refused-primitive", words)


# --- the device that a candidate asks for -------------------------------------------------------

ASKS = """import jax

KINDS = {"TPU v5 lite": 0, "TPU v6 lite": 1}
KIND = KINDS[jax.devices()[0].device_kind]
assert jax.default_backend() == jax.local_devices()[0].platform == "tpu"
assert jax.devices()[0].num_cores == 1
assert jax.devices("cpu")[0].platform == "cpu"
from jax.extend.backend import get_backend
assert get_backend().platform == "tpu"
assert KINDS[get_backend("tpu").devices()[0].device_kind] == KIND
assert get_backend("cpu").platform == "cpu"
"""


def test_the_device_that_a_kernel_asks_for_is_the_chip(fresh: Tracer) -> None:
    on_chip = fresh.traced(naive(("import math\n", f"import math\n{ASKS}")))
    assert isinstance(fresh.shapes(), ShapesReply)
    plain = fresh.traced(naive())
    strange = fresh.failure(naive(("import math\n", "import math\nimport jax\njax.devices()[0].client\n")))
    assert on_chip.trace.fingerprint == plain.trace.fingerprint
    assert "memory_stats(), got 'client', which is unknown because no v5e is attached" in strange.message


def test_the_line_of_a_package_stands_behind_that_of_kernel_py(fresh: Tracer) -> None:
    source = """
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention


def kernel_fn(q, k, v):
    sizes = BlockSizes(block_q=700, block_k_major=128, block_k=128, block_b=1)
    return flash_attention(q[None, None], k[None, None], v[None, None], block_sizes=sizes)[0, 0]
"""
    failure = fresh.failure(source)
    assert failure.kind == "trace-error"
    place = r"kernel\.py line 7, in jax/experimental/pallas/ops/tpu/flash_attention\.py line \d+: "
    assert re.search(place, failure.message), failure.message
