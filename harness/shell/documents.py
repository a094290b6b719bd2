"""The documents of `--json`: the verbs' records as JSON with the version of the form, and their JSON schemas."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.ledger.codec import built_document, encode_document
from harness.shell.catalogue import EVERY
from harness.shell.verb import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An error: `kind` is stable, for programs, `message` is for people."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """The document that is printed if the verb failed; exit code 2, 4, 5 or 130."""

    error: Mistake


ERROR = Document(1, ErrorDocument)
_NOT_FINITE = {
    "type": "object",
    "description": "a number that is not finite, which JSON cannot express",
    "properties": {"float": {"enum": ["nan", "inf", "-inf"]}},
    "required": ["float"],
    "additionalProperties": False,
}


def documents() -> dict[str, Document]:
    """The document of each verb that prints JSON, by the verb's name, and the document of errors as `error`."""
    of_verbs = {verb.name: verb.document for verb in EVERY.values() if verb.document is not None}
    return {**of_verbs, "error": ERROR}


def json_text(document: Document, record: object) -> str:
    """`record` with the schema number of the document first, as JSON."""
    return encode_document(_version(document, record), record)


def json_object(document: Document, record: object) -> dict[str, Any]:
    """The document of `json_text` as a Python object."""
    return built_document(_version(document, record), record)


def _version(document: Document, record: object) -> int:
    expected = document.record
    assert isinstance(record, expected), f"expected {expected.__name__} to print, got {type(record).__name__}"
    return document.version


def schema(document: Document) -> dict[str, Any]:
    """The JSON schema (2020-12) of the document."""
    (reference,), parts = msgspec.json.schema_components([document.record], ref_template="#/$defs/{name}")
    parts = {name: _with_odd_numbers(part) for name, part in parts.items()}
    name = reference["$ref"].rpartition("/")[2]
    form = parts.pop(name)
    if reference in _references([form, parts]):
        # Records of the document's kind may also be inside the document. They have no version, so they need their own
        # definition.
        parts[name] = form
    parts["NotFinite"] = _NOT_FINITE
    properties = {"schema": {"const": document.version}, **form["properties"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **form,
        "title": document.record.__name__,
        "properties": properties,
        "required": ["schema", *form["required"]],
        "$defs": parts,
    }


def _references(form: Any) -> Iterator[Any]:
    if isinstance(form, dict):
        if "$ref" in form:
            yield form
        form = list(form.values())
    for part in form if isinstance(form, list | tuple) else ():
        yield from _references(part)


def _with_odd_numbers(form: Any) -> Any:
    """`form`, in which each number may also be the object by which the codec writes nan and infinities."""
    if isinstance(form, list | tuple):
        return [_with_odd_numbers(item) for item in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == "number":
        return {"anyOf": [form, {"$ref": "#/$defs/NotFinite"}]}
    if "enum" in form:
        # The order of the values differs between processes.
        return {**form, "enum": sorted(form["enum"])}
    return {name: _with_odd_numbers(item) for name, item in form.items()}
