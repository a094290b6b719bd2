"""Shorter names for kernels whose names the compiler cuts off in the names of its files."""

import re
from pathlib import Path

# libtpu 0.0.41 and later: a longer name is cut, by another length for each kind of file, and gets a number.
_LONGEST_FILE_NAME = 250
_CUT = re.compile(r"(?P<stamp>\d+-)(?P<beginning>.+)-\d+-(?P<kind>\d\d-[a-z].*)")
_INSTRUCTION = re.compile(r"%([\w.\-]+) = ")


def shorten(directory: Path) -> None:
    """Calls such kernels `cut-1`, `cut-2` in all files of a dump, so that its schedules are found by their names.

    A file whose name could be that of several kernels stays as it is.
    """
    files = [(path, match) for path in sorted(directory.iterdir()) if (match := _cut(path.name))]
    program = [path for path in directory.glob("*-TLP-*.txt") if files]
    texts = {path: path.read_text(encoding="utf-8") for path in program}
    names = sorted({name for text in texts.values() for name in _INSTRUCTION.findall(text)})
    short: dict[str, str] = {}
    for path, match in files:
        whole = [name for name in names if name.startswith(match["beginning"])]
        if len(whole) == 1:
            name = short.setdefault(whole[0], f"cut-{len(short) + 1}")
            path.rename(path.with_name(f"{match['stamp']}{name}-{match['kind']}"))
    for path, text in texts.items():
        for whole_name, name in short.items():
            text = re.sub(rf"(?<![\w.\-]){re.escape(whole_name)}(?![\w\-]|\.\w)", name, text)
        path.write_text(text, encoding="utf-8")


def _cut(file_name: str) -> re.Match[str] | None:
    return _CUT.fullmatch(file_name) if len(file_name) == _LONGEST_FILE_NAME else None
