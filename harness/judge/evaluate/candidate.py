"""The only process that runs kernel.py: checks its contract, traces it once, and makes all else from that trace."""

import contextlib
import io
import math
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from harness.hardware import Chip
from harness.judge.evaluate.interpret import interpretation
from harness.judge.evaluate.interpret.deadlocks import DEADLOCK, deadlocks_found
from harness.judge.evaluate.interpret.quick_interpreter import quick_interpreter
from harness.judge.evaluate.trace import (
    contract,
    integrity,
    jaxprs,
    known_bugs,
    known_tables,
    one_core,
    packages,
    same_program,
    semantics,
    traffic,
    vmem,
)
from harness.judge.evaluate.trace.fingerprint import fingerprint
from harness.judge.sandbox import arrays
from harness.judge.sandbox.messages import Done, ExportRequest, InterpretRequest, Rejected, TraceReply, TraceRequest
from harness.problems import Problem, timing_inputs
from harness.records import Claims, PallasCall, Statement, Trace, Window

# More than this share of the useful work outside Pallas calls is not "cheap elementwise work":
# pre-scaling Q of the contest is 0.002 % of it.
_OUTSIDE_SHARE = 0.05
# What orders reads and writes of memory otherwise than the steps of a grid do.
_BY_HAND = frozenset(("dma_start", "dma_wait", "semaphore_signal", "semaphore_wait", "semaphore_read"))
# A step in TPU interpret mode takes 1.5 ms beside its arithmetic: three seconds for so many. More are interpreted only
# where the steps of the reduced shape cannot stand for them.
_INTERPRETED_STEPS = 2048
# More small objects than JAX and numpy leave places for when they have freed what importing them takes.
_BALLAST = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """One trace for `chip`: the program, its input shapes, its Pallas calls, and the steps of each equation's grid."""

    chip: Chip
    problem: Problem
    closed: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]
    calls: tuple[PallasCall, ...]
    steps: Mapping[int, int]


# This process serves one candidate: what `trace` found is what `export` and `interpret` use.
_full: _Traced | None = None
_reduced: _Traced | None = None
_second_shape: _Traced | None = None
_runs: dict[str, Callable[..., Any]] = {}
# Its files as they were handed over: what it writes into its folder is none of them.
_sources: dict[str, bytes] = {}


def trace(request: TraceRequest) -> TraceReply:
    """Loads, checks and traces kernel.py; writes the program for the chip. Raises Rejected."""
    global _full, _reduced, _second_shape
    _runs.clear()
    _sources.clear()
    _sources.update((path.name, path.read_bytes()) for path in sorted(Path().glob("*.py")))
    began = time.monotonic()
    problem: Problem = pickle.loads(Path(request.problem).read_bytes())
    statement = problem.statement()
    interpretation.get_ready_for(request.chip)
    before, loaded = integrity.snapshot(), packages.loaded()
    try:
        module, flags = contract.load(_sources)
        known_bugs.refuse(_sources.values(), jax.__version__)
        one_core.refuse_counting(_sources.values())
        function = contract.bound(module, statement, request.function)
        claims = contract.claims(module, statement, request.function)
        tracing = contract.CandidateCode("contract", "trace-error", f"tracing {request.function}")
        with tracing, interpretation.aiming_at(request.chip):
            _full = _trace(function, problem, request.chip)
    except Rejected as rejected:
        explained = one_core.explained(rejected, _sources.values())
        raise explained from rejected
    work = jaxprs.flops(_full.closed.jaxpr, _full.steps)
    _refuse(claims, work, statement)
    _refuse_another(_full, statement, request.function)
    with interpretation.aiming_at(request.chip):
        position, _reduced = _choose_reduced(function, _full)
        _second_shape, other_shapes = _second(function, _full, _reduced)
    with (
        contract.CandidateCode("compile", "unsupported", f"lowering for the {request.chip.name}"),
        interpretation.aiming_at(request.chip),
    ):
        exported = interpretation.export(_full.closed, _full.shapes, request.chip.platform, request.chip)
    integrity.require_untouched(before)
    integrity.require_self_contained(_sources)
    Path(request.artifact).write_bytes(exported.serialize())
    imported = packages.imported(loaded)
    found = Trace(
        fingerprint=packages.digested(fingerprint(exported.mlir_module()), imported),
        pallas_calls=_full.calls,
        pallas_flops=work.pallas,
        outside_flops=work.outside,
        exponentials=work.exponentials,
        imported=imported,
        sources=packages.sources(_full.closed.jaxpr),
        seconds=time.monotonic() - began,
    )
    difference, interpret_full, not_interpreted = _at_full(_full, _reduced)
    said = (
        *_enclosed_warnings(_full.closed),
        *_claim_warnings(claims, _full.calls),
        *_loop_warnings(work),
        *other_shapes,
        *not_interpreted,
    )
    return TraceReply(
        trace=found, claims=claims, warnings=(*flags, *said), reduced=position, has_second=_second_shape is not None,
        interpret_full=interpret_full, difference=difference, exceeds_vmem=_exceeds_vmem(_full),
    )  # fmt: skip


