"""Compiles functions of a file for four chips, one after the other, with the dumps of each in a folder of its own.

A child of a test: `python compiled_meshes.py FILE CHIP ARGUMENT FOLDER NAME...`; its environment makes the compiler
dump into FOLDER/dumps. lower_program does the same, but starts a process for each function, which imports JAX each
time.
"""

import sys
from pathlib import Path

from harness.hardware import chip, slice_topology
from harness.workbench.capture import programs
from harness.workbench.capture.messages import LowerRequest


def _main(file: str, chip_name: str, argument: str, folder: str, *names: str) -> None:
    of_chip, dumps = chip(chip_name), Path(folder) / "dumps"
    for name in names:
        dumps.mkdir()
        programs.lower(
            LowerRequest(
                path=file,
                function=name,
                arguments=(argument,),
                topology=slice_topology(of_chip, 4),
                chip=of_chip,
                directory=folder,
                scratch=folder,
                mesh=(("x", 4),),
                dumps=str(dumps),
            )
        )
        dumps.rename(Path(folder) / name)


if __name__ == "__main__":
    _main(*sys.argv[1:])
