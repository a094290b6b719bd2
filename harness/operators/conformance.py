"""The rules that every problem must keep, checked at its smallest shape. If a problem is wrong, so are its verdicts."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.errors import RatchetError
from harness.operators.controls import rounded
from harness.operators.exact import StatesExact, is_exact, numpy_dtype
from harness.operators.formula import NEAR_ROWS
from harness.operators.outputs import row_count, spans
from harness.operators.probes import changed, check_probe
from harness.operators.problem import Exact, Problem, Values
from harness.operators.state import new_state
from harness.operators.timing import Timed, differing, timing_inputs
from harness.operators.timing import complaints as of_contents
from harness.operators.tolerance import Errors, errors, rms_factor
from harness.records import Array, Statement
from harness.tracebacks import place_in_prepare

# The exceptions that mistakes in the code raise; a signal (Ctrl-C) and a lack of memory are not mistakes.
MISTAKES = (
    SyntaxError,
    ImportError,
    NameError,
    AttributeError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    AssertionError,
    OSError,
    SystemExit,
)
_SEEDS = (11, 12)
# The seeds of further draws of a family for which zeros pass with the first draw.
_OTHER_SEEDS = (12, 13, 14)
# Outputs that are smaller than usual by this factor count as zeros: they are rounding errors of float64.
_ZERO = 1e-9
# The most rows that are checked; more rows show nothing new.
_MOST_ROWS = 512
# Reduced shapes must come roughly in the order of their work: each has at least this fraction of the work of the shape
# before it.
_ABOUT = 0.8
# The most bytes per element of an output: float64 holds all numbers of that size exactly.
_MOST_BYTES = 4
# More shapes than any kernel needs.
_MOST_SHAPES = 2000

Rule = Callable[[Problem, Problem], Iterator[str]]


def complaints(problem: Problem) -> tuple[str, ...]:
    """Sentences about the rules that `problem` breaks; empty if it breaks none.

    Runs the problem at the smallest of its reduced shapes, in a second or two: statement, shapes, inputs, numbers,
    probes. If the problem raises an exception, the complaint names the rule and the exception. Rules after the first
    broken one are not checked.
    """
    sentences = _complaints(problem)
    if isinstance(problem, _StatesFormula):
        sentences = [_in_words_of_formulas(sentence) for sentence in sentences]
    return tuple(sentences)


@runtime_checkable
class _StatesFormula(Protocol):
    """A problem that is written as a formula, from which its other methods follow."""

    def formula(self, in_bfloat16: Any, *inputs: Any) -> Any: ...


def _in_words_of_formulas(sentence: str) -> str:
    for method, words in _OF_FORMULAS.items():
        sentence = sentence.replace(method, words)
    return sentence


# The author of a formula wrote none of the named methods; these words say what to change. Longer phrases come first.
_OF_FORMULAS = {
    "the numbers: reference(), honest() and rounding()": "formula()",
    "rounding() leaves something out": (
        "write formula() so that float32 loses less (no difference of large numbers), or bound the inputs with domain()"
    ),
    "the tolerance is larger than what is computed": (
        "the tolerance, which in_bfloat16() of formula() widens, is larger than what is computed"
    ),
    "the inputs or the tolerance hide it": (
        "too few elements depend on it, domain() leaves too few values, or in_bfloat16() marks too much"
    ),
    "it fails for honest()": "formula() in float32 fails it",
    "honest()": "formula() in float32",
    "reference()": "formula()",
    "rounding()": "the tolerance of formula()",
}


def _complaints(problem: Problem) -> list[str]:
    sentences: list[str] = []
    try:
        small = next(iter(problem.reduced()), problem)
    except (*MISTAKES, RatchetError) as error:
        return [f"reduced() raised {_describe(error)}"]
    for name, rule in _RULES.items():
        try:
            sentences += rule(problem, small)
        except (*MISTAKES, RatchetError) as error:
            sentences.append(f"{name} cannot be tried: {_describe(error)}")
        if sentences:
            break
    return sentences


def _describe(error: BaseException) -> str:
    return f"{place_in_prepare(error)}{type(error).__name__}: {error}"


def _statement(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the statement."""
    for instance in (problem, small):
        statement = instance.statement()
        if statement != instance.statement() or pickle.loads(pickle.dumps(instance)).statement() != statement:
            yield "statement() must be the same each time, and after the problem was pickled and read again"
        names = [array.name for array in (*statement.inputs, *statement.outputs)]
        if not statement.inputs or not statement.outputs or not all(name.isidentifier() for name in names):
            yield f"expected inputs and outputs whose names are Python identifiers, got {', '.join(names)}"
        if len(set(names)) < len(names):
            yield f"expected inputs and outputs with different names, got {', '.join(names)}"
        for array in (*statement.inputs, *statement.outputs):
            if not array.shape or min(array.shape) < 1:
                yield f"expected {array.name} to have axes of length 1 or more, got {list(array.shape)}"
            if _dtype(array) is None:
                yield f"expected {array.name} to have a dtype of numpy or ml_dtypes, got {array.dtype!r}"
            elif array in statement.outputs and _dtype(array).itemsize > _MOST_BYTES:
                yield f"expected {array.name} to be of at most 32 bits, which float64 holds exactly, got {array.dtype}"
        stated = instance.exact() if isinstance(instance, StatesExact) else ()
        if unknown := sorted({*stated} - {output.name for output in statement.outputs}):
            yield f"expected exact() to name outputs, got {', '.join(unknown)}"
        yield from _of_work(statement)
        rows = {output.name: int(np.prod(output.shape[:-1])) for output in statement.outputs}
        if any(count % max(1, min(rows.values())) for count in rows.values()):
            got = ", ".join(f"{output.name} {list(output.shape)}" for output in statement.outputs)
            yield (
                "expected outputs with the same number of rows (the product of all axes but the last), or a multiple "
                f"of the smallest number, got {got}; give an output with one number per row a last axis of 1"
            )
        counters = [count.counter for count in statement.expected]
        if len(set(counters)) < len(counters):
            yield f"expected each counter once, got {', '.join(counters)}"


