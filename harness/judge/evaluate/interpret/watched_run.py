"""One run in TPU interpret mode with its findings: races, deadlocks, accesses out of bounds."""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from harness.judge.evaluate.interpret import buffers, interpretation, left_memory, places, reshaped, transfers
from harness.judge.evaluate.interpret.deadlocks import DEADLOCK, deadlocks_found
from harness.judge.evaluate.interpret.grid_order import orders_from
from harness.judge.evaluate.interpret.other_chips import NOT_BEGUN, knowledge_of_chips
from harness.judge.evaluate.interpret.plain_accesses import FAR
from harness.judge.evaluate.interpret.quick_interpreter import quick_interpreter
from harness.judge.evaluate.messages import Fill
from harness.sandbox.messages import Rejected

# Words by which the interpreter's errors about a wrong kernel are recognised, each with the kind of the failure.
_KINDS = {
    DEADLOCK: "deadlock",
    NOT_BEGUN: "chip-not-begun",
    transfers.OVERLAP: "overlapping-copy",
    "Revisited block": "revisited-block",
    "ut-of-bounds": "out-of-bounds",
}


class Outcome(NamedTuple):
    """The results of one run.

    - `had_choice`: transfers could have ended in another order.
    - `unwritten_read`: a description of the first read of memory that the kernel had not written, or "" if there was
      none. After such a read, the results may depend on values that an earlier call left there.
    """

    outputs: list[NDArray[Any]]
    had_choice: bool
    unwritten_read: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """The settings of one run: the content of unwritten memory, and the order of transfers and of steps.

    - `fill`: the fill that was traced into the program. In a program without a fill, `number` replaces NaN.
    - `reshapes`: the lines that reshape references.
    - `where`: the words before each message.
    - `late_chip`: if several chips run in parallel, the chip that continues only when no other chip can; None for one
      chip.
    - `left`: the memory that the last run of this kernel left; this run replaces its contents. If `finds_left`,
      unwritten memory begins with the values of `left`.
    - `comes_early`: a fetched block lacks everything that the kernel writes to the block's array.
    - `seed`: the seed of the random numbers that the run leaves in unwritten memory.
    """

    fill: Fill
    order: transfers.Order
    order_seed: int | None
    reshapes: Sequence[str]
    where: str
    late_chip: int | None = None
    left: left_memory.Left = field(default_factory=dict)
    finds_left: bool = False
    number: float | None = None
    comes_early: bool = False
    seed: int = 0

    def outputs(self, run: Callable[[], Any]) -> Outcome:
        """The outputs of `run`, and the findings about it.

        Raises Rejected `race`, `out-of-bounds`, `deadlock`, `chip-not-begun`, `chips-differ`, `revisited-block`,
        `overlapping-copy`, `unfinished-transfer` or `not-interpretable`; TooManyTransfersError.
        """
        failure: BaseException | None = None
        seen: buffers.Buffers | None = None
        results: Sequence[Any] = ()
        printed = io.StringIO()
        try:
            with (
                contextlib.redirect_stdout(printed),
                interpretation.memory_filled_with(self.fill),
                left_memory.memory_left(self.left, is_found=self.finds_left, number=self.number, seed=self.seed),
                buffers.as_on_chip(comes_early=self.comes_early, seed=self.seed) as seen,
                orders_from(self.order_seed),
                quick_interpreter(),
                deadlocks_found(),
                reshaped.reshaped_references() if self.reshapes else contextlib.nullcontext(),
                transfers.transfers_end(self.order) as waits,
                contextlib.nullcontext() if self.late_chip is None else knowledge_of_chips(self.late_chip),
            ):
                results = jax.block_until_ready(run())
        # The runtime raises the interpreter's errors as one of these types; the message contains the original text.
        except (jax.errors.JaxRuntimeError, RuntimeError, IndexError, ValueError, NotImplementedError) as error:
            failure = error
        race = interpretation.race_of(failure, printed.getvalue())
        interpretation.reset()
        if race is not None:
            accesses = places.race(race, of_chips=self.late_chip is not None)
            raise Rejected("correctness", "race", f"{self.where}data race: {accesses}", race)
        if failure is not None:
            raise self._rejection((seen and seen.in_front) or failure)
        assert seen is not None
        if waits.unfinished:
            raise Rejected(
                "correctness",
                "unfinished-transfer",
                f"{self.where}expected every transfer to be waited for, got {waits.unfinished:,} still under way at "
                "the kernel's end",
            )
        return Outcome([_whole(out) for out in results], waits.had_choice, seen.unwritten_read)

    def _rejection(self, failure: BaseException) -> BaseException:
        """The failure as a fault of the kernel; unchanged if the cause is unknown."""
        if isinstance(failure, NotImplementedError):
            return interpretation.not_interpretable(failure)
        text = str(failure)
        if reshaped.NO_BLOCK in text:
            return interpretation.not_interpretable(
                f"{next(iter(self.reshapes), '')}expected the copied or written part of a reshaped reference to be a "
                "block of the original reference; index the reference before reshaping it"
            )
        if transfers.TOO_MANY in text:
            return transfers.TooManyTransfersError(text)
        for words, kind in _KINDS.items():
            # The last line with these words is the message. Code in a traceback before the message may also contain the
            # words.
            line = next((line for line in reversed(text.splitlines()) if words in line), None)
            if line is not None:
                cause = places.beyond(line.strip().removeprefix("RuntimeError: "))
                if words == DEADLOCK:
                    cause += " (a copy adds its size in bytes, a signal its increment)"
                if str(FAR) in cause:
                    cause += f" ({FAR} stands for an index that is out of bounds after a reshape, slice or bitcast)"
                return Rejected("correctness", kind, f"{self.where}{cause}", text[-8000:])
        if "IndexError" in text or isinstance(failure, IndexError):
            lines = [*text.splitlines(), "IndexError"]
            line = next((line for line in reversed(lines[:-1]) if "IndexError" in line), lines[0])
            return Rejected("correctness", "out-of-bounds", f"{self.where}{places.beyond(line)}", text[-8000:])
        return failure


def _whole(out: jax.Array) -> NDArray[Any]:
    """The array, joined from its parts on devices. Raises Rejected `chips-differ` if two copies of a part differ."""
    copies: dict[str, Any] = {}
    for shard in out.addressable_shards:
        first = copies.setdefault(str(shard.index), shard)
        if first is not shard and np.asarray(first.data).tobytes() != np.asarray(shard.data).tobytes():
            raise Rejected(
                "correctness",
                "chips-differ",
                "expected the same result on all chips that have a copy of it, got different results on chips "
                f"{first.device.id} and {shard.device.id}",
            )
    return np.asarray(out)
