"""The figures as PNG: the figures of each group, their contents, and the verb's words."""

import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import Shell
from ledger_fixtures import new_repository
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger
from harness.ledger.table import scaled
from harness.render import plots
from harness.render.colours import DARK, LIGHT
from harness.render.page import Story, page
from harness.render.series import Group, Piece, PieceKind, Roof, groups
from harness.shell.catalogue import EVERY
from harness.shell.main import main
from harness.verbs.parts import stories

pytestmark = pytest.mark.long

STYLE = Path(plots.__file__).parent / "page" / "assets" / "page.css"


@pytest.fixture(scope="module")
def both(ledger: Ledger) -> tuple[Group, ...]:
    entries, _ = stories.entries_of(ledger, scaled(ledger), ledger.place.root, ledger.place.root)
    return groups(entries)


def size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_every_figure_is_a_picture_of_its_size(both: tuple[Group, ...]) -> None:
    by_name = dict(plots.pictures(both[0]))
    assert list(by_name) == ["progress.png", "roofline.png", "time.png"]
    assert {size(png)[0] for png in by_name.values()} == {1300}
    assert plots.left_out(both[0]) == ()


def test_progress_shows_every_attempt_with_its_verdict(both: tuple[Group, ...]) -> None:
    above, below = plots._progress(both[0], LIGHT).axes
    # The champion's line and the floor are lines too; points are those with a marker and one place.
    points = {
        (float(xs[0]), line.get_marker())
        for line in above.lines
        if len(xs := np.asarray(line.get_xdata())) == 1 and line.get_marker() in ("o", "D", "x", "s")
    }
    assert points == {(1, "o"), (2, "s"), (3, "D"), (4, "x"), (5, "o"), (6, "s")}
    assert above.get_yscale() == "log"
    assert "compute-only 704.5 us" in {text.get_text() for text in above.texts}
    assert below.get_ylim()[1] > 14_195


def test_a_floor_far_above_is_said_in_words(both: tuple[Group, ...]) -> None:
    (baseline,) = groups(both[0].entries[:1])
    _, below = plots._progress(baseline, LIGHT).axes
    assert below.get_title(loc="left") == "score at the floor 14,195, above this chart"
    assert below.get_ylim()[1] < 1_000


def test_roofline_has_both_roofs_and_every_placed_attempt(both: tuple[Group, ...]) -> None:
    (axes,) = plots._roofline(both[0], LIGHT).axes
    roof = axes.lines[0]
    assert np.asarray(roof.get_ydata())[1:].tolist() == [197e12, 197e12]
    assert np.asarray(roof.get_xdata())[1] == pytest.approx(197e12 / 819e9)
    assert sum(line.get_marker() in ("o", "D", "s") for line in axes.lines) == 5
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_roof_is_the_lower_of_the_two() -> None:
    roof = Roof(flops_per_second=200.0, bytes_per_second=10.0)
    assert roof.ridge == 20
    assert (roof.at(5), roof.at(20), roof.at(100)) == (50, 200, 200)


def test_time_shows_the_first_accepted_beside_the_last(both: tuple[Group, ...]) -> None:
    (axes,) = plots._time(both[0], LIGHT).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["attempt 1\n4.000 ms"]
    assert sum(bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)) == pytest.approx(4e-3)


def test_time_draws_no_two_pieces_alike_and_adds_up_small_ones(both: tuple[Group, ...]) -> None:
    baseline, win = both[0].entries[:2]
    (group,) = groups((baseline, replace(win, is_undone=False)))
    (_, _), (_, parts) = plots._bars(group)
    looks = plots._looks(plots._bars(group), LIGHT)
    assert len(set(looks.values())) == len(looks) >= 5
    assert sum(part.seconds for part in parts) == pytest.approx(2e-3)
    small = [part.name for part in parts if part.fraction < 0.04 and part.kind in plots._SMALL_NAMES]
    assert len(small) == len(set(small)) <= len(plots._SMALL_NAMES)


def test_small_pieces_of_a_kind_are_one() -> None:
    def piece(kind: PieceKind, name: str, share: float) -> Piece:
        return Piece(kind=kind, name=name, seconds=share, fraction=share)

    stalls = [piece("stall", f"unit stall {name}", share) for name, share in (("A", 0.1), ("B", 0.03), ("C", 0.02))]
    ((_, parts),) = plots._joined([("attempt 1", (piece("work", "issuing", 0.85), *stalls))])
    assert [part.name for part in parts] == ["issuing", "unit stall A", "other unit stalls"]
    assert parts[-1].seconds == pytest.approx(0.05)


def test_microseconds_are_written_as_everywhere_else() -> None:
    assert plots._Units(unit="s")(5e-5) == "50 us"


def test_the_page_has_the_colours_of_the_figures() -> None:
    written = page(Story(contest="a", branch="main", made="", entries=(), champion=None)).decode()
    style = dict(re.findall(r"--([\w-]+): light-dark\((#\w+, #\w+)\)", written))
    for place, palette in enumerate((LIGHT, DARK)):
        assert palette == {name: both.split(", ")[place] for name, both in style.items()}


def test_the_stylesheet_has_no_colours_of_its_own() -> None:
    assert not re.findall(r"#[0-9a-f]{3,8}\b", STYLE.read_text(encoding="utf-8"))


def test_dark_figures_have_a_dark_background(both: tuple[Group, ...]) -> None:
    figure = plots._progress(both[0], DARK)
    assert max(to_rgb(figure.get_facecolor())) < 0.15 < min(to_rgb(DARK["ink"]))


# --- the verb ------------------------------------------------------------------------------------


def test_plot_writes_the_champions_group(ledger: Ledger, tmp_path: Path, shell: Shell) -> None:
    assert shell.printed("plot", "-C", ledger.place.root, "--out", tmp_path).count("wrote ") == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["progress.png", "roofline.png", "time.png"]


def test_plot_takes_another_key(ledger: Ledger, both: tuple[Group, ...], tmp_path: Path) -> None:
    assert (
        main(["plot", "-C", str(ledger.place.root), "--out", str(tmp_path), "--key", both[0].digest[:6], "--dark"]) == 0
    )
    assert (tmp_path / "progress.png").read_bytes() == dict(plots.pictures(both[0], dark=True))["progress.png"]


def test_plot_names_the_keys_it_knows(ledger: Ledger, both: tuple[Group, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{both[0].digest} .simulated v5e, 6 attempts") as error:
        EVERY["plot"].run(
            EVERY["plot"].parse(["-C", str(ledger.place.root), "--out", str(tmp_path), "--key", "nothing"])
        )
    assert error.value.kind == "unknown-key"


def test_what_cannot_be_drawn_is_said(both: tuple[Group, ...]) -> None:
    (failed,) = groups(both[0].entries[3:4])
    assert plots.pictures(failed) == ()
    assert [sentence.split(":")[0] for sentence in plots.left_out(failed)] == [
        "no progress.png",
        "no roofline.png",
        "no time.png",
    ]


def test_without_attempts_there_is_nothing_to_draw(tmp_path: Path) -> None:
    contest = new_repository(tmp_path / "contest")
    with pytest.raises(RatchetError, match="no attempts yet") as error:
        EVERY["plot"].run(EVERY["plot"].parse(["-C", str(contest)]))
    assert error.value.kind == "no-attempts"
    assert not (contest / "profile_data").exists()
