"""Remedies for failures: by kind, by the compiler's message, by the operation, or otherwise by stage."""

import math
import re

from harness.advice import jax_names
from harness.records import Failure, Stage

_BY_KIND = {
    "impossible": "look for work that is skipped or counted twice: no kernel for this problem can be that fast on the "
    "chip",
    "timeout": "if the machine was busy, run again; if it is slow, set RATCHET_TIME_LIMITS=3 (three times the time); "
    "otherwise try a smaller grid (larger blocks), or look for a loop that never ends",
    "crash": "read the kernel's last output above; run `ratchet.sh judge` to see it again without recording",
    "problem-error": "correct the problem, not the kernel: every kernel is compared with the results that the problem "
    "computes",
    "out-of-memory": "reduce the memory of a grid step: smaller blocks, fewer or smaller scratch buffers",
    "no-space": "free some space on the disk; old captures and dumps lie in profile_data/",
    "syntax-error": "correct the line named above; `ratchet.sh judge` checks it without recording",
    "trace-error": "kernel.py raises an error while it is traced: see the line above; `ratchet.sh judge` checks it "
    "without recording",
    "import-error": "kernel.py raises an error while it is imported: see the line above; the sandbox has no other "
    "processes, no network and no files to write. If a package needs any of them on import, and the kernel does not "
    "need the package, name the package in STUBS in prepare.py: a stand-in then replaces it, installed or not "
    "(docs/OPERATORS.md)",
    "foreign-import": "import only modules that a kernel may use: the sentence above names the refused import",
    "missing-kernel-fn": "define kernel_fn with the problem's inputs as its parameters",
    "wrong-signature": "give kernel_fn the parameters named above, in that order",
    "wrong-structure": "return the problem's outputs and nothing else: one array, or a tuple of arrays in order",
    "wrong-dtype": "cast the values that the kernel stores to the problem's dtype, and give out_shape that dtype",
    "wrong-shape": "give out_shape and the result of kernel_fn the problem's shape",
    "bad-claim": "correct what that function returns, or delete the function; it may take the problem's parameters by "
    "name",
    "chip-not-begun": "let each chip signal the barrier semaphore of every chip that sends to it, and, before it "
    "sends, wait for the signals of all chips that it sends to",
    "chips-differ": "return the same values on every chip, or split the output over the mesh as the problem does",
    "sharded": "for one chip, judge the body of shard_map at the shapes of one shard; for several chips, state a "
    "problem over a mesh and use shard_map over that mesh (docs/SEVERAL_CHIPS.md)",
    "sparsecore": "write the kernel for the TensorCore, with pl.pallas_call",
    "flop-claim": "make compute_flops() return the judge's figure, which counts useful work once",
    "dot-outside-pallas": "move that matmul into the Pallas call",
    "exp-outside-pallas": "move that exponential into the Pallas call",
    "work-outside-pallas": "move that arithmetic into the Pallas call; only cheap preparation may stand outside",
    "no-pallas-call": "make kernel_fn call pl.pallas_call: a program without a Pallas kernel is not judged",
    "host-callback": "remove the callback (debug prints too): a scored kernel does not call the host",
    "foreign-primitive": "write that operation with functions of jax, jax.numpy and jax.lax",
    "input-written": "write to an output or scratch; to update an input in place, alias it to an output",
    "inputs-changed": "write to an output or a scratch buffer, and alias no input to an output",
    "wrong-state": "write each new element to its own place, write nothing else, and return the state passed in",
    "out-of-bounds": "look at the index maps and pl.ds offsets at the last block of each axis",
    "race": "wait for a copy before its target is read or its source written, and let steps of a parallel axis write "
    "to different blocks",
    "overlapping-copy": "copy by way of another buffer, so that no copy writes memory that it reads",
    "unfinished-transfer": "before the kernel ends, wait for each copy as often as it was started",
    "left-memory": "clear scratch memory in the first step, whatever it contains: on a chip it keeps its contents from "
    "call to call",
    "transfer-order": "give each copy its own semaphore if several are in flight at the same time, or wait for all of "
    "them before you use the data of the first",
    "overlapping-windows": "let each step write a different block; if two steps need the same values, compute them "
    "in both",
    "deadlock": "wait for as many bytes as were copied: give the wait the refs of the start",
    "revisited-block": "order the grid so that all visits of an output block follow each other: put the summed axis "
    "last",
    "wrong-dependence": "look at index maps, masks and skipped blocks: the sentence above names the data that the "
    "kernel wrongly ignores or wrongly reads",
    "not-deterministic": "look for memory that is read before it is written, for random numbers and for clocks",
    "not-interpretable": "write that operation in another way: what cannot be checked is not accepted",
    "unsound-cpu": "install the versions of requirements.lock, or run on another machine: kernel.py is not to blame",
    "dtype-not-on-chip": "before the kernel's line above, convert floats to bfloat16 or float32, and integers to int32 "
    "(int8 too: .astype(jnp.int32))",
    "dynamic-grid": "give the grid Python integers; put a length that is known only at run time into a prefetched "
    "table (PrefetchScalarGridSpec), and skip the steps beyond it with pl.when",
    "forbidden-import": "remove the import or name that the sentence above states: no kernel needs such a module",
    "forged-result": "remove the code that writes files or answers in the judge's place; kernel_fn may only run "
    "the kernel",
    "helper-name": "rename that file; if only its folder is refused, because Python imports modules from it (such as "
    "the harness's folder), move the file to another folder, such as kernels/",
    "interpret-mode": "remove interpret=...: the judge itself interprets the kernel",
    "judge-patched": "remove the assignment to an object of another module",
    "known-jax-bug": "rewrite the operation as the sentence above says, or judge the kernel with the other "
    "supported version of JAX",
    "left-behind": "end every thread and process before kernel.py's last line, or start none",
    "no-kernel": "check whether the compiler removed the kernel: its result may be unused, or a constant",
    "no-schedule": "run again; if it fails again, this version of libtpu writes no schedules: install the version in "
    "requirements.lock",
    "not-portable": "make every constant and operation with jax, jax.numpy, numpy and Pallas; keep objects of your own "
    "classes out of the traced program",
    "not-triton": "pass compiler_params=plgpu.CompilerParams(...) of jax.experimental.pallas.triton",
    "nothing-compared": "let the problem's probes compare at least one element",
    "platform-dependent": "write one program for all platforms; choose by a constant of kernel.py, not by the platform",
    "program-differs": "do not change JAX's rules or exports, and define no lowering; remove code that depends on when "
    "or how often kernel_fn is called: clocks, counters, state of a module",
    "refused-option": "leave that option of CompilerParams out",
    "refused-primitive": "write that operation as its row in docs/SEMANTICS.md says",
    "settings-changed": "change no setting or hook of JAX, and no environment variable during the trace; if a package "
    "changes a setting of JAX when it is imported, set it back right after the import",
    "table-changed": "copy the integers to scratch memory (pltpu.SMEM) and change them there",
    "unknown-primitive": "replace that operation by operations that docs/SEMANTICS.md lists",
    "unusual-constant": "make arrays from plain numbers with jnp.asarray outside kernel_fn, or create them inside it",
    "work-not-done": "look for steps or copies that are skipped at run time: the schedule executes fewer of them than "
    "the trace has",
    "vmem-exceeded": "make blocks smaller, or raise vmem_limit_bytes in CompilerParams; values between operations take "
    "VMEM in addition to the buffers that the report lists",
    "unsupported": "remove or rewrite the operation that the compiler names: this release of JAX does not support it",
    "compile-error": "read the compiler's sentence: it names the operation or the limit, and the last change is the "
    "first suspect",
    "non-finite": "if whole blocks are not finite, check that the grid and the index maps of out_specs write them; "
    "otherwise look for an overflow, a division by zero or the logarithm of zero (a sum of exponentials that are all "
    "0, because the running maximum starts too high), and a transfer that was not waited for",
    "tampered": "put the judge's files back (git status names them) and run again; only kernel.py may change",
}

