"""The vocabulary: every fact that flows from a problem to a verdict, as frozen records that can be saved."""

from harness.records.candidate import (
    MAY_PASS_NEXT_TIME,
    Claims,
    Failure,
    Imported,
    PallasCall,
    Scratch,
    SourceFile,
    Stage,
    TilingClaim,
    Trace,
    Window,
)
from harness.records.capture import Capture, Device, Execution, Operation, Period
from harness.records.cycle_breakdown import (
    CycleBreakdown,
    LineTime,
    Part,
    PartKind,
    Span,
    SpanKind,
    Timeline,
    TransferCycles,
)
from harness.records.evidence import (
    Certificate,
    Check,
    Draw,
    Environment,
    Evidence,
    HloCounts,
    Isolation,
    Latency,
    LinkTraffic,
    Mode,
    MosaicCounts,
    Offence,
    OffenceKind,
    OpTime,
    Samples,
    Simulation,
    Source,
    StageTime,
    TimedRun,
    Unit,
)
from harness.records.judging_limits import Policy
from harness.records.note import NOT_YET, CheckedChampion, Note, Scale, ScaledRow
from harness.records.problem import (
    KERNEL,
    Array,
    ExpectedCount,
    Parameter,
    Statement,
    SuiteMember,
    Work,
    weighted_geometric_mean,
)
from harness.records.report import (
    Ceiling,
    Communication,
    CounterLine,
    CycleShares,
    Edit,
    Hint,
    LogState,
    MemberReport,
    Report,
    Row,
    Share,
    Status,
    UnitUse,
)
from harness.records.review import Audit, Calibration, Finding, Judgement, RepeatedCheck, Replay
from harness.records.revocation import RejudgedAttempt, Revocation
from harness.records.story import Gain, Losses, Recheck
from harness.records.sweep import RefusedSetting, ScreenedSetting, Sweep, SweepResult
from harness.records.table import Cell, Column, Table
from harness.records.verdict import (
    NOMINAL,
    OTHER_WAY,
    TITLE_MOVES,
    Attempt,
    Champion,
    Change,
    Key,
    Kind,
    MemberTimes,
    Outcome,
    PairedBenchmark,
    Resimulation,
    Verdict,
)
