"""The one renderer of screens: sides, units, columns that give way or go, remarks, drawings; nothing else lays out."""

import re
from pathlib import Path

from harness.render import sections
from harness.render.layout import UNBOUNDED
from harness.render.sections import GAP, Block, Column, Drawing, Grid, Line, Row, Words, apart, named, screen

RENDER = Path(sections.__file__).parent
LONG = "a sentence that is longer than the page is wide, by some words"


def test_figures_stand_right_in_their_unit_and_words_left() -> None:
    columns = Column("what"), Column("time", "s"), Column("share", "fraction", unknown="unknown")
    lines = screen([Grid(columns, [("copies", 0.00216, 0.125), ("a", None, None)])], 80).splitlines()
    assert lines[0].split() == ["what", "time", "share"]
    assert lines[2] == "copies  2.160 ms    12.5%"
    assert lines[3] == "a              -  unknown"


def test_times_of_a_column_share_the_unit_of_the_longest_and_have_signs() -> None:
    grid = Grid((Column("worth", "+times"),), [(1e-3,), (-2e-6,), (0.0,), (None,)], title_room=0)
    assert screen([grid], 80).split()[2:] == ["+1.000", "ms", "-0.002", "ms", "0.000", "ms", "-"]


def test_columns_go_by_rank_where_one_has_no_room_and_are_named() -> None:
    columns = Column("idea", least=4, room=12), Column("a\nlong title", "count", rank=2), Column("bound", rank=1)
    grid = Grid(columns, [(LONG, 1234, "memory")], title_room=0)
    assert "hidden" not in screen([grid], 60)
    text = screen([grid], 26)
    assert "hidden columns: bound;" in text
    assert "1,234" in text
    assert all(len(line) <= 26 for line in text.splitlines())


def test_a_ranked_column_that_says_nothing_is_left_out_without_a_word() -> None:
    grid = Grid((Column("a"), Column("empty", "count", rank=1)), [("x", None)])
    assert "empty" not in screen([grid], 80)


def test_a_column_with_a_most_takes_no_more_on_any_page() -> None:
    for most, is_cut in ((10, True), (None, False)):
        grid = Grid((Column("idea", most=most), Column("end")), [(LONG, "x")], title_room=0)
        assert ("…" in screen([grid], UNBOUNDED)) == is_cut


def test_a_note_stands_below_the_table_whose_cells_have_its_sign() -> None:
    column = Column("time", side="r", note="! slower here")
    assert screen([Grid((column,), [("2.0!",)])], 80).endswith("! slower here")
    assert "slower" not in screen([Grid((column,), [("2.0",)])], 80)


def test_a_remark_stands_beside_its_row_or_below_it() -> None:
    grid = Grid((Column("counter"), Column("count", "count")), [Row(("spills", 5), remark=LONG)])
    assert f"spills           5  {LONG[:20]}" in screen([grid], 80)
    assert f"spills           5\n    {LONG[:20]}" in screen([grid], 40)


def test_a_drawing_that_does_not_fit_is_named() -> None:
    drawing = Drawing([Line("x" * 50)], name="the map", legend=Line("x: a cross"))
    assert screen([drawing], 50) == f"{'x' * 50}\nx: a cross"
    assert screen([drawing], 49) == "the map is wider than 49 columns: --json has its figures"


def test_paragraphs_hang_and_colour_is_a_second_signal() -> None:
    blocks: list[Block] = [
        named("Champion", LONG),
        GAP,
        GAP,
        Words("FAILED: it differs", style="bad", painted="FAILED"),
    ]
    plain, coloured = (screen(blocks, 60, colour=colour) for colour in (False, True))
    assert plain.splitlines()[1].startswith(" " * sections.FIELD)
    assert "\n\n\n" not in plain
    assert "\x1b[31mFAILED\x1b[0m: it differs" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_sections_that_are_empty_leave_no_gap() -> None:
    assert screen(apart([Line("a")], [], [Line("b")]), 80) == "a\n\nb"


def test_markdown_has_the_sides_of_its_columns() -> None:
    lines = sections.markdown((Column("kernel"), Column("time", "s")), [("`a`", "1 s")])
    assert lines == ["| kernel | time |", "|---|--:|", "| `a` | 1 s |"]


def test_no_other_module_wraps_cuts_or_paints() -> None:
    """Only `sections` uses what `layout` does to lines; a title of a picture is cut too."""
    hands = {"wrap", "flow", "paint", "diff_text", "cut"}
    uses = {
        path.name: used
        for path in RENDER.rglob("*.py")
        for names in re.findall(r"^from harness\.render\.layout import (.*)$", path.read_text(encoding="utf-8"), re.M)
        if (used := hands & set(names.split(", "))) and path.name != "sections.py"
    }
    assert uses == {"plots.py": {"cut"}}