def _exceeds_vmem(traced: _Traced) -> str:
    """Why the compiler is bound to refuse it, "" where it is not bound to."""
    equations = jaxprs.pallas_calls(traced.closed.jaxpr)
    found = (vmem.excess(*one, traced.chip) for one in zip(equations, traced.calls, strict=True))
    return next(filter(None, found), "")


def _trace(function: Callable[..., Any], problem: Problem, chip: Chip) -> _Traced:
    statement = problem.statement()
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, arrays.dtype(a.dtype)) for a in statement.inputs)
    closed, out = jax.make_jaxpr(function, return_shape=True)(*shapes)
    _refuse_outputs(out, statement)
    one_core.refuse_sharded(closed.jaxpr)
    one_core.refuse_sparsecore(closed.jaxpr)
    one_core.refuse_dtypes(closed.jaxpr, chip)
    jaxprs.refuse_foreign_work(closed.jaxpr)
    semantics.refuse_unclassified(closed.jaxpr)
    jaxprs.refuse_changed_tables(closed.jaxpr)
    equations = tuple(jaxprs.pallas_calls(closed.jaxpr))
    if any(equation.params["interpret"] for equation in equations):
        raise Rejected("static", "interpret-mode", "expected kernels for the device, got pallas_call(interpret=...)")
    if chip.platform == "cuda" and not all(map(jaxprs.is_triton, equations)):
        raise Rejected(
            "static", "not-triton",
            "expected every pallas_call to have compiler_params of jax.experimental.pallas.triton, the form for GPUs "
            "that can be checked on a CPU",
        )  # fmt: skip
    within = set(map(id, jaxprs.calls_within_loops(closed.jaxpr)))
    grids = known_tables.grids(closed, _first_tables(problem))
    calls = tuple(
        traffic.pallas_call(each, chip, grids[id(each)], is_called_once=id(each) not in within) for each in equations
    )
    steps = {id(equation): call.steps for equation, call in zip(equations, calls, strict=True)}
    return _Traced(chip=chip, problem=problem, closed=closed, shapes=shapes, calls=calls, steps=steps)


def _first_tables(problem: Problem) -> list[NDArray[Any] | None]:
    """What the inputs hold in the first of the timed calls, as far as that is stated: the tables."""
    stated = next(iter(timing_inputs(problem).values()), {})
    return [stated.get(array.name) for array in problem.statement().inputs]


def _refuse_another(traced: _Traced, statement: Statement, name: str) -> None:
    """Raises Rejected `not-deterministic` where kernel.py, loaded once more, is another program.

    That happens where a constant comes from a clock, from random numbers, or from the address of
    an object. The free places of small objects are taken meanwhile, so that a new one gets another.
    """
    ballast = [object() for _ in range(_BALLAST)]
    function = contract.bound(contract.load(_sources)[0], statement, name)
    with contract.CandidateCode("contract", "trace-error", f"tracing {name}"), interpretation.aiming_at(traced.chip):
        again = _trace(function, traced.problem, traced.chip)
    del ballast
    if jaxprs.text(again.closed) != jaxprs.text(traced.closed):
        raise Rejected(
            "static", "not-deterministic",
            "expected kernel.py to be the same program whenever it is loaded, got two: does a constant come from a "
            "clock, from random numbers or from id()?",
        )  # fmt: skip


