"""Helper modules beside kernel.py through the loop: judged, recorded, put back, and never lost."""

import json
import subprocess
from pathlib import Path

import pytest
from ledger_fixtures import commit_all, run_attempt
from loop_fixtures import git, norm_contest, ratchet
from planted import norm

from harness.ledger import Ledger

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


def with_helpers(folder: Path) -> Path:
    """A contest whose kernel.py takes its block from one helper and its body from another, made by hand."""
    norm_contest(folder)
    (folder / ".gitignore").unlink()
    source = norm().replace("BR", "BLOCK")
    begin, end = source.index("def normalise("), source.index("def kernel_fn(")
    imports = "import jax\nimport jax.numpy as jnp\n\nEPS = 1e-6\n\n\n"
    (folder / "online.py").write_text(f"from sizes import BLOCK  # noqa: F401\n{imports}{source[begin:end]}")
    (folder / "sizes.py").write_text("BLOCK = 16\n")
    kernel = source[:begin].replace("BLOCK = 16\n", "") + source[end:]
    last = "from jax.experimental.pallas import tpu as pltpu\n"
    kernel = kernel.replace(last, f"{last}from online import normalise\nfrom sizes import BLOCK\n")
    (folder / "kernel.py").write_text(kernel)
    commit_all(folder, "By hand")
    return folder


@pytest.mark.slow
def test_helpers_go_with_the_candidate(tmp_path: Path) -> None:
    folder = with_helpers(tmp_path / "mine")
    sizes = folder / "sizes.py"
    ratchet(folder, "experiment: baseline", "--quiet", expect=0)
    # Without an ignore file of the user's, git reports none of the files that an evaluation leaves.
    assert git(folder, "status", "--porcelain", "--ignored=no") == ""
    # A constant of a helper is set like one of kernel.py, and accepted with it.
    ratchet(folder, "experiment: larger blocks", "--set", "BLOCK=64", "--quiet", expect=0)
    assert sizes.read_text() == "BLOCK = 64\n"
    assert git(folder, "show", "HEAD:sizes.py") == "BLOCK = 64\n"
    assert git(folder, "status", "--porcelain") == ""
    # A failed candidate is put back with its helpers, and can be brought back.
    sizes.write_text("BLOCK = 100\n")
    failed = ratchet(folder, "experiment: an odd block", "--quiet", expect=1)
    assert (
        "sizes.py is the champion's again (attempt 2); to get your version back: ./ratchet.sh checkout 3"
        in failed.stdout
    )
    assert sizes.read_text() == "BLOCK = 64\n"
    # The printed command commits the record that it leaves.
    command = failed.stdout.partition("0003-an-odd-block.json joins the branch")[2].partition("commit it now: ")[2]
    subprocess.run(command, cwd=folder, shell=True, check=True)
    assert git(folder, "status", "--porcelain") == ""
    ratchet(folder, "checkout", "3", expect=0)
    assert sizes.read_text() == "BLOCK = 100\n"
    # A helper that is not valid Python gets no attempt number, and is named.
    sizes.write_text("BLOCK = = 100\n")
    refused = ratchet(folder, "experiment: a slip", "--quiet", expect=4)
    assert "sizes.py line 1" in refused.stderr
    assert "no attempt number is used" in refused.stderr
    # A text that is stored nowhere else is not overwritten.
    assert "unsaved-kernel" in ratchet(folder, "checkout", "1", expect=4).stderr
    ratchet(folder, "checkout", "1", "--force", expect=0)
    assert sizes.read_text() == "BLOCK = 16\n"
    assert "clean" in ratchet(folder, "fsck", expect=0).stdout
    numbers = [entry["row"]["number"] for entry in json.loads(ratchet(folder, "results", "--json").stdout)["rows"]]
    assert numbers == [1, 2, 3]


def test_a_helper_that_only_lies_there_is_not_overwritten_unseen(tmp_path: Path) -> None:
    folder = with_helpers(tmp_path / "mine")
    run_attempt(Ledger.open(folder))
    kernel = (folder / "kernel.py").read_text()
    (folder / "kernel.py").write_text(kernel.replace("from sizes import BLOCK\n", "BLOCK = 256\n"))
    git(folder, "commit", "-qam", "Without sizes.py")
    online = folder / "online.py"
    online.write_text(online.read_text().replace("from sizes import BLOCK  # noqa: F401\n", ""))
    (folder / "sizes.py").write_text("BLOCK = 64  # an idea for later\n")
    git(folder, "commit", "-qm", "Nothing imports sizes.py", "kernel.py", "online.py")
    refused = ratchet(folder, "checkout", "1", expect=4)
    assert "sizes.py in the folder of kernel.py would be overwritten" in refused.stderr
    assert (folder / "sizes.py").read_text() == "BLOCK = 64  # an idea for later\n"
