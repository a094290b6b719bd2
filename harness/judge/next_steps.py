"""What to do about a failure, by its kind where that says enough and by its stage otherwise."""

from harness.records import Failure, Stage

_BY_KIND = {
    "impossible": "look for work that is skipped or counted twice; no kernel of this problem is that fast on this chip",
    "timeout": "try it at a smaller grid first (larger blocks); look for a loop whose bound never comes",
    "crash": "read its last output above; run `ratchet.sh judge` to see it again without recording",
    "out-of-memory": "lower what one grid step holds: smaller blocks, fewer or smaller scratch buffers",
    "no-space": "free some space on the disk; old captures and dumps lie in profile_data/",
    "syntax-error": "correct that line; `ratchet.sh judge` checks it without recording",
    "flop-claim": "make compute_flops() return the judge's figure: useful work, unmasked pairs only",
    "dot-outside-pallas": "move that matmul into the Pallas call",
    "exp-outside-pallas": "move that exponential into the Pallas call",
    "work-outside-pallas": "move that arithmetic into the Pallas call; only cheap preparation may stand outside",
    "no-pallas-call": "make kernel_fn call pl.pallas_call: a program left to XLA is not what is judged here",
    "host-callback": "remove the callback (debug prints too): a scored kernel does not call the host",
    "inputs-changed": "write to an output or a scratch buffer, and alias no input to an output",
    "out-of-bounds": "look at the index maps and pl.ds offsets at the last block of each axis",
    "vmem-exceeded": "make blocks smaller, or raise vmem_limit_bytes in CompilerParams; values between operations "
    "count beside the buffers in the table: the scores of a step are a float32 for each pair of its query and key rows",
    "non-finite": "subtract the row maximum before exp, and start the running maximum at a finite, very low number",
    "tampered": "put the judge's files back (git status names them) and run again; only kernel.py may change",
}

_BY_STAGE: dict[Stage, str] = {
    "contract": "make kernel.py export what the problem expects; `ratchet.sh judge` checks it without recording",
    "static": "keep the floating-point work inside the Pallas call and the claims equal to what the judge counts",
    "correctness": "compare the worst element's index with the block borders: a first, last or masked block is the "
    "usual place; `ratchet.sh judge` checks again without recording",
    "compile": "read the compiler's sentence: smaller blocks if memory is short, another operation if unsupported",
    "counters": "run again; if it stays, this is a gap of the harness and not of the kernel: report it with the dump",
    "latency": "run again on a quiet machine; `ratchet.sh judge --full` shows what is known",
    "profile": "run again; the profile's folder must be writable",
}


def next_step(failure: Failure) -> str:
    """One thing to do about `failure`."""
    return _BY_KIND.get(failure.kind, _BY_STAGE[failure.stage])
