"""The only process that runs kernel.py: it checks the contract, traces the kernel, and interprets the trace."""

import contextlib
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax._src import source_info_util

import harness
from harness.judge.evaluate import messages
from harness.judge.evaluate.interpret import as_written, interpretation, reshaped, transfers
from harness.judge.evaluate.interpret.left_memory import Left
from harness.judge.evaluate.interpret.watched_run import Outcome, WatchedRun
from harness.judge.evaluate.trace import (
    contract,
    integrity,
    jaxprs,
    kept_inputs,
    known_bugs,
    meshes,
    narrow_sums,
    normal_form,
    one_core,
    packages,
    program_codec,
    semantics,
    smaller_shapes,
    stand_ins,
    vmem,
)
from harness.judge.evaluate.trace.traced import TracedKernel, traced_program
from harness.operators import Problem
from harness.operators.outputs import as_read
from harness.operators.wrong_parts import at_smaller_shape
from harness.records import Claims, PallasCall, Statement, Trace
from harness.sandbox import arrays, asked_device
from harness.sandbox.messages import Done, Rejected

# The limit on the FLOPs outside Pallas calls ("cheap elementwise work"), as a share of the problem's useful FLOPs.
# Scaling Q before an attention kernel takes 0.002 % of the useful FLOPs.
_OUTSIDE_SHARE = 0.05
# The number of small objects that occupy free addresses (see `_refuse_another`). It is larger than the number of free
# addresses for small objects after the imports of JAX and numpy.
_BALLAST = 1 << 18

# JAX leaves the judge's frames out of the source lines of operations, which then name the candidate or its packages.
source_info_util.register_exclusion(str(Path(harness.__file__).parent))
# This process serves one candidate: `export_cpu` and `interpret` use the programs of `trace` and `trace_smaller`.
_full: TracedKernel | None = None
_reduced: TracedKernel | None = None
_second_shape: TracedKernel | None = None
_runs: dict[tuple[str, int], Callable[..., Any]] = {}
# The contents of memory after the last run of each program in TPU interpret mode.
_left: dict[str, Left] = {}
# The position in `transfers.MOST_UNDER_WAY` of the limit that the last interpreted run needed. The next run starts with
# this limit.
_room = 0
# The candidate's files as the judge wrote them; files that the candidate writes into its folder later do not count.
_sources: dict[str, bytes] = {}
# The traced function's name, the function, the state of this process before the import, and the program's digest.
_loaded: tuple[str, Callable[..., Any], integrity.Snapshot, str] | None = None


