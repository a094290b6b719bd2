"""A champion that fails under a later judge, with the real compiler: named, revoked, and the title given back."""

import json
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import committed_contest, copied, git, ratchet

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attempt 1 is right; 2 is faster, and drops keys from the 513th on (there are none yet); 3 is a rewording of 2.

    Then the contest becomes twice as long.
    """
    folder = committed_contest(tmp_path_factory.mktemp("revoke") / "mine", sequence=512)
    ratchet(folder, "experiment: baseline", expect=0)
    kernel = folder / "kernel.py"
    naive = kernel.read_text()
    wrong = naive.replace("kv_sequence // BKV)", "min(kv_sequence, 512) // BKV)").replace("BQ = 128", "BQ = 256")
    assert wrong.count("min(") == 1
    kernel.write_text(wrong)
    ratchet(folder, "experiment: larger blocks", expect=0)
    kernel.write_text(f"{wrong}# In other words.\n")
    ratchet(folder, "experiment: in other words", "--rebaseline", expect=0)
    prepare = folder / "prepare.py"
    prepare.write_text(prepare.read_text().replace("SEQUENCE = 512", "SEQUENCE = 1024"))
    git(folder, "commit", "-qam", "A longer contest")
    return folder


@pytest.fixture
def contest(template: Path, tmp_path: Path) -> Path:
    return copied(template, tmp_path / "mine")


@pytest.fixture(scope="module")
def after_revoke(template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The contest after attempt 4, which takes the title from 3 and 2, and the findings on the way."""
    folder = copied(template, tmp_path_factory.mktemp("revoked") / "mine")
    return folder, json.loads(ratchet(folder, "revoke", "drops keys", "--json", expect=0).stdout)


