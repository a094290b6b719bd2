"""Saves the forms of all --json documents, run as a script; refuses a form that changed without a new version.

New keys and narrower values need no new version: programs that read the old form can read the new one.
"""

import json
import sys
from pathlib import Path
from typing import Any

from harness.shell.documents import documents, schema

DOCUMENTS = documents()
_DEFINITION = "#/$defs/"
_OF_KEYS = ("properties", "required")
SAVED = Path(__file__).parents[1] / "fixtures" / "schemas"


def saved(verb: str) -> dict[str, Any] | None:
    """The form as it was saved, or None."""
    path = path_of(verb)
    return json.loads(path.read_text()) if path.exists() else None


def path_of(verb: str) -> Path:
    """The file of the verb's form; verbs that print the same record share a file."""
    return SAVED / f"{DOCUMENTS[verb].record.__name__}.json"


def version(form: dict[str, Any]) -> int:
    """The number that its documents carry as `schema`."""
    number: int = form["properties"]["schema"]["const"]
    return number


def bare(form: Any) -> Any:
    """`form` without its words for people, which may change freely."""
    if isinstance(form, list):
        return [bare(item) for item in form]
    if not isinstance(form, dict):
        return form
    is_words = isinstance(form.get("description"), str)
    return {name: bare(item) for name, item in form.items() if not (is_words and name == "description")}


def nameless(form: dict[str, Any]) -> dict[str, Any]:
    """`form` with its definitions numbered in the order of their use: the names of records are not part of a form."""
    numbers: dict[str, str] = {}
    definitions: dict[str, Any] = {}

    def walk(item: Any) -> Any:
        if isinstance(item, list):
            return [walk(part) for part in item]
        if not isinstance(item, dict):
            return item
        reference = item.get("$ref")
        if isinstance(reference, str) and reference.startswith(_DEFINITION):
            name = reference.removeprefix(_DEFINITION)
            if name not in numbers:
                numbers[name] = str(len(numbers))
                definitions[numbers[name]] = walk({**form["$defs"][name], "title": ""})
            return {**item, "$ref": _DEFINITION + numbers[name]}
        return {key: walk(part) for key, part in item.items() if key != "$defs"}

    return {"form": walk({**form, "title": ""}), "definitions": definitions}


def extends(now: Any, before: Any) -> bool:
    """True if each document of the form `now` has all keys of the form `before`, with values that it allows.

    Both forms are without definitions, as `resolved` gives them.
    """
    if now == before:
        return True
    if isinstance(now, list) and isinstance(before, list):
        return len(now) == len(before) and all(map(extends, now, before))
    if not isinstance(now, dict) or not isinstance(before, dict):
        return False
    if before == {"type": "string"} and set(now) == {"enum"}:
        return all(isinstance(value, str) for value in now["enum"])
    keys, there = now.get("properties", {}), before.get("properties", {})
    needed = set(before.get("required", ()))
    if set(there) - set(keys) or needed - set(now.get("required", ())):
        return False
    rest, others = ({name: part for name, part in form.items() if name not in _OF_KEYS} for form in (now, before))
    return (
        rest.keys() == others.keys()
        and all(extends(rest[name], others[name]) for name in rest)
        and all(extends(keys[name], there[name]) for name in there)
    )


def resolved(form: dict[str, Any]) -> Any:
    """The form with the definitions in place of their names; a definition within itself keeps its name."""

    def walk(item: Any, within: tuple[str, ...]) -> Any:
        if isinstance(item, list):
            return [walk(part, within) for part in item]
        if not isinstance(item, dict):
            return item
        name = str(item.get("$ref", "")).removeprefix(_DEFINITION)
        if name and name not in within:
            return walk({**form["$defs"][name], "title": ""}, (*within, name))
        return {key: walk(part, within) for key, part in item.items() if key != "$defs"}

    return walk({**form, "title": ""}, ())


def main() -> int:
    SAVED.mkdir(exist_ok=True)
    refused = []
    for verb in DOCUMENTS:
        form, before = bare(schema(DOCUMENTS[verb])), saved(verb)
        is_new = before is None or version(form) > version(before)
        if before is not None and not is_new and not extends(resolved(form), resolved(before)):
            refused.append(verb)
            continue
        path_of(verb).write_text(json.dumps(form, indent=1, ensure_ascii=False) + "\n")
    for path in SAVED.glob("*.json"):
        if path not in map(path_of, DOCUMENTS):
            path.unlink()
    for verb in refused:
        place = f"harness/verbs/{verb}.py"
        print(f"{verb}: the form changed and its version did not: raise it in {place}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