def trace(request: messages.TraceRequest) -> messages.TraceReply:
    """Loads, checks and traces kernel.py. Writes the chip's program and, if requested, the traced program.

    Raises Rejected.
    """
    global _full, _reduced, _second_shape, _loaded, _room
    _runs.clear()
    _left.clear()
    _room = 0
    _sources.clear()
    _sources.update((path.name, path.read_bytes()) for path in sorted(Path().glob("*.py")))
    began = time.monotonic()
    problem: Problem = pickle.loads(Path(request.problem).read_bytes())
    statement = problem.statement()
    interpretation.get_ready_for(request.chip)
    _reduced = _second_shape = None
    stand_ins.stand_in(request.stubs)
    before, modules = integrity.snapshot(), packages.loaded()
    try:
        with asked_device.asked_for(request.chip):
            module, flags = contract.load(_sources)
        flags += integrity.put_back(before)
        known_bugs.refuse(_sources.values(), jax.__version__)
        one_core.refuse_counting(_sources.values())
        function = contract.bind(module, statement, request.function)
        claims = contract.claims(module, statement, request.function)
        tracing = contract.CandidateCode("contract", "trace-error", f"tracing {request.function}")
        with tracing, asked_device.asked_for(request.chip), asked_device.aiming_at(request.chip):
            _full = traced_program(function, problem, request.chip)
    except Rejected as rejected:
        refusal = rejected if request.chip.mesh else one_core.with_cause(rejected, _sources.values())
        raise refusal from rejected
    closed, jaxpr = _full.closed, _full.closed.jaxpr
    integrity.require_known_primitives(before, jaxpr)
    work = jaxprs.flops(jaxpr, _full.steps)
    _refuse(claims, work, statement)
    exported = _exported(_full)
    program = normal_form.of_exported(exported.mlir_module()).digest
    _loaded = request.function, function, before, normal_form.digest(normal_form.of_traced(closed))
    integrity.require_untouched(before)
    integrity.require_self_contained(_sources)
    Path(request.artifact).write_bytes(exported.serialize())
    if request.program:
        Path(request.program).write_bytes(program_codec.encode(closed))
    imported = packages.imported(modules)
    trace_record = Trace(
        fingerprint=packages.digested(program, imported),
        pallas_calls=_full.calls,
        pallas_flops=work.pallas,
        outside_flops=work.outside,
        exponentials=work.exponentials,
        one_pass_lines=jaxprs.one_pass_lines(jaxpr),
        narrow_sums=narrow_sums.lines(jaxpr),
        narrow_maxima=narrow_sums.of_maxima(jaxpr),
        transposes=_transposes(jaxpr),
        written_over=kept_inputs.written_over(jaxpr, statement),
        imported=imported,
        sources=packages.sources(jaxpr),
        seconds=time.monotonic() - began,
    )
    warnings = (
        *stand_ins.warnings(),
        *unchecked_warnings(closed),
        *_enclosed_warnings(jaxpr),
        *_claim_warnings(claims, _full.calls),
        *_loop_warnings(work),
    )
    # Only the first call that the compiler must refuse is reported.
    pairs = zip(jaxprs.pallas_calls(jaxpr), _full.calls, strict=True)
    exceeds_vmem = next(filter(None, (vmem.excess(equation, call, request.chip) for equation, call in pairs)), "")
    return messages.TraceReply(
        trace=trace_record,
        claims=claims,
        warnings=(*flags, *warnings),
        exceeds_vmem=exceeds_vmem,
        operations=sum(1 for _ in jaxprs.equations(jaxpr)),
    )


def trace_smaller(request: messages.ShapesRequest) -> messages.ShapesReply:
    """Traces the candidate again, at the full shape and at smaller shapes, and chooses the shapes to check.

    Raises Rejected.
    """
    global _reduced, _second_shape
    assert _full is not None
    assert _loaded is not None
    name, function, before, program = _loaded
    _refuse_another(_full, name, before, program, request.others)
    with asked_device.asked_for(_full.chip), asked_device.aiming_at(_full.chip):
        position, _reduced, why_not = smaller_shapes.choose_reduced(function, _full)
        _second_shape, other_shapes = smaller_shapes.second(function, _full, _reduced, why_not)
    for smaller in filter(None, (_reduced, _second_shape)):
        integrity.require_known_primitives(before, smaller.closed.jaxpr)
    if normal_form.digest(normal_form.of_traced(_full.closed)) != program:
        message = "expected the same program after kernel.py was traced for smaller shapes, got a different one"
        hint = "does kernel.py change a module-level array or counter while it is traced?"
        raise Rejected("static", "not-deterministic", f"{message}: {hint}")
    integrity.require_untouched(before)
    integrity.require_self_contained(_sources)
    smaller_kernels = filter(None, (_second_shape, _reduced))
    difference, interpret_full, not_interpreted = smaller_shapes.at_full(_full, *smaller_kernels)
    return messages.ShapesReply(
        reduced=position,
        has_second=_second_shape is not None,
        interpret_full=interpret_full,
        difference=difference,
        warnings=(*other_shapes, *not_interpreted),
    )


def _exported(traced: TracedKernel) -> Any:
    """The program for the chip."""
    with (
        contract.CandidateCode("compile", "unsupported", f"lowering for the {traced.chip.name}"),
        asked_device.aiming_at(traced.chip),
    ):
        results = meshes.splits(traced.problem.statement().results)
        return interpretation.export(traced.closed, traced.shapes, traced.chip.platform, traced.chip, results=results)