def _of_work(statement: Statement) -> Iterator[str]:
    work = statement.work
    if min(work.matmul_flops, work.vector_flops, work.exponentials) < 0 or not work.flops:
        yield f"expected useful work of more than 0 FLOPs and no negative count, got {work}"
    every = [array for array in (*statement.inputs, *statement.outputs) if _dtype(array) is not None]
    whole = sum(_shard_elements(statement, array) * np.dtype(_dtype(array)).itemsize for array in every)
    if not 0 < work.minimum_hbm_bytes <= whole:
        of_one_chip = " on each chip" if statement.mesh else ""
        yield (
            f"expected minimum_hbm_bytes of at most {whole:,}{of_one_chip} (each input read and each output written "
            f"once), got {work.minimum_hbm_bytes:,}"
        )


def _shard_elements(statement: Statement, array: Array) -> int:
    """The number of elements of one chip's shard; of the whole array if it cannot be split (`_over_mesh` complains)."""
    return prod(statement.shard(array) if _can_be_split(statement, array) else array.shape)


def _can_be_split(statement: Statement, array: Array) -> bool:
    sizes = dict(statement.mesh)
    return len(array.split) == len(array.shape) and all(
        length % sizes.get(axis or "", 1) == 0 for length, axis in zip(array.shape, array.split, strict=True)
    )


def _dtype(array: Array) -> Any:
    try:
        return numpy_dtype(array.dtype)
    except TypeError:
        return None