_BEYOND_THE_CHIP = (
    "make blocks or scratch buffers smaller: the kernel's limit is all the VMEM that the chip has, so a larger limit "
    "changes nothing"
)

_BY_STAGE: dict[Stage, str] = {
    "contract": "do what the sentence above asks of kernel.py; `ratchet.sh judge` checks it without recording",
    "static": "do what the sentence above asks of kernel.py; `ratchet.sh judge` checks it without recording",
    "correctness": "if nearly all elements are wrong, or some in nearly every row, or the root mean square error is "
    "further beyond its tolerance than the worst element, look for a factor, a dtype, a rounding or a missing operand; "
    "if few rows are wrong, compare them and their columns with the block borders (a first or last block, one that is "
    "partly masked or out of bounds); if whole blocks are wrong, look for steps that write no output (an output that "
    "is aliased to an input does not begin as a copy of it); `ratchet.sh judge` checks again without recording",
    "compile": "read the compiler's sentence: it names what failed",
    "counters": "run again; if it fails again, the harness is at fault, not the kernel: report it with the "
    "compiler's dumps (in profile_data/)",
    "latency": "run again on a quiet machine; `ratchet.sh judge --full` prints the whole report",
    "profile": "run again; the profile's folder must be writable",
}


# Remedies by kind for one operation; they replace the general ones.
_BY_OPERATION = {
    "attention": {
        "flop-claim": "make compute_flops() return the judge's figure: useful work, unmasked pairs only",
        "vmem-exceeded": f"{_BY_KIND['vmem-exceeded']}: the scores of a step are a float32 for each pair of its query "
        "and key rows",
        "non-finite": "subtract the row maximum before exp, and start the running maximum at a finite, very low number",
    },
    "quantized_matmul": {
        "wrong-result": "if weights are scaled before the product, scale the sums instead: a weight of eight bits is "
        "exact in bfloat16, a scaled weight is rounded; otherwise, "
    },
}


