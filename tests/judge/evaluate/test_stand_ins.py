"""Stand-ins for packages that a kernel does not need: they can be imported and named, and decide nothing."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import contest as contests
from harness.errors import RatchetError
from harness.judge.evaluate.trace import stand_ins
from harness.loop import scaffold


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("no_such_stack", "termcolor"):
            del sys.modules[name]


def test_whatever_is_imported_from_it_is_there_and_computes_nothing() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_stack")
    stand_ins.stand_in(("no_such_stack", "json"))
    engine = importlib.import_module("no_such_stack.engine.log")
    logger = engine.init_logger("x")
    logger.info("nothing happens")
    made = type("Derived", (object,), {})
    assert not isinstance(made, engine.Type)
    assert engine.Type | None is not None
    # A class that the stand-in decorates can be decorated by others.
    assert engine.struct.dataclass(made) is made
    assert engine.struct.dataclass(made, frozen=True) is not made
    with pytest.raises(TypeError):
        engine.count + 1
    with pytest.raises(RuntimeError, match=r"branches on no_such_stack.engine.log.is_on.*install"):
        bool(engine.is_on)
    assert "a stand-in replaces no_such_stack" in " ".join(stand_ins.warnings())
    # Modules that are imported already stay as they are.
    assert importlib.import_module("json").loads("1") == 1


def test_an_installed_package_gets_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.util.find_spec("termcolor") is not None
    for name in [name for name in sys.modules if name.partition(".")[0] == "termcolor"]:
        monkeypatch.delitem(sys.modules, name)
    stand_ins.stand_in(("termcolor",))
    assert "stand-in" in repr(importlib.import_module("termcolor").colored("text"))
    assert "a stand-in replaces termcolor" in " ".join(stand_ins.warnings())
    # Each candidate has its own.
    stand_ins.stand_in(())
    assert not any(isinstance(finder, stand_ins._Finder) for finder in sys.meta_path)


def test_a_type_that_is_not_there_can_be_derived_from() -> None:
    stand_ins.stand_in(("no_such_stack",))
    base = importlib.import_module("no_such_stack").Base

    class Derived(base):  # type: ignore[misc, valid-type]
        """A class that inherits from a stand-in."""

    assert Derived.__mro__ == (Derived, object)


@pytest.mark.long
def test_a_prepare_names_what_something_stands_in_for_and_what_is_assumed(tmp_path: Path) -> None:
    scaffold.scaffold(tmp_path, "rmsnorm", ())
    path = tmp_path / "prepare.py"
    plain, text = contests.load(tmp_path), path.read_text()
    assert (plain.stubs, plain.assumption) == ((), None)
    path.write_text(text + '\nSTUBS = ("no_such_stack",)\nASSUME = "never"\n')
    stated = contests.load(tmp_path)
    assert (stated.stubs, stated.assumption) == (("no_such_stack",), "never")
    # An assumption on branches changes times; a stand-in changes none by itself.
    assert stated.key("simulated").timing != plain.key("simulated").timing
    path.write_text(text + '\nSTUBS = ("no_such_stack",)\n')
    assert contests.load(tmp_path).key("simulated").timing == plain.key("simulated").timing


@pytest.mark.parametrize(
    "line",
    ['STUBS = ("jax",)', 'STUBS = ("scipy",)', "STUBS = 3", 'STUBS = ("a.b",)', 'ASSUME = "often"', "ASSUME = True"],
)
def test_other_values_are_refused_with_what_is_expected(tmp_path: Path, line: str) -> None:
    scaffold.scaffold(tmp_path, "rmsnorm", ())
    (tmp_path / "prepare.py").write_text((tmp_path / "prepare.py").read_text() + f"\n{line}\n")
    with pytest.raises(RatchetError, match=r"expected (STUBS|ASSUME) to be"):
        contests.load(tmp_path)
