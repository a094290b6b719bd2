"""The colours of the figures, on light and on dark paper: those of the report page."""

from dataclasses import dataclass

from harness.records import Outcome
from harness.render.series import PieceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours as #rrggbb: of what is drawn, of each outcome, of each kind of piece that a run's time has."""

    paper: str
    ink: str
    faint: str
    grid: str
    floor: str
    outcomes: dict[Outcome, str]
    kinds: dict[PieceKind, str]


# The colours of the page (harness/render/page/assets/page.css), whose contrasts are tested there.
LIGHT = Palette(
    paper="#ffffff",
    ink="#1f1e1b",
    faint="#625f58",
    grid="#ebe7df",
    floor="#1b56a0",
    outcomes={"accept": "#14713f", "reject": "#8a5a00", "inconclusive": "#6a4fa0", "failed": "#b02a1c"},
    kinds={
        "work": "#2f6f9f",
        "bubble": "#77736a",
        "stall": "#946200",
        "dma": "#7a4a94",
        "edge": "#33766f",
        "other": "#5d5d66",
    },
)
DARK = Palette(
    paper="#15171a",
    ink="#e9e7e1",
    faint="#a3a19a",
    grid="#262a2f",
    floor="#8ab4f0",
    outcomes={"accept": "#57c98a", "reject": "#dfa94a", "inconclusive": "#b9a3ea", "failed": "#f08a7d"},
    kinds={
        "work": "#6fb1dd",
        "bubble": "#a5a198",
        "stall": "#deb04f",
        "dma": "#c39bdc",
        "edge": "#79c2ba",
        "other": "#b4b4bf",
    },
)
