"""The judge with one guard taken away, and a planted candidate that only this guard catches.

A guard is taken away in a copy of the harness: a second definition at the end of one of its modules replaces the first.
The judge itself has no switch.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from harness_copies import copy_harness


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guard: the `candidate` that only it catches, and, by module of the harness, the code that replaces it.

    `behind` names guards that act before this one, as a first line of defence; they are taken away too.
    """

    name: str
    candidate: str
    without: tuple[tuple[str, str], ...]
    behind: tuple[str, ...] = ()


# Far above any error, and still a number that JSON can hold.
_ANY = "1e30"
_PASSED = """
import dataclasses
_strict_{0} = {0}
def {0}(*arguments, mode, **words):
    found, failure = _strict_{0}(*arguments, mode=mode, **words)
    if mode {1}:
        return dataclasses.replace(found, passed=True, error=0.0, tolerance=1.0), None
    return found, failure
"""


def _passing(which: str) -> tuple[tuple[str, str], ...]:
    """Both kinds of checks pass in these modes."""
    return (
        ("operators/tolerance.py", _PASSED.format("check", which)),
        ("operators/probes.py", _PASSED.format("check_probe", which)),
    )


_CERTIFICATE = (
    "def _require_same(exported, form, expected, chip): pass\ndef _require_same_around(closed, shapes, chip): pass"
)
_LOWERED_AGAIN = ("judge/evaluate/compile/certificate.py", _CERTIFICATE)

_OWN_SHAPE = "interpreted at the contest's own shape"
_RACES_EXECUTED = "races in the executed schedule"
_WRITTEN_OVER = "tables written over"
_LEFT_BY_ANOTHER = "memory that another program left"
_EXECUTED, _LACKING = "exponentials executed", "def _lacking_exponentials(evidence): return []"

_UNEXECUTED = "def failure(evidence): return None\ndef doubts(evidence): return ()"

_ALWAYS_NAN = "def unforeseen_fill(shape, *, is_interpreted=True): return None\ndef unforeseen_number(**_): return None"

_MARKED = "undefined results are marked"


_TRANSFERS_OF_JAX = "@contextlib.contextmanager\ndef transfers_end(order): yield Waits()\nMOST_UNDER_WAY = (1,)"


def _unmodelled(*primitives: str) -> str:
    """Code of chip_model.py by which the CPU reference program computes these as XLA on a CPU does."""
    return f"_MODELS = {{n: m for n, m in _MODELS.items() if n not in {primitives}}}"


