"""Time by named scope: the segments of each operation's tf_op as a tree."""

from collections import defaultdict

from harness.records import Capture, Table
from harness.workbench.profiles.op_times import devices, op_times, origin, share, total_seconds, why_nothing_ran
from harness.workbench.tables import Field, Fields, table_of

NO_NAME = "(no tf_op)"


def scopes(capture: Capture, depth: int = 4, at_least: float = 0.0) -> tuple[Table, ...]:
    """Self time under each scope down to `depth` (1 or more), those below `at_least` of the whole left out."""
    found = op_times(devices(capture))
    whole = total_seconds(found)
    took: dict[tuple[str, ...], float] = defaultdict(float)
    runs: dict[tuple[str, ...], int] = defaultdict(int)
    for one in found:
        path = segments(one.operation.framework_name) or (NO_NAME,)
        for length in range(1, min(depth, len(path)) + 1):
            took[path[:length]] += one.self_seconds
            runs[path[:length]] += one.count
    why = ""
    if not found:
        why = why_nothing_ran(capture)
    elif took.keys() == {(NO_NAME,)}:
        why = "no operation of the capture bears a tf_op: simulated captures have none, others only with HLO metadata"
    kept = [] if why else [path for path in took if whole == 0 or took[path] >= at_least * whole]
    # A scope stands below the one around it, the longer ones first.
    kept.sort(key=lambda path: [(-took[path[: length + 1]], path[length]) for length in range(len(path))])
    notes = ["Each scope's time holds that of the scopes in it; the last segment is the operation itself."]
    if len(kept) < len(took):
        notes.append(f"{len(took) - len(kept)} scopes below {at_least:.1%} of the time are left out.")
    fields: Fields[tuple[str, ...]] = (
        Field("scope", "scope", lambda path: "  " * (len(path) - 1) + path[-1]),
        Field("depth", "depth", len, "count"),
        Field("seconds", "time", lambda path: took[path], "s"),
        Field("share", "share", lambda path: share(took[path], whole), "fraction"),
        Field("count", "runs", lambda path: runs[path], "count"),
    )
    return (table_of("scopes", "Time by named scope", origin(capture), fields, kept, notes, why),)


def segments(framework_name: str) -> tuple[str, ...]:
    """The scopes of a tf_op from the outside in; a slash inside parentheses parts nothing, a colon ends it."""
    parts, depth, start = [], 0, 0
    # XProf writes `path:type`, and the type is mostly empty.
    text = framework_name.rsplit(":", 1)[0] if ":" in framework_name else framework_name
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "/" and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return tuple(part for part in (*parts, text[start:]) if part)
