"""The colours of pages, charts and figures, defined only here, for light and for dark backgrounds."""

# Each colour on a light background, then on a dark one; a browser test checks the contrasts. Colours of outcomes and
# kinds of pieces are named after them; `paper` is the background of pages, `picture` the background of figures.
_COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#fbfaf7", "#15171a"),
    "raised": ("#ffffff", "#1d2024"),
    "ink": ("#1f1e1b", "#e9e7e1"),
    "faint": ("#625f58", "#a3a19a"),
    "line": ("#cfcac0", "#42464c"),
    "grid": ("#ebe7df", "#262a2f"),
    "link": ("#1b56a0", "#8ab4f0"),
    "accept": ("#14713f", "#57c98a"),
    "reject": ("#8a5a00", "#dfa94a"),
    "inconclusive": ("#6a4fa0", "#b9a3ea"),
    "failed": ("#b02a1c", "#f08a7d"),
    "floor": ("#1b56a0", "#8ab4f0"),
    "heat-fill": ("#f3c9a4", "#6a3f1d"),
    "added": ("#e3f3e6", "#14301f"),
    "removed": ("#fbe6e2", "#3a1d1a"),
    "piece-work": ("#2f6f9f", "#6fb1dd"),
    "piece-bubble": ("#77736a", "#a5a198"),
    "piece-stall": ("#946200", "#deb04f"),
    "piece-dma": ("#7a4a94", "#c39bdc"),
    "piece-edge": ("#33766f", "#79c2ba"),
    "piece-other": ("#5d5d66", "#b4b4bf"),
    "on-piece": ("#ffffff", "#101214"),
    "code-k": ("#8a2d7d", "#dd9ad2"),
    "code-s": ("#33691e", "#a3cf8a"),
    "code-n": ("#1b56a0", "#8ab4f0"),
    "code-c": ("#6b675f", "#9b988f"),
    "code-f": ("#7a4a00", "#e0b467"),
    "code-b": ("#1d6a70", "#7fc4ca"),
    "picture": ("#ffffff", "#15171a"),
}


def variables() -> str:
    """The colours as variables of the page's stylesheet, by their names."""
    return "\n  ".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in _COLOURS.items())


# Colours as #rrggbb, by their names.
LIGHT, DARK = ({name: both[place] for name, both in _COLOURS.items()} for place in (0, 1))
