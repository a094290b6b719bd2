"""A hash of the program a candidate stands for: the same under other names and comments, another for other work."""

import base64
import hashlib
import json
import re

from jax.interpreters import mlir
from jaxlib.mlir import ir

from harness.dumps import mosaic
from harness.judge.evaluate.trace import kernels

# What holds names that a person chose and that change nothing: the kernel's, and where results came from.
_NAMES = ("kernel_name", "jax.result_info", "mhlo.frontend_attributes")


def fingerprint(module_text: str) -> str:
    """The SHA-256 of an exported program (StableHLO text), kernels included, without names and source locations.

    Kernel bodies are bytecode inside the module that carries locations of its own: they are
    replaced by the hash of their text.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(module_text)
        _strip(module.operation)
        text = module.operation.get_asm(enable_debug_info=False, print_generic_op_form=True)
    return hashlib.sha256(_anonymous(text).encode()).hexdigest()


def _strip(operation: ir.Operation) -> None:
    attributes = operation.attributes
    for name in _NAMES:
        if name in attributes:
            del attributes[name]
    target = kernels.called(operation)
    if target == kernels.TPU_CALL:
        config = kernels.mosaic_config(operation)
        call = config["custom_call_config"]
        body = base64.b64decode(call.pop("body"))
        text = _anonymous(mosaic.fingerprint_text(body))
        call["body_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        attributes["backend_config"] = ir.StringAttr.get(json.dumps(config, sort_keys=True), operation.context)
    elif target == kernels.TRITON_CALL:
        config = kernels.triton_config(operation)
        launch = {name: str(value) for name, value in config.items() if name not in ("ir", "name")}
        launch["ir_sha256"] = hashlib.sha256(_anonymous(kernels.triton_text(config)).encode()).hexdigest()
        told = json.dumps(launch, sort_keys=True)
        attributes["mhlo.backend_config"] = ir.StringAttr.get(told, operation.context)
    for region in operation.regions:
        for block in region:
            for inner in block:
                _strip(inner.operation)


def _anonymous(text: str) -> str:
    """`text` with every symbol (`@name`, `sym_name = "name"`) replaced by its number in order of appearance."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match.group("symbol") or match.group("name")
        prefix = "@" if match.group("symbol") else "sym_name = "
        return f"{prefix}{numbers.setdefault(name, len(numbers))}"

    pattern = r'@"?(?P<symbol>[\w.$<>-]+)"?|sym_name = "(?P<name>[^"]*)"'
    return re.sub(pattern, number, text)