def _shapes(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the smaller shapes."""
    whole, before = problem.statement(), -1
    for reduced in islice(problem.reduced(), _MOST_SHAPES):
        statement = reduced.statement()
        if _kind(statement) != _kind(whole):
            yield f"expected reduced shapes of the same arrays, got {_words(statement)} for {_words(whole)}"
            return
        if _elements(statement) >= _elements(whole):
            yield f"expected reduced shapes to be smaller than the whole, got {_words(statement)}"
        if statement.work.flops < _ABOUT * before:
            yield f"expected reduced shapes in increasing size, got {_words(statement)} after a larger one"
            return
        before = statement.work.flops
    second = None if small is problem else problem.second_shape(small)
    if second is not None:
        statement = second.statement()
        if _kind(statement) != _kind(whole) or _elements(statement) >= _elements(whole):
            yield f"expected second_shape() to give the same arrays at a smaller shape, got {_words(statement)}"
        if statement == small.statement():
            yield f"expected second_shape() to give another shape, got {_words(statement)} again"


def _over_mesh(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the mesh."""
    if problem.statement().mesh != small.statement().mesh:
        yield f"expected reduced shapes over the same mesh, {_axes(problem)}, got {_axes(small)}"
    for instance in (problem, small) if small is not problem else (problem,):
        statement, of_whole = instance.statement(), " at a reduced shape" if instance is not problem else ""
        sizes, arrays = dict(statement.mesh), (*statement.inputs, *statement.outputs)
        if not sizes and statement.work.link_bytes:
            yield f"expected no link_bytes without a mesh, got {statement.work.link_bytes:,}"
        if sizes and (len(sizes) < len(statement.mesh) or min(sizes.values()) < 1 or prod(sizes.values()) < 2):
            yield f"expected a mesh of 2 chips or more, whose axes have different names, got {_axes(instance)}"
        elif sizes and statement.work.link_bytes < 1:
            yield "expected link_bytes of at least 1, the bytes that each chip receives from others, got none"
        if sizes and not any(axis for array in arrays for axis in array.split):
            yield f"expected an input or output that is split over the mesh, {_axes(instance)}, got none"
        for array in arrays:
            named = [axis for axis in array.split if axis is not None]
            if unknown := [axis for axis in named if axis not in sizes]:
                yield (
                    f"expected {array.name} to be split over axes of the mesh, {_axes(instance)}, got "
                    f"{', '.join(unknown)}"
                )
            elif len(set(named)) < len(named):
                yield f"expected {array.name} to be split over each axis once, got {', '.join(named)}"
            elif array.split and len(array.split) != len(array.shape):
                yield (
                    f"expected {array.name} to name an axis, or None, for each of {len(array.shape)} dimensions, got "
                    f"{array.split}"
                )
            elif array.split and not _can_be_split(statement, array):
                yield f"expected the chips, {_axes(instance)}, to divide {array.name}, {list(array.shape)}{of_whole}"


def _axes(problem: Problem) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in problem.statement().mesh) or "no mesh"


def _kind(statement: Statement) -> tuple[Any, ...]:
    arrays = [(array.name, len(array.shape), array.dtype) for array in (*statement.inputs, *statement.outputs)]
    return (statement.operation, len(statement.inputs), *arrays)


def _elements(statement: Statement) -> int:
    return sum(int(np.prod(array.shape)) for array in (*statement.inputs, *statement.outputs))


def _words(statement: Statement) -> str:
    return ", ".join(f"{array.name} {list(array.shape)}" for array in (*statement.inputs, *statement.outputs))