def _transposes(jaxpr: jaxprs.Jaxpr) -> tuple[str, ...]:
    """The lines that transpose arrays outside of kernels."""
    outside = jaxprs.equations(jaxpr, into_pallas=False)
    return jaxprs.distinct(packages.place_of(each) for each in outside if each.primitive.name == "transpose")


def _refuse_another(
    traced: TracedKernel, name: str, before: integrity.Snapshot, program: str, others: Sequence[messages.OtherMember]
) -> None:
    """Loads and traces kernel.py again; raises Rejected `not-deterministic` if a new program's digest is not `program`.

    The digest changes if a constant comes from a clock, from random numbers, or from the address of an object. During
    the second load, ballast occupies the free addresses of small objects, so new objects get other addresses. As in a
    process that serves a model, the other members of the suite are traced first, and the function is traced twice.
    """
    ballast = [object() for _ in range(_BALLAST)]
    with asked_device.asked_for(traced.chip):
        module = contract.load(_sources)[0]
        function = contract.bind(module, traced.problem.statement(), name)
        integrity.put_back(before)
        tracing = contract.CandidateCode("contract", "trace-error", f"tracing {name}")
        with asked_device.aiming_at(traced.chip):
            for other in others:
                # If another member cannot be traced, its own evaluation says so.
                with contextlib.suppress(Exception):
                    jax.make_jaxpr(getattr(module, other.function))(*meshes.shapes(other.inputs, None))
            first, second = (_digest_of(function, traced, tracing) for _ in range(2))
    del ballast
    got = "expected kernel.py to give the same program each time it is"
    after = ", ".join(other.name for other in others)
    if first != program and others:
        message = f"{got} loaded, also if it is traced for {after} first, got two different programs"
        hint = (
            "does a cached function lack an argument that decides its result, or does a constant come from a clock, "
            "from random numbers or from id()?"
        )
    elif first != program:
        message = f"{got} loaded, got two different programs"
        hint = "does a constant come from a clock, from random numbers or from id()?"
    elif second != program:
        message = f"{got} traced, got a different program the second time"
        hint = "does kernel.py use up an iterator, or change a module-level array or counter, while it is traced?"
    else:
        return
    raise Rejected("static", "not-deterministic", f"{message}: {hint}")


def _digest_of(function: Callable[..., Any], traced: TracedKernel, tracing: contract.CandidateCode) -> str:
    with tracing:
        # JAX caches the trace of each function object. A new function object makes it trace again.
        again = traced_program(lambda *arrays: function(*arrays), traced.problem, traced.chip)
    return normal_form.digest(normal_form.of_traced(again.closed))


def _refuse(claims: Claims, work: jaxprs.Flops, statement: Statement) -> None:
    """Raises Rejected `flop-claim` for a wrong claim, `work-outside-pallas` for too much work outside kernels.

    Outside kernels, a loop with an unknown trip count must not compute anything.
    """
    useful = statement.work
    if claims.flops not in (None, useful.flops):
        message = (
            f"expected compute_flops() to claim {useful.flops:,} FLOPs ({useful.matmul_flops:,} in matmuls, "
            f"{useful.vector_flops:,} elsewhere), got {claims.flops:,}; correct the claim"
        )
        raise Rejected("static", "flop-claim", message)
    if work.outside > _OUTSIDE_SHARE * useful.flops:
        moved = " (a comparison, or an element that XLA moves by a table or to another chip, counts as one)"
        message = (
            f"expected at most {_OUTSIDE_SHARE:.0%} of the useful {useful.flops:,} FLOPs outside Pallas calls, got "
            f"{work.outside:,}{moved}: only cheap elementwise work may stay outside; move the rest into the kernel"
        )
        raise Rejected("static", "work-outside-pallas", message)
    if work.outside_in_loops:
        message = (
            "expected no arithmetic outside Pallas calls in loops without a fixed trip count, got "
            f"{work.outside_in_loops:,} FLOPs in each iteration; fix the trip count (jax.lax.scan), or move that "
            "arithmetic into the kernel"
        )
        raise Rejected("static", "work-outside-pallas", message)


