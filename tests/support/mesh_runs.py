"""Runs functions of benchmarks/sharded_programs.py as the judge's checks run them over a mesh.

    python mesh_runs.py NAME ...

Prints a line for each: `NAME the rows come from chips 3 0 1 2`, or `NAME KIND: message`.
"""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from harness.hardware import chip, with_mesh
from harness.judge.evaluate.interpret import interpretation, over_mesh
from harness.judge.evaluate.trace import program_codec
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected

_CHIPS = 4
_ROWS, _COLUMNS = 8, 128


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import sharded_programs

    on = with_mesh(chip("v5e"), (("x", _CHIPS),))
    interpretation.get_ready_for(on)
    # Each shard holds the number of its chip.
    x = np.repeat(np.arange(_CHIPS, dtype=np.float32), _ROWS)[:, None] * np.ones(_COLUMNS, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            with asked_device.aiming_at(on):
                closed = jax.make_jaxpr(getattr(sharded_programs, name))(jax.ShapeDtypeStruct(x.shape, x.dtype))
            path = Path(folder, name)
            path.write_bytes(program_codec.encode(closed))
            # Gathered results have all rows on each chip.
            split = (None if name.startswith("gathered") else "x", None)
            try:
                outputs = [over_mesh.run(str(path), (x,), on, (("x", None),), (split,))[0] for _ in range(3)]
            except Rejected as rejected:
                print(name, f"{rejected.failure.kind}: {rejected.failure.message}", flush=True)
                continue
            assert all(np.array_equal(outputs[0], other) for other in outputs), "whatever the order of transfers"
            print(name, "the rows come from chips", *outputs[0][::_ROWS, 0].astype(int), flush=True)


if __name__ == "__main__":
    main()
