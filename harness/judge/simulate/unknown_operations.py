"""Finds executed operations that are neither modelled nor known to leave the time unchanged."""

import re
from collections import Counter

from harness.dumps.llo import Schedule
from harness.judge.simulate.scalar import is_known

# Vector operations that are understood, by the first word of their opcode. Other modules model them, or they take only
# the cycle in which they issue. Source: schedules of libtpu 0.0.42 and 0.0.50.
_VECTOR_WORDS = """
    vabs vadd vand vandn vbcast vcarry vceil vclamp vclampa vclz vcmask vcmp vcombine vcountsetbits vcvt vdwg vexp vexp2
    vfloor vimm vlaneseq vld vldmsk vlog vlog2 vmand vmax vmerge vmin vmneg vmor vmov vmpcnt vmul vmulu vmxor vneg
    vnor vnot vor vpack vperm vpop vpow vpow2 vprng vpush vrcp vrng vround vrot vrsqrt vsel vset vsetiar vsetrngseed
    vshll vshrl vshra vsin vcos vsqrt vst vstmsk vstv vsub vtanh vtrunc vunpack vweird vxor vxpose
    vmatmul vmatpush vmatpush1 vmatpush2 vmatpush3 vmatprep vtrace vsettm vsfence vsyncpa vsyncadd vsyncset vsyncmov
    vllmr vphi vsigshft vc vcosq vsinq vmac vmaxabs vmovacc vclamps vsmask
    vwait vdelay verf vfma vmpackc vnez vmmov vbitcast vselect vsign vsigmoid vscale vmsk vmask
"""
_OTHER_WORDS = """
    sst sdelay sfence shalt.err compiler-scheduling-barrier inlined_call_operand.hbm inlined_call_operand.vmem
    inlined_call_operand.smem inlined_call dma.done.wait strace
"""
_VECTOR = frozenset(_VECTOR_WORDS.split())
_OTHER = frozenset(_OTHER_WORDS.split())


def not_understood(schedule: Schedule, executions: list[int]) -> list[str]:
    """A sentence for each executed opcode whose effect or time is not modelled, the most frequent first."""
    counts: Counter[str] = Counter()
    seen: dict[tuple[str, bool], bool] = {}
    for index, op in schedule.ops_where(lambda opcode: not _is_named(opcode)):
        if executions[index]:
            key = (op.opcode, bool(op.destination))
            is_modelled = seen.get(key)
            if is_modelled is None:
                is_modelled = seen[key] = op.destination != "" and op.opcode[0] != "v" and is_known(op)
            if not is_modelled:
                counts[op.opcode] += executions[index]
    return [f"the operation {opcode} is not known ({count} executed)" for opcode, count in counts.most_common()]


def _is_named(opcode: str) -> bool:
    if opcode.startswith("v"):
        # `vclamps-f32` is written with a dash.
        return re.split("[.-]", opcode, maxsplit=1)[0] in _VECTOR
    return opcode in _OTHER or opcode.startswith(("sbr.rel", "sdivrem", "spop", "dma."))
