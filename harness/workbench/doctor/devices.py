"""The devices that JAX finds, listed by a separate process with the user's variables for platforms and GPUs."""

import json
import os
import subprocess
import sys

from harness.sandbox import environment

# Within a minute JAX notices that a TPU is busy, or that libtpu is installed without a TPU.
_SECONDS = 120.0
_PROGRAM = "import jax, json; print('found', json.dumps([[d.platform, d.device_kind] for d in jax.devices()]))"


def visible_devices() -> tuple[tuple[tuple[str, str], ...], str]:
    """Platform and kind of each device, and ""; if JAX finds none, () and the reason, usually JAX's last line."""
    passed_on = {
        name: value for name, value in os.environ.items() if name.startswith(("JAX_PLATFORM", "CUDA_", "NVIDIA_"))
    }
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM],
            env={**environment.base(), **passed_on},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (), f"JAX found no device within {_SECONDS:g} s"
    for line in process.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("found "):
            return tuple((str(platform), str(kind)) for platform, kind in json.loads(line.removeprefix("found "))), ""
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return (), lines[-1][:200] if lines else f"JAX ended with exit code {process.returncode}"
