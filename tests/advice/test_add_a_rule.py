"""The page docs/ADD_A_RULE.md, followed with the rule and the counter that it invents: one place each."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness_copies import copy_harness
from loop_fixtures import PROJECT

PAGE = (Path(PROJECT) / "docs" / "ADD_A_RULE.md").read_text()
COUNTERS = "harness/advice/counters.py"
ASKED = """
import json
from evidence_examples import V5E, evidence
from harness.advice.report import advise, report
from harness.render.report_sections import counters_at_a_glance
from harness.render.sections import screen
judged = evidence(2.16e-3)
found = report(judged, V5E)
print(json.dumps({
    "hints": [(hint.rule, hint.kind, hint.because, hint.observation) for hint in advise(judged, found)],
    "counters": [(line.name, line.count, line.expected, line.remark) for line in found.counters],
    "glance": screen(counters_at_a_glance(found, None), 1000),
}))
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a harness that has the rule and the counter of the page."""
    folder = tmp_path_factory.mktemp("rule")
    copy_harness(folder)
    (name,) = re.findall(r"^`(harness/advice/rules/\w+\.py)`:$", PAGE, re.M)
    rule, row = re.findall(r"^```(?:python)?\n(.*?)^```", PAGE, re.S | re.M)
    (folder / name).write_text(rule)
    rows = (folder / COUNTERS).read_text()
    first = '    Counter("schedule", "bundles",'
    assert rows.count(first) == 1
    (folder / COUNTERS).write_text(rows.replace(first, row + first))
    path = os.pathsep.join((str(folder), str(Path(PROJECT) / "tests" / "support")))
    process = subprocess.run(
        (sys.executable, "-c", ASKED),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


@pytest.mark.long
def test_the_rule_is_found_and_advises(reported: dict[str, Any]) -> None:
    by_rule = {rule: others for rule, *others in reported["hints"]}
    assert by_rule["many loads"] == [
        "body",
        "a value that is loaded once stays in registers",
        "9 loads in the kernel beside 7 stores (Mosaic)",
    ]


@pytest.mark.long
def test_the_counter_stands_at_its_place_and_at_a_glance(reported: dict[str, Any]) -> None:
    names = [name for name, *_ in reported["counters"]]
    assert names.index("loads to spare") == names.index("bundles") - 1
    assert ["loads to spare", 2, "0", "values are loaded again"] in reported["counters"]
    assert "loads to spare 2" in reported["glance"]
    assert "loads to spare: values are loaded again" in reported["glance"]
