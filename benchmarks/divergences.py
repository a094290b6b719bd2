"""Counts the refused kernels: among those that are one program on a CPU and another on the chip, and among honest ones.

.venv/bin/python benchmarks/divergences.py [--planted] [FOLDER ...] [--only TEXT] [--show] [--every N]

The kernels are variants of a small one. Divergent ones combine each way in which one kernel.py can become two programs
with each place where an operation can stand. Honest ones write the same program in another way. Each is traced and
lowered by the judge's own processes and certified, as in a judgement; nothing is compiled, run or simulated. With
FOLDER the champions of these contests are examined instead, with `--planted` the good planted kernels; all of these are
honest. `--only` examines the kernels with that text in their names, `--every` one kernel in N. `--show` prints each
kernel with its outcome.
"""

import argparse
import itertools
import pickle
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import contest as contests
from harness.hardware import Chip, chip
from harness.judge.evaluate.messages import CertifyRequest, ShapesReply, ShapesRequest, TraceReply, TraceRequest
from harness.judge.evaluate.tasks import MODULES, ChildName
from harness.loop import scaffold
from harness.operators import Attention, Problem
from harness.records import KERNEL, Certificate, Failure
from harness.sandbox import environment
from harness.sandbox.child import Children
from harness.sandbox.confinement import Confinement
from harness.sandbox.jobs import Child
from harness.selftest import planted
from harness.selftest import scratch as planted_contests

_PROBLEM = Attention(sequence=256, head_dim=128)
_CHIP = chip("v5e")
# Failures that say nothing about two programs: the kernel made here is invalid, or the machine had no time for it.
NOT_REFUSED = ("crash", "import-error", "killed", "syntax-error", "timeout", "trace-error", "unsupported")
_MEMORY_BYTES, _SECONDS = 4 << 30, 60.0