@pytest.fixture
def revoked(after_revoke: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return copied(after_revoke[0], tmp_path / "revoked")


def test_a_champion_that_fails_is_named_with_what_to_do(contest: Path) -> None:
    kernel = contest / "kernel.py"
    champion = kernel.read_text()
    kernel.write_text(champion.replace("BQ = 256", "BQ = 512").replace("min(kv_sequence, 512)", "kv_sequence"))
    refused = ratchet(contest, "experiment: larger still", expect=4)
    assert "[champion-fails]" in refused.stderr
    assert "./ratchet.sh revoke" in refused.stderr
    kernel.write_text(champion)
    for words in (("judge",), ("experiment: nothing changed",)):
        done = ratchet(contest, *words, "--quiet", expect=1)
        assert "the champion (attempt 3) fails" in done.stderr
        assert "./ratchet.sh revoke" in done.stderr


def test_it_loses_its_title_to_the_latest_that_passes(revoked: Path, after_revoke: tuple[Path, dict[str, Any]]) -> None:
    naive, (_, revocation) = git(revoked, "show", "HEAD~4:kernel.py"), after_revoke
    assert [revocation[name] for name in ("outcome", "champion", "holder", "attempt")] == ["revoked", 3, 1, 4]
    assert [(entry["attempt"], entry["same_as"], entry["failure"] is None) for entry in revocation["tried"]] == [
        (3, None, False),
        (2, 3, False),
        (1, None, True),
    ]
    assert (revoked / "kernel.py").read_text() == naive == git(revoked, "show", "HEAD:kernel.py")
    assert "Ratchet-Revokes: 3 2" in git(revoked, "log", "-1", "--format=%b")
    table = ratchet(revoked, "results", expect=0).stdout
    words = [line.split()[1] for line in table.splitlines() if line[:3].strip(" *").isdigit()]
    assert words == ["baseline", "revoked", "revoked", "revoke"]
    assert "REVOKED  attempt 3 lost its title" in ratchet(revoked, "show", "3", expect=0).stdout
    status = ratchet(revoked, "status", expect=0).stdout
    assert "attempt 1, " in status
    assert "attempt 1 holds the title again" in " ".join(status.split())
    assert "clean" in ratchet(revoked, "fsck", expect=0).stdout
    assert json.loads(ratchet(revoked, "next", "--json", expect=0).stdout)["champion"]["is_present_key"] is True
    again = ratchet(revoked, "revoke", expect=0)
    assert "passes" in again.stdout
    assert "nothing was recorded" in again.stdout


def test_the_next_attempt_is_judged_against_the_holder_as_the_revoke_found_it(revoked: Path) -> None:
    done = ratchet(revoked, "experiment: larger blocks, all keys", "--set", "BQ=512", expect=0)
    # Its program is compiled for the machines that the chip might be, but not checked again.
    assert "is evaluated again first" not in done.stderr, "the revoke has the champion's evidence under this key"
    rows = json.loads(ratchet(revoked, "results", "--json", expect=0).stdout)
    assert (rows["champion"], rows["rows"][-1]["row"]["outcome"]) == (5, "accept")
    ratchet(revoked, "replay", "4", "--quiet", expect=0)
    ratchet(revoked, "undo", expect=0)
    assert json.loads(ratchet(revoked, "results", "--json", expect=0).stdout)["champion"] == 1
    assert "clean" in ratchet(revoked, "fsck", expect=0).stdout


def test_where_nobody_passes_the_next_is_a_baseline(revoked: Path) -> None:
    kernel = revoked / "kernel.py"
    right = kernel.read_text()
    prepare = revoked / "prepare.py"
    # No block of 128 queries divides this.
    prepare.write_text(prepare.read_text().replace("SEQUENCE = 1024", "SEQUENCE = 1088"))
    git(revoked, "commit", "-qam", "Another length")
    done = ratchet(revoked, "revoke", expect=1)
    assert "there is no champion" in done.stdout
    assert "the next attempt is a baseline" in done.stdout
    assert kernel.read_text() == right
    assert "none yet" in ratchet(revoked, "status", expect=0).stdout
    assert "[no-champion]" in ratchet(revoked, "revoke", expect=4).stderr
    kernel.write_text(right.replace("BQ = 128", "BQ = 64").replace("BKV = 256", "BKV = 64"))
    ratchet(revoked, "experiment: blocks that divide it", expect=0)
    rows = json.loads(ratchet(revoked, "results", "--json", expect=0).stdout)
    assert rows["rows"][-1]["row"]["kind"] == "baseline"
    assert "clean" in ratchet(revoked, "fsck", expect=0).stdout


def test_inputs_are_named_where_a_check_fails(tmp_path: Path) -> None:
    """A revoke checks on the given inputs, and on fresh ones."""
    folder = committed_contest(tmp_path / "mine", sequence=512)
    kernel = folder / "kernel.py"
    text = kernel.read_text()
    ratchet(folder, "experiment: baseline", expect=0)
    wrong = text.replace("acc_ref[...] * rescale", "acc_ref[...] * (rescale if q_ref.shape[0] > 1024 else 1)")
    kernel.write_text(wrong)
    git(folder, "commit", "-qam", "By hand")
    failed = ratchet(folder, "judge", "--quiet", expect=1)
    assert "revoke" not in failed.stderr, "it is not the champion's"
    kernel.write_text(text)
    git(folder, "commit", "-qam", "Back")
    record = json.loads(ratchet(folder, "show", "1", "--json", expect=0).stdout)["attempt"]
    checked = next(check for check in record["evidence"]["checks"] if check["mode"] == "full" and check["error"])
    drawn = f"full:{'x'.join(map(str, checked['shape']))}:{checked['family']}:{checked['seed']}"
    document = json.loads(ratchet(folder, "revoke", "--draw", drawn, "--json", expect=0).stdout)
    assert (document["outcome"], document["attempt"]) == ("passes", None)
    assert str(len(record["evidence"]["checks"]) + 1) in document["reasons"][1], "one check more than an attempt has"
    assert "[bad-draw]" in ratchet(folder, "revoke", "--draw", "reduced:far", expect=2).stderr
