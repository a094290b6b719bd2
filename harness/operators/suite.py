"""Several problems on which one kernel.py is judged together, with their weights and the loss allowed for each."""

import math
import re
from dataclasses import dataclass

from harness.operators.problem import Problem
from harness.records import KERNEL, Statement, SuiteMember, Work, weighted_geometric_mean

_NAME = re.compile(r"[a-z0-9]+([-_.][a-z0-9]+)*")
# The loss that each member may have, as a share of the champion's time. It equals the smallest gain that counts
# (Policy.minimum_effect): a smaller gain does not justify a commit, and a smaller loss does not prevent a commit.
_MAY_LOSE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A problem of a suite, with the name that reports give it and the function of kernel.py that computes it.

    `weight` is relative to the weights of the other members: a member of weight 2 counts like two of weight 1.
    """

    name: str
    problem: Problem
    weight: float = 1.0
    function: str = KERNEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The problems of a contest over several shapes; its time is the weighted geometric mean of the members' times.

    A candidate is accepted if that mean gains enough and no member takes more than `1 + may_lose` times the champion's
    time. Members may be different operations, each computed by its own function of kernel.py.
    """

    members: tuple[Member, ...]
    may_lose: float = _MAY_LOSE

    def __post_init__(self) -> None:
        """Raises ValueError if the fields do not describe a suite."""
        names = [member.name for member in self.members]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"expected a suite of two or more members with different names, got {names}")
        for member in self.members:
            if not _NAME.fullmatch(member.name):
                raise ValueError(f"expected a name such as prefill-2k (lower case, digits, '-'), got {member.name!r}")
            if not (math.isfinite(member.weight) and member.weight > 0):
                raise ValueError(f"expected a weight above 0 for {member.name}, got {member.weight!r}")
            if not member.function.isidentifier():
                raise ValueError(f"expected the name of a function for {member.name}, got {member.function!r}")
        if not 0 <= self.may_lose < 1:
            raise ValueError(f"expected may_lose to be a share from 0 to below 1, got {self.may_lose!r}")

    def statement(self) -> Statement:
        """The suite as it is recorded; its work, for rates, is the weighted geometric mean of the members' work.

        Raises ValueError if members multiply in different dtypes, because these have different peaks.
        """
        total = math.fsum(member.weight for member in self.members)
        stated = tuple(
            SuiteMember(
                name=member.name,
                weight=member.weight / total,
                function=member.function,
                statement=member.problem.statement(),
            )
            for member in self.members
        )
        operations = tuple(dict.fromkeys(member.statement.operation for member in stated))
        words = ", ".join(f"{member.name} ({member.weight:.0%})" for member in stated)
        return Statement(
            operation=" and ".join(operations),
            title=f"suite of {len(stated)}: {words}",
            parameters=(),
            inputs=(),
            outputs=(),
            work=_mean_work(stated),
            members=stated,
            may_lose=self.may_lose,
        )


def _mean_work(members: tuple[SuiteMember, ...]) -> Work:
    works, weights = [member.statement.work for member in members], [member.weight for member in members]
    dtypes = sorted({work.matmul_dtype for work in works})
    if len(dtypes) > 1:
        raise ValueError(f"expected all members of a suite to multiply in one dtype, got {' and '.join(dtypes)}")

    def mean(values: list[int]) -> int:
        return round(weighted_geometric_mean(values, weights))

    matmul = mean([work.matmul_flops for work in works])
    return Work(
        matmul_flops=matmul,
        # Never negative: the mean of all FLOPs is at least the mean of the matmuls' FLOPs.
        vector_flops=mean([work.flops for work in works]) - matmul,
        minimum_hbm_bytes=mean([work.minimum_hbm_bytes for work in works]),
        exponentials=mean([work.exponentials for work in works]),
        matmul_dtype=dtypes[0],
    )
