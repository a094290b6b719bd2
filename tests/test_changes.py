"""The kinds of change between two texts of kernel.py: what each edit of a real kernel is called."""

from pathlib import Path

import pytest

from harness.judge.changes import kinds_of_change, mixed_kinds

KERNEL = (Path(__file__).parents[1] / "harness" / "templates" / "attention" / "kernel.py").read_text()
