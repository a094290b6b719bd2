"""The promises of rules against the gains of attempts, from the ledgers of this repository."""

import pytest
import rule_promises
from rule_promises import PAGE, PROJECT, contests, listed, page, promises

from harness.advice.rules import RULES
from harness.ledger import history
from harness.ledger.paths import place_of


def test_the_pairs_of_one_ledger() -> None:
    pairs_of = promises((PROJECT / "examples" / "rmsnorm",))
    calls = next(pair for pair in pairs_of.pairs if pair.rule == "several calls")
    assert (calls.contest, calls.attempt) == ("examples/rmsnorm", 3)
    assert calls.promised == pytest.approx(0.2, abs=1e-3)
    assert calls.got == pytest.approx(0.2, abs=1e-3)
    assert not any(pair.is_broken for pair in pairs_of.pairs)
    text = page(pairs_of)
    assert "| several calls | 1 | 20.0% | - | 20.0% (20.0%) | 0 of 1 | 1.00 |" in text


def test_a_bound_that_was_passed_is_seen() -> None:
    pair = rule_promises.Pair(contest=".", attempt=1, rule="r", promised=0.1, cost=None, got=0.12)
    assert pair.is_broken
    text = page(rule_promises.Promises(pairs=(pair,), silent=(), attempts=1))
    assert "12.0% **beyond**" in text
    assert not rule_promises.Pair(contest=".", attempt=1, rule="r", promised=None, cost=0.1, got=0.5).is_broken


@pytest.mark.long
def test_the_list_names_rules_and_attempts_that_exist() -> None:
    names = {rule.name for rule in RULES}
    for (contest, number), rules in listed().items():
        assert names.issuperset(rules)
        assert history.attempt(place_of(PROJECT / contest), number).number == number


@pytest.mark.slow
def test_no_rule_promises_wrongly_and_the_page_says_so() -> None:
    pairs_of = promises(contests())
    assert [pair for pair in pairs_of.pairs if pair.is_broken] == []
    assert page(pairs_of) == PAGE.read_text(), "run python benchmarks/rule_promises.py"