# Remedies by the wrong part of a result: nearly all of it, parts with edges, or elements here and there.
_EVERYWHERE = "nearly the whole output is wrong: look for a factor, a dtype, a rounding or an operand that is left out"
_WITH_EDGES = (
    "the wrong part has edges: compare them with the borders of blocks, heads and groups, and look for a step that "
    "writes no output, begins with values that another step left, or reads another step's block because of its index "
    "map (an output that is aliased to an input does not begin as a copy of it)"
)
_HERE_AND_THERE = (
    "a few scattered elements are wrong: look for a property that only these elements have, such as a mask, a last "
    "block that the axis does not fill, equal values, or a wrong first value of a maximum or sum"
)
_EVERYWHERE_A_LITTLE = (
    "no element is far off, but the errors are larger throughout than rounding explains: look for a value that is "
    "rounded too early, or for an approximation (on v4, v5e and v5p, pl.reciprocal(approx=True) counts as rounded to "
    "bfloat16)"
)
_SCATTERED = (
    "wrong elements are scattered over this part: if they are at equal distances, such as every 8th row or the last of "
    "every 128 columns, look at that row or column of a tile; otherwise look for a property of their inputs, such as a "
    "large or a negative number, for which the kernel loses digits or overflows"
)
_IN_FLOAT32 = "keep in float32 the values that the message names, until they are used"
_AGAIN = "`ratchet.sh judge` checks again without recording"
_NOT_FOR_THAT_SHAPE = (
    "; if the kernel is not made for that smaller shape, let kernel_fn raise an error there (assert which sizes it "
    "takes): shapes at which the kernel does not trace are not checked, and the report says so"
)
# A block of an operand that lies beyond the array.
BLOCK_BEYOND = re.compile(r'Out-of-bounds block index \(.*?\) for (?:in|out)put "(\w+)"')
_BEYOND_ITS_ARRAY = (
    "correct the index map of the BlockSpec of {}: in the grid step named above, it returns a block beyond the array"
)
# The first wrong part of an output, such as y[128..159, 0..2047].
_PART = re.compile(r"\[((?:\d+(?:\.\.\d+)?(?:, )?)+)\]")
_FEW_ELEMENTS = 64
_OF_COMPARED = re.compile(r"(\d+) of (\d+) compared elements")
_RATIOS = re.compile(r"([\d.e+]+) times the tolerance; root mean square error ([\d.e+]+) times")


