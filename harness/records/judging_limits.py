"""The policy of a judgement: limits on time and memory, numbers of samples, least gain, rate of false accepts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits and thresholds that decide, saved with every attempt. Time limits are seconds of wall clock."""

    # The least gain that is accepted, because smaller gains do not justify a commit. The whole interval of a measured
    # ratio must be beyond this limit, and a simulated gain must also exceed the simulator's uncertainty.
    minimum_effect: float = 0.01
    trace_seconds: float = 60.0
    correctness_seconds: float = 240.0
    compile_seconds: float = 180.0
    simulate_seconds: float = 60.0
    # The time limit for all runs of one program on varied machines. There are about twenty runs, each of up to 5 s on
    # an idle core, and the core may also run up to ten other programs.
    resimulate_seconds: float = 1800.0
    measure_seconds: float = 120.0
    # The memory that a child may hold. A candidate that needs more is stopped before the machine runs out of memory.
    child_memory_bytes: int = 16 << 30
    warmup_calls: int = 5
    profiled_calls: int = 3
    # The number of samples of a program that is timed alone, without a champion.
    measured_pairs: int = 30
    # If False, children have the user's permissions, as on a Linux without Landlock and seccomp.
    is_confined: bool = True
    # The samples of a paired benchmark are evaluated after these numbers of pairs ("looks"). The benchmark ends with a
    # decision, after the last look, or before a batch that would exceed `paired_seconds` in total. The allowed error
    # rate is divided among the looks. If each number is twice the number before, few looks are enough, and at most half
    # of the pairs are timed in vain.
    looks: tuple[int, ...] = (20, 40, 80, 160, 320)
    paired_seconds: float = 60.0
    # The chance of a false accept (of a candidate that gains too little) between two accepts, over any number of
    # attempts.
    false_accept_rate: float = 0.001