def unchecked_warnings(closed: Any) -> tuple[str, ...]:
    """A sentence for each line that makes a Pallas call without some of the compiler's checks."""
    sentences = (
        f"{packages.place_of(equation)}{' and '.join(options)}: the kernel is timed as shipped, without these checks "
        "of the compiler, and is also checked with them"
        for equation in jaxprs.pallas_calls(closed.jaxpr)
        if (options := semantics.checks_left_out(equation))
    )
    return tuple(dict.fromkeys(sentences))


def _enclosed_warnings(jaxpr: jaxprs.Jaxpr) -> Iterator[str]:
    if within := len(jaxprs.calls_within_loops(jaxpr)):
        yield (
            f"{within} Pallas calls are inside loops or branches: their grid steps are counted for one call; the "
            "simulator counts their HBM traffic for all calls"
        )


def _loop_warnings(work: jaxprs.Flops) -> Iterator[str]:
    if work.uncounted_loops:
        yield (
            f"{work.uncounted_loops} loops have trip counts that the trace does not show: their FLOPs are counted "
            "once, so the share of work inside Pallas calls is a lower bound"
        )


def _claim_warnings(claims: Claims, calls: tuple[PallasCall, ...]) -> tuple[str, ...]:
    """A sentence for each claim of get_tiling_meta() that the trace contradicts; none for several Pallas calls."""
    tiling = claims.tiling
    if tiling is None or len(calls) != 1:
        return ()
    call = calls[0]
    moved: dict[str, int | None] = {}
    for role in ("input", "output"):
        parts = [window.hbm_bytes for window in call.windows if window.role == role and window.memory_space != "smem"]
        moved[role] = None if None in parts else sum(part or 0 for part in parts)
    blocks = [(window.block_shape, window.array.dtype) for window in call.windows if window.memory_space == "vmem"]
    blocks += [(scratch.shape, scratch.dtype) for scratch in call.scratch if scratch.memory_space == "vmem"]
    buffers = sum(math.prod(shape) * arrays.dtype(dtype).itemsize for shape, dtype in blocks)
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


def _traced(shape: messages.TracedShape) -> TracedKernel:
    kernel = {"full": _full, "reduced": _reduced, "second": _second_shape}[shape]
    assert kernel is not None
    return kernel


def export_cpu(request: messages.ExportRequest) -> Done:
    """Writes the program to check, made from the trace for the requested shape (`interpretation.checked_program`)."""
    traced = _traced(request.shape)
    program = interpretation.checked_program(traced.closed, traced.shapes, traced.chip, request.fill)
    Path(request.artifact).parent.mkdir(parents=True, exist_ok=True)
    Path(request.artifact).write_bytes(program)
    return Done(path=request.artifact)


