"""Packages whose installed files differ from those that the champion was judged with: named, with a remedy."""

from dataclasses import replace

from evidence_examples import evidence

from harness.loop.attempt import on_packages
from harness.records import Evidence, Imported


def importing(**hashes: str) -> Evidence:
    """Evidence of a kernel that imports these packages."""
    made = evidence()
    assert made.trace is not None
    packages = tuple(Imported(name=name, version="1", files=2, sha256=digest) for name, digest in hashes.items())
    return replace(made, trace=replace(made.trace, imported=packages))


def test_a_package_with_other_files_is_named() -> None:
    (sentence,) = on_packages(importing(tiles="a", maths="b"), importing(tiles="c", maths="b"))
    assert sentence.startswith("tiles, which kernel.py imports, changed after the champion was judged")
    assert "copy the edited file into the folder of kernel.py" in sentence


def test_nothing_is_said_of_packages_that_are_as_they_were_or_that_one_of_both_imports() -> None:
    assert on_packages(importing(tiles="a"), importing(tiles="a")) == ()
    assert on_packages(importing(tiles="a"), importing(maths="b")) == ()
    assert on_packages(replace(importing(), trace=None), importing(tiles="a")) == ()
