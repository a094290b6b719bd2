"""Whether the programs that a candidate's process handed over are what it said they are, and one and the same program.

The process that traces kernel.py is the candidate's own: it can say anything. What is timed or
simulated is its program for the chip, what is checked is its program for the CPU. Both are read
here, where kernel.py never ran: the first must have the fingerprint and grid that were reported
and do no matrix work outside its kernels; the matrix products and exponentials that stand in both
must be the same. That does not prove two programs equal. It leaves a forger those differences that
cost no product and no exponential; how many products really run, the simulator counts.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import jax
from jax.interpreters import mlir
from jaxlib.mlir import ir

from harness.judge.evaluate.messages import ArtifactCheckRequest
from harness.judge.evaluate.trace.fingerprint import fingerprint
from harness.judge.evaluate.trace.kernels import MosaicKernel, of_program
from harness.judge.evaluate.trace.packages import digested
from harness.sandbox.messages import Done, Rejected

# The lines of MLIR's generic form that are counted: name of the operation, types of its operands.
_OPERATION = re.compile(r'(?:(?P<value>%\w+) = )?"(?P<name>[\w.]+)"\(.*: \((?P<operands>[^()]*)\) -> (?P<result>.*)$')
# What the judge computes in float32 and rounds at once stands for an operation on bfloat16 (`chip_model`).
_ROUNDED = re.compile(r'"stablehlo\.reduce_precision"\((?P<value>%\w+)\) .*mantissa_bits = 7\b')
_TYPE = re.compile(r"(?:vector|tensor)<(?P<shape>(?:\d+x)*)(?P<dtype>\w+)[,>]")
_DEFINED = re.compile(r"\s*(?P<value>%\w+) = ")
_VALUE = re.compile(r"%\w+")
_WIDENED = re.compile(r'"stablehlo\.convert"\(%[\w#]+\).*: \(tensor<(?:\d+x)*bf16>\) -> tensor<(?:\d+x)*f32>')
_ARGUMENTS = re.compile(r'"\((?P<arguments>%[\w#]+(?:, %[\w#]+)*)\)')
_PRODUCTS = (
    "tpu.matmul", "vector.contract", "tt.dot", "stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution",
)  # fmt: skip
_EXPONENTIALS = ("math.exp", "math.exp2", "stablehlo.exponential")
# What a kernel's compiler may write with an exponential although the program has none.
_WITH_EXPONENTIAL = ("stablehlo.logistic", "stablehlo.tanh", "stablehlo.exponential_minus_one", "stablehlo.power")

Kind = Literal["matrix products", "exponentials"]
# What an operation computes: numbers of elements of operands and result, and the operands' dtypes.
Counted = Counter[tuple[tuple[int, ...], tuple[str, ...]]]


def check_artifacts(request: ArtifactCheckRequest) -> Done:
    """Compares the two programs with each other and with the trace that was reported.

    Raises Rejected `forged-result` where the report is not true, `program-differs` where the programs differ.
    """
    for_chip, for_cpu = (_module(path) for path in (request.chip, request.cpu))
    found = digested(fingerprint(for_chip), request.trace.imported)
    if found != request.trace.fingerprint:
        said = f"expected the program {request.trace.fingerprint[:12]} that was reported, got {found[:12]}"
        raise Rejected("static", "forged-result", said)
    kernels = of_program(for_chip)
    around, reference = _generic(for_chip), _generic(for_cpu)
    outside = [name for name in (*_PRODUCTS, *_EXPONENTIALS) if f'"{name}"(' in around]
    if outside:
        raise Rejected(
            "static", "forged-result", f"expected the work in Pallas calls, got {', '.join(outside)} outside"
        )
    _require_steps(kernels, {call.steps for call in request.trace.pallas_calls})
    for kind, names in (("matrix products", _PRODUCTS), ("exponentials", _EXPONENTIALS)):
        if kind == "exponentials" and any(f'"{name}"(' in reference for name in _WITH_EXPONENTIAL):
            continue
        checked, compiled = counted((reference,), names), counted((kernel.text for kernel in kernels), names)
        # JAX 0.12 widens the bfloat16 operand of a product with float32 for a CPU, which is exact.
        if not agree(checked, compiled) and not agree(counted((reference,), names, as_widened=False), compiled):
            raise Rejected(
                "correctness", "program-differs",
                f"the program that was checked on the CPU and the one for the chip differ in their {kind}: "
                f"{_words(checked)} against {_words(compiled)}",
            )  # fmt: skip
    return Done(path=request.chip)


def counted(texts: Iterable[str], names: tuple[str, ...], *, as_widened: bool = True) -> Counted:
    """How often each kind of these operations stands in programs in MLIR's generic form.

    Not `as_widened`: an operand that was converted from bfloat16 to float32 counts as what it was.
    """
    found: Counted = Counter()
    for text in texts:
        value, before = "", None
        narrow: set[str] = set()
        lines = text.splitlines()
        uses = _uses(lines)
        for number, line in enumerate(lines):
            defined = _DEFINED.match(line)
            if defined and not as_widened:
                # A name that is defined again is another value.
                (narrow.add if _WIDENED.search(line) else narrow.discard)(defined["value"])
            rounded = _ROUNDED.search(line)
            # What others have too before it is rounded is no operation on bfloat16.
            if rounded and before and rounded["value"] == value and uses[number - 1] == 1:
                found[before] -= 1
                found[(before[0], ("bf16",) * len(before[1]))] += 1
            match = _OPERATION.search(line)
            value, before = "", None
            if match and match["name"] in names:
                operands = _types(match["operands"])[:2]
                given = _ARGUMENTS.search(line)
                arguments = given["arguments"].split(", ") if given else []
                if narrow and len(arguments) >= len(operands):
                    operands = [
                        (size, "bf16" if argument in narrow else dtype)
                        for argument, (size, dtype) in zip(arguments, operands, strict=False)
                    ]
                sizes = tuple(size for size, _ in (*operands, *_types(match["result"])[:1]))
                value, before = match["value"], (sizes, tuple(dtype for _, dtype in operands))
                found[before] += 1
    return +found


def _uses(lines: Sequence[str]) -> Counter[int]:
    """How often the value that a line defines is used, by the number of the line."""
    found: Counter[int] = Counter()
    defined: dict[str, int] = {}
    for number, line in enumerate(lines):
        definition = _DEFINED.match(line)
        found.update(
            defined[name] for name in _VALUE.findall(line, definition.end() if definition else 0) if name in defined
        )
        if definition:
            # A name that is defined again is another value.
            defined[definition["value"]] = number
    return found


def agree(checked: Counted, compiled: Counted) -> bool:
    """True where both have the same kinds of operations, or the same work in each dtype.

    Kinds alone: a loop that one compiler unrolls. Work alone: an operation that one of them takes apart.
    """
    return set(checked) == set(compiled) or _work(checked) == _work(compiled)


def _work(operations: Counted) -> Counter[tuple[str, ...]]:
    """The multiplications (m n k is the root of mk · kn · mn) or elements by dtype."""
    total: Counter[tuple[str, ...]] = Counter()
    for (sizes, dtypes), count in operations.items():
        total[dtypes] += count * (math.isqrt(math.prod(sizes)) if len(sizes) > 2 else sizes[-1])
    return total


def _require_steps(kernels: tuple[MosaicKernel, ...], reported: set[int]) -> None:
    found = {kernel.steps for kernel in kernels}
    if None in found or found == reported:
        return
    said = f"expected kernels of {sorted(reported)} grid steps as reported, got {sorted(filter(None, found))}"
    raise Rejected("static", "forged-result", said)


def _module(path: str) -> str:
    text: str = jax.export.deserialize(bytearray(Path(path).read_bytes())).mlir_module()
    return text


def _generic(module_text: str) -> str:
    with mlir.make_ir_context():
        operation = ir.Module.parse(module_text).operation
        return str(operation.get_asm(enable_debug_info=False, print_generic_op_form=True))


def _types(text: str) -> list[tuple[int, str]]:
    return [
        (math.prod(int(extent) for extent in match["shape"].split("x") if extent), match["dtype"])
        for match in _TYPE.finditer(text)
    ]


def _words(operations: Counted) -> str:
    shown = [
        f"{count} of {'·'.join(map(str, sizes))} {'/'.join(dtypes)}" for (sizes, dtypes), count in operations.items()
    ]
    return ", ".join(sorted(shown)) or "none"
