"""The folders of editable installations, whose sources lie outside the folder of the other packages."""

import importlib.metadata
import json
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlparse

import harness


@cache
def editable_roots() -> tuple[Path, ...]:
    """The resolved folders of all packages in editable installations (`pip install -e`), as PEP 610 records them.

    Folders that contain the harness are excluded: the other files of a clone belong to no package.
    """
    clone = Path(harness.__file__).resolve().parent.parent
    roots = []
    for distribution in importlib.metadata.distributions():
        origin = _json_object(distribution.read_text("direct_url.json"))
        place = urlparse(str(origin.get("url", "")))
        info = origin.get("dir_info")
        if isinstance(info, dict) and info.get("editable") and place.scheme == "file":
            roots.append(Path(unquote(place.path)).resolve())
    return tuple(dict.fromkeys(root for root in roots if not clone.is_relative_to(root)))


def _json_object(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