# The guards that one module has, by module: name, candidate, the code that replaces the guard, guards in front of it.
_OF_ONE_MODULE: dict[str, tuple[tuple[str, ...], ...]] = {
    "judge/evaluate/trace/integrity.py": (
        ("integrity", "patches_block_until_ready", "def require_untouched(before): pass"),
        ("recorded files only", "foreign_import", "def require_self_contained(helpers): pass"),
    ),
    "judge/evaluate/trace/imports.py": (
        ("names in the source", "imports_ctypes", "def flags(*_): return ()"),
        (
            "names of attributes",
            "ctypes_by_numpy",
            "_REFUSED_ATTRIBUTES = frozenset()\ndef _reached(node, held): return None",
        ),
    ),
    "sandbox/readable.py": (
        (
            "files named one by one",
            "reads_passwd",
            '_strict_installed = installed\ndef installed(): return (*_strict_installed(), "/etc")',
        ),
    ),
    "sandbox/system_calls.py": (
        ("system calls named one by one", "takes_shared_memory", 'ALLOWED["more"] = "shmget 29 194  shmctl 31 195"'),
    ),
    "sandbox/confinement.py": (("confinement", "moves_branch", "def confine(confinement): pass"),),
    "loop/guard.py": (
        (
            "nothing tampered with",
            "edits_judge",
            "def put_right(before, aside, *, were_confined): return Tampering()",
            "confinement",
        ),
    ),
    "sandbox/processes.py": (
        ("nothing left behind", "leaves_a_daemon", "def below(leaders): return ()", "confinement"),
        (
            "memory limit",
            "memory_hog",
            "from dataclasses import replace\n_strict_below = below\n"
            "def below(leaders): return tuple(replace(one, resident_bytes=0) for one in _strict_below(leaders))",
        ),
    ),
    "sandbox/child.py": (
        (
            "time limit",
            "hangs",
            "_strict_ask = Children.ask\nChildren.ask = lambda self, *words: _strict_ask(self, *words[:-1], 600.0)",
        ),
        ("output limit", "floods", "_OUTPUT_LIMIT = 1 << 60"),
    ),
    "judge/evaluate/trace/one_core.py": (("one device", "sharded", "def refuse_sharded(*_): pass"),),
    "judge/evaluate/candidate.py": (
        (
            "claim of FLOPs",
            "flops_overstated",
            "from dataclasses import replace\n_strict_refuse = _refuse\n"
            "def _refuse(claims, work, statement):\n"
            "    _strict_refuse(replace(claims, flops=statement.work.flops), work, statement)",
        ),
        ("work outside Pallas", "sums_outside", "_OUTSIDE_SHARE = 1e30"),
        (
            "traced twice",
            "norm_by_a_used_up_iterator",
            "_strict_digest_of, _strict_digests = _digest_of, {}\n"
            "def _digest_of(function, traced, tracing):\n"
            "    if id(function) not in _strict_digests:\n"
            "        _strict_digests[id(function)] = _strict_digest_of(function, traced, tracing)\n"
            "    return _strict_digests[id(function)]",
        ),
        (
            "traced after the other members",
            "suite_blocks_of_the_first_length",
            "_strict_refuse_another = _refuse_another\n"
            "def _refuse_another(traced, name, before, program, others):\n"
            "    _strict_refuse_another(traced, name, before, program, ())",
        ),
        (
            "a second call on equal inputs",
            "kept_for_equal_inputs",
            "def _are_equal(request, outputs, others): return True",
        ),
    ),
    "judge/evaluate/trace/jaxprs.py": (
        ("dots outside Pallas", "dots_outside", "DOTS = ()"),
        ("exponentials outside Pallas", "exp_outside", "EXPS = ()"),
        (
            "late writes at computed places",
            "writes_past_the_end_late",
            "def writes_at_computed_places(jaxpr): return False",
        ),
    ),
    "judge/evaluate/trace/forbidden_operations.py": (
        ("one program on all platforms", "platform_dependent", "_PLATFORM = ()"),
    ),
    "judge/evaluate/compile/certificate.py": (
        ("certificate", "rule_replaced_unseen", _CERTIFICATE),
        ("certificate of kernels", "kernel_rule_replaced_unseen", _CERTIFICATE),
        ("certificate of constants", "scaled_for_the_chip", _CERTIFICATE),
    ),
    "judge/evaluate/trace/semantics.py": (
        (
            "operations outside kernels",
            "draws_its_bits",
            "def _refuse_listed(equation, entries): return ENTRIES.get(equation.primitive.name, ENTRIES['sub'])",
        ),
        ("known operations", "inputs_fused", "def refuse_unclassified(*_): pass"),
    ),
    "judge/evaluate/interpret/outside.py": (
        (
            "undefined results outside kernels",
            "last_of_equal_indices",
            "def with_marked_results(jaxpr, chip): return jaxpr",
        ),
    ),
    "operators/tolerance.py": (
        ("error against float64", "no_rescale", f"WORST_FACTOR = {_ANY}\nRMS_FACTOR = {_ANY}"),
        ("root mean square error", "bf16_accumulator", f"RMS_FACTOR = {_ANY}"),
        ("factors ruled out", "quantized_scale_rounded_in_steps", "def _factors(*arguments): return ()"),
        ("roundings ruled out", "up_rounded", "def _roundings(*arguments): return ()"),
    ),
    "operators/attention/space.py": (
        ("drawn inputs", "guessed_exponents", "KINDS, ALL = (), 'mixture'\n_mixture = lambda random: Recipe()"),
    ),
    "operators/survey.py": (
        (
            "rows that stand out",
            "few_rows_wrong",
            "def standing_out(problem, inputs, outputs, compared, seed): return compared[:0]",
        ),
    ),
    "operators/probes.py": (("dependence", "causal_leak_ahead", _PASSED.format("check_probe", "is not None")),),
    "judge/evaluate/draws.py": (
        ("unwritten memory", "takes_nan_for_empty", _ALWAYS_NAN),
        ("unwritten memory at the contest's own shape", "unwritten_taken_for_zero", _ALWAYS_NAN, _LEFT_BY_ANOTHER),
        (
            "unwritten memory at late steps",
            "unwritten_at_a_late_step",
            "_strict_fill = unforeseen_fill\n"
            "def unforeseen_fill(shape, *, is_interpreted=True): return _strict_fill(shape)",
        ),
    ),
    "judge/evaluate/interpret/undefined.py": (
        (
            "comparisons of unwritten memory",
            "kept_by_a_tag",
            "def with_flipped_comparisons(jaxpr): return jaxpr",
            "memory that the last run left",
        ),
        (
            "indices within their arrays",
            "slice_past_the_end",
            "def with_marked_indices(jaxpr): return jaxpr",
            _OWN_SHAPE,
        ),
    ),
    "judge/evaluate/interpret/left_memory.py": (
        ("memory that the last run left", "kept_by_a_scalar_float", "def _are_alike(content, value): return False"),
    ),
    "judge/evaluate/interpret/buffers.py": (
        (_LEFT_BY_ANOTHER, "unwritten_bytes", "def _leave_anything(buffers, random): pass"),
        ("windows change buffers", "moved_by_the_other_window", "def _refill(memory, buffers, key): pass"),
        (
            "blocks are fetched early",
            "moved_after_the_fetch",
            "_strict_as_on_chip = as_on_chip\n"
            "def as_on_chip(*, comes_early, seed): return _strict_as_on_chip(comes_early=False, seed=seed)",
        ),
        ("memory in front of a buffer", "moved_from_in_front", "def _refuse_in_front(run, name, key, where): pass"),
    ),
    "judge/evaluate/trace/used_again.py": (
        ("barriers come first", "gathered_credit_by_the_barrier", "def _refuse_late_barriers(call): pass"),
        ("nothing is sent to windows", "moved_into_a_window", "def _windows(call): return set()"),
    ),
    "judge/evaluate/interpret/interpretation.py": (
        ("races", "unseen_race", "def race_of(error, printed): return None", _RACES_EXECUTED),
        (
            "both cores",
            "first_step_fills",
            "import dataclasses\n_strict_parameters = checking_parameters\n"
            "def checking_parameters(chip, steps, most=62):\n"
            "    return _strict_parameters(dataclasses.replace(chip, cores=1), steps, most)",
            "order of parallel steps",
            _LEFT_BY_ANOTHER,
        ),
        (
            "bounds",
            "unused_read_past_the_end",
            "def checking_parameters(chip, steps, most_under_way=62):\n"
            "    return pltpu.InterpretParams(detect_races=True, out_of_bounds_reads='uninitialized')",
        ),
    ),
    "judge/evaluate/interpret/transfers.py": (
        ("clocks of transfers", "fetch_over_a_store", _TRANSFERS_OF_JAX, _RACES_EXECUTED),
        ("order of transfers", "fetched_backwards", _TRANSFERS_OF_JAX, _RACES_EXECUTED),
        ("copies apart", "copied_onto_itself", "def _overlaps(dma): return 0"),
        (
            "transfers finished",
            "store_never_waited",
            "class Waits(Waits):\n    unfinished = property(lambda self: 0, lambda self, value: None)",
            "transfers waited for",
        ),
    ),
    "judge/evaluate/trace/traffic.py": (
        (
            "windows apart",
            "windows_overlap",
            "def _refuse_overlapping(name, block, shape, places): pass",
            _RACES_EXECUTED,
        ),
    ),
    "judge/evaluate/trace/smaller_shapes.py": (
        (_OWN_SHAPE, "late_race", "def at_full(full, *small): return '', False, ()", _RACES_EXECUTED),
        (
            "late steps of kernels that copy by hand",
            "late_race_counted_down",
            "def _may_race(traced): return False",
            _RACES_EXECUTED,
        ),
    ),
    "judge/evaluate/interpret/grid_order.py": (
        (
            "order of parallel steps",
            "relies_on_order",
            "def _order(axis, steps): return np.arange(steps, dtype=np.int32)",
        ),
    ),
    "judge/evaluate/interpret/as_written.py": (
        (
            "arithmetic as written",
            "softmax_without_its_maximum",
            "def jit_as_written(function, **options): return jax.jit(function, **options)",
            "arithmetic of this CPU",
        ),
        (
            "arithmetic of this CPU",
            "softmax_without_its_maximum",
            "def require_arithmetic_as_written(): pass",
            "arithmetic as written",
        ),
    ),
    "judge/evaluate/interpret/chip_model.py": (
        ("precision of products", "one_pass", _unmodelled("dot_general")),
        ("products of infinities", "infinity_in_a_product", _unmodelled("dot_general")),
        ("extremes of NaN", "maximum_of_nan", _unmodelled("max")),
        ("remainders", "remainder_of_floats", _unmodelled("rem")),
        ("roots", "floor_of_a_root", _unmodelled("sqrt")),
        ("hints", "false_multiple", _unmodelled("multiple_of")),
        ("exponentials in bfloat16", "exponentials_of_bfloat16", _unmodelled("exp")),
        (_MARKED, "shift_past_the_word", _unmodelled("shift_left"), "shifts within a word", "exponentials executed"),
        (
            "sums of bfloat16",
            "sums_in_bfloat16",
            "def _sum_of_registers(x, rank, axes): return lax.reduce_sum(x, axes)",
        ),
    ),
    "judge/verdict/crosscheck.py": (
        ("exponentials executed", "shift_past_the_word", _LACKING, "shifts within a word", _MARKED),
    ),
    "judge/simulate/scalar.py": (("shifts within a word", "shift_past_the_word", "_SHIFTS = ()", _EXECUTED, _MARKED),),
    "hlo/evaluation.py": (
        (
            "tables of integers",
            "table_of_floats",
            "class _Writer(_Writer):\n"
            "    def _unset(self, shape, frame):\n"
            "        number = self._written(frame, 's32[]', 'constant', '-2147483648', '')\n"
            "        return self._written(frame, shape.plain, 'broadcast', f'%{number}', ', dimensions={}')",
            _EXECUTED,
        ),
    ),
    "judge/simulate/scalar_memory.py": (
        (_WRITTEN_OVER, "table_of_another_kernel", "class Memory(Memory):\n    def replace(self, *_, **__): pass"),
    ),
    "hlo/tables.py": (
        (
            "operands that are results",
            "table_written_over",
            "class Tables(Tables):\n    def written_operands(self, name): return frozenset()",
            _WRITTEN_OVER,
        ),
    ),
    "judge/simulate/transfer_races.py": (
        (
            "tables with strides",
            "table_with_strides",
            "class UnderWay(UnderWay):\n    def is_one_run(self, size, layout): return True",
        ),
        (
            _RACES_EXECUTED,
            "unseen_race",
            "class UnderWay(UnderWay):\n    def _look_into(self, *_): pass\n    def _look_at(self, moving): pass",
            "races",
        ),
    ),
    "judge/verdict/schedule_checks.py": (
        ("transfers waited for", "never_waited", _UNEXECUTED, _OWN_SHAPE),
        ("whole transfers waited for", "waits_by_halves", _UNEXECUTED, "clocks of transfers"),
        ("semaphores at zero", "semaphore_left", _UNEXECUTED),
        ("the compiler's checks", "halts_at_full_length", _UNEXECUTED, _OWN_SHAPE),
    ),
    "judge/evaluate/stages.py": (
        (
            "checks left out",
            "halts_without_bounds_checks",
            "def _with_offences(state, offences): return state",
            _OWN_SHAPE,
        ),
    ),
    "operators/controls.py": (("controls", "controls_of_attention", "def passes(*arguments): return True"),),
    "judge/verdict/compare_resimulated.py": (
        ("simulated again", "not_simulated_again", "def judged(verdict, *evidence): return verdict"),
        ("every machine", "gain_of_one_constant", "def _loss_sentence(resimulated): return ''"),
    ),
    "judge/verdict/compare_measured.py": (
        ("control", "slowed_baseline", "_TOLERATED_SHARE = 1e9"),
        ("looks are counted", "peeking", "def _unusable(paired, policy): return ''"),
        (
            "minimum effect",
            "hair_faster",
            "from dataclasses import replace\n_strict_rule = rule\n"
            "def rule(paired, policy, attempts):\n"
            "    return _strict_rule(paired, replace(policy, minimum_effect=1e-3), attempts)",
        ),
    ),
    "judge/verdict/sign_test.py": (
        ("certainty", "lucky_rerun", "def look_error(policy, attempts_since_accept): return 0.3"),
    ),
    "judge/verdict/comparable.py": (
        ("something was checked", "nothing_checked", "def doubts(evidence, who): return ()"),
    ),
    "judge/verdict/decision.py": (("checks passed", "lost_failure", "def _failed_check(evidence): return None"),),
}
# Not here, because another guard also catches these later: the contract's shapes and dtypes, calls
# of the host, the missing Pallas call, junk and crashes, NaN, what the compiler refuses.
GUARDS = (
    *(
        Guard(name=name, candidate=candidate, without=((module, source),), behind=tuple(behind))
        for module, rows in _OF_ONE_MODULE.items()
        for name, candidate, source, *behind in rows
    ),
    # Refused in the trace, and again when the program is lowered once more. (A primitive that is not JAX's is refused
    # in the trace and cannot be sent, so there is no program to check without that guard.)
    Guard(
        name="rules of primitives",
        candidate="rule_replaced",
        without=(("judge/evaluate/trace/integrity.py", "def _changed_rule(before): return None"), _LOWERED_AGAIN),
    ),
    Guard(
        name="what surrounds an operation",
        candidate="told_to_xla",
        without=(("judge/evaluate/trace/semantics.py", "def _refuse_context(equation): pass"), _LOWERED_AGAIN),
    ),
    Guard(
        name="the contest's own shape",
        candidate="cheap_at_full_length",
        without=_passing("== 'full'"),
        behind=(_OWN_SHAPE,),
    ),
    Guard(name="other shapes", candidate="right_at_one_shape", without=_passing("!= 'full'")),
    Guard(
        name="the hardware's peak",
        candidate="impossible",
        without=(
            ("judge/verdict/decision.py", "def _impossible(evidence, paired, chip): return None"),
            ("judge/verdict/comparable.py", "def barely_possible(evidence, chip): return ()"),
        ),
    ),
)


def judge_without(guard: Guard, folder: Path) -> Path:
    """A copy of the harness in `folder` that lacks `guard`, and those that it is behind."""
    package = copy_harness(folder, "candidates")
    for removed in (guard, *(other for other in GUARDS if other.name in guard.behind)):
        for module, source in removed.without:
            with (package / module).open("a", encoding="utf-8") as code:
                code.write(f"\n\n{source}\n")
    return package


def redefined(source: str) -> set[str]:
    """The module-level names that `source` defines or changes: functions, classes and assigned names."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            # `name = `, `one, other = ` and `Class.method = ` alike.
            names |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
    return names


def parameter_counts(source: str) -> dict[str, int]:
    """The number of parameters of each function of a module, by its name, without those that take any number."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        for node in functions
        if not (node.args.vararg or node.args.kwarg)
    }
