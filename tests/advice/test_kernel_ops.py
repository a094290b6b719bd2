"""Kernels without a name of their own are shown with that of their function, if the text has only one."""

import pytest
from evidence_examples import simulation

from harness.advice.kernel_ops import shown_names, with_shown_names

BODY = "def mlp_kernel(x, o):\n    pass\n\n\ndef other(x, o):\n    pass\n\n\n"


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ("y = pl.pallas_call(mlp_kernel, out_shape=x)(x)", "mlp_kernel"),
        ("y = pl.pallas_call(functools.partial(mlp_kernel, scale=2), out_shape=x)(x)", "mlp_kernel"),
        ("body = partial(mlp_kernel, n=2)\ny = pallas_call(body, out_shape=x)(pl.pallas_call(body)(x))", "mlp_kernel"),
        ("y = pl.pallas_call(mlp_kernel)(pl.pallas_call(other, name='other')(x))", "mlp_kernel"),
        ("y = pl.pallas_call(mlp_kernel)(pl.pallas_call(other)(x))", ""),
        ("y = pl.pallas_call(lambda x, o: None)(x)", ""),
        ("y = pl.pallas_call(chosen)(x)", ""),
        ("y = (", ""),
    ],
)
def test_a_kernel_without_a_name_is_shown_with_its_function(calls: str, name: str) -> None:
    files = {"kernel.py": (BODY + calls).splitlines()}
    names = shown_names(["jaxpr_as_fun.1", "copy.3", "other.2"], files)
    assert names == ({"jaxpr_as_fun.1": f"{name} (jaxpr_as_fun.1)"} if name else {})


def test_a_run_is_shown_with_these_names() -> None:
    run = simulation(1e-3)
    assert with_shown_names(run, {}) == run
