"""Tables of findings as text: cuts that are marked, text that is never cut, and the form of empty tables."""

from harness.records import Column, Table
from harness.render import tables
from harness.shell.tables import figures

NAME = "0003-paired-1f2e3d4c"
LONG = "jit(train_step)/transpose(jvp(attention))/pallas_call"


def runs(*, is_whole: bool) -> Table:
    return Table(
        name="runs",
        title="runs",
        origin="measured",
        columns=(
            Column(name="run", title="run", is_whole=is_whole),
            Column(name="what", title="what"),
            Column(name="seconds", title="time", unit="s"),
        ),
        rows=((NAME, LONG, 0.001),),
    )


def nothing(name: str, why: str) -> Table:
    return Table(name=name, title=name, origin="static", columns=(Column(name="a", title="a"),), rows=(), why_empty=why)


def test_long_words_are_cut_to_the_page_and_that_is_said() -> None:
    printed = tables.text([runs(is_whole=False)], 50).splitlines()
    assert all(len(line) <= 50 for line in printed[:4])
    assert "…" in printed[3]
    assert printed[-1] == "(…: cut to fit 50 columns; --json has the whole text)"
    assert LONG in figures([runs(is_whole=False)])[0].rows[0].values()


def test_what_fits_is_printed_as_it_is() -> None:
    printed = tables.text([runs(is_whole=False)], 100)
    assert LONG in printed
    assert "cut to fit" not in printed


def test_a_word_that_people_type_is_never_cut() -> None:
    assert NAME in tables.text([runs(is_whole=True)], 40)
    assert NAME not in tables.text([runs(is_whole=False)], 40)


def test_tables_that_are_empty_for_one_reason_say_it_once() -> None:
    printed = tables.text([nothing("peak", "no events"), nothing("alive", "no events"), nothing("plan", "no HLO")], 80)
    assert printed == "peak [static]\nalive [static]\n  empty: no events\n\nplan [static]\n  empty: no HLO"
