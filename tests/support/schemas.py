"""Saves the forms of all --json documents, run as a script; refuses a form that changed without a new version."""

import json
import sys
from pathlib import Path
from typing import Any

from harness.shell.documents import documents, schema

DOCUMENTS = documents()
_DEFINITION = "#/$defs/"
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


def main() -> int:
    SAVED.mkdir(exist_ok=True)
    refused = []
    for verb in DOCUMENTS:
        form, before = bare(schema(DOCUMENTS[verb])), saved(verb)
        if before is not None and nameless(form) != nameless(before) and version(form) <= version(before):
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
