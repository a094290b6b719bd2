"""The subcommands of `xprof` on where time goes: operations, classes, steps, gaps, communication, the roofline."""

import argparse
from argparse import Namespace
from collections.abc import Callable

from harness.cli.xprof_command import Answer, Command, of_capture
from harness.errors import UsageError
from harness.workbench.profiles import (
    breakdown,
    compare,
    gaps,
    lines,
    mfu,
    operations,
    overlap,
    reading,
    roofline,
    scopes,
    steps,
    utilization,
)
from harness.workbench.profiles.classes import FRAMEWORK_CATEGORIES
from harness.workbench.profiles.places import Place


def _top(default: int) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--top", type=int, default=default, metavar="N", help=f"how many rows at most; 0: all ({default})"
        )

    return add


def _rows(given: Namespace) -> int | None:
    """What --top says, None for all. Raises UsageError `usage`."""
    top: int = given.top
    if top < 0:
        raise UsageError("usage", f"expected --top 0 (all) or more, got {top}")
    return top or None


def _ops(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return operations.ops(reading.read(found[0].paths), _rows(given))


def _framework_ops(given: Namespace, found: tuple[Place, ...]) -> Answer:
    wanted = [name for word in given.category for name in word.split(",")]
    return operations.framework_ops(reading.read(found[0].paths), wanted, _rows(given))


def _framework_ops_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--category",
        action="append",
        default=[],
        metavar="NAME",
        help=f"only these, may be repeated: {', '.join(FRAMEWORK_CATEGORIES)}",
    )
    _top(30)(parser)


def _compare(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return compare.compare(reading.read(found[0].paths), reading.read(found[1].paths), _rows(given))


def _mfu(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return mfu.mfu(reading.read(found[0].paths), given.gbs, given.seq, given.flops_per_token, given.num_chips)


def _mfu_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gbs", type=float, required=True, metavar="N", help="global batch size, in sequences")
    parser.add_argument("--seq", type=float, required=True, metavar="N", help="tokens in a sequence")
    parser.add_argument(
        "--flops-per-token", type=float, required=True, metavar="N", help="of the model, forward and backward (6e9)"
    )
    parser.add_argument(
        "--num-chips",
        type=int,
        default=None,
        metavar="N",
        help="devices that share the batch (those in the capture); a chip may be two",
    )


def _roofline(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return roofline.roofline(reading.read(found[0].paths), _rows(given))


def _gaps(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return gaps.gaps(reading.read(found[0].paths), _rows(given))


def _lines(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return lines.lines(reading.read(found[0].paths), _rows(given))


def _scopes(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return scopes.scopes(reading.read(found[0].paths), given.depth, given.at_least)


def _scopes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--depth", type=int, default=4, metavar="N", help="how many scopes deep (4)")
    parser.add_argument(
        "--at-least", type=float, default=0.01, metavar="SHARE", help="leave out what takes less of the time (0.01)"
    )


TIME: tuple[Command, ...] = (
    Command(
        name="ops",
        sentence="time by HLO operation: self time, share, runs, category, FLOP rate, bandwidth",
        example="ratchet.sh xprof ops 3 --top 20",
        run=_ops,
        arguments=_top(30),
    ),
    Command(
        name="framework-ops",
        sentence="time by framework operation and category: attention, moe, norm, matmul and others",
        example="ratchet.sh xprof framework-ops ./profile_data --category attention",
        run=_framework_ops,
        arguments=_framework_ops_arguments,
    ),
    Command(
        name="compare",
        sentence="what changed from one capture to another, by operation, the largest change first",
        example="ratchet.sh xprof compare 3 4",
        run=_compare,
        arguments=_top(30),
        places=("first", "second"),
    ),
    Command(
        name="breakdown",
        sentence="time by class of operation, forward and backward, layers of a mixture of experts",
        example="ratchet.sh xprof breakdown ./profile_data",
        run=of_capture(breakdown.breakdown),
    ),
    Command(
        name="mfu",
        sentence="model FLOPs utilisation from batch, sequence and the model's FLOPs per token",
        example="ratchet.sh xprof mfu ./profile_data --gbs 64 --seq 4096 --flops-per-token 42e9",
        run=_mfu,
        arguments=_mfu_arguments,
    ),
    Command(
        name="overlap",
        sentence="communication that computation does not hide, and the bandwidth of each collective",
        example="ratchet.sh xprof overlap ./profile_data",
        run=of_capture(overlap.overlap),
    ),
    Command(
        name="roofline",
        sentence="predicted and measured time of each operation, their ratio and a verdict",
        example="ratchet.sh xprof roofline 3",
        run=_roofline,
        arguments=_top(30),
    ),
    Command(
        name="utilization",
        sentence="TC % and HBM % of each module and device, and what the two say together",
        example="ratchet.sh xprof utilization 3",
        run=of_capture(utilization.utilization),
    ),
    Command(
        name="gaps",
        sentence="idle time between operations, the bubble fraction, the largest gaps, known patterns",
        example="ratchet.sh xprof gaps 3 --top 5",
        run=_gaps,
        arguments=_top(10),
    ),
    Command(
        name="steps",
        sentence="variation between steps and devices, and waiting for the host",
        example="ratchet.sh xprof steps ./profile_data",
        run=of_capture(steps.steps_table),
    ),
    Command(
        name="lines",
        sentence="time by source line",
        example="ratchet.sh xprof lines ./profile_data",
        run=_lines,
        arguments=_top(30),
    ),
    Command(
        name="scopes",
        sentence="time by named scope, as a tree",
        example="ratchet.sh xprof scopes ./profile_data --depth 3",
        run=_scopes,
        arguments=_scopes_arguments,
    ),
)
