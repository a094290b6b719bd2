"""Reads the kernels that an exported program calls, as MLIR: Mosaic kernels on a TPU, Triton kernels on a GPU."""

import base64
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.interpreters import mlir
from jaxlib.mlir import ir

from harness.dumps import hlo, mosaic, triton

TPU_CALL = hlo.TPU_CALL
# The target of the custom call of a kernel in Pallas' Triton form.
TRITON_CALL = "__gpu$xla.gpu.triton"

_BOUNDS = re.compile(r"iteration_bounds = array<i64(?:: (?P<bounds>[-\d, ]+))?>")
# Triton calls CUDA's library for exponentials. The call is renamed to MLIR's operation, so that one count covers both.
_LIBRARY_EXPONENTIAL = re.compile(r'"tt\.extern_elementwise"(?=\(.*symbol = "__nv_(?:fast_)?(?P<name>exp2?)f?")')


@dataclass(frozen=True, slots=True, kw_only=True)
class MosaicKernel:
    """One kernel in MLIR's generic form, and the number of its grid steps (None: known only at run time)."""

    text: str
    steps: int | None


def called(operation: Any) -> str:
    """The target of a custom call; empty for every other operation."""
    attributes = operation.attributes
    return ir.StringAttr(attributes["call_target_name"]).value if "call_target_name" in attributes else ""


def mosaic_config(operation: Any) -> dict[str, Any]:
    """The configuration of the call of a TPU kernel; `custom_call_config` holds the `body`, in base 64."""
    config: dict[str, Any] = json.loads(ir.StringAttr(operation.attributes["backend_config"]).value)
    return config


def triton_config(operation: Any) -> dict[str, Any]:
    """The configuration of the call of a Triton kernel, as MLIR attributes; `ir` holds the body."""
    return {entry.name: entry.attr for entry in ir.DictAttr(operation.attributes["mhlo.backend_config"])}


def triton_text(config: dict[str, Any]) -> str:
    """The Triton kernel of this configuration, in generic form."""
    return triton.fingerprint_text(ir.StringAttr(config["ir"]).value_bytes)


def of_program(module_text: str) -> tuple[MosaicKernel, ...]:
    """The kernels of an exported program (StableHLO text), in order."""
    with mlir.make_ir_context():
        return tuple(_kernels_in(ir.Module.parse(module_text).operation))


def _kernels_in(operation: Any) -> Iterator[MosaicKernel]:
    target = called(operation)
    if target == TPU_CALL:
        body = mosaic_config(operation)["custom_call_config"]["body"]
        text = mosaic.fingerprint_text(base64.b64decode(body))
        yield MosaicKernel(text=text, steps=_mosaic_steps(text))
    elif target == TRITON_CALL:
        config = triton_config(operation)
        steps = math.prod(ir.IntegerAttr(config[f"grid_{axis}"]).value for axis in "xyz")
        text = _LIBRARY_EXPONENTIAL.sub(lambda match: f'"math.{match["name"]}"', triton_text(config))
        yield MosaicKernel(text=text, steps=steps)
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _kernels_in(inner.operation)


def _mosaic_steps(text: str) -> int | None:
    match = _BOUNDS.search(text)
    bounds = [int(bound) for bound in (match["bounds"] or "").split(",") if bound.strip()] if match else []
    # A bound that is only known at run time is negative.
    return None if any(bound < 0 for bound in bounds) else math.prod(bounds)
