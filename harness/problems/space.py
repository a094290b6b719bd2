"""A space of inputs: a recipe is a point of it, drawn or given as text, and makes the arrays together with a seed."""

import zlib
from typing import Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

# A family of this name is drawn: its recipe follows from the seed, so that family and seed, as a Check records
# them, make the same inputs again.
DRAWN = "drawn-"
# A family of this name is the recipe itself, as JSON.
RECIPE = "recipe "

Record = TypeVar("Record")


@runtime_checkable
class Space(Protocol):
    """The recipes of one problem, as the text of a family that its `make_inputs` understands: `recipe {...}`."""

    def recipe(self, family: str, seed: int) -> str:
        """The recipe of a drawn family. Raises ValueError: no such family."""

    def draw(self, random: np.random.Generator) -> str:
        """Any recipe."""

    def mutate(self, recipe: str, random: np.random.Generator) -> str:
        """A recipe near this one."""

    def in_words(self, recipe: str) -> str:
        """What stands out of it, for people."""


def generator(family: str, seed: int) -> np.random.Generator:
    """What draws the arrays of a family."""
    return np.random.default_rng(np.random.SeedSequence((seed, zlib.crc32(family.encode()))))


def recipe_generator(family: str, seed: int) -> np.random.Generator:
    """What draws the recipe of a drawn family."""
    return np.random.default_rng(np.random.SeedSequence((seed, zlib.crc32(family.encode()), 1)))


def text(recipe: object) -> str:
    """A recipe as the name of a family."""
    # Numbers of numpy are written as what they are.
    return RECIPE + msgspec.json.encode(recipe, enc_hook=float).decode()


def parsed(family: str, record: type[Record]) -> Record:
    """The recipe in such a name. Raises ValueError where it is none."""
    try:
        return msgspec.json.decode(family.removeprefix(RECIPE), type=record)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected `{RECIPE}` and the JSON of a {record.__name__}, got {family!r}: {error}") from error
