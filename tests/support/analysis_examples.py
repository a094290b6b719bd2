"""Captures made by hand for tests of the analyses: operations that ran one after the other on TPU cores."""

from collections.abc import Sequence

from harness.records import Capture, Device, Execution, Operation, Period

US = 1e-6
# One execution: the operation, then start and length in microseconds.
Ran = tuple[Operation, float, float]


def op(name: str, category: str = "", text: str = "", framework_name: str = "") -> Operation:
    """An operation with these facts and no others."""
    return Operation(name=name, category=category, text=text, framework_name=framework_name)


def device(ran: Sequence[Ran], *, steps: Sequence[tuple[float, float]] = (), kind: str = "TPU v5 lite") -> Device:
    """A TPU core; its module ran at `steps` (start and length in microseconds). Nothing is nested."""
    operations = tuple(dict.fromkeys(what for what, _, _ in ran))
    return Device(
        name="TPU:0",
        host="host",
        platform="tpu",
        kind=kind,
        peak_flops_per_second=197e12,
        hbm_bytes_per_second=819e9,
        operations=operations,
        executions=tuple(
            Execution(operation=operations.index(what), start=at * US, seconds=took * US, self_seconds=took * US)
            for what, at, took in ran
        ),
        modules=tuple(Period(name="jit_f(1)", start=at * US, seconds=took * US) for at, took in steps),
    )


def capture(*devices: Device, name: str = "run") -> Capture:
    """A capture of these devices, without a host."""
    return Capture(name=name, paths=("x",), devices=devices)