def _inputs(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the inputs."""
    stated = small.timing_inputs() if isinstance(small, Timed) else {}
    repeating = {*getattr(small, "distinct", ())}
    for full in (False, True):
        families = problem.families(full)
        if not families or len(set(families)) < len(families):
            yield f"expected families(full={full}) to name families, each once, got {families}"
        for family in families:
            first, again, other = (small.make_inputs(family, seed) for seed in (_SEEDS[0], *_SEEDS))
            expected = small.statement().inputs
            if [(a.shape, a.dtype.name) for a in first] != [(a.shape, a.dtype) for a in expected]:
                got = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in first)
                yield f"{family}: expected inputs {_words(small.statement())}, got {got}"
                return
            if not all(np.isfinite(array.astype(np.float64)).all() for array in first):
                yield f"{family}: expected finite inputs"
            for array, values in zip(expected, first, strict=True):
                if array.is_table:
                    yield from (f"{family}: {fault}" for fault in of_contents(array, values))
                    repeating |= {array.name} if _repeats(array, values) else set()
            if different := differing(small, family, first) or differing(small, family, other):
                yield f"{family}: expected {different} to have the contents that timing_inputs() states, for every seed"
            if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
                yield f"{family}: expected equal inputs for equal seeds"
            # Timed contents are the same for every seed, and a family may have no other contents.
            is_stated = family in stated and all(array.is_table for array in expected)
            if not is_stated and all(np.array_equal(a, b) for a, b in zip(first, other, strict=True)):
                yield (
                    f"{family}: expected different inputs for another seed, got the same: a kernel could hard-code them"
                )
    for array in small.statement().inputs:
        if array.is_table and array.name not in repeating and isinstance(problem, _StatesFormula):
            yield (
                f"expected a family in which entries of {array.name} are repeated, got none: repeat some in tables(), "
                "or name it in `distinct` if the operation needs distinct entries"
            )
    try:
        small.make_inputs("no such family", 0)
    except ValueError:
        return
    yield "expected make_inputs() to raise ValueError for a family that does not exist"


def _repeats(array: Array, values: Values) -> bool:
    """True if an entry is repeated, or if the absence of repeated entries proves nothing.

    The absence proves nothing if the entries are offsets in order, or if they are so few that a repeat is unlikely.
    """
    entries, numbers = values.reshape(-1), (array.high or 0) - (array.low or 0) + 1
    is_by_chance = len(entries) ** 2 < 4 * numbers
    return is_by_chance or len(np.unique(entries)) < len(entries) or bool((np.diff(entries) >= 0).all())


def _state(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the state, and about inputs that outputs are written over."""
    statement = small.statement()
    places = {array.name: place for place, array in enumerate(statement.inputs)}
    if unknown := [name for name in (*statement.overwrites, *statement.updates) if name not in places]:
        yield f"expected overwrites and updates to name inputs, got {', '.join(unknown)}"
        return
    last = statement.outputs[len(statement.outputs) - len(statement.overwrites) :]
    for name, output in zip(statement.overwrites, last, strict=True):
        over = statement.inputs[places[name]]
        if (over.shape, over.dtype) != (output.shape, output.dtype):
            yield f"expected {output.name} to have the shape and dtype of {name}, which it overwrites"
    stated = [statement.inputs[places[name]] for name in statement.updates]
    for family in small.families(False):
        inputs = small.make_inputs(family, _SEEDS[0])
        states = new_state(small, inputs)
        got = [(array.shape, array.dtype.name) for array in states]
        if got != [(array.shape, array.dtype) for array in stated]:
            yield f"expected new_state() to give {', '.join(a.name for a in stated) or 'nothing'} as stated, got {got}"
            return
        for array, after in zip(stated, states, strict=True):
            if not 0 < (inputs[places[array.name]] == after).mean() < 1:
                yield f"{family}: expected new_state() to change some of {array.name} and leave some"


def _timing(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the timing inputs."""
    for instance in (problem, small):
        for array in instance.statement().inputs:
            if array.is_table and (array.low is None or array.high is None):
                got = f"low={array.low}, high={array.high}"
                yield f"expected {array.name}, which holds integers, to state its smallest and largest value, got {got}"
                return
        try:
            timing_inputs(instance)
        except RatchetError as error:
            yield str(error)


def _rows(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the rows that are compared."""
    for instance in (problem, small):
        total = row_count(instance.statement().outputs)
        rows = instance.sample_rows(_SEEDS[0])
        if not len(rows) or rows.dtype.kind != "i" or rows[0] < 0 or rows[-1] >= total or (np.diff(rows) < 1).any():
            yield f"expected sample_rows() to give rows 0 to {total - 1}, sorted and distinct, got {rows[:5]} ..."
        elif rows[0] > 0 or rows[-1] < total - 1:
            # A loop that ends one block too early is the most common bug.
            yield f"expected sample_rows() to have the first and the last row, 0 and {total - 1}"
        if not np.array_equal(rows, instance.sample_rows(_SEEDS[0])):
            yield "expected sample_rows() to give equal rows for equal seeds"


def _numbers(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the numbers: reference(), honest() and rounding()."""
    rows = small.sample_rows(_SEEDS[0])[:_MOST_ROWS]
    some = rows[:: max(1, len(rows) // 5)]
    width = [columns.stop for *_, columns in spans(small.statement().outputs)][-1]
    for family in (*problem.families(False), *problem.families(True)):
        inputs = small.make_inputs(family, _SEEDS[0])
        for name, method in (("reference", small.reference), ("honest", small.honest), ("rounding", small.rounding)):
            numbers = method(inputs, rows)
            if numbers.shape != (len(rows), width) or numbers.dtype != np.float64:
                got = f"{numbers.dtype}{list(numbers.shape)}"
                yield f"expected {name}() to give float64[{len(rows)}, {width}], got {got}"
                return
            if not np.isfinite(numbers).all():
                yield f"{family}: expected {name}() to be finite everywhere"
        whole, part = small.reference(inputs, rows), small.reference(inputs, some)
        for _, output, columns in spans(small.statement().outputs):
            if not is_exact(small, output):
                if not (small.rounding(inputs, rows)[:, columns] > 0).all():
                    yield f"{family}: expected rounding() to be positive everywhere, but for {output.name} it is not"
            elif not np.array_equal(whole[:, columns], rounded(whole[:, columns], output.dtype)):
                yield f"{family}: expected the exact {output.name} of reference() to be representable in {output.dtype}"
        if not np.allclose(whole[np.isin(rows, some)], part, rtol=1e-9, atol=1e-12):
            yield f"{family}: expected reference() of a row to be the same for every choice of rows"


def _strictness(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints if honest outputs fail or wrong outputs pass."""
    rows = _all_rows(small)
    statement = small.statement()
    hidden = {(output.name, what) for output in statement.outputs for what in _ways_to_be_wrong(small, output)}
    for family in (*problem.families(False), *problem.families(True)):
        inputs = small.make_inputs(family, _SEEDS[0])
        output_errors = errors(small, inputs, _outputs(small, inputs), rows)
        # `Errors.honest_scaled` is of no use here: where the model of rounding does not hold, the deviation is the
        # honest error itself.
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = small.reference(inputs, rows)
            off = (small.honest(inputs, rows) - exact) / small.rounding(inputs, rows)
        for (_, output, columns), output_error in zip(spans(statement.outputs), output_errors, strict=True):
            # Equal numbers have the same rounding, so each is counted once.
            _, different = np.unique(exact[:, columns], return_index=True)
            typical = float(np.sqrt(np.mean(np.square(off[:, columns].reshape(-1)[different]))))
            most = rms_factor(len(different))
            if not is_exact(small, output) and typical > most:
                limit = f"expected honest() to be off by at most {most:.2f} deviations of rounding()"
                got = f"got {typical:.2f} in {output.name}"
                yield f"{family}: {limit}, {got}: rounding() leaves something out"
            if not output_error.passed:
                why = (
                    " (it is compared exactly, so a rounded quotient cannot be an output)"
                    if is_exact(small, output)
                    else ""
                )
                yield f"{family}: honest() must pass its own check, but its {output.name} does not{why}"
            for what in _ways_to_be_wrong(small, output):
                if not replace(output_error, got=_WRONG[what](output_error.got, output)).passed:
                    hidden.discard((output.name, what))
                elif what == "zeros" and family != NEAR_ROWS and _zeros_pass(small, family, output, rows):
                    yield (
                        f"{family}: {output.name} filled with zeros passes: the tolerance is larger than what is "
                        "computed"
                    )
    for name, what in sorted(hidden):
        yield f"a wrong {name} ({what}) passes with every family of inputs: the inputs or the tolerance hide it"


def _ways_to_be_wrong(small: Problem, output: Array) -> list[str]:
    """The keys of `_WRONG` that make `output` wrong.

    Whole numbers may have few digits, and a single number has no other place.
    """
    without = {_COARSE: is_exact(small, output), _MOVED: prod(output.shape) == 1}
    return [what for what in _WRONG if not without.get(what)]


def _zeros_pass(small: Problem, family: str, output: Array, rows: NDArray[np.int64]) -> bool:
    """True if zeros pass as `output` in other draws too (a single draw may be zeros).

    False for an exact output, and if zeros are the right answer in all further draws: a layer normalization of rows of
    equal elements is 0.
    """
    if is_exact(small, output):
        return False
    place = [each.name for each in small.statement().outputs].index(output.name)

    def computed(family: str, seed: int) -> Errors:
        inputs = small.make_inputs(family, seed)
        return errors(small, inputs, _outputs(small, inputs), rows)[place]

    draws = [computed(family, seed) for seed in _OTHER_SEEDS]
    usual = np.abs(computed(small.families(False)[0], _SEEDS[0]).expected).max()
    if all(np.abs(draw.expected).max() <= _ZERO * usual for draw in draws):
        return False
    return all(replace(draw, got=np.zeros_like(draw.got)).passed for draw in draws)


def _coarse(got: Exact, output: Array) -> Exact:
    """The outputs rounded to two fraction bits fewer than their dtype has, but to at most bfloat16's seven."""
    bits = min(int(ml_dtypes.finfo(_dtype(output)).nmant) - 2, 7)
    fraction, exponent = np.frexp(got)
    coarse: Exact = np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1)
    return coarse


_COARSE = "rounded too coarsely"
_MOVED = "moved by one row"
# Ways to make wrong outputs: nothing written, each row (of a single row: each number) in the place of the next, and too
# few digits.
_WRONG: dict[str, Callable[[Exact, Array], Exact]] = {
    "zeros": lambda got, output: np.zeros_like(got),
    _MOVED: lambda got, output: np.roll(got, 1, axis=0 if len(got) > 1 else 1),
    _COARSE: _coarse,
}


def _all_rows(problem: Problem) -> NDArray[np.int64]:
    return np.arange(row_count(problem.statement().outputs))


def _outputs(problem: Problem, inputs: Sequence[Values]) -> list[Values]:
    """The outputs of an honest kernel: honest() of all rows, as arrays of the problem."""
    whole = problem.honest(inputs, _all_rows(problem))
    return [
        whole[:, columns].astype(_dtype(output)).reshape(output.shape)
        for _, output, columns in spans(problem.statement().outputs)
    ]


def _probes(problem: Problem, small: Problem) -> Iterator[str]:
    """Complaints about the probes."""
    # A kernel that is checked only at its own shape gets the probes of a reduced shape there.
    for full in (False, True):
        probes = small.probes(full, _SEEDS[0])
        if not probes and not full:
            yield "expected probes at a reduced shape, got none: only probes detect a part that a kernel leaves out"
        if probes != small.probes(full, _SEEDS[0]):
            yield f"expected equal probes(full={full}) for equal seeds"
        for probe in probes:
            yield from _probe_complaints(small, probe)


def _probe_complaints(small: Problem, probe: Any) -> Iterator[str]:
    outputs = small.statement().outputs
    inputs = small.make_inputs(probe.family, _SEEDS[0])
    after_change = changed(probe, inputs)
    if all(np.array_equal(a, b) for a, b in zip(inputs, after_change, strict=True)):
        yield f"probe of {probe.name}: expected it to change an input, got the same inputs"
    before, after = _outputs(small, inputs), _outputs(small, after_change)
    for what, failure in (
        ("it fails for honest()", check_probe(outputs, probe, before, after, mode="full", seed=0)[1]),
        ("it requires no output to move", None if probe.moves else probe),
    ):
        if failure is not None:
            message = getattr(failure, "message", "")
            yield f"probe of {probe.name}: {what}{': ' * bool(message)}{message}"
    if probe.moves and check_probe(outputs, probe, before, before, mode="full", seed=0)[1] is None:
        yield f"probe of {probe.name}: an output that never moves passes it"


_RULES: dict[str, Rule] = {
    "the statement": _statement,
    "the mesh": _over_mesh,
    "the smaller shapes": _shapes,
    "the timing inputs": _timing,
    "the inputs": _inputs,
    "the state": _state,
    "the rows that are compared": _rows,
    "the numbers: reference(), honest() and rounding()": _numbers,
    "what passes and what does not": _strictness,
    "the probes": _probes,
}
