"""Recomputed activations of a training step, and the saving of remedies: a v5e's buffer assignments of both."""

from typing import TypeAlias

import pytest
from analyses import named, rows
from memory_examples import STEP

from harness.records import Table
from harness.workbench.hlo.training_memory import Transformer
from harness.workbench.profiles import memory
from harness.workbench.profiles.reading import read

Tables: TypeAlias = dict[str, Table]

FOLDER = STEP.parent
# The sizes in fixtures/memory/make.py.
LAYERS, TOKENS, WIDTH, HIDDEN = 4, 16384, 2048, 8192
INPUT, PRODUCT = 2 * TOKENS * WIDTH, 2 * TOKENS * HIDDEN
MODEL = Transformer(batch=1, sequence=TOKENS, layers=LAYERS, width=WIDTH, hidden=HIDDEN)


@pytest.fixture(scope="module")
def diagnosed() -> dict[str, Tables]:
    """The diagnosis of each file, by table."""
    paths = {name: next(FOLDER.glob(f"layers-{name}-v5e-*.hlo_proto.pb.gz")) for name in ("kept", "recomputed")}
    return {name: named(memory.diagnose(read([path]))) for name, path in {**paths, "step": STEP}.items()}


@pytest.mark.long
def test_kept_activations_only_fall_in_the_backward_half(diagnosed: dict[str, Tables]) -> None:
    table = diagnosed["kept"]["activations"]
    forward, backward = rows(table)
    # Each layer keeps the product before GELU, and its input, except for the first, whose input is an argument.
    kept = LAYERS * PRODUCT + (LAYERS - 1) * INPUT
    assert forward["made_bytes"] == forward["last_bytes"] == backward["first_bytes"] == kept
    assert (backward["made_bytes"], backward["rises"], backward["last_bytes"]) == (0, 0, 0)
    assert "Activations only fall in the backward half: all 1.3 GB are kept" in table.notes[0]


@pytest.mark.long
def test_recomputed_activations_fall_and_rise_in_the_backward_half(diagnosed: dict[str, Tables]) -> None:
    table = diagnosed["recomputed"]["activations"]
    forward, backward = rows(table)
    assert forward["last_bytes"] == backward["first_bytes"] == LAYERS * INPUT
    assert (backward["made_bytes"], backward["rises"]) == (LAYERS * PRODUCT, LAYERS)
    assert "Activations fall and rise in the backward half: 1.1 GB are recomputed (jax.checkpoint)" in table.notes[0]


def test_what_rematerialisation_really_saves_is_below_its_bound(diagnosed: dict[str, Tables]) -> None:
    bound = {row["remedy"]: row["saved_bytes"] for row in rows(diagnosed["kept"]["remedies"])}
    peaks = [rows(diagnosed[name]["estimate"])[0]["static_peak_bytes"] for name in ("kept", "recomputed")]
    saved = peaks[0] - peaks[1]
    # In both, one layer's product is alive: in one of them it is computed again.
    assert saved == (LAYERS - 1) * PRODUCT
    assert saved <= bound["rematerialisation"] <= 1.5 * saved
    assert "rematerialisation" not in {row["remedy"] for row in rows(diagnosed["recomputed"]["remedies"])}


def test_the_estimate_of_activations_is_an_upper_one(diagnosed: dict[str, Tables]) -> None:
    mlp = next(part.bytes for part in MODEL.parts() if part.name.startswith("MLP"))
    kept = rows(diagnosed["kept"]["activations"])[0]["last_bytes"]
    # XLA keeps one of the two arrays of width F that the formula counts.
    assert 0.5 < kept / (LAYERS * mlp) < 1
    # Only the input of a recomputed layer is kept, as in the formula.
    inputs = rows(diagnosed["recomputed"]["activations"])[0]["last_bytes"]
    assert inputs == LAYERS * MODEL.input_bytes


def test_each_remedy_says_the_bytes_it_saves(diagnosed: dict[str, Tables]) -> None:
    saved = {row["remedy"]: row["saved_bytes"] for row in rows(diagnosed["step"]["remedies"])}
    vocabulary = 200 * 100_352
    assert saved["chunked cross entropy"] == 1024 * 100_352 * 2 * 7 / 8
    assert saved["bfloat16 optimizer state"] == pytest.approx(vocabulary * 4 / 2, rel=0.01)
    assert saved["sharding over twice the devices"] == pytest.approx(vocabulary * (4 + 2) / 2, rel=0.01)
    assert "keeps no temporary of a forward pass for a backward pass" in diagnosed["step"]["activations"].why_empty
