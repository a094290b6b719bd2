"""The subcommands of `xprof`, one entry each."""

import argparse
from argparse import Namespace
from pathlib import Path

from harness.cli.arguments import directory
from harness.cli.xprof_command import Answer, Command
from harness.cli.xprof_pages import PAGES
from harness.cli.xprof_time import TIME
from harness.workbench.profiles import places
from harness.workbench.profiles.listing import list_runs
from harness.workbench.profiles.places import PROFILE_DATA, Place


def _list_runs(given: Namespace, found: tuple[Place, ...]) -> Answer:
    where = Path(given.log_directory) if given.log_directory else directory(given.directory) / PROFILE_DATA
    return list_runs(places.runs(where), str(where))


def _list_runs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log_directory", nargs="?", help=f"a log directory (default: {PROFILE_DATA} of the contest)")


COMMANDS: tuple[Command, ...] = (
    Command(
        name="list-runs",
        sentence="the captures of a log directory: when, which attempt, devices, size",
        example="ratchet.sh xprof list-runs ./profile_data",
        run=_list_runs,
        arguments=_list_runs_arguments,
        places=(),
    ),
    *TIME,
    *PAGES,
)