def _refuse_outputs(out: Any, statement: Statement) -> None:
    """Raises Rejected `wrong-structure`, `wrong-shape` or `wrong-dtype`."""
    expected = statement.results
    words = ", ".join(f"{a.name}: {a.dtype}{list(a.shape)}" for a in expected)
    single = len(expected) == 1
    leaves = [out] if single else list(out) if isinstance(out, (tuple, list)) else []
    if len(leaves) != len(expected) or not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        got = type(out).__name__
        if isinstance(out, (tuple, list, dict)):
            got += f" of {len(out)}"
        raise Rejected("contract", "wrong-structure", f"expected kernel_fn to return {words}, got {got}")
    for want, leaf in zip(expected, leaves, strict=True):
        if tuple(leaf.shape) != want.shape:
            raise Rejected(
                "contract", "wrong-shape", f"expected {want.name} of shape {list(want.shape)}, got {list(leaf.shape)}"
            )
        if str(leaf.dtype) != want.dtype:
            raise Rejected("contract", "wrong-dtype", f"expected {want.name} of dtype {want.dtype}, got {leaf.dtype}")


def _refuse(claims: Claims, work: jaxprs.Flops, statement: Statement) -> None:
    """Raises Rejected `flop-claim` or `work-outside-pallas`."""
    if claims.flops not in (None, statement.work.flops):
        raise Rejected(
            "static", "flop-claim",
            f"compute_flops() claims {claims.flops:,} FLOPs, the judge credits {statement.work.flops:,} "
            f"({statement.work.matmul_flops:,} in matmuls, {statement.work.vector_flops:,} else); correct the claim",
        )  # fmt: skip
    if work.outside > _OUTSIDE_SHARE * statement.work.flops:
        raise Rejected(
            "static", "work-outside-pallas",
            f"{work.outside:,} floating-point operations outside Pallas calls, more than {_OUTSIDE_SHARE:.0%} of the "
            f"useful {statement.work.flops:,}: only cheap elementwise work may stay outside",
        )  # fmt: skip


def _choose_reduced(function: Callable[..., Any], full: _Traced) -> tuple[int | None, _Traced]:
    """The smallest shape that still has several steps along every axis that has them at the full shape.

    Shapes at which the blocks of the full shape have no room come last: they are looked at for kernels
    that choose their blocks by the shape.
    """
    shapes = sorted(enumerate(full.problem.reduced()), key=lambda one: not _has_room(one[1].statement(), full))
    for position, problem in shapes:
        try:
            with contract.CandidateCode("contract", "trace-error", "tracing kernel_fn"):
                small = _trace(function, problem, full.chip)
        except Rejected:
            continue
        if _is_like(small.calls, full.calls):
            return position, small
    return None, full


def _at_full(full: _Traced, reduced: _Traced) -> tuple[str, bool, tuple[str, ...]]:
    """Where the two programs differ by more than sizes, whether to interpret the full one too, else a warning why not.

    What is interpreted at the reduced shape says nothing about steps that only the full grid has, nor about a
    program that kernel.py makes for the full shape alone. However many steps there are, a kernel is interpreted at all
    of them where it matters when a step reads and writes memory: a step may decide by a number that only a late one
    reaches, and the CPU reference program, which takes one step after the other, knows no races.
    """
    if full is reduced:
        return "", False, ()
    difference = same_program.difference(reduced.closed, full.closed) or ""
    steps = sum(call.steps for call in full.calls)
    # On a GPU no step of a grid knows of another, so the first ones are like the last.
    if difference or (full.chip.platform == "tpu" and (steps <= _INTERPRETED_STEPS or _may_race(full))):
        return difference, True, ()
    if full.chip.platform != "tpu":
        return "", False, ()
    return "", False, (
        f"interpreted at the reduced shape only: {steps:,} grid steps are more than {_INTERPRETED_STEPS:,}; the kernel "
        "copies nothing by hand, one core takes all steps, each output block is visited once, and values are checked "
        "at the full shape",
    )  # fmt: skip


