"""The task of each request, and the type of its answer."""

from typing import Literal

from harness.judge.evaluate import messages
from harness.judge.evaluate.compile.left_out import CheckedCompileRequest
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
# By type of request: the name of the requested task, and the type of the answer.
TASKS: dict[type, tuple[str, type]] = {
    messages.TraceRequest: ("trace", messages.TraceReply),
    messages.ShapesRequest: ("trace_smaller", messages.ShapesReply),
    messages.CompileRequest: ("compile", messages.CompileReply),
    CheckedCompileRequest: ("compile_with_checks", messages.CompileReply),
    messages.SimulateRequest: ("simulate", Simulation),
    messages.ExportRequest: ("export_cpu", Done),
    messages.InterpretRequest: ("interpret", Done),
    messages.CertifyRequest: ("certify", Certificate),
    messages.CheckRequest: ("check", messages.CheckReply),
    messages.ProbeRequest: ("probe", messages.ProbeReply),
    messages.MeasureRequest: ("measure", messages.MeasureReply),
}
