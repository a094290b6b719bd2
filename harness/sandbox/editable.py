"""Folders of packages that are installed for editing: their sources lie elsewhere than other packages'."""

import importlib.metadata
import json
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlparse

import harness


@cache
def editable_roots() -> tuple[Path, ...]:
    """The folders of all packages that `pip install -e` or the like installed here, resolved, as PEP 610 records them.

    The harness's own is none of them: whatever lies beside it in a clone is no package.
    """
    own = Path(harness.__file__).resolve().parent.parent
    found = []
    for distribution in importlib.metadata.distributions():
        stated = _stated(distribution.read_text("direct_url.json"))
        place = urlparse(str(stated.get("url", "")))
        info = stated.get("dir_info")
        if isinstance(info, dict) and info.get("editable") and place.scheme == "file":
            found.append(Path(unquote(place.path)).resolve())
    return tuple(dict.fromkeys(root for root in found if not own.is_relative_to(root)))


def _stated(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
