"""Kernels that a known bug of a version of JAX touches are refused there, and nowhere else."""

import pytest
from refusals import assert_failed

from harness.judge.evaluate.trace.known_bugs import refuse
from harness.sandbox.messages import Rejected

ASKS = "from jax.experimental import pallas as pl\n\ndef body(ref):\n    last = pl.num_programs(0) - 1\n"
SPELLINGS = (ASKS, "from jax.experimental.pallas import num_programs as n\n", "size = getattr(pl, 'num_programs')\n")


@pytest.mark.parametrize("source", SPELLINGS)
@pytest.mark.parametrize("version", ["0.11.0", "0.11.1", "0.11.2"])
def test_num_programs_is_refused_where_jax_keeps_the_first_grid(source: str, version: str) -> None:
    with pytest.raises(Rejected) as caught:
        refuse((source.encode(),), version)
    assert_failed(caught.value.failure, "static", "known-jax-bug", f"jax {version}", "40847")


@pytest.mark.parametrize("version", ["0.10.2", "0.11.3", "0.12.0.1", "a build of one's own"])
def test_other_versions_do_not_have_it(version: str) -> None:
    refuse((ASKS.encode(),), version)


def test_a_kernel_that_does_not_ask_is_not_touched() -> None:
    refuse((b"# pl.num_programs is not named here\nsteps = 4\n",), "0.11.1")