def interpret(request: messages.InterpretRequest) -> Done:
    """Runs the program traced for the requested shape in TPU interpret mode.

    - Order of transfers: if a wait could end any of several transfers, the first family at a smaller shape runs three
      times, with three orders in which transfers end: last started first, first started first, and random. For the
      other families the order is random; if it makes a result wrong, the comparison with the reference fails.
    - Unwritten memory: if the run of the first family or of the full shape may have read unwritten memory, the program
      runs again on the same inputs. In this second run, memory begins with the values that the first run left, and with
      random numbers where the first run wrote nothing.

    Raises Rejected `race`, `out-of-bounds`, `deadlock`, `revisited-block`, `overlapping-copy`, `unfinished-transfer`,
    `transfer-order`, `left-memory`, `not-interpretable`.
    """
    traced = _traced(request.shape)
    is_first = request.family == traced.problem.families(full=False)[0]
    order: transfers.Order = "last" if is_first else request.seed
    outputs, had_choice, unwritten_read = _interpreted(request, order)
    may_depend = unwritten_read or jaxprs.uses_replaced_values(traced.closed.jaxpr)
    if (
        may_depend
        and (is_first or request.shape == "full")
        and not _are_equal(request, outputs, _interpreted(request, order, finds_left=True).outputs)
    ):
        message = (
            f"{_where(request)}expected the same results from a second call on the same inputs, got different "
            "results: the kernel reads memory that it has not written, with values that an earlier call or another "
            f"program left there{unwritten_read and f' (first: {unwritten_read})'}; write the memory before reading it"
        )
        raise Rejected("correctness", "left-memory", message)
    for another in ("first", request.seed) if had_choice and is_first and request.shape != "full" else ():
        if not _are_equal(request, outputs, _interpreted(request, another).outputs):
            message = (
                f"{_where(request)}expected the same results in whatever order transfers end, got different results in "
                "another order: a wait may count the bytes of another copy on the same semaphore; give each copy its "
                "own semaphore, or wait for all copies that share one"
            )
            raise Rejected("correctness", "transfer-order", message)
    arrays.save(Path(request.outputs), outputs)
    return Done(path=request.outputs)


def _are_equal(request: messages.InterpretRequest, outputs: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if both results are bitwise equal in all rows that are compared."""
    problem = _traced(request.shape).problem
    inputs = problem.make_inputs(request.family, request.seed)
    both = zip(as_read(problem, inputs, outputs), as_read(problem, inputs, others), strict=True)
    return all(output.tobytes() == other.tobytes() for output, other in both)


def _where(request: messages.InterpretRequest) -> str:
    assert _full is not None
    shape = at_smaller_shape(_traced(request.shape).problem.statement(), _full.problem.statement())
    return f"{shape}in TPU interpret mode: "


def _interpreted(request: messages.InterpretRequest, order: transfers.Order, *, finds_left: bool = False) -> Outcome:
    """The outcome of an interpreted run; `order` is the order in which transfers end."""
    global _room
    for place in range(_room, len(transfers.MOST_UNDER_WAY)):
        try:
            outcome = _interpreted_once(request, order, transfers.MOST_UNDER_WAY[place], finds_left=finds_left)
        except transfers.TooManyTransfersError:
            continue
        _room = place
        return outcome
    raise interpretation.not_interpretable(transfers.MOST)


def _interpreted_once(
    request: messages.InterpretRequest, order: transfers.Order, most_under_way: int, *, finds_left: bool
) -> Outcome:
    traced, where = _traced(request.shape), _where(request)
    run = _runs.get((request.shape, most_under_way))
    if run is None:
        steps = max(call.steps for call in traced.calls)
        parameters = interpretation.checking_parameters(traced.chip, steps, most_under_way)
        run = as_written.jit_as_written(interpretation.runnable(traced.closed, parameters, traced.chip))
        _runs[request.shape, most_under_way] = run
    inputs = traced.problem.make_inputs(request.family, request.seed)
    # The run of the first family and the run at the full shape walk the steps backwards. All other runs draw the order
    # of steps from the request's seed, so a repeated request has the same order.
    families = traced.problem.families(full=False)
    is_backwards = request.shape == "full" or request.family == families[0]
    watched = WatchedRun(
        fill=request.fill,
        order=order,
        order_seed=None if is_backwards else request.seed,
        reshapes=tuple(reshaped.lines(traced.closed.jaxpr)),
        where=where,
        left=_left.setdefault(request.shape, {}),
        # At smaller shapes, every second family starts with the memory that a call on other inputs left.
        finds_left=finds_left or (request.shape != "full" and request.family in families[1::2]),
        seed=request.seed,
    )
    return watched.outputs(lambda: run(*inputs))


TASKS = {
    "trace": (messages.TraceRequest, trace),
    "trace_smaller": (messages.ShapesRequest, trace_smaller),
    "export_cpu": (messages.ExportRequest, export_cpu),
    "interpret": (messages.InterpretRequest, interpret),
}
