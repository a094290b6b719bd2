"""A space of inputs. A recipe is a point in it, drawn or read from text. Recipe and seed determine the arrays."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

# A family whose name begins with this is drawn: its recipe follows from the seed. So family and seed, which a Check
# records, give the same inputs again.
DRAWN = "drawn-"
# A family whose name begins with this contains the recipe itself, as JSON.
RECIPE = "recipe "

# The most mutations that are tried; at least half of all mutations change the recipe.
_TRIES = 20

Record = TypeVar("Record")
# The least and the largest value of each number in a recipe, by name. Within these limits honest kernels pass.
Limits = Mapping[str, tuple[float, float]]


@runtime_checkable
class Space(Protocol):
    """The recipes of one problem. The text of a recipe, `recipe {...}`, is a family that `make_inputs` understands."""

    def families(self, full: bool) -> tuple[str, ...]:
        """The families, as in a Problem; each kind of recipe has one that begins with `drawn-`."""

    def recipe(self, family: str, seed: int) -> str:
        """The recipe of a drawn family. Raises ValueError for an unknown family."""

    def draw_recipe(self, random: np.random.Generator) -> str:
        """A random recipe of any kind."""

    def mutate_recipe(self, recipe: str, random: np.random.Generator) -> str:
        """A recipe near this one."""

    def recipe_in_words(self, recipe: str) -> str:
        """The recipe's notable properties, in words for people."""


class Recipes:
    """A Space of recipes that are records of one class."""

    __slots__ = ()
    record: ClassVar[type[Any]]
    kinds: ClassVar[tuple[str, ...]]
    limits: ClassVar[Limits]

    def drawn_record(self, kind: str, random: np.random.Generator) -> Any:
        """A recipe of this kind. Raises ValueError for an unknown kind."""
        raise NotImplementedError

    def recipe(self, family: str, seed: int) -> str:
        """The recipe in the family's name, or the one drawn with this seed. Raises ValueError for unknown families."""
        if family.startswith(RECIPE):
            return family
        return text(self.drawn_record(family.removeprefix(DRAWN), recipe_generator(family, seed)))

    def draw_recipe(self, random: np.random.Generator) -> str:
        """A recipe of any kind."""
        return text(self.drawn_record(str(random.choice(self.kinds)), random))

    def mutate_recipe(self, recipe: str, random: np.random.Generator) -> str:
        """A recipe near this one."""

        def draw() -> Any:
            return parsed(self.draw_recipe(random), self.record)

        return text(near(parsed(recipe, self.record), draw, self.limits, random, parts=self.recipe_parts))

    @property
    def recipe_parts(self) -> int | None:
        """The number of parts that a recipe has; None if any number is allowed."""
        return None

    def recipe_in_words(self, recipe: str) -> str:
        """The recipe's notable properties, in words for people."""
        return str(parsed(recipe, self.record).in_words())


class Borrowed:
    """The Space of another problem, whose recipes give the values; this problem's families give sizes and tables."""

    __slots__ = ()

    @property
    def lender(self) -> Any:
        """The problem that provides the recipes."""
        raise NotImplementedError

    def recipe(self, family: str, seed: int) -> str:
        """The recipe of a drawn family's values with this seed, or the recipe in the family's name."""
        return str(self.lender.recipe(family, seed))

    def draw_recipe(self, random: np.random.Generator) -> str:
        """A recipe of any kind."""
        return str(self.lender.draw_recipe(random))

    def mutate_recipe(self, recipe: str, random: np.random.Generator) -> str:
        """A recipe near this one."""
        return str(self.lender.mutate_recipe(recipe, random))

    def recipe_in_words(self, recipe: str) -> str:
        """The recipe's notable properties, in words for people."""
        return str(self.lender.recipe_in_words(recipe))


def generator(family: str, seed: int) -> np.random.Generator:
    """The random generator for the arrays of a family."""
    return np.random.default_rng(np.random.SeedSequence((seed, zlib.crc32(family.encode()))))


def recipe_generator(family: str, seed: int) -> np.random.Generator:
    """The random generator for the recipe of a drawn family."""
    return np.random.default_rng(np.random.SeedSequence((seed, zlib.crc32(family.encode()), 1)))


def text(recipe: object) -> str:
    """A recipe as the name of a family."""
    # numpy's numbers are written as floats.
    return RECIPE + msgspec.json.encode(recipe, enc_hook=float).decode()


def parsed(family: str, record: type[Record]) -> Record:
    """The recipe in the name of a family. Raises ValueError if the name has none."""
    try:
        return msgspec.json.decode(family.removeprefix(RECIPE), type=record)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected `{RECIPE}` and the JSON of a {record.__name__}, got {family!r}: {error}") from error


def near(
    recipe: Record, draw: Callable[[], Record], limits: Limits, random: np.random.Generator, *, parts: int | None = None
) -> Record:
    """A different recipe near this one: some numbers are changed, or taken from a recipe that `draw` returns.

    Returns the recipe itself if no try gives a different one. With `parts`, every tuple has that many parts.
    """
    for _ in range(_TRIES):
        neighbour = _mutated(recipe, draw(), limits, random)
        sizes = [len(value) for some_recipe in (recipe, neighbour) for value in _tuples(some_recipe)]
        if neighbour != recipe and (parts is None or set(sizes) == {parts}):
            return neighbour
    return recipe


def _tuples(recipe: Any) -> Iterator[tuple[Any, ...]]:
    values = (getattr(recipe, field.name) for field in fields(recipe))
    return (value for value in values if isinstance(value, tuple))


def _mutated(recipe: Record, other: Record, limits: Limits, random: np.random.Generator) -> Record:
    names = [field.name for field in fields(recipe)]  # type: ignore[arg-type]
    # At least one name, about two on average.
    chosen = {names[int(random.integers(len(names)))]} | {name for name in names if random.random() < 1 / len(names)}
    changes = {}
    # The fields keep their order, because a set's order differs between processes and each change draws from `random`.
    for name in (name for name in names if name in chosen):
        value = _changed(getattr(recipe, name), getattr(other, name), limits, random)
        low, high = limits.get(name, (None, None))
        changes[name] = value if low is None else type(value)(min(max(value, low), high))
    return replace(recipe, **changes)  # type: ignore[type-var]


def _changed(mine: Any, other: Any, limits: Limits, random: np.random.Generator) -> Any:
    if isinstance(mine, tuple):
        return _changed_tuple(mine, other, limits, random)
    if is_dataclass(mine):
        return _mutated(mine, other, limits, random)
    if isinstance(mine, float) and mine and random.random() < 0.7:
        return float(mine * np.exp(random.normal(0, 0.5)))
    return other


def _changed_tuple(mine: tuple[Any, ...], other: tuple[Any, ...], limits: Limits, random: np.random.Generator) -> Any:
    """The tuple with one part less, with one more from `other`, or with one part changed."""
    turn = random.random()
    if mine and turn < 0.3:
        out = int(random.integers(len(mine)))
        return mine[:out] + mine[out + 1 :]
    if other and (not mine or turn < 0.5):
        return (*mine, other[int(random.integers(len(other)))])
    if not mine:
        return mine
    place = int(random.integers(len(mine)))
    new = _changed(mine[place], other[int(random.integers(len(other)))] if other else mine[place], limits, random)
    return (*mine[:place], new, *mine[place + 1 :])
