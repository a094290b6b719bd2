"""Prints rooms, arrows, lines, parameters and files that a commit touches, with the aims beside them.

.venv/bin/python tests/support/architecture.py           prints the figures of this checkout
.venv/bin/python tests/support/architecture.py --write   writes docs/ARCHITECTURE.md and its drawing
"""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from rooms import FLOORS, MODULES, PACKAGE, PROJECT, arrows, parsed, part, purpose, rooms
from tabulate import tabulate

PAGE = PROJECT / "docs" / "ARCHITECTURE.md"
DRAWING = PROJECT / "docs" / "architecture.svg"
# Limits of what a person can keep in mind, and of what a change may cost: a room is a folder or a loose file.
_MOST_ROOMS, _MOST_ARROWS, _MOST_PARAMETERS = 24, 105, 7
_MOST_FILES_MEDIAN, _MOST_FILES_NINETIETH = 2, 6
_COMMITS = 200

_FIRST_FLOOR = 2
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _FLOOR_HEIGHT, _MARGIN = 118, 34, 14, 76, 16


def lines(path: Path) -> int:
    """The lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def sizes() -> list[tuple[str, int, int]]:
    """Each room with its number of files and lines; the kernels' texts are beside the rooms."""
    files = sorted(PACKAGE.rglob("*.py"))
    homes = [(part(name), path) for name, path in MODULES.items()]
    by_room = [(room, [path for home, path in homes if home == room]) for room in rooms()]
    other = [path for path in files if path not in MODULES.values()]
    counted = [(room, len(paths), sum(map(lines, paths))) for room, paths in by_room]
    return [*counted, ("planted kernels", len(other), sum(map(lines, other)))]


def long_signatures(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int]]:
    """Functions with more than seven parameters, `self` not counted.

    Constructors are left out, as they are records of what they take.
    """
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                arguments = node.args
                names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
                count = len([argument for argument in names if argument not in ("self", "cls")])
                if count > _MOST_PARAMETERS:
                    yield f"{name}.{node.name}", count


def files_of_commits() -> list[int]:
    """The number of the harness's modules that each of the last commits touched, sorted; zeros are left out."""
    form = ["git", "log", f"-{_COMMITS}", "--format=%x00", "--name-only", "--", "harness"]
    log = subprocess.run(form, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    counts = [sum(name.endswith(".py") for name in commit.split()) for commit in log.split("\0")]
    return sorted(count for count in counts if count)


def figures() -> str:
    """The figures of this checkout with the aims beside them, as text."""
    touched = files_of_commits()
    ninetieth = touched[min(len(touched) - 1, len(touched) * 9 // 10)] if touched else 0
    signatures = list(long_signatures({name: parsed(path) for name, path in MODULES.items()}))
    measured: list[tuple[str, object, str]] = [
        ("rooms", len(rooms()), f"<= {_MOST_ROOMS}"),
        ("arrows between rooms", len(arrows()), f"<= {_MOST_ARROWS}"),
        (f"functions with more than {_MOST_PARAMETERS} parameters", len(signatures), "0"),
        (
            f"files of harness/ a commit touches, median of {len(touched)}",
            statistics.median(touched or [0]),
            f"<= {_MOST_FILES_MEDIAN}",
        ),
        ("the same, 90th percentile", ninetieth, f"<= {_MOST_FILES_NINETIETH}"),
    ]
    sized = sizes()
    total = ("in all", sum(files for _, files, _ in sized), sum(count for _, _, count in sized))
    tables = [
        tabulate(measured, headers=("figure", "now", "aim"), colalign=("left", "right", "right")),
        tabulate([*sized, total], headers=("room", "files", "lines")),
    ]
    if signatures:
        longest = sorted(signatures, key=lambda signature: -signature[1])
        tables.append(tabulate(longest, headers=("function", "parameters")))
    return "\n\n".join(tables)


def direct_arrows() -> frozenset[tuple[str, str]]:
    """The arrows that no path over other rooms implies, which the drawing shows."""
    every = arrows()
    below: dict[str, set[str]] = {}
    for room in rooms():
        direct = {used for user, used in every if user == room}
        below[room] = direct | {further for used in direct for further in below.get(used, ())}
    return frozenset(
        (user, used)
        for user, used in every
        if not any(used in below[other] for first, other in every if first == user and other != used)
    )


def drawing() -> str:
    """The rooms as an SVG: a row for each floor, an arrow from the importing room to the imported.

    The two lowest floors are one row without arrows: everything may import them.
    """
    ground = [room for room in rooms() if FLOORS[room] < _FIRST_FLOOR]
    above = [room for room in rooms() if room not in ground]
    floors = [ground, *([*row] for _, row in groupby(above, key=lambda room: FLOORS[room]))]
    width = _MARGIN * 2 + max(len(row) for row in floors) * (_BOX_WIDTH + _GAP) - _GAP
    height = _MARGIN * 2 + len(floors) * _FLOOR_HEIGHT - (_FLOOR_HEIGHT - _BOX_HEIGHT)
    place: dict[str, tuple[float, float]] = {}
    top: float
    left: float
    for level, row in enumerate(floors):
        top = height - _MARGIN - _BOX_HEIGHT - level * _FLOOR_HEIGHT
        left = (width - len(row) * (_BOX_WIDTH + _GAP) + _GAP) / 2
        place |= {room: (left + number * (_BOX_WIDTH + _GAP), top) for number, room in enumerate(row)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#607d8b"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for user, used in sorted(direct_arrows()):
        if used in ground or user in ground:
            continue
        (left, top), (right, bottom) = place[user], place[used]
        start = f'x1="{left + _BOX_WIDTH / 2:g}" y1="{top + _BOX_HEIGHT:g}"'
        ends = f'{start} x2="{right + _BOX_WIDTH / 2:g}" y2="{bottom:g}"'
        out.append(f'<line {ends} stroke="#90a4ae" stroke-width="1.2" marker-end="url(#head)"/>')
    for room, (left, top) in place.items():
        out.append(
            f'<rect x="{left:g}" y="{top:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5" fill="#eceff1" '
            f'stroke="#455a64"/><text x="{left + _BOX_WIDTH / 2:g}" y="{top + 22:g}" text-anchor="middle">{room}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def with_table(page: str) -> str:
    """The page with the table of rooms as the source has them."""
    head, _, rest = page.partition("| floor | room |")
    rows = [f"| {FLOORS[room]} | {home(room)} | {purpose(room)} |" for room in reversed(rooms())]
    after = rest[rest.index("\n\n") :] if "\n\n" in rest else ""
    return "\n".join([f"{head}| floor | room | what it holds |", "|--:|---|---|", *rows]) + after


def home(room: str) -> str:
    """The folder or the file of a room, as the page shows it."""
    path = MODULES[f"harness.{room}"]
    return f"`{path.parent.relative_to(PROJECT)}/`" if path.name == "__init__.py" else f"`{path.relative_to(PROJECT)}`"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        DRAWING.write_text(drawing(), encoding="utf-8")
    print(figures())
