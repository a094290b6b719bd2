"""What a subcommand of `xprof` is: its words about itself, the captures it wants, the function that answers."""

import argparse
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from harness.records import Capture, Table
from harness.workbench.profiles import reading
from harness.workbench.profiles.places import Place

# What it prints: tables, or text that is to stay as it is (a graph, an address).
Answer: TypeAlias = tuple[Table, ...] | str


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond the places and --json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One subcommand: `run(given, places)` answers it; `arguments` adds its own options to the parser.

    `places` names the captures that it wants, each resolved before `run` is called. One that stands alone may be
    left out: it is the newest then. Without any, `run` gets the words as they are in `given`.
    """

    name: str
    sentence: str
    example: str
    run: Callable[[Namespace, tuple[Place, ...]], Answer]
    arguments: Callable[[argparse.ArgumentParser], None] = no_arguments
    places: tuple[str, ...] = ("where",)


def of_capture(analysis: Callable[[Capture], Answer]) -> Callable[[Namespace, tuple[Place, ...]], Answer]:
    """`run` for an analysis of one capture that takes no options."""
    return lambda given, found: analysis(reading.read(found[0].paths))
