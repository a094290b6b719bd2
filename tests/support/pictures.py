"""Draws the README's picture, the top of the page over all contests, from that page in a browser.

PYTHONPATH=. python tests/support/pictures.py       # writes docs/contests.png
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from browsing import launched, opened

_ROOT = Path(__file__).parents[2]
PICTURE = _ROOT / "docs" / "contests.png"
# The part of the page in the picture: its first contests, without the heading, which names a folder.
_WIDTH, _HEIGHT, _HEADING = 1240, 850, 156


def draw(target: Path = PICTURE) -> None:
    """Writes the picture of the page over the contests of this repository."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "contests.html"
        subprocess.run([_ROOT / "ratchet.sh", "report", "--all", "--out", page], check=True, stdout=sys.stderr)
        with (
            launched() as browser,
            opened(browser, page.as_uri(), viewport={"width": _WIDTH, "height": _HEIGHT}) as drawn,
        ):
            height = _HEIGHT - _HEADING
            drawn.screenshot(path=target, clip={"x": 0, "y": _HEADING, "width": _WIDTH, "height": height})


if __name__ == "__main__":
    draw()
