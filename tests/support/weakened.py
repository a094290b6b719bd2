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


def _guard(name: str, candidate: str, module: str, source: str, *behind: str) -> Guard:
    return Guard(name=name, candidate=candidate, without=((module, source),), behind=behind)


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
    "judge/evaluate/compile/certificate.py",
    "def _require_same(exported, form, expected, chip): pass\ndef _require_same_around(closed, shapes, chip): pass",
)

_OWN_SHAPE = "interpreted at the contest's own shape"
_RACES_EXECUTED = "races in the executed schedule"
_WRITTEN_OVER = "tables written over"
_LEFT_BY_ANOTHER = "memory that another program left"
_EXECUTED, _LACKING = "exponentials executed", "def _lacking_exponentials(evidence): return []"

_UNEXECUTED = "def failure(evidence): return None\ndef doubts(evidence): return ()"

_ALWAYS_NAN = "def unforeseen_fill(shape, *, is_interpreted=True): return None\ndef unforeseen_number(**_): return None"

_MARKED = "undefined results are marked"


_TRANSFERS_OF_JAX = (
    "judge/evaluate/interpret/transfers.py",
    "@contextlib.contextmanager\ndef transfers_end(order): yield Waits()\nMOST_UNDER_WAY = (1,)",
)


def _unmodelled(*primitives: str) -> tuple[str, str]:
    """A replacement by which the CPU reference program computes these as XLA on a CPU does."""
    return (
        "judge/evaluate/interpret/chip_model.py",
        f"_MODELS = {{n: m for n, m in _MODELS.items() if n not in {primitives}}}",
    )