def _may_race(traced: _Traced) -> bool:
    """Whether it may matter when a step reads and writes memory.

    That is so for copies by hand, several cores, an output over an input, and an output block that may be visited
    again after another one: what it held is in HBM by then, and not in the buffer that the step writes.
    """
    if traced.chip.cores > 1:
        return True
    for equation, call in zip(jaxprs.pallas_calls(traced.closed.jaxpr), traced.calls, strict=True):
        is_by_hand = any(each.primitive.name in _BY_HAND for each in jaxprs.equations(equation.params["jaxpr"]))
        outputs = (window for window in call.windows if window.role == "output")
        if is_by_hand or equation.params["input_output_aliases"] or any(map(_may_be_revisited, outputs)):
            return True
    return False


def _may_be_revisited(window: Window) -> bool:
    # A block that is never visited shows in the values, so that each is once where there are as many visits as blocks.
    blocks = (-(-extent // size) for extent, size in zip(window.array.shape, window.block_shape, strict=True))
    return window.fetches is None or window.fetches > math.prod(blocks)


def _has_room(small: Statement, full: _Traced) -> bool:
    """True where each block of the full shape fits, and several times where it does so at the full shape.

    Of the operands of kernels that bear the names of the problem's arrays and have their shapes.
    """
    whole, part = (
        {array.name: array.shape for array in (*one.inputs, *one.outputs)} for one in (full.problem.statement(), small)
    )
    for window in (window for call in full.calls for window in call.windows):
        if whole.get(window.name) != window.array.shape:
            continue
        for large, little, block in zip(window.array.shape, part[window.name], window.block_shape, strict=True):
            if block and (little % block or little < min(2 * block, large)):
                return False
    return True


def _second(function: Callable[..., Any], full: _Traced, reduced: _Traced) -> tuple[_Traced | None, tuple[str, ...]]:
    """The trace for the shape beside the reduced one; without one, a warning why no (other) shape is checked."""
    if reduced is full:
        return None, (
            "only the contest's own shape is checked: no smaller shape keeps two steps along every axis of the grid "
            "with these blocks, so bugs that show at other shapes may be missed",
        )
    problem = full.problem.second_shape(reduced.problem)
    if problem is None:
        return None, ()
    title = problem.statement().title
    try:
        with contract.CandidateCode("contract", "trace-error", "tracing kernel_fn"):
            traced = _trace(function, problem, full.chip)
    except Rejected as refused:
        return None, (f"a second shape ({title}) is not checked: {refused.failure.message}",)
    if not _is_like(traced.calls, full.calls):
        return None, (f"a second shape ({title}) is not checked: blocks do not divide it",)
    return traced, ()


def _is_like(small: tuple[PallasCall, ...], full: tuple[PallasCall, ...]) -> bool:
    if [len(call.grid) for call in small] != [len(call.grid) for call in full]:
        return False
    for little, large in zip(small, full, strict=True):
        if any(few < 2 <= many for few, many in zip(little.grid, large.grid, strict=True)):
            return False
        for window in little.windows:
            blocks = zip(window.array.shape, window.block_shape, strict=True)
            if any(extent % block for extent, block in blocks if block):
                return False
    return True


def _enclosed_warnings(closed: Any) -> tuple[str, ...]:
    within = len(jaxprs.calls_within_loops(closed.jaxpr))
    if not within:
        return ()
    return (
        f"{within} Pallas calls within loops or branches around them: their grid steps are those of one call, their "
        "HBM traffic is what the simulator counts",
    )


def _loop_warnings(work: jaxprs.Flops) -> tuple[str, ...]:
    if not work.uncounted_loops:
        return ()
    return (
        f"{work.uncounted_loops} loops whose trip counts the trace does not show: their FLOPs are counted once, so the "
        "share of work inside Pallas calls is a lower bound",
    )


def _claim_warnings(claims: Claims, calls: tuple[PallasCall, ...]) -> tuple[str, ...]:
    """What get_tiling_meta() says and the trace does not."""
    tiling = claims.tiling
    if tiling is None or len(calls) != 1:
        return ()
    call = calls[0]
    moved: dict[str, int | None] = {}
    for role in ("input", "output"):
        parts = [window.hbm_bytes for window in call.windows if window.role == role and window.memory_space != "smem"]
        moved[role] = None if None in parts else sum(part or 0 for part in parts)
    buffers = sum(
        int(np.prod(shape)) * arrays.dtype(dtype).itemsize
        for shape, dtype in (
            *((w.block_shape, w.array.dtype) for w in call.windows if w.memory_space == "vmem"),
            *((s.shape, s.dtype) for s in call.scratch if s.memory_space == "vmem"),
        )
    )
    compared: tuple[tuple[str, object, object], ...] = (
        ("grid", tiling.grid, call.grid),
        ("inputs with re-reads in bytes", tiling.input_bytes, moved["input"]),
        ("outputs in bytes", tiling.output_bytes, moved["output"]),
        ("buffers in bytes", tiling.buffer_bytes, buffers),
    )
    return tuple(
        f"get_tiling_meta() claims {what} {claimed}, the trace shows {derived}"
        for what, claimed, derived in compared
        if claimed is not None and derived is not None and claimed != derived
    )


def export_cpu(request: ExportRequest) -> Done:
    """Writes the CPU reference program of the program traced for that shape."""
    traced = {"full": _full, "reduced": _reduced, "second": _second_shape}[request.shape]
    assert traced is not None
    try:
        exported = interpretation.export(traced.closed, traced.shapes, "cpu", traced.chip, request.fill)
    except NotImplementedError as error:
        raise _not_interpretable(error) from error
    Path(request.artifact).parent.mkdir(parents=True, exist_ok=True)
    Path(request.artifact).write_bytes(exported.serialize())
    return Done(path=request.artifact)


def interpret(request: InterpretRequest) -> Done:
    """Runs the reduced trace or the full one in TPU interpret mode. Raises Rejected `race` or `out-of-bounds`."""
    traced = _full if request.shape == "full" else _reduced
    assert traced is not None
    if request.shape not in _runs:
        steps = max(call.steps for call in traced.calls)
        parameters = interpretation.checking_parameters(traced.chip, steps)
        program = interpretation.runnable(traced.closed, parameters, traced.chip)
        _runs[request.shape] = jax.jit(program)
    inputs = traced.problem.make_inputs(request.family, request.seed)
    failure: BaseException | None = None
    outputs: list[Any] = []
    printed = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(printed),
            interpretation.memory_filled_with(request.fill),
            quick_interpreter(),
            deadlocks_found(),
        ):
            outputs = [np.asarray(out) for out in jax.block_until_ready(_runs[request.shape](*inputs))]
    # What the interpreter raises comes out of the runtime as one of these, with its own text inside.
    except (jax.errors.JaxRuntimeError, RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        failure = error
    race = interpretation.race_of(failure, printed.getvalue())
    interpretation.reset()
    if race is not None:
        raise Rejected("correctness", "race", f"data race in TPU interpret mode: {_short(race)}", race)
    if isinstance(failure, NotImplementedError):
        raise _not_interpretable(failure)
    if failure is not None:
        text = str(failure)
        if DEADLOCK in text:
            line = next(line for line in text.splitlines() if DEADLOCK in line)
            said = f"in TPU interpret mode: {line[line.index(DEADLOCK) :].strip()} (bytes for a copy)"
            raise Rejected("correctness", "deadlock", said, text[-8000:])
        if "Revisited block" in text:
            line = next(line for line in text.splitlines() if "Revisited block" in line)
            raise Rejected("correctness", "revisited-block", f"in TPU interpret mode: {line.strip()}", text[-8000:])
        if "IndexError" in text or isinstance(failure, IndexError) or "ut-of-bounds" in text:
            line = next((line for line in text.splitlines() if "ut-of-bounds" in line), text.splitlines()[0])
            raise Rejected("correctness", "out-of-bounds", f"in TPU interpret mode: {line.strip()}", text[-8000:])
        raise failure
    arrays.save(Path(request.outputs), outputs)
    return Done(path=request.outputs)


def _not_interpretable(error: BaseException) -> Rejected:
    return Rejected(
        "correctness", "not-interpretable",
        f"the CPU interpreter of Pallas cannot run this kernel, so it cannot be checked: {error}",
    )  # fmt: skip


def _short(race: str) -> str:
    lines = [line.strip() for line in race.splitlines()[:4]]
    return " ".join(line for line in lines if line and not line.startswith("clock"))[:400]


TASKS = {
    "trace": (TraceRequest, trace),
    "export_cpu": (ExportRequest, export_cpu),
    "interpret": (InterpretRequest, interpret),
    # The same by another name, by which the judge knows which of the two took too long.
    "interpret_full": (InterpretRequest, interpret),
}
