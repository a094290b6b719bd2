"""The page of known kernels: a row per kernel, columns per chip, and the reasons. `read` reads the page back."""

from collections.abc import Iterable
from dataclasses import dataclass

from markdown_pages import fill, markdown_table

# A package and one of its kernels.
Kernel = tuple[str, str]

NO_LATENCY = "none"
NOT_UNDERSTOOD, COMPILED_OTHERWISE, BY_ANOTHER_JAX = "*", "†", "‡"
_COLUMNS = ("enters", "simulated", "steps")
_REASONS = "## Reasons and remarks"
_LONGEST_REASON = 400
_MADE_BY = (
    "Made by `python benchmarks/known_kernels.py {arguments}`. With `--keep` and fewer words after `--only`, the "
    "command makes only the rows with these words anew; the other rows may have been made with other options. "
    "A kernel *enters* a contest if the judge admits its program (`?`: not known). The page does not say whether its "
    "results are right: [KNOWN_KERNELS_JUDGED.md](KNOWN_KERNELS_JUDGED.md) does. Times are simulated. `*`: something "
    "was not understood or is assumed; `†`: not compiled as it is shipped; `‡`: compiled by another JAX, because "
    "this environment's JAX does not trace it; `none`: there is no latency. `steps` is the number of grid steps, which "
    "shows if a package uses other blocks on another chip. In the table of reasons, a row that says who is at fault "
    "was written by hand, after reading the package."
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A kernel on one chip as the page shows it: three columns, and the reasons and remarks."""

    enters: str
    simulated: str
    steps: str
    reasons: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, str, str]:
        """The three columns, in their order."""
        return self.enters, self.simulated, self.steps

    @property
    def is_timed(self) -> bool:
        """True if there is a latency with nothing unknown, by any of the compilations."""
        return self.simulated != NO_LATENCY and NOT_UNDERSTOOD not in self.simulated


Cells = dict[Kernel, dict[str, Cell]]


def reason(text: str) -> str:
    """The text in a form that a Markdown table can hold, cut to its limit."""
    return text.replace("|", "/").replace("\n", " ")[:_LONGEST_REASON].strip()


def merged(old: Cells, new: Cells, order: Iterable[Kernel]) -> Cells:
    """The cells of `old`, replaced by those of `new`; chips are sorted by name. A kernel not in `order` is left out."""
    both = {kernel: old.get(kernel, {}) | new.get(kernel, {}) for kernel in order if kernel in old or kernel in new}
    return {kernel: dict(sorted(cells.items())) for kernel, cells in both.items()}


def read(text: str) -> Cells:
    """The cells of a page that `render` made."""
    table, _, below = text.partition(_REASONS)
    (head, _, *rows), (_, _, *why) = _split(table), _split(below)
    chips = [title.partition(":")[0] for title in head[2 :: len(_COLUMNS)]]
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for origin, name, on, sentence in why:
        for chip_name in on.split(", "):
            reasons.setdefault((origin, name, chip_name), []).append(sentence)
    cells: Cells = {}
    for origin, name, *columns in rows:
        for place, chip_name in enumerate(chips):
            enters, simulated, steps = columns[place * len(_COLUMNS) :][: len(_COLUMNS)]
            if enters:
                texts = tuple(reasons.get((origin, name, chip_name), ()))
                cells.setdefault((origin, name), {})[chip_name] = Cell(enters, simulated, steps, texts)
    return cells


def _split(table: str) -> list[list[str]]:
    """The cells of a table's lines."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]


def total(cells: Cells, chip_name: str) -> str:
    """The line that says how many of the kernels enter, and how many have a latency, on this chip."""
    on_chip = [chips[chip_name] for chips in cells.values() if chip_name in chips]
    timed = [cell.simulated for cell in on_chip if cell.is_timed]
    shipped = [simulated for simulated in timed if COMPILED_OTHERWISE not in simulated]
    return (
        f"{chip_name}: {sum(cell.enters == 'yes' for cell in on_chip)} of {len(on_chip)} enter unchanged, "
        f"{len(shipped)} have a latency with nothing unknown ({sum(BY_ANOTHER_JAX in text for text in shipped)} of "
        f"them by another JAX), and {len(timed) - len(shipped)} more if compiled as their remark says"
    )


def render(cells: Cells, arguments: str) -> str:
    """The page; `arguments` are those of the command that makes it."""
    chips = list(dict.fromkeys(chip_name for on_chips in cells.values() for chip_name in on_chips))
    nothing = Cell("", "", "")
    table = [
        [*kernel, *(column for name in chips for column in on_chips.get(name, nothing).columns)]
        for kernel, on_chips in cells.items()
    ]
    headers = ["package", "kernel", *(f"{name}: {column}" for name in chips for column in _COLUMNS)]
    on_which: dict[tuple[str, str, str], list[str]] = {}
    for (origin, name), on_chips in cells.items():
        for chip_name, cell in on_chips.items():
            for text in dict.fromkeys(cell.reasons):
                on_which.setdefault((origin, name, text), []).append(chip_name)
    why = [[origin, name, ", ".join(on), text] for (origin, name, text), on in on_which.items()]
    page = "\n".join(
        (
            "# Known kernels",
            "",
            _MADE_BY.format(arguments=arguments),
            "",
            *(f"- {total(cells, chip_name)}" for chip_name in chips),
            "",
            markdown_table(table, headers),
            "",
            _REASONS,
            "",
            markdown_table(why, ["package", "kernel", "chips", "reason"]),
        )
    )
    return fill(page) + "\n"
