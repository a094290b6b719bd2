"""Groups in brackets: those that are closed, and those that nothing closes."""

import pytest

from harness.hlo import parse
from harness.hlo.tokens import Misunderstood, Tokens

# A search to the end of the text from each of this many took minutes.
MANY = 10_000


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("{a, {b}} c", "{a, {b}}"),
        ("(a [b] {c}) d", "(a [b] {c})"),
        ('{a "}" /* } */ b} c', '{a "}" /* } */ b}'),
        ("{" * 40 + "}" * 40 + " a", "{" * 40 + "}" * 40),
    ],
)
def test_a_group_ends_where_its_bracket_is_closed(text: str, group: str) -> None:
    tokens = Tokens(text)
    assert tokens.group() == group
    assert tokens.place == len(group)


def test_a_bracket_that_is_never_closed_is_named_each_time() -> None:
    tokens = Tokens("( (\n( [a]")
    for start, where in ((0, "line 1, column 1"), (2, "line 1, column 3"), (4, "line 2, column 1")):
        tokens.jump(start)
        with pytest.raises(Misunderstood, match=f"the bracket opened at {where} is never closed"):
            tokens.group()
    tokens.jump(6)
    assert tokens.group() == "[a]"


def test_a_bracket_of_another_kind_closes_nothing() -> None:
    tokens = Tokens("( ( a ]")
    for start in (0, 2):
        tokens.jump(start)
        with pytest.raises(Misunderstood, match="line 1, column 7: `]` closes nothing"):
            tokens.group()


@pytest.mark.long
@pytest.mark.parametrize(
    "line", ["%a = f32[8] add(%b), metadata={\n", "%a = f32[8] constant({\n", "ENTRY %x (a: f32[8]\n", "name (\n"]
)
def test_many_unclosed_brackets_are_read_in_one_pass(line: str) -> None:
    module = parse.read(line * MANY)
    assert module.not_understood[-1] == f"{MANY - 200:,} more places not understood"