# Not here, because another guard also catches these later: the contract's shapes and dtypes, calls
# of the host, the missing Pallas call, junk and crashes, NaN, what the compiler refuses.
GUARDS = (
    # Guards on what kernel.py does to its process, and on its form.
    _guard(
        "integrity",
        "patches_block_until_ready",
        "judge/evaluate/trace/integrity.py",
        "def require_untouched(before): pass",
    ),
    _guard(
        "recorded files only",
        "foreign_import",
        "judge/evaluate/trace/integrity.py",
        "def require_self_contained(helpers): pass",
    ),
    _guard("names in the source", "imports_ctypes", "judge/evaluate/trace/imports.py", "def flags(*_): return ()"),
    _guard(
        "names of attributes",
        "ctypes_by_numpy",
        "judge/evaluate/trace/imports.py",
        "_REFUSED_ATTRIBUTES = frozenset()\ndef _reached(node, held): return None",
    ),
    _guard(
        "files named one by one",
        "reads_passwd",
        "sandbox/readable.py",
        '_strict_installed = installed\ndef installed(): return (*_strict_installed(), "/etc")',
    ),
    _guard(
        "system calls named one by one",
        "takes_shared_memory",
        "sandbox/system_calls.py",
        'ALLOWED["more"] = "shmget 29 194  shmctl 31 195"',
    ),
    _guard("confinement", "moves_branch", "sandbox/confinement.py", "def confine(confinement): pass"),
    _guard(
        "nothing tampered with",
        "edits_judge",
        "loop/guard.py",
        "def put_right(before, aside, *, were_confined): return Tampering()",
        "confinement",
    ),
    _guard(
        "nothing left behind", "leaves_a_daemon", "sandbox/processes.py", "def below(leaders): return ()", "confinement"
    ),
    _guard(
        "time limit",
        "hangs",
        "sandbox/child.py",
        "_strict_ask = Children.ask\nChildren.ask = lambda self, *words: _strict_ask(self, *words[:-1], 600.0)",
    ),
    _guard(
        "memory limit",
        "memory_hog",
        "sandbox/processes.py",
        "from dataclasses import replace\n_strict_below = below\n"
        "def below(leaders): return tuple(replace(one, resident_bytes=0) for one in _strict_below(leaders))",
    ),
    _guard("output limit", "floods", "sandbox/child.py", "_OUTPUT_LIMIT = 1 << 60"),
    # Guards on the trace.
    _guard("one device", "sharded", "judge/evaluate/trace/one_core.py", "def refuse_sharded(*_): pass"),
    _guard(
        "claim of FLOPs",
        "flops_overstated",
        "judge/evaluate/candidate.py",
        "from dataclasses import replace\n_strict_refuse = _refuse\n"
        "def _refuse(claims, work, statement):\n"
        "    _strict_refuse(replace(claims, flops=statement.work.flops), work, statement)",
    ),
    _guard("work outside Pallas", "sums_outside", "judge/evaluate/candidate.py", "_OUTSIDE_SHARE = 1e30"),
    _guard("dots outside Pallas", "dots_outside", "judge/evaluate/trace/jaxprs.py", "DOTS = ()"),
    _guard("exponentials outside Pallas", "exp_outside", "judge/evaluate/trace/jaxprs.py", "EXPS = ()"),
    _guard(
        "one program on all platforms",
        "platform_dependent",
        "judge/evaluate/trace/forbidden_operations.py",
        "_PLATFORM = ()",
    ),
    # These are refused in the trace, and again when the program is lowered once more. (A primitive that is not JAX's is
    # refused in the trace and cannot be sent, so there is no program to check without that guard.)
    Guard(
        name="rules of primitives",
        candidate="rule_replaced",
        without=(("judge/evaluate/trace/integrity.py", "def _changed_rule(before): return None"), _CERTIFICATE),
    ),
    Guard(
        name="what surrounds an operation",
        candidate="told_to_xla",
        without=(("judge/evaluate/trace/semantics.py", "def _refuse_context(equation): pass"), _CERTIFICATE),
    ),
    Guard(name="certificate", candidate="rule_replaced_unseen", without=(_CERTIFICATE,)),
    Guard(name="certificate of kernels", candidate="kernel_rule_replaced_unseen", without=(_CERTIFICATE,)),
    Guard(name="certificate of constants", candidate="scaled_for_the_chip", without=(_CERTIFICATE,)),
    _guard(
        "operations outside kernels",
        "draws_its_bits",
        "judge/evaluate/trace/semantics.py",
        "def _refuse_listed(equation, entries): return ENTRIES.get(equation.primitive.name, ENTRIES['sub'])",
    ),
    _guard(
        "undefined results outside kernels",
        "last_of_equal_indices",
        "judge/evaluate/interpret/outside.py",
        "def with_marked_results(jaxpr): return jaxpr",
    ),
    # Guards on outputs.
    _guard(
        "error against float64", "no_rescale", "operators/tolerance.py", f"WORST_FACTOR = {_ANY}\nRMS_FACTOR = {_ANY}"
    ),
    _guard("root mean square error", "bf16_accumulator", "operators/tolerance.py", f"RMS_FACTOR = {_ANY}"),
    _guard(
        "drawn inputs",
        "guessed_exponents",
        "operators/attention/space.py",
        "KINDS, ALL = (), 'mixture'\n_mixture = lambda random: Recipe()",
    ),
    _guard(
        "rows that stand out",
        "few_rows_wrong",
        "operators/survey.py",
        "def standing_out(problem, inputs, outputs, compared, seed): return compared[:0]",
    ),
    _guard(
        "factors ruled out",
        "quantized_scale_rounded_in_steps",
        "operators/tolerance.py",
        "def _factors(*arguments): return ()",
    ),
    _guard("roundings ruled out", "up_rounded", "operators/tolerance.py", "def _roundings(*arguments): return ()"),
    _guard("dependence", "causal_leak_ahead", "operators/probes.py", _PASSED.format("check_probe", "is not None")),
    Guard(
        name="the contest's own shape",
        candidate="cheap_at_full_length",
        without=_passing("== 'full'"),
        behind=(_OWN_SHAPE,),
    ),
    Guard(name="other shapes", candidate="right_at_one_shape", without=_passing("!= 'full'")),
    _guard("unwritten memory", "takes_nan_for_empty", "judge/evaluate/draws.py", _ALWAYS_NAN),
    _guard(
        "comparisons of unwritten memory",
        "kept_by_a_tag",
        "judge/evaluate/interpret/undefined.py",
        "def with_flipped_comparisons(jaxpr): return jaxpr",
        "memory that the last run left",
    ),
    _guard(
        "memory that the last run left",
        "kept_by_a_scalar_float",
        "judge/evaluate/interpret/left_memory.py",
        "def _are_alike(content, value): return False",
    ),
    _guard(
        _LEFT_BY_ANOTHER,
        "unwritten_bytes",
        "judge/evaluate/interpret/buffers.py",
        "def _leave_anything(buffers, random): pass",
    ),
    _guard(
        "a second call on equal inputs",
        "kept_for_equal_inputs",
        "judge/evaluate/candidate.py",
        "def _are_equal(request, outputs, others): return True",
    ),
    _guard(
        "windows change buffers",
        "moved_by_the_other_window",
        "judge/evaluate/interpret/buffers.py",
        "def _refill(memory, buffers, key): pass",
    ),
    _guard(
        "blocks are fetched early",
        "moved_after_the_fetch",
        "judge/evaluate/interpret/buffers.py",
        "_strict_as_on_chip = as_on_chip\n"
        "def as_on_chip(*, comes_early, seed): return _strict_as_on_chip(comes_early=False, seed=seed)",
    ),
    _guard(
        "memory in front of a buffer",
        "moved_from_in_front",
        "judge/evaluate/interpret/buffers.py",
        "def _refuse_in_front(run, name, key, where): pass",
    ),
    _guard(
        "barriers come first",
        "gathered_credit_by_the_barrier",
        "judge/evaluate/trace/used_again.py",
        "def _refuse_late_barriers(call): pass",
    ),
    _guard(
        "nothing is sent to windows",
        "moved_into_a_window",
        "judge/evaluate/trace/used_again.py",
        "def _windows(call): return set()",
    ),
    _guard(
        "races",
        "unseen_race",
        "judge/evaluate/interpret/interpretation.py",
        "def race_of(error, printed): return None",
        _RACES_EXECUTED,
    ),
    _guard("clocks of transfers", "fetch_over_a_store", *_TRANSFERS_OF_JAX, _RACES_EXECUTED),
    _guard("order of transfers", "fetched_backwards", *_TRANSFERS_OF_JAX, _RACES_EXECUTED),
    _guard(
        "copies apart", "copied_onto_itself", "judge/evaluate/interpret/transfers.py", "def _overlaps(dma): return 0"
    ),
    _guard(
        "transfers finished",
        "store_never_waited",
        "judge/evaluate/interpret/transfers.py",
        "class Waits(Waits):\n    unfinished = property(lambda self: 0, lambda self, value: None)",
        "transfers waited for",
    ),
    _guard(
        "windows apart",
        "windows_overlap",
        "judge/evaluate/trace/traffic.py",
        "def _refuse_overlapping(name, block, shape, places): pass",
        _RACES_EXECUTED,
    ),
    _guard(
        _OWN_SHAPE,
        "late_race",
        "judge/evaluate/trace/smaller_shapes.py",
        "def at_full(full, *small): return '', False, ()",
        _RACES_EXECUTED,
    ),
    _guard(
        "late steps of kernels that copy by hand",
        "late_race_counted_down",
        "judge/evaluate/trace/smaller_shapes.py",
        "def _may_race(traced): return False",
        _RACES_EXECUTED,
    ),
    _guard(
        "unwritten memory at the contest's own shape",
        "unwritten_taken_for_zero",
        "judge/evaluate/draws.py",
        _ALWAYS_NAN,
        _LEFT_BY_ANOTHER,
    ),
    _guard(
        "unwritten memory at late steps",
        "unwritten_at_a_late_step",
        "judge/evaluate/draws.py",
        "_strict_fill = unforeseen_fill\n"
        "def unforeseen_fill(shape, *, is_interpreted=True): return _strict_fill(shape)",
    ),
    _guard(
        "late writes at computed places",
        "writes_past_the_end_late",
        "judge/evaluate/trace/jaxprs.py",
        "def writes_at_computed_places(jaxpr): return False",
    ),
    _guard(
        "order of parallel steps",
        "relies_on_order",
        "judge/evaluate/interpret/grid_order.py",
        "def _order(axis, steps): return np.arange(steps, dtype=np.int32)",
    ),
    _guard(
        "both cores",
        "first_step_fills",
        "judge/evaluate/interpret/interpretation.py",
        "import dataclasses\n_strict_parameters = checking_parameters\n"
        "def checking_parameters(chip, steps, most=62):\n"
        "    return _strict_parameters(dataclasses.replace(chip, cores=1), steps, most)",
        "order of parallel steps",
        _LEFT_BY_ANOTHER,
    ),
    _guard(
        "bounds",
        "unused_read_past_the_end",
        "judge/evaluate/interpret/interpretation.py",
        "def checking_parameters(chip, steps, most_under_way=62):\n"
        "    return pltpu.InterpretParams(detect_races=True, out_of_bounds_reads='uninitialized')",
    ),
    # Guards on computations in which chip and CPU differ.
    # Without the one, the other refuses every kernel.
    _guard(
        "this CPU",
        "product_parts_in_whole_numbers",
        "judge/evaluate/interpret/conversions.py",
        "def require_conversions(): pass",
        "conversions before sums",
    ),
    _guard(
        "conversions before sums",
        "product_parts_in_whole_numbers",
        "judge/evaluate/interpret/chip_model.py",
        "def with_conversions(jaxpr): return jaxpr",
        "this CPU",
    ),
    _guard("precision of products", "one_pass", *_unmodelled("dot_general")),
    _guard("products of infinities", "infinity_in_a_product", *_unmodelled("dot_general")),
    _guard("extremes of NaN", "maximum_of_nan", *_unmodelled("max")),
    _guard("remainders", "remainder_of_floats", *_unmodelled("rem")),
    _guard("roots", "floor_of_a_root", *_unmodelled("sqrt")),
    _guard("hints", "false_multiple", *_unmodelled("multiple_of")),
    _guard("exponentials in bfloat16", "exponentials_of_bfloat16", *_unmodelled("exp")),
    _guard(_MARKED, "shift_past_the_word", *_unmodelled("shift_left"), "shifts within a word", "exponentials executed"),
    _guard(
        "indices within their arrays",
        "slice_past_the_end",
        "judge/evaluate/interpret/undefined.py",
        "def with_marked_indices(jaxpr): return jaxpr",
        _OWN_SHAPE,
    ),
    _guard(
        "known operations", "inputs_fused", "judge/evaluate/trace/semantics.py", "def refuse_unclassified(*_): pass"
    ),
    # Guards on what the simulator knows.
    _guard(
        "exponentials executed",
        "shift_past_the_word",
        "judge/verdict/crosscheck.py",
        _LACKING,
        "shifts within a word",
        _MARKED,
    ),
    _guard(
        "shifts within a word", "shift_past_the_word", "judge/simulate/scalar.py", "_SHIFTS = ()", _EXECUTED, _MARKED
    ),
    _guard(
        "tables of integers",
        "table_of_floats",
        "hlo/evaluation.py",
        "class _Writer(_Writer):\n"
        "    def _unset(self, shape, frame):\n"
        "        number = self._written(frame, 's32[]', 'constant', '-2147483648', '')\n"
        "        return self._written(frame, shape.plain, 'broadcast', f'%{number}', ', dimensions={}')",
        _EXECUTED,
    ),
    _guard(
        _WRITTEN_OVER,
        "table_of_another_kernel",
        "judge/simulate/scalar_memory.py",
        "class Memory(Memory):\n    def replace(self, *_, **__): pass",
    ),
    _guard(
        "operands that are results",
        "table_written_over",
        "hlo/tables.py",
        "class Tables(Tables):\n    def written_operands(self, name): return frozenset()",
        _WRITTEN_OVER,
    ),
    _guard(
        "tables with strides",
        "table_with_strides",
        "judge/simulate/transfer_races.py",
        "class UnderWay(UnderWay):\n    def is_one_run(self, size, layout): return True",
    ),
    # Guards for races that the interpreter does not see.
    _guard(
        _RACES_EXECUTED,
        "unseen_race",
        "judge/simulate/transfer_races.py",
        "class UnderWay(UnderWay):\n    def _look_into(self, *_): pass\n    def _look_at(self, moving): pass",
        "races",
    ),
    _guard("transfers waited for", "never_waited", "judge/verdict/schedule_checks.py", _UNEXECUTED, _OWN_SHAPE),
    _guard(
        "whole transfers waited for",
        "waits_by_halves",
        "judge/verdict/schedule_checks.py",
        _UNEXECUTED,
        "clocks of transfers",
    ),
    _guard("semaphores at zero", "semaphore_left", "judge/verdict/schedule_checks.py", _UNEXECUTED),
    _guard(
        "the compiler's checks", "halts_at_full_length", "judge/verdict/schedule_checks.py", _UNEXECUTED, _OWN_SHAPE
    ),
    _guard(
        "checks left out",
        "halts_without_bounds_checks",
        "judge/evaluate/stages.py",
        "def _with_offences(state, offences): return state",
        _OWN_SHAPE,
    ),
    _guard(
        "sums of bfloat16",
        "sums_in_bfloat16",
        "judge/evaluate/interpret/chip_model.py",
        "def _sum_of_registers(x, rank, axes): return lax.reduce_sum(x, axes)",
    ),
    _guard("controls", "controls_of_attention", "operators/controls.py", "def passes(*arguments): return True"),
    # Guards on times.
    _guard(
        "simulated again",
        "not_simulated_again",
        "judge/verdict/compare_resimulated.py",
        "def judged(verdict, *evidence): return verdict",
    ),
    _guard(
        "every machine",
        "gain_of_one_constant",
        "judge/verdict/compare_resimulated.py",
        "def _loss_sentence(resimulated): return ''",
    ),
    _guard("control", "slowed_baseline", "judge/verdict/compare_measured.py", "_TOLERATED_SHARE = 1e9"),
    _guard(
        "looks are counted", "peeking", "judge/verdict/compare_measured.py", "def _unusable(paired, policy): return ''"
    ),
    _guard(
        "minimum effect",
        "hair_faster",
        "judge/verdict/compare_measured.py",
        "from dataclasses import replace\n_strict_rule = rule\n"
        "def rule(paired, policy, attempts):\n"
        "    return _strict_rule(paired, replace(policy, minimum_effect=1e-3), attempts)",
    ),
    _guard(
        "certainty",
        "lucky_rerun",
        "judge/verdict/sign_test.py",
        "def look_error(policy, attempts_since_accept): return 0.3",
    ),
    _guard(
        "something was checked",
        "nothing_checked",
        "judge/verdict/comparable.py",
        "def doubts(evidence, who): return ()",
    ),
    _guard("checks passed", "lost_failure", "judge/verdict/decision.py", "def _failed_check(evidence): return None"),
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
