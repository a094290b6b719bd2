"""The output of `--json` has a form with a version: saved, compared, and true of the verbs' real output."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemas
from command_line import Shell
from evidence_examples import V5E, attempt, evidence
from loop_fixtures import PROJECT, committed_contest, ratchet
from narrowing import present
from schedule_examples import NEWEST, unpack

from harness.advice import report as reporting
from harness.judge.verdict.decision import decide
from harness.ledger.codec import encode_attempt
from harness.records import Policy
from harness.shell.catalogue import EVERY
from harness.shell.documents import documents, json_text, schema
from harness.verbs.judge import JudgeDocument
from harness.verbs.show import AttemptDocument

pytestmark = pytest.mark.long

DOCUMENTS = documents()


def validated(verb: str, text: str) -> Any:
    document = json.loads(text)
    jsonschema.Draft202012Validator(schema(DOCUMENTS[verb])).validate(document)
    return document


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_form_changes_only_with_its_version(verb: str) -> None:
    before = schemas.saved(verb)
    assert before is not None, f"no form is saved for {verb}: python tests/support/schemas.py saves it"
    now = schemas.bare(schema(DOCUMENTS[verb]))
    if schemas.version(now) == schemas.version(before):
        changed = f"the form of `{verb} --json` changed: python tests/support/schemas.py saves it, or says what to do"
        assert schemas.nameless(now) == schemas.nameless(before), changed
        assert now == before, "records were renamed: python tests/support/schemas.py saves their names"
    else:
        pytest.fail(f"the version of `{verb} --json` changed: python tests/support/schemas.py saves its new form")


def test_only_a_new_key_or_a_narrower_value_keeps_the_version() -> None:
    before = schemas.resolved(schemas.bare(schema(DOCUMENTS["next"])))
    with_key, with_kinds, without_key, wider = (deepcopy(before) for _ in range(4))
    with_key["properties"]["floor"]["properties"]["new"] = {"type": "string"}
    with_kinds["properties"]["problem"] = {"enum": ["attention", "matmul"]}
    del without_key["properties"]["floor"]["properties"]["bound_by"]
    wider["properties"]["attempts"] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schemas.extends(with_key, before)
    assert schemas.extends(with_kinds, before)
    assert not schemas.extends(without_key, before)
    assert not schemas.extends(wider, before)


def test_no_form_is_saved_that_nobody_prints() -> None:
    assert set(schemas.SAVED.glob("*.json")) == set(map(schemas.path_of, DOCUMENTS))


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_form_is_a_schema(verb: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(DOCUMENTS[verb]))


def test_every_verb_that_prints_json_has_a_form() -> None:
    parsers = [(name, parser) for name, verb in EVERY.items() for _, parser in verb.parsers()]
    printing = {name for name, parser in parsers for option in parser.options() if "--json" in option.option_strings}
    assert printing == set(DOCUMENTS) - {"error"}


def test_an_attempt_fits_its_form_and_what_is_missing_or_wrong_does_not() -> None:
    candidate = evidence(2.16e-3)
    document = json.loads(encode_attempt(attempt(candidate, decide(candidate, None, None, Policy(), V5E))))
    checker = jsonschema.Draft202012Validator(schema(DOCUMENTS["show"]))
    checker.validate(document)
    wrong = deepcopy(document)
    wrong["attempt"]["verdict"]["outcome"] = "maybe"
    assert not checker.is_valid(wrong)
    wrong = deepcopy(document)
    del wrong["attempt"]["key"]
    assert not checker.is_valid(wrong)
    wrong = {**document, "schema": document["schema"] + 1}
    assert not checker.is_valid(wrong)


def test_a_number_that_is_not_finite_fits() -> None:
    candidate = evidence(2.16e-3)
    candidate = replace(candidate, latency=replace(present(candidate.latency), seconds=float("nan")))
    verdict = decide(candidate, None, None, Policy(), V5E)
    document = JudgeDocument(evidence=candidate, report=reporting.report(candidate, V5E), verdict=verdict)
    valid = validated("judge", json_text(DOCUMENTS["judge"], document))
    assert valid["evidence"]["latency"]["seconds"] == {"float": "nan"}


def test_a_verb_prints_its_own_record_only() -> None:
    candidate = evidence(2.16e-3)
    rejected = attempt(candidate, decide(candidate, None, None, Policy(), V5E))
    with pytest.raises(AssertionError, match="expected Status to print"):
        json_text(DOCUMENTS["status"], AttemptDocument(attempt=rejected, row=None))


def test_an_error_is_a_document_too(tmp_path: Path, shell: Shell) -> None:
    document = validated("error", shell.printed("status", "--json", "-C", tmp_path, code=4))
    assert document["error"]["kind"] == "no-contest"


def test_schema_prints_one_form_or_all(shell: Shell) -> None:
    assert json.loads(shell.printed("schema", "next")) == schema(DOCUMENTS["next"])
    assert set(json.loads(shell.printed("schema"))) == set(DOCUMENTS)
    shell.run("schema", "nothing", code=2)


def test_dumps_simulated_fit_their_forms(tmp_path: Path, shell: Shell) -> None:
    folder = unpack(NEWEST, "v5e-dot-8192", tmp_path)
    assert validated("simulate", shell.printed("simulate", folder, "--chip", "v5e", "--json"))["total_seconds"] > 0
    scaled = shell.printed("whatif", folder, "--chip", "v5e", "--mxu", "x2", "--json")
    assert validated("whatif", scaled)["source"] == "simulated"


def test_tables_fit_their_form(shell: Shell) -> None:
    printed = shell.printed("predict", "matmul", "X[8192,8192]", "W[8192,8192]", "--chip", "v5e", "--json")
    assert validated("predict", printed)["tables"]


@pytest.mark.parametrize("words", ["results", "status", "next", "show 1", "show 6", "fsck"])
def test_what_is_said_of_this_projects_own_ledger_fits(words: str, shell: Shell) -> None:
    verb = words.split()[0]
    validated(verb, shell.printed(*words.split(), "-C", PROJECT, "--json", code=(0, 1)))


@pytest.mark.slow
def test_what_the_loop_prints_fits_its_forms(tmp_path: Path) -> None:
    """One short life of a contest; each verb's real output against its form."""
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    contest = committed_contest(tmp_path / "contest", 512)

    def printed(verb: str, *words: str, expect: int = 0) -> Any:
        return validated(verb, ratchet(contest, *words, "--json", expect=expect).stdout)

    assert printed("next", "next")["advice"]["do"] == "baseline"
    assert printed("experiment", "experiment: baseline")["attempt"]["number"] == 1
    swept = printed("sweep", "sweep", "experiment: larger blocks", "--set", "BQ=256,300", "--set", "BKV=512")
    assert (swept["attempt"], swept["best"]) == (2, [["BQ", "256"], ["BKV", "512"]])
    assert printed("results", "results")["champion"] == 2
    assert printed("status", "status")["next_number"] == 3
    assert printed("show", "show", "2")["attempt"]["sweep"]["parameters"] == [["BQ", ["256", "300"]], ["BKV", ["512"]]]
    assert printed("judge", "judge")["verdict"]["outcome"] == "accept"
    assert printed("lines", "lines")["chip"] == "v5e"
    assert printed("fsck", "fsck")["findings"] == []
    assert printed("replay", "replay", "2")["number"] == 2
    assert printed("error", "show", "9", expect=4)["error"]["kind"] == "unknown-attempt"