# What stands between the marks is replaced.
_KERNEL = """
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK = 64


PRELUDE


def attend(q_ref, k_ref, v_ref, o_ref):
    q, k, v = q_ref[...], k_ref[...], v_ref[...]
    BEFORE
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * q_ref.shape[1] ** -0.5
    SCORES
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    WEIGHTS
    values = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    values = values / weights.sum(axis=1, keepdims=True)
    VALUES
    o_ref[...] = values.astype(o_ref.dtype)


def attention(q, k, v):
    sequence, d = q.shape
    rows = pl.BlockSpec((BLOCK, d), lambda i: (INDEX, 0))
    whole = pl.BlockSpec(k.shape, lambda i: (0, 0))
    return pl.pallas_call(
        attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        OPTIONS
    )(q, k, v)


def kernel_fn(q, k, v):
    CALL
"""
_PLAIN = {
    "PRELUDE": "",
    "BEFORE": "",
    "SCORES": "",
    "WEIGHTS": "",
    "VALUES": "",
    "INDEX": "i",
    "OPTIONS": "",
    "CALL": "return attention(q, k, v)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A candidate and its problem; `is_honest` if it is one program on every platform."""

    name: str
    files: Mapping[str, bytes]
    is_honest: bool
    problem: Problem = _PROBLEM
    chip: Chip = _CHIP
    function: str = KERNEL


def source(**parts: str) -> str:
    """The kernel with these parts in place of its own; lines are indented as the place needs."""
    text = _KERNEL
    for mark, plain in _PLAIN.items():
        part = parts.get(mark, plain)
        at = text.index(mark)
        margin = at - (text.rfind("\n", 0, at) + 1)
        indented = part if not text[at - margin : at].isspace() else part.replace("\n", "\n" + " " * margin)
        text = text.replace(mark, indented, 1)
    return text


def _case(name: str, *, is_honest: bool, **parts: str) -> Case:
    return Case(name=name, files={"kernel.py": source(**parts).encode()}, is_honest=is_honest)


# Places around the kernel for an operation `away(x)`, which does nothing where the kernel is checked, and something
# else (or is no operation at all) on the chip.
_AROUND = {
    "keys": "return attention(q, away(k), v)",
    "values": "return attention(q, k, away(v))",
    "output": "return away(attention(q, k, v))",
    "jit": "return attention(q, k, jax.jit(away)(v))",
    "scan": "return attention(q, k, jax.lax.scan(lambda c, x: (c, away(x)), 0, v)[1])",
    "cond": "return attention(q, k, jax.lax.cond(q[0, 0] > -1e30, away, away, v))",
    "while": (
        "first = (jnp.int32(0), v)\n"
        "return attention(q, k, jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, away(c[1])), first)[1])"
    ),
    "vmap": "return attention(q, k, jax.vmap(away)(v))",
    "remat": "return attention(q, k, jax.checkpoint(away)(v))",
    "jvp": (
        "@jax.custom_jvp\ndef within(x):\n    return away(x)\n\n"
        "within.defjvp(lambda p, t: (within(*p), t[0]))\nreturn attention(q, k, within(v))"
    ),
}
_RULE = "from jax.interpreters import mlir\n"
_IDENTITY = "mlir.lower_fun(lambda x: x, multiple_results=False)"
_TWICE = "\n\ndef away(x):\n    return -(-x)\n"
_MOSAIC = (
    "from jax._src.pallas.mosaic import lowering\n"
    "for _table in lowering.lowering_rules.values():\n    _table[{}] = lambda ctx, x: x\n"
)
# A primitive that has the name of another primitive and does nothing on the chip.
_OWN = (
    "from jax.extend import core\n" + _RULE + "negated = core.Primitive('neg')\n"
    "negated.def_abstract_eval(lambda x: x)\nnegated.def_impl(lambda x: -x)\n"
    "jax.interpreters.batching.primitive_batchers[negated] = lambda xs, ds: (negated.bind(*xs), ds[0])\n"
    "mlir.register_lowering(negated, mlir.lower_fun(jnp.negative, multiple_results=False))\n"
    f"mlir.register_lowering(negated, {_IDENTITY}, platform='tpu')\n"
    + _MOSAIC.format("negated")
    + "\n\ndef away(x):\n    return negated.bind(negated.bind(x))"
)
# Disables the judge's checks of this process, as code that is meant to deceive can.
_BLIND = (
    "import sys\n"
    "for _name in ('require_untouched', 'require_known_primitives', 'require_self_contained'):\n"
    "    setattr(sys.modules['harness.judge.evaluate.trace.integrity'], _name, lambda *_: None)\n"
)
# The prelude of each way, which defines `away`.
_WAYS = {
    "platform_dependent": (
        "def away(x):\n    return jax.lax.platform_dependent(x, tpu=jnp.zeros_like, default=lambda x: x)"
    ),
    "exported": (
        "import jax.export\n\n\ndef away(x):\n"
        "    def other(x):\n        return jax.lax.platform_dependent(x, tpu=jnp.zeros_like, default=lambda x: x)\n"
        "    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)\n"
        "    return jax.export.export(jax.jit(other), platforms=('cpu', 'tpu'))(shape).call(x)"
    ),
    "own primitive": _OWN,
    "rule of the chip": (_RULE + f"mlir.register_lowering(jax.lax.neg_p, {_IDENTITY}, platform='tpu')\n" + _TWICE),
    "rule of the cpu": (_RULE + f"mlir.register_lowering(jax.lax.neg_p, {_IDENTITY}, platform='cpu')\n" + _TWICE),
    "random bits": ("def away(x):\n    return x + 0 * jax.random.uniform(jax.random.key(0), x.shape, x.dtype)"),
    "compute_on": (
        "from jax.experimental.compute_on import compute_on\n\n\ndef away(x):\n"
        "    def other(x):\n        return x + x - x\n\n"
        "    if jax.__version__ < '0.12':\n        with compute_on('device_host'):\n            return other(x)\n"
        "    space = jax.memory.Space.Device\n"
        "    return compute_on(other, compute_type='device_host', out_memory_spaces=space)(x)"
    ),
    "xla metadata": (
        "from jax.experimental.xla_metadata import set_xla_metadata\n\n\ndef away(x):\n"
        "    with set_xla_metadata(a='1'):\n        return x + x - x"
    ),
    "another constant each time": (
        "import time\n\n\ndef away(x):\n    return (x * jnp.float32(time.perf_counter_ns() % 1000003)).astype(x.dtype)"
    ),
    "module state": "COUNT = []\nimport math\n\n\ndef away(x):\n    math.count = getattr(math, 'count', 0) + 1\n"
    "    return x * math.count",
    "blind: rule of the chip": (
        _BLIND + _RULE + f"mlir.register_lowering(jax.lax.neg_p, {_IDENTITY}, platform='tpu')\n" + _TWICE
    ),
    "blind: own primitive": _BLIND + _OWN,
}


# Places within the kernel and its index maps for `away(x)`.
_WITHIN = {
    "queries": {"BEFORE": "q = away(q)"},
    "scores": {"SCORES": "scores = away(scores)"},
    "weights": {"WEIGHTS": "weights = away(weights)"},
    "values": {"VALUES": "values = away(values)"},
    "a loop": {"SCORES": "scores = jax.lax.fori_loop(0, 1, lambda _, x: away(x), scores)"},
    "a branch": {"SCORES": "scores = jax.lax.cond(pl.program_id(0) >= 0, away, away, scores)"},
    "a function": {"SCORES": "scores = jax.jit(away)(scores)"},
    "an index map": {"INDEX": "away(i)"},
}
_WAYS_WITHIN = {
    "platform_dependent": _WAYS["platform_dependent"],
    "own primitive": _WAYS["own primitive"],
    "rule of Mosaic": _MOSAIC.format("jax.lax.neg_p") + _TWICE,
    "xla metadata": _WAYS["xla metadata"],
    "compute_on": _WAYS["compute_on"],
    "module state": _WAYS["module state"],
    "blind: rule of Mosaic": _BLIND + _MOSAIC.format("jax.lax.neg_p") + _TWICE,
    "blind: own primitive": _WAYS["blind: own primitive"],
}
# The chip's own random bits, keys of every kind, and draws.
_RANDOM = (
    "jax.random.normal(jax.random.PRNGKey(0), v.shape, v.dtype)",
    "jax.random.normal(jax.random.key(0, impl='rbg'), v.shape, v.dtype)",
    "jax.random.normal(jax.random.key(0, impl='unsafe_rbg'), v.shape, v.dtype)",
    "jax.random.bits(jax.random.key(1), v.shape, jnp.uint16).astype(v.dtype)",
    "jax.random.permutation(jax.random.key(1), v.shape[0])[:, None].astype(v.dtype)",
    "jax.random.gamma(jax.random.key(1), 2.0, v.shape).astype(v.dtype)",
    "jax.lax.rng_uniform(jnp.float32(0), jnp.float32(1), v.shape).astype(v.dtype)",
    "jax.lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), v.shape)[1].astype(v.dtype)",
    "jax.random.randint(jax.random.fold_in(jax.random.key(0), 3), v.shape, 0, 9).astype(v.dtype)",
)
# Options for Mosaic or XLA.
_OPTIONS = (
    "compiler_params=pltpu.CompilerParams(disable_bounds_checks=True)",
    "compiler_params=pltpu.CompilerParams(disable_semaphore_checks=True)",
    "compiler_params=pltpu.CompilerParams(flags={'xla_tpu_enable_flag_of_my_own': True})",
    "compiler_params=pltpu.CompilerParams(flags={'XLA_TPU_FORCE_LP_LLO_SCHEDULER': True, 'other': 1})",
    "compiler_params=pltpu.CompilerParams(allow_input_fusion=[True, False, False])",
    "compiler_params=pltpu.CompilerParams(collective_id=1)",
    "interpret=True",
    "interpret=pltpu.InterpretParams()",
)
# Calls of other work of XLA, of the host or of a library.
_CALLS = {
    "callback": "return attention(q, k, jax.pure_callback(lambda x: x, v, v))",
    "io_callback": (
        "from jax.experimental import io_callback\n"
        "return attention(q, k, io_callback(lambda x: x, jax.ShapeDtypeStruct(v.shape, v.dtype), v))"
    ),
    "ffi": "return attention(q, k, jax.ffi.ffi_call('own', jax.ShapeDtypeStruct(v.shape, v.dtype))(v))",
    "composite": ("return attention(q, k, jax.lax.composite(lambda x: x * 1.0, name='my.own')(v))"),
    "approximate": "return attention(q, k, jax.lax.approx_max_k(v.astype(jnp.float32), 128)[0].astype(v.dtype))",
    "factorised": "return attention(q, k, jnp.linalg.qr(v.astype(jnp.float32))[0].astype(v.dtype))",
    "in the host's memory": ("return attention(q, k, jax.device_put(v, jax.memory.Space.Host))"),
    "cond by platform": (
        "from jax._src.lax.control_flow import platform_index_p\n"
        "at = platform_index_p.bind(platforms=(('tpu',), None))\n"
        "return attention(q, k, jax.lax.switch(at, (jnp.zeros_like, lambda x: x), v))"
    ),
    "partitioned by itself": (
        "from jax.experimental.custom_partitioning import custom_partitioning\n"
        "own = custom_partitioning(lambda x: x * 1.0)\n"
        "own.def_partition(partition=None, infer_sharding_from_operands=None, sharding_rule='i j -> i j')\n"
        "return attention(q, k, own(v))"
    ),
    "another chip": (
        "device = jax.sharding.AbstractDevice(device_kind='TPU v6 lite', num_cores=1, platform='tpu')\n"
        "with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):\n"
        "    return attention(q * float(len(pltpu.get_tpu_info().chip_version.value)), k, v)"
    ),
    "a new program each time": (
        "kernel_fn.count = getattr(kernel_fn, 'count', 0) + 1\n"
        "import math\nmath.calls = getattr(math, 'calls', 0) + 1\n"
        "return attention(q, k, v if math.calls > 1 else v * 1.5)"
    ),
    "the address of an object": "return attention(q, k, v * float(id(object()) % 1000003))",
    "the environment": "import os\nos.environ['OWN'] = '1'\nreturn attention(q, k, v)",
    "a setting": "jax.config.update('jax_enable_x64', True)\nreturn attention(q, k, v)",
}
# Code that controls the process that traces it, and sends another program or another report.
_HANDS_OVER = {
    "the chip's program at export": (
        "from jax import export\n_honest = export.Exported.serialize\n\n\n"
        "def _serialize(exported, *args, **words):\n"
        "    if exported.platforms == ('tpu',):\n"
        "        shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in exported.in_avals]\n"
        "        exported = export.export(jax.jit(CHEAP), platforms=['tpu'])(*shapes)\n"
        "    return _honest(exported, *args, **words)\n\n\nexport.Exported.serialize = _serialize\n"
    ),
    "the traced program as data": (
        "_module = sys.modules['harness.judge.evaluate.trace.program_codec']\n_honest = _module.encode\n\n\n"
        "def _encode(closed):\n"
        "    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in closed.in_avals]\n"
        "    return _honest(jax.make_jaxpr(CHEAP)(*shapes))\n\n\n_module.encode = _encode\n"
    ),
    "the jaxpr that is lowered": (
        "_module = sys.modules['harness.judge.evaluate.interpret.interpretation']\n_honest = _module.runnable\n\n\n"
        "def _runnable(closed, interpret, *words, **more):\n"
        "    if not interpret:\n"
        "        shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in closed.in_avals]\n"
        "        closed = jax.make_jaxpr(CHEAP)(*shapes)\n"
        "    return _honest(closed, interpret, *words, **more)\n\n\n_module.runnable = _runnable\n"
    ),
}
# Programs that do less work than `attention`, or other work.
_CHEAPER = {
    "fewer keys": "lambda q, k, v: attention(q, k[:128], v[:128])",
    "another constant": "lambda q, k, v: attention(q * 1.0009765625, k, v)",
    "no keys": "lambda q, k, v: attention(q, jnp.zeros_like(k), v)",
    "an operation more": "lambda q, k, v: attention(q, k, jnp.abs(v))",
    "operands exchanged": "lambda q, k, v: attention(k, q, v)",
}


def divergences() -> Iterator[Case]:
    """Kernels that are two programs, or cannot be shown to be one program."""
    for (way, prelude), (place, call) in itertools.product(_WAYS.items(), _AROUND.items()):
        if (way, place) in (("exported", "vmap"),):
            # JAX cannot batch an exported program.
            continue
        yield _case(f"{way}, {place}", is_honest=False, PRELUDE=prelude, CALL=call)
    for (way, prelude), (place, parts) in itertools.product(_WAYS_WITHIN.items(), _WITHIN.items()):
        yield _case(f"{way}, within {place}", is_honest=False, PRELUDE=prelude, **parts)
    for draw in _RANDOM:
        yield _case(f"random: {draw}", is_honest=False, CALL=f"return attention(q, k, v + 0 * {draw})")
    for options in _OPTIONS:
        yield _case(f"option: {options}", is_honest=False, OPTIONS=options)
    for name, call in _CALLS.items():
        yield _case(f"call: {name}", is_honest=False, CALL=call)
    for (name, prelude), (other, cheap) in itertools.product(_HANDS_OVER.items(), _CHEAPER.items()):
        text = _BLIND + prelude.replace("CHEAP", f"({cheap})")
        yield _case(f"hands over {name}, {other}", is_honest=False, PRELUDE=text)


# Ways to call the same kernel.
_CALLED = {
    "jit": "return jax.jit(attention)(q, k, v)",
    "jit twice": "return jax.jit(lambda *a: jax.jit(attention)(*a))(q, k, v)",
    "partial": "return functools.partial(attention, q)(k, v)",
    "tree_util.Partial": "return jax.tree_util.Partial(attention, q)(k, v)",
    "named_call": "return jax.named_call(attention, name='flash')(q, k, v)",
    "named_scope": "with jax.named_scope('flash'):\n    return attention(q, k, v)",
    "wraps": "@functools.wraps(attention)\ndef own(*a):\n    return attention(*a)\n\nreturn own(q, k, v)",
    "lru_cache": "@functools.lru_cache\ndef made(block):\n    return attention\n\nreturn made(64)(q, k, v)",
    "remat": "return jax.checkpoint(attention)(q, k, v)",
    "remat of a part": "return attention(q, k, jax.checkpoint(lambda x: x * 2.0)(v) * 0.5)",
    "custom_jvp": (
        "@jax.custom_jvp\ndef own(q, k, v):\n    return attention(q, k, v)\n\n"
        "own.defjvp(lambda p, t: (own(*p), t[0]))\nreturn own(q, k, v)"
    ),
    "custom_vjp": (
        "@jax.custom_vjp\ndef own(q, k, v):\n    return attention(q, k, v)\n\n"
        "own.defvjp(lambda q, k, v: (own(q, k, v), (q, k, v)), lambda kept, g: kept)\nreturn own(q, k, v)"
    ),
    "custom_vmap": (
        "@jax.custom_batching.custom_vmap\ndef own(x):\n    return x * 2.0\n\n"
        "@own.def_vmap\ndef _(size, batched, x):\n    return x * 2.0, batched[0]\n\n"
        "return attention(q, k, jax.vmap(own)(v) * 0.5)"
    ),
    "gradient of a scale": "return attention(q, k, jax.vmap(jax.vmap(jax.grad(lambda x: 0.5 * x * x)))(v))",
    "linearised": "return attention(q, k, jax.jvp(lambda x: x * 1.0, (v,), (v,))[1])",
    "scan": "return jax.lax.scan(lambda c, _: (c, attention(q, k, v)), 0, length=1)[1][0]",
    "fori_loop": "return jax.lax.fori_loop(0, 1, lambda _, o: attention(q, k, v), jnp.zeros_like(q))",
    "while_loop": (
        "first = (jnp.int32(0), jnp.zeros_like(q))\n"
        "return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, attention(q, k, v)), first)[1]"
    ),
    "cond": "return jax.lax.cond(q[0, 0] > 0, attention, attention, q, k, v)",
    "switch": "return jax.lax.switch(jnp.int32(1), (attention, attention, attention), q, k, v)",
    "vmapped": "return jax.vmap(attention, in_axes=(0, None, None))(q.reshape(4, 64, 128), k, v).reshape(q.shape)",
    "halves": "return jnp.concatenate([attention(part, k, v) for part in jnp.split(q, 2)])",
    "a class": "class Own:\n    def __call__(self, *a):\n        return attention(*a)\n\nreturn Own()(q, k, v)",
    "a record": (
        "import dataclasses\n\n@dataclasses.dataclass(frozen=True)\nclass Config:\n    block: int = 64\n\n"
        "return attention(q, k, v * (Config().block / 64))"
    ),
    "a pytree": (
        "held = {'q': q, 'rest': (k, v)}\n"
        "return jax.jit(lambda one: attention(one['q'], *one['rest']))(jax.tree.map(lambda x: x * 1, held))"
    ),
    "a named tuple": (
        "import collections\nInputs = collections.namedtuple('Inputs', 'q k v')\n"
        "return jax.jit(lambda one: attention(*one))(Inputs(q, k, v))"
    ),
    "static arguments": (
        "own = jax.jit(lambda q, k, v, scale: attention(q * scale, k, v), static_argnames='scale')\n"
        "return own(q, k, v, scale=1.0)"
    ),
    "donated": "return jax.jit(attention, donate_argnums=0)(q, k, v)",
    "inline": "return jax.jit(attention, inline=True)(q, k, v)",
    "a barrier": "return attention(q, k, jax.lax.optimization_barrier(v))",
    "no gradient": "return attention(q, k, jax.lax.stop_gradient(v))",
    "computed in the trace": (
        "with jax.ensure_compile_time_eval():\n    one = jnp.float32(2.0) - 1.0\nreturn attention(q, k, v * one)"
    ),
    "a constant of numpy": (
        "import numpy as np\nreturn attention(q, k, v * np.full((256, 1), 2.0, np.float32)).astype(q.dtype)"
    ),
    "a constant of jax": "return attention(q, k, (v * jnp.full((256, 1), 2.0)).astype(v.dtype))",
    "a precision": "with jax.default_matmul_precision('highest'):\n    return attention(q, k, v)",
    "vectorize": "return attention(q, k, jnp.vectorize(lambda x: x * 2.0)(v) * 0.5)",
}
# Cheap operations around a kernel, each of them on `v`.
BESIDE = (
    "v.T.T", "v.reshape(2, 128, 128).reshape(v.shape)", "v.astype(jnp.float32).astype(v.dtype)", "v[::-1][::-1]",
    "jnp.roll(v, 3, 0)", "jnp.pad(v, ((0, 8), (0, 0)))[:-8]", "jnp.where(v > 0, v, -v)", "jnp.clip(v, -1, 1)",
    "jnp.concatenate([v[128:], v[:128]])", "v.at[3].set(v[4])", "v.at[3].add(v[4])", "v[jnp.array([5, 3] * 128)]",
    "jnp.take(v, jnp.arange(256), axis=0)", "jnp.cumsum(v, axis=0)", "jnp.sort(v, axis=0)",
    "v[jnp.argsort(v[:, 0])]", "jax.lax.top_k(v, 128)[0]", "v - v.max(axis=0)", "v / (1 + jnp.abs(v))",
    "v * jax.lax.rsqrt((v * v).mean(axis=1, keepdims=True) + 1)", "v * (jnp.arange(256)[:, None] % 2)",
    "jnp.repeat(v[:64], 4, axis=0)", "jnp.tile(v[:128], (2, 1))", "jax.lax.dynamic_slice(v, (0, 0), v.shape)",
    "jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(v, jnp.uint16), v.dtype)", "jnp.round(v)",
    "jnp.floor(v) + jnp.ceil(v)", "jnp.stack([v, v]).sum(0)", "jnp.tril(v)", "jnp.sign(v) * jnp.sqrt(jnp.abs(v))",
    "v * jax.nn.one_hot(jnp.arange(256) % 128, 128, dtype=v.dtype)", "jax.nn.relu(v)",
    "jnp.searchsorted(jnp.arange(128.0), v[:, 0].astype(jnp.float32))[:, None] * v", "jnp.diff(v, axis=0, prepend=0)",
    "jax.lax.reduce_precision(v, 8, 7)", "jnp.minimum(v, jax.lax.cummin(v, axis=0))",
    "jax.lax.cummax(v, axis=0)", "jax.lax.cumprod(jnp.sign(v), axis=0)", "jax.lax.cumlogsumexp(v, axis=0)",
    "jax.device_put(v)", "v + jnp.argmax(v, axis=1)[:, None]",
)  # fmt: skip
# Other bodies of the kernel.
_BODIES = {
    "a loop": {"SCORES": "scores = jax.lax.fori_loop(0, 2, lambda _, x: x * 1.0, scores)"},
    "a branch": {"SCORES": "scores = jax.lax.cond(pl.program_id(0) >= 0, lambda x: x, lambda x: -x, scores)"},
    "a function": {"SCORES": "scores = jax.jit(lambda x: x * 1.0)(scores)"},
    "own derivatives": {
        "PRELUDE": "@jax.custom_jvp\ndef scaled(x):\n    return x * 1.0\n\n\n"
        "scaled.defjvp(lambda p, t: (scaled(*p), t[0]))\n",
        "SCORES": "scores = scaled(scores)",
    },
    "a scope": {"SCORES": "with jax.named_scope('softmax'):\n    scores = scores * 1.0"},
    "when": {"VALUES": "@pl.when(pl.program_id(0) >= 0)\ndef _():\n    o_ref[...] = values.astype(o_ref.dtype)\n"},
    "options": {
        "OPTIONS": "compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel',), vmem_limit_bytes=1 << 24)"
    },
    "side effects": {"OPTIONS": "compiler_params=pltpu.CompilerParams(has_side_effects=True)"},
    "a flag": {"OPTIONS": "compiler_params=pltpu.CompilerParams(flags={'XLA_TPU_FORCE_LP_LLO_SCHEDULER': True})"},
    "a name": {"OPTIONS": "name='flash_attention'"},
    "a cost": {"OPTIONS": "cost_estimate=pl.CostEstimate(flops=1 << 20, bytes_accessed=1 << 20, transcendentals=1)"},
    "metadata": {"OPTIONS": "metadata={'version': '3'}"},
    "an index of numpy": {"INDEX": "i * jnp.int32(1)"},
    "an index that is computed": {"INDEX": "jax.lax.rem(i, jnp.int32(64))"},
    "scratch": {
        "SCORES": "def region(held):\n    held[...] = scores\n    return held[...]\n\n"
        "scores = pl.run_scoped(region, pltpu.VMEM((64, 256), jnp.float32))"
    },
    "slices": {"BEFORE": "q = jnp.concatenate([q_ref[pl.ds(0, 32), :], q_ref[pl.ds(32, 32), :]])"},
    "einsum": {"SCORES": "scores = jnp.einsum('ij->ij', scores)"},
    "rolled": {"SCORES": "scores = pltpu.roll(pltpu.roll(scores, 3, 0), 61, 0)"},
}


def honest() -> Iterator[Case]:
    """Kernels that are one program, each written in another way."""
    yield _case("plain", is_honest=True)
    for name, call in _CALLED.items():
        yield _case(f"called: {name}", is_honest=True, CALL=call)
    for operation in BESIDE:
        call = f"return attention(q, k, ({operation}).astype(v.dtype))"
        yield _case(f"beside: {operation}", is_honest=True, CALL=call)
    for name, parts in _BODIES.items():
        yield _case(f"body: {name}", is_honest=True, **parts)
    for call, body in zip(("jit", "scan", "cond", "custom_vjp", "vmapped", "remat"), _BODIES, strict=False):
        yield _case(f"{body}, {call}", is_honest=True, CALL=_CALLED[call], **_BODIES[body])


def champions(folders: Iterable[Path]) -> Iterator[Case]:
    """The champions of contests; all of them are honest."""
    for folder in folders:
        contest = contests.load(folder)
        for member in contest.members:
            yield Case(
                name=f"{folder} {member.name}",
                is_honest=True,
                files=contest.candidate().files,
                problem=member.problem,
                chip=contest.chip,
                function=member.function,
            )


def planted_kernels(scratch: Path) -> Iterator[Case]:
    """The good ones among the planted kernels, each in its own contest."""
    for kernel in planted.kernels():
        if kernel.is_good:
            folder = scratch / kernel.name
            template, settings = planted_contests.contest(kernel.contest)
            scaffold.scaffold(folder, template, settings)
            (folder / "kernel.py").write_bytes(planted.source(kernel))
            yield from champions([folder])


def examine(case: Case, folder: Path) -> Certificate | Failure:
    """The judge's certificate for a kernel before anything is compiled, or the Failure that prevents it."""
    candidate_folder, kept, aside = (folder / name for name in ("candidate", "kept", "certifier"))
    for path in (candidate_folder, kept, aside):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    for name, data in case.files.items():
        (candidate_folder / name).write_bytes(data)
    problem = folder / "problem.pickle"
    problem.write_bytes(pickle.dumps(case.problem))
    with Children(_MEMORY_BYTES) as children:

        def start(name: ChildName, directory: Path, readable: Path) -> Child:
            confinement = Confinement(readable=(str(readable),))
            return children.start(name, MODULES[name], directory, environment.on_cpu(), confinement=confinement)

        def ask(child: Child, task: str, request: Any, reply: type) -> Any:
            children.ask(child, task, "static", task, request, reply, _SECONDS)
            _, answer = children.wait()
            return answer

        candidate = start("candidate", candidate_folder, problem)
        chip_program, program = (candidate_folder / name for name in ("tpu", "traced"))
        request = TraceRequest(
            problem=str(problem),
            chip=case.chip,
            artifact=str(chip_program),
            program=str(program),
            function=case.function,
        )
        traced = ask(candidate, "trace", request, TraceReply)
        if isinstance(traced, Failure):
            return traced
        smaller = ask(candidate, "trace_smaller", ShapesRequest(), ShapesReply)
        if isinstance(smaller, Failure):
            return smaller
        for path in (chip_program, program):
            shutil.copyfile(path, kept / path.name)
        certified = CertifyRequest(
            program=str(kept / "traced"),
            for_chip=str(kept / "tpu"),
            chip=case.chip,
            trace=traced.trace,
            artifact=str(aside / "cpu"),
            fill=None,
        )
        certificate: Certificate | Failure = ask(start("certifier", aside, kept), "certify", certified, Certificate)
        return certificate


def main() -> None:
    """Examines all cases and prints both counts; exits with 1 if the outcome of a case is not the expected one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    right: Counter[bool] = Counter()
    of: Counter[bool] = Counter()
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="divergences-") as folder:
        if options.folders or options.planted:
            every = (*champions(options.folders), *(planted_kernels(Path(folder)) if options.planted else ()))
        else:
            every = (*divergences(), *honest())
        for case in [case for case in every if options.only in case.name][:: options.every]:
            answer = examine(case, Path(folder, "children"))
            is_refused = isinstance(answer, Failure) and answer.kind not in NOT_REFUSED
            is_right = isinstance(answer, Certificate) if case.is_honest else is_refused
            right[case.is_honest] += is_right
            of[case.is_honest] += 1
            description = f"{answer.kind}: {answer.message}" if isinstance(answer, Failure) else answer.sha256[:16]
            kinds[answer.kind if isinstance(answer, Failure) else "certified"] += not case.is_honest
            if options.show or not is_right:
                print(f"{'' if is_right else 'WRONG: '}{case.name}: {description}", flush=True)
    print(f"{right[False]} of {of[False]} divergences refused, {of[True] - right[True]} of {of[True]} honest kernels")
    print(", ".join(f"{kind} {count}" for kind, count in kinds.most_common() if count))
    print(f"{(time.monotonic() - began) / max(of.total(), 1):.2f} s each")
    sys.exit(right != of)


if __name__ == "__main__":
    main()
