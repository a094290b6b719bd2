"""The task of each request, and the type of its answer."""

from typing import Literal

from harness.judge.evaluate.compile.left_out import CheckedCompileRequest
from harness.judge.evaluate.messages import (
    CertifyRequest,
    CheckReply,
    CheckRequest,
    CompileReply,
    CompileRequest,
    ExportRequest,
    InterpretRequest,
    MeasureReply,
    MeasureRequest,
    ProbeReply,
    ProbeRequest,
    ShapesReply,
    ShapesRequest,
    SimulateRequest,
    TraceReply,
    TraceRequest,
)
from harness.records import Certificate, Simulation
from harness.sandbox.messages import Done

ChildName = Literal["candidate", "certifier", "checker", "compiler", "checks compiler", "simulator", "timer"]
MODULES: dict[ChildName, str] = {
    "candidate": "harness.judge.evaluate.candidate",
    "certifier": "harness.judge.evaluate.compile.certificate",
    "checker": "harness.judge.evaluate.correctness",
    "compiler": "harness.judge.evaluate.compile.compilation",
    "checks compiler": "harness.judge.evaluate.compile.with_checks",
    "simulator": "harness.judge.evaluate.timing.simulation",
    "timer": "harness.judge.evaluate.timing.device_timing",
}
# By type of request: the name of the task that it asks for, and the type of the answer.
TASKS: dict[type, tuple[str, type]] = {
    TraceRequest: ("trace", TraceReply),
    ShapesRequest: ("trace_smaller", ShapesReply),
    CompileRequest: ("compile", CompileReply),
    CheckedCompileRequest: ("compile_with_checks", CompileReply),
    SimulateRequest: ("simulate", Simulation),
    ExportRequest: ("export_cpu", Done),
    InterpretRequest: ("interpret", Done),
    CertifyRequest: ("certify", Certificate),
    CheckRequest: ("check", CheckReply),
    ProbeRequest: ("probe", ProbeReply),
    MeasureRequest: ("measure", MeasureReply),
}