# Remedies by words of the compiler's message, where these say more than the kind. `{line}` is the kernel's line, if the
# compiler names it; other names in braces are groups of the pattern.
_BY_MESSAGE = (
    (
        re.compile(r"would exceed memory \(size=\d+\).*\bspace=smem\b|[Rr]an out of memory in memory space smem"),
        "scalar memory (SMEM) is full: make scratch in pltpu.SMEM and prefetched tables shorter, or keep a table in "
        "HBM and copy parts of it",
    ),
    (
        re.compile(r"failed to legalize operation 'arith\.\w+'.*\bvector<[\dx]+xi(?:2|4|8|16)>"),
        "the chip's compiler has no operation of this kind on such narrow integers: {line}convert with "
        ".astype(jnp.int32), and narrow the result",
    ),
    (
        re.compile(r"Length of grid does not match length of dimension semantics\W+len\(grid\)=(?P<axes>\d+)"),
        "give dimension_semantics one entry for each axis of the grid ({axes}): 'parallel' for an axis whose steps do "
        "not depend on each other, else 'arbitrary'",
    ),
    (
        # An error caused by a mistake in the program: its message has no word for a limitation of this release of JAX.
        re.compile(r"\A(?!.*(?:support|implement|currently|[Oo]nly|[Cc]annot)).*\b(?:Value|Type|Index)Error: "),
        "correct the mistake that the sentence above names: JAX refuses the program because of it",
    ),
)
_LINE = re.compile(r'\("([^"<>]+\.py)":(\d+):')


def next_step(failure: Failure, operation: str = "", *, has_all_vmem: bool = False) -> str:
    """The remedy for `failure` of a kernel; `operation` is the problem's.

    `has_all_vmem`: the kernel already asks for all the VMEM of the chip.
    """
    if failure.kind in ("import-error", "trace-error") and (remedy := jax_names.remedy(failure.message)):
        return remedy
    if failure.kind == "vmem-exceeded" and has_all_vmem:
        return _BEYOND_THE_CHIP
    if failure.kind == "out-of-bounds":
        block = BLOCK_BEYOND.search(failure.message)
        remedy = _BEYOND_ITS_ARRAY.format(block[1]) if block else _BY_KIND[failure.kind]
        return remedy + (_NOT_FOR_THAT_SHAPE if failure.message.startswith("at a smaller shape, ") else "")
    of_operation = _BY_OPERATION.get(operation, {}).get(failure.kind)
    if failure.kind == "wrong-result":
        return f"{of_operation or ''}{_on_wrong_part(failure)}; {_AGAIN}"
    if of_operation is not None:
        return of_operation
    if failure.stage == "compile":
        text = f"{failure.message}\n{failure.detail}"
        for words, remedy in _BY_MESSAGE:
            if match := words.search(text):
                line = _LINE.search(text)
                return remedy.format(line=f"before {line[1]} line {line[2]} " if line else "", **match.groupdict())
    return _BY_KIND.get(failure.kind, _BY_STAGE[failure.stage])


def _on_wrong_part(failure: Failure) -> str:
    """The remedy for a wrong result, chosen by the part that is wrong according to the judge's sentences."""
    if "forbidden rounding" in failure.message:
        return _IN_FLOAT32
    compared, ratios = _OF_COMPARED.search(failure.detail), _RATIOS.search(failure.message)
    if compared is not None and int(compared[1]) == 0:
        return _EVERYWHERE_A_LITTLE
    if ratios is not None and float(ratios[2]) > float(ratios[1]):
        return _EVERYWHERE
    if compared is None:
        return f"if {_EVERYWHERE}; if {_WITH_EDGES}"
    if 2 * int(compared[1]) > int(compared[2]):
        return _EVERYWHERE
    size = _size_of_part(failure)
    if "more parts, up to" in failure.message:
        return _HERE_AND_THERE if size < _FEW_ELEMENTS else _WITH_EDGES
    # If not all elements of the part were compared, the others are unknown.
    return _SCATTERED if 4 * int(compared[1]) < size <= int(compared[2]) else _WITH_EDGES


def _size_of_part(failure: Failure) -> int:
    """The number of elements of the first wrong part that the message names."""
    part = _PART.search(failure.message)
    ranges = [axis.partition("..") for axis in part[1].split(",")] if part is not None else []
    return math.prod(int(last) - int(first) + 1 for first, _, last in ranges if last)
