"""The audit of flags: settings of scripts, environments and captures, and the findings of each rule."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analyses import printed_by_name
from capture_examples import corrupt_run, one_device_run

from harness.dumps import xplane
from harness.hardware import chip
from harness.records.doctor import Answers, Known, Settings
from harness.sandbox import environment
from harness.shell.main import main
from harness.workbench.doctor import known_flags, settings
from harness.workbench.doctor.findings import DoctorFinding
from harness.workbench.doctor.flag_rules import RULES, SYMPTOMS, RuleSubject
from harness.workbench.doctor.flag_rules import audit as audited

pytestmark = pytest.mark.long

FUSION = "xla_tpu_enable_async_collective_fusion"
OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
# The answers for rules that need no library: both libraries know all flags, and JAX these variables.
NOTHING_WRONG = Answers(library="a library", unknown={}, refused={}, similar={})
ALL_KNOWN = Known(jaxlib=NOTHING_WRONG, libtpu=NOTHING_WRONG, jax_variables=frozenset())
CLEAN = f"""#!/bin/bash
set -euo pipefail  # don't stop here
export JAX_PLATFORMS=tpu
LIBTPU_INIT_ARGS="${{LIBTPU_INIT_ARGS:-}} --{FUSION}=true \\
  --{FUSION}_fuse_all_gather=true"
export LIBTPU_INIT_ARGS="$LIBTPU_INIT_ARGS --xla_tpu_overlap_compute_collective_tc=true"
XLA_FLAGS="--xla_gpu_autotune_level=1" python train.py --steps 100
"""


def read(text: str) -> Settings:
    return settings.of_script(text, "run.sh")


def rules(text: str, **options: Any) -> list[str]:
    """The rules that find something in a script that names its platform."""
    # Python sets the platform in its own syntax; with a platform set, no rule finds a missing one.
    head = "import os\nos.environ['JAX_PLATFORMS'] = 'tpu'\n" if "import jax" in text else "export JAX_PLATFORMS=tpu\n"
    return [finding.rule for finding in findings_of(read(f"{head}{text}"), **options)]


def findings_of(settings_read: Settings, libraries: Known = ALL_KNOWN, **options: Any) -> list[DoctorFinding]:
    subject = RuleSubject(settings_read, libraries, **options)
    return [finding for rule in RULES for finding in rule(subject)]


def words(settings_read: Settings, variable: str) -> list[str]:
    return [s.word for s in settings_read.settings if s.variable == variable and s.is_final]


# --- reading ------------------------------------------------------------------------------------


def test_a_shell_script_is_read_with_continuations_and_appended_variables() -> None:
    read_settings = read(CLEAN)
    assert words(read_settings, "LIBTPU_INIT_ARGS") == [
        f"--{FUSION}=true",
        f"--{FUSION}_fuse_all_gather=true",
        "--xla_tpu_overlap_compute_collective_tc=true",
    ]
    assert words(read_settings, "XLA_FLAGS") == ["--xla_gpu_autotune_level=1"]
    assert [(s.word, s.place) for s in read_settings.settings if not s.name] == [("JAX_PLATFORMS=tpu", "line 3")]
    assert read_settings.not_understood == ()


BOTH = "--xla_a=1 --xla_b=2"


@pytest.mark.parametrize(
    "text",
    [
        'FLAGS="--xla_a=1"\nexport XLA_FLAGS="$FLAGS --xla_b=2"',
        "XLA_FLAGS='--xla_a=1'; XLA_FLAGS+=' --xla_b=2'",
        'export XLA_FLAGS="--xla_a=1\n  --xla_b=2"',
        "docker run -e XLA_FLAGS='--xla_a=1 --xla_b=2' image",
        "env XLA_FLAGS='--xla_a=1 --xla_b=2' python x.py",
        'import os\nos.environ["XLA_FLAGS"] = "--xla_a=1 " "--xla_b=2"',
        'import os\nflags = "--xla_a=1"\nos.environ["XLA_FLAGS"] = f"{flags} --xla_b=2"',
        'import os\nos.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_a=1"\n'
        'os.environ["XLA_FLAGS"] += " --xla_b=2"',
        'import os\nos.environ.update({"XLA_FLAGS": " ".join(["--xla_a=1", "--xla_b=2"])})',
        'import os\nos.environ.setdefault("XLA_FLAGS", "--xla_a=1 --xla_b=2")',
        # Other files, and environments of other processes.
        f"FROM python\nENV XLA_FLAGS {BOTH}\n",
        f'FROM python\nENV HOME=/root \\\n    XLA_FLAGS="{BOTH}"\n',
        f'#!/bin/tcsh\nsetenv XLA_FLAGS "{BOTH}"\n',
        f'set -gx XLA_FLAGS "{BOTH}"\n',
        f'[Service]\nEnvironment="XLA_FLAGS={BOTH}" HOME=/root\n',
        f"export XLA_FLAGS := {BOTH}\ntrain:\n\tpython train.py\n",
        "XLA_FLAGS = --xla_a=1\nXLA_FLAGS += --xla_b=2\n",
        f'[env]\nXLA_FLAGS = "{BOTH}"\n',
        f'{{"env": {{"HOME": "/root", "XLA_FLAGS": "{BOTH}"}}}}\n',
        f'ray job submit --runtime-env-json=\'{{"env_vars": {{"XLA_FLAGS": "{BOTH}"}}}}\' -- python train.py\n',
        f"# for docker run --env-file\nXLA_FLAGS={BOTH}\n",
        f"docker run --env=XLA_FLAGS='{BOTH}' image\n",
        f"services:\n  train:\n    environment:\n      - XLA_FLAGS={BOTH}\n",
        f'services:\n  train:\n    environment:\n      - "XLA_FLAGS={BOTH}"\n',
        f'runtime_env:\n  env_vars:\n    XLA_FLAGS: "{BOTH}"\n',
        f'import os\nos.environ |= {{"XLA_FLAGS": "{BOTH}"}}',
        f'import os\nenv = os.environ\nenv["XLA_FLAGS"] = "{BOTH}"',
        f'from os import putenv\nputenv("XLA_FLAGS", "{BOTH}")',
        f'import os\nenv = dict(os.environ, XLA_FLAGS="{BOTH}")',
        'import os\nenv = os.environ.copy()\nenv["XLA_FLAGS"] = "--xla_a=1"\nenv["XLA_FLAGS"] += " --xla_b=2"',
        f'import os, subprocess\nsubprocess.run(["x"], env={{**os.environ, "XLA_FLAGS": "{BOTH}"}})',
        f'import os\ndef main():\n    os.environ["XLA_FLAGS"] = "{BOTH}"\nmain()',
    ],
)
def test_every_way_of_setting_flags_gives_the_same_two(text: str) -> None:
    read_settings = read(text)
    assert words(read_settings, "XLA_FLAGS") == ["--xla_a=1", "--xla_b=2"]
    assert not read_settings.not_understood


@pytest.mark.parametrize(
    "text",
    [
        "XLA_FLAGS=--xla_a=1 python x.py\nXLA_FLAGS=--xla_b=2 python y.py\n",
        "docker run -e XLA_FLAGS=--xla_a=1 x\ndocker run -e XLA_FLAGS=--xla_b=2 y\n",
        "services:\n  a:\n    environment:\n      - XLA_FLAGS=--xla_a=1\n"
        "  b:\n    environment:\n      XLA_FLAGS: --xla_b=2\n",
        'import os\na = dict(os.environ, XLA_FLAGS="--xla_a=1")\nb = dict(os.environ, XLA_FLAGS="--xla_b=2")',
    ],
)
def test_one_process_does_not_throw_away_the_flags_of_another(text: str) -> None:
    assert words(read(text), "XLA_FLAGS") == ["--xla_a=1", "--xla_b=2"]


def test_flags_that_a_shell_does_not_put_into_the_variable_are_named() -> None:
    (sentence,) = read("export XLA_FLAGS=--xla_a=1 --xla_b=2\n").not_understood
    assert sentence == "line 1: --xla_b=2 is not in XLA_FLAGS: quotes around the value of XLA_FLAGS are missing"


LATE = 'os.environ["LIBTPU_INIT_ARGS"] = "--xla_a=1"'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"def mesh():\n    return jax.devices()\nm = mesh()\n{LATE}", "line 4 (jax.devices)"),
        (f"f = jax.jit(g)\nf(1)\n{LATE}", "line 4 (f is compiled)"),
        (f"@jax.jit\ndef f(x):\n    return x\nf(1)\n{LATE}", "line 6 (f is compiled)"),
        (f"jax.jit(lambda: 1)()\n{LATE}", "line 3 (a compiled function is called)"),
        (f"def set_flags():\n    {LATE}\njax.devices()\nset_flags()", "line 5 (jax.devices)"),
        (f"def main():\n    jax.devices()\n    {LATE}", "line 4 (jax.devices)"),
        (f"try:\n    jax.devices()\nexcept RuntimeError:\n    {LATE}", "line 4 (jax.devices)"),
        (f"if __name__ == '__main__':\n    jax.devices()\n    {LATE}", "line 4 (jax.devices)"),
        (f"def first():\n    {LATE}\nfirst()\njax.devices()", ""),
        (f"def never():\n    jax.devices()\n{LATE}", ""),
        (f"if debugging:\n    jax.devices()\n{LATE}", ""),
        (f"dtype = jax.numpy.dtype('bfloat16')\n{LATE}", ""),
    ],
)
def test_a_backend_that_a_function_starts_is_started(text: str, where: str) -> None:
    (setting,) = read(f"import os\nimport jax\n{text}\n").settings
    assert setting.too_late.endswith(where)
    assert bool(setting.too_late) == bool(where)


PUT = 'os.putenv("LIBTPU_INIT_ARGS", "--xla_a=1")'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{PUT}\nimport jax", "the import of JAX sets LIBTPU_INIT_ARGS again from os.environ"),
        (f"def main():\n    {PUT}\nmain()\nfrom jax import numpy", "the import of JAX sets LIBTPU_INIT_ARGS again"),
        (f"import jax\n{PUT}", ""),
        ('import jax\nos.putenv("JAX_PLATFORMS", "cpu")', "JAX reads os.environ"),
        ('os.putenv("XLA_FLAGS", "--xla_a=1")\nimport jax', ""),
    ],
)
def test_what_os_putenv_sets_is_said_not_to_get_to_readers_of_os_environ(text: str, reason: str) -> None:
    settings_read = read(f"import os\n{text}\n")
    (setting,) = settings_read.settings
    assert reason in setting.unreached
    assert bool(setting.unreached) == bool(reason)
    assert not setting.too_late
    assert ("putenv" in [finding.rule for finding in findings_of(settings_read)]) == bool(reason)


def test_os_environ_does_not_see_what_os_putenv_set() -> None:
    text = (
        'os.putenv("XLA_FLAGS", "--xla_a=1")\nos.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + "--xla_b=1"'
    )
    assert words(read(f"import os\n{text}\n"), "XLA_FLAGS") == ["--xla_b=1"]


@pytest.mark.parametrize(("first", "then", "is_kept"), [(PUT, "import jax", False), ("import jax", PUT, True)])
def test_jax_writes_over_what_os_putenv_set_before_it_was_imported(first: str, then: str, is_kept: bool) -> None:
    pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")
    ask = (
        "import ctypes\nc = ctypes.CDLL(None)\nc.getenv.restype = ctypes.c_char_p\nprint(c.getenv(b'LIBTPU_INIT_ARGS'))"
    )
    # JAX does this if it finds TPUs.
    env = {**environment.base(), "JAX_FORCE_TPU_INIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import os\n{first}\n{then}\n{ask}"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("--xla_a=1" in done.stdout) == is_kept


def test_cells_of_a_notebook_are_read_in_their_order() -> None:
    cells = ("import jax\njax.devices()", f"%env XLA_FLAGS={BOTH}\n!nvidia-smi\nif True:\n    %matplotlib inline")
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# XLA_FLAGS"]}]}
    notebook["cells"] += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    settings_read = read(json.dumps(notebook))
    assert words(settings_read, "XLA_FLAGS") == ["--xla_a=1", "--xla_b=2"]
    assert {s.place for s in settings_read.settings} == {"cell 3, line 1"}
    assert "in cell 2, line 2 (jax.devices)" in settings_read.settings[0].too_late


def test_options_of_jax_in_a_program_are_its_variables() -> None:
    read_settings = read(
        'import jax\njax.config.update("jax_debug_nans", True)\njax.config.update("jax_platforms", "tpu")'
    )
    assert [s.word for s in read_settings.settings] == ["JAX_DEBUG_NANS=True", "JAX_PLATFORMS=tpu"]


@pytest.mark.parametrize(
    ("text", "words_said"),
    [
        ("export XLA_FLAGS=$(cat flags.txt)", "line 1: the value of XLA_FLAGS is not known: it contains the output"),
        (
            'export XLA_FLAGS="$ELSEWHERE --xla_a=1"',
            "line 1: the value of XLA_FLAGS is not known: it contains $ELSEWHERE",
        ),
        ("python train.py --xla_tpu_x=1", "line 1: --xla_tpu_x=1 is an argument of a command"),
        ('echo ok\nexport XLA_FLAGS="--xla_a=1', "line 2: a quote is not closed"),
        ('import os\nos.environ["XLA_FLAGS"] = flags()', "line 2: XLA_FLAGS is computed: flags()"),
    ],
)
def test_what_is_not_understood_is_counted_and_listed(text: str, words_said: str) -> None:
    read_settings = read(text)
    assert len(read_settings.not_understood) == 1
    assert read_settings.not_understood[0].startswith(words_said)
    (table, _), _ = audited(RuleSubject(read_settings, ALL_KNOWN))
    assert any(note.startswith("not understood: 1 place:") and words_said in note for note in table.notes)


MANIFEST = f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  containers:
  - name: trainer
    env:
    - name: LIBTPU_INIT_ARGS
      value: "--{FUSION}=true --{FUSION}_fuse_all_gather=true"
    - name: OTHER
      value: no flags
"""


@pytest.mark.parametrize(
    "text",
    [
        MANIFEST,
        MANIFEST.replace(f'"--{FUSION}=true --', f">-\n        --{FUSION}=true\n        --").replace('true"', "true"),
        f'env:\n- {{name: LIBTPU_INIT_ARGS, value: "--{FUSION}=true --{FUSION}_fuse_all_gather=true"}}\n',
        f'environment:\n  LIBTPU_INIT_ARGS: "--{FUSION}=true --{FUSION}_fuse_all_gather=true"  # both\n',
        f"xpk workload create --command \"export LIBTPU_INIT_ARGS='--{FUSION}=true --{FUSION}_fuse_all_gather=true'; "
        'python train.py"\n',
        f"gcloud ssh vm --command='LIBTPU_INIT_ARGS=\"--{FUSION}=true --{FUSION}_fuse_all_gather=true\" python t.py'\n",
        f"docker run image bash -c 'export LIBTPU_INIT_ARGS=--{FUSION}=true\n"
        f'export LIBTPU_INIT_ARGS="$LIBTPU_INIT_ARGS --{FUSION}_fuse_all_gather=true"\'\n',
        f"kind: Pod\nspec:\n  args:\n  - |\n    export LIBTPU_INIT_ARGS='--{FUSION}=true "
        f"--{FUSION}_fuse_all_gather=true'\n",
    ],
)
def test_flags_of_launchers_and_manifests_are_read(text: str) -> None:
    read_settings = read(text)
    assert words(read_settings, "LIBTPU_INIT_ARGS") == [f"--{FUSION}=true", f"--{FUSION}_fuse_all_gather=true"]
    assert read_settings.not_understood == ()


def test_a_variable_that_a_manifest_takes_from_elsewhere_is_said_to_be() -> None:
    read_settings = read("kind: Pod\nenv:\n- name: XLA_FLAGS\n  valueFrom:\n    configMapKeyRef:\n      name: flags\n")
    assert read_settings.settings == ()
    assert "line 3: XLA_FLAGS comes from elsewhere" in read_settings.not_understood[0]


def test_the_environment_is_read_and_other_variables_are_not() -> None:
    read_settings = settings.of_environment({"XLA_FLAGS": "--xla_a=1 --xla_b", "HOME": "/h", "JAX_PLATFORMS": "cpu"})
    assert [(s.variable, s.name, s.value) for s in read_settings.settings] == [
        ("JAX_PLATFORMS", "", "cpu"),
        ("XLA_FLAGS", "xla_a", "1"),
        ("XLA_FLAGS", "xla_b", None),
    ]


def test_a_word_without_dashes_is_told_what_it_is() -> None:
    libraries = replace(ALL_KNOWN, libtpu=replace(NOTHING_WRONG, library="libtpu", unknown={"xla_no": ""}))
    text = 'export JAX_PLATFORMS=tpu LIBTPU_INIT_ARGS="TPU_MEGACORE=DENSE xla_no=1 xla_yes=1 words"'
    (listed, *_), fails = audited(RuleSubject(read(text), libraries))
    remedies = ("export TPU_MEGACORE=DENSE", "libtpu has no such flag", "Write --xla_yes=1", "it is not a flag")
    for remedy, words_said in zip(listed.column("remedy"), remedies, strict=True):
        assert words_said in str(remedy)
        assert "--TPU_MEGACORE" not in str(remedy)
    assert not fails


@pytest.mark.parametrize(
    ("value", "rule", "severity", "words_said"),
    [
        ("--xla_a=1 JAX_ENABLE_X64=1", "no-dashes", "no effect", "export JAX_ENABLE_X64=1"),
        ("xla_a=1 --xla_b=1", "no-dashes", "ends the process", "as the name of a file"),
        ("--xla_a 1", "bad-value", "ends the process", "Write --xla_a=1"),
    ],
)
def test_words_without_dashes_in_xla_flags_are_told_what_jaxlib_does(
    value: str, rule: str, severity: str, words_said: str
) -> None:
    (listed, *_), _ = audited(RuleSubject(read(f'export JAX_PLATFORMS=tpu XLA_FLAGS="{value}"'), ALL_KNOWN))
    (row,) = listed.rows
    assert row[:2] == (severity, rule)
    assert words_said in " ".join(map(str, row))


def test_a_file_of_flags_is_no_word_without_dashes_and_a_variable_among_flags_is_not_taken_for_set() -> None:
    assert rules("export XLA_FLAGS=/etc/xla_flags.txt") == []
    text = 'export LIBTPU_INIT_ARGS="--xla_a=1 JAX_PLATFORMS=cpu JAX_ENABLE_X64=1"'
    assert [finding.rule for finding in findings_of(read(text))] == ["no-dashes", "no-dashes", "no-platform"]


def test_a_variable_that_is_written_as_a_flag_is_told_what_it_is() -> None:
    libraries = replace(ALL_KNOWN, libtpu=replace(NOTHING_WRONG, library="libtpu", unknown={"TPU_MEGACORE": ""}))
    text = 'export LIBTPU_INIT_ARGS="--TPU_MEGACORE=MEGACORE_DENSE"'
    (listed, *_), fails = audited(RuleSubject(read(text), libraries))
    assert "export TPU_MEGACORE=MEGACORE_DENSE" in " ".join(map(str, listed.column("remedy")))
    assert fails


# --- rules that ask nobody ----------------------------------------------------------------------


def tpu(*flags: str) -> str:
    return f'export LIBTPU_INIT_ARGS="{" ".join(f"--{flag}" for flag in flags)}"'


@pytest.mark.parametrize(
    ("rule", "text", "better"),
    [
        (
            "fusion-and-offload",
            tpu(f"{FUSION}=true", f"{FUSION}_fuse_all_reduce=true", f"{OFFLOAD}_all_reduce=true"),
            tpu(f"{FUSION}=true", f"{FUSION}_fuse_all_reduce=false", f"{OFFLOAD}_all_reduce=true"),
        ),
        (
            "fusion-and-offload",
            tpu(f"{FUSION}=true", f"{FUSION}_fuse_reduce_scatter", f"{OFFLOAD}_reduce_scatter=1"),
            tpu(f"{FUSION}=true", f"{FUSION}_fuse_reduce_scatter", f"{OFFLOAD}_all_gather=1"),
        ),
        ("no-base-flag", tpu(f"{FUSION}_fuse_all_gather"), tpu(f"{FUSION}=true", f"{FUSION}_fuse_all_gather")),
        ("no-base-flag", tpu(f"{FUSION}=false", f"{FUSION}_fuse_all_gather=true"), tpu(f"{FUSION}=false")),
        ("set-twice", tpu("xla_a=1", "xla_a=2"), tpu("xla_a=1", "xla_a=1")),
        ("overwritten", "XLA_FLAGS=--xla_a=1\nXLA_FLAGS=--xla_b=1", "XLA_FLAGS=--xla_a=1\nXLA_FLAGS+=' --xla_b=1'"),
        (
            "overwritten",
            "XLA_FLAGS=--xla_a=1\nXLA_FLAGS=--xla_b=1",
            "if x; then\nXLA_FLAGS=--xla_a=1\nelse\nXLA_FLAGS=--xla_b=1\nfi",
        ),
        ("no-dashes", 'LIBTPU_INIT_ARGS="xla_a=1"', 'LIBTPU_INIT_ARGS="--xla_a 1"'),
        (
            "too-late",
            "import jax\nimport os\nskip = jax.devices()\nos.environ['XLA_FLAGS'] = '--xla_a=1'",
            "import os\nos.environ['XLA_FLAGS'] = '--xla_a=1'\nimport jax\nskip = jax.devices()",
        ),
        (
            "too-late",
            "import jax.numpy as jnp\nimport os\nx = [jnp.ones(3)]\nos.environ['LIBTPU_INIT_ARGS'] = '--xla_a=1'",
            "import jax.numpy as jnp\nimport os\ndef f(): jnp.ones(3)\nos.environ['LIBTPU_INIT_ARGS'] = '--xla_a=1'",
        ),
        (
            "too-late",
            "import jax\nimport os\nos.environ['JAX_PLATFORMS'] = 'tpu'",
            "import jax\nimport os\njax.config.update('jax_platforms', 'tpu')",
        ),
        (
            "cache-and-dumps",
            "JAX_COMPILATION_CACHE_DIR=/c XLA_FLAGS=--xla_dump_to=/d python x.py",
            "JAX_COMPILATION_CACHE_DIR=/c python x.py",
        ),
        ("cache-off", "JAX_COMPILATION_CACHE_DIR=/c JAX_ENABLE_COMPILATION_CACHE=false python x.py", "python x.py"),
        (
            "no-cache",
            "export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
            "export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_COMPILATION_CACHE_DIR=/c",
        ),
        ("no-tpu", f"JAX_PLATFORMS=cpu\n{tpu('xla_a=1')}", tpu("xla_a=1")),
        *(
            ("harmful-for-measuring", f"export {harmful}", f"export {harmless}")
            for harmful, harmless in (
                ("XLA_FLAGS=--xla_dump_to=/d", "XLA_FLAGS=--xla_dump_to="),
                ("LIBTPU_INIT_ARGS=--xla_jf_dump_to=/d", "LIBTPU_INIT_ARGS=--xla_jf_vmem_max=1"),
                ("JAX_DEBUG_NANS=1", "JAX_DEBUG_NANS=0"),
                ("JAX_DISABLE_JIT=true", "JAX_DISABLE_JIT=false"),
                ("JAX_DEFAULT_MATMUL_PRECISION=highest", "JAX_DEFAULT_MATMUL_PRECISION=bfloat16"),
                ("XLA_PYTHON_CLIENT_ALLOCATOR=platform", "XLA_PYTHON_CLIENT_ALLOCATOR=default"),
                ("JAX_TRANSFER_GUARD=log", "JAX_TRANSFER_GUARD=allow"),
            )
        ),
    ],
)
def test_a_rule_finds_what_it_is_for_and_nothing_where_that_is_mended(rule: str, text: str, better: str) -> None:
    assert rule in rules(text)
    assert rule not in rules(better)


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_asks_for_its_flags_until_they_are_there(symptom: str) -> None:
    named = (symptom,)
    assert rules("true", symptoms=named) == ["missing-for-symptom"]
    for way in SYMPTOMS[symptom]:
        assert rules(tpu(*(f"{name}=true" for name in way)), symptoms=named) == []
        # All flags of a way are needed.
        assert "missing-for-symptom" in rules(tpu(*(f"{name}=false" for name in way)), symptoms=named)


def test_the_offload_is_advised_on_the_chip_that_has_it_only() -> None:
    def advice(name: str) -> str:
        listed = findings_of(read(""), chip=chip(name), symptoms=("all-reduce-stalls",))
        return next(finding.remedy for finding in listed if finding.rule == "missing-for-symptom")

    assert OFFLOAD in advice("v7x")
    assert OFFLOAD not in advice("v5e")
    assert f"--{FUSION}_fuse_all_reduce=true" in advice("v5e")
    offloaded = tpu(f"{OFFLOAD}_all_reduce=true")
    assert "no-offload" in rules(offloaded, chip=chip("v5e"))
    assert "no-offload" not in rules(offloaded, chip=chip("v7x"))


def test_a_platform_that_is_not_named_is_found() -> None:
    (finding,) = findings_of(settings.of_environment({}))
    assert finding.rule == "no-platform"
    assert findings_of(settings.of_environment({"JAX_PLATFORMS": "tpu"})) == []


# --- the installed libraries --------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> tuple[Settings, Known]:
    """One script with one flag of each kind, put to the real libraries once.

    libtpu knows the flags with which a TPU is measured. It would take the next flag for the value of p_state if it were
    not given the 7 that stands behind this flag.
    """
    flags = (f"{FUSION}=true", f"{FUSION}_fuse_all_gathr=true", "xla_dump_to=/d", "xla_tpu_scoped_vmem_limit_kib=many")
    measuring = environment.measuring("tpu")["LIBTPU_INIT_ARGS"]
    assert "custom_call" in measuring
    script_settings = read(
        tpu(*flags, "xla_tpu_dvfs_p_state 7", "noxla_tpu_enable_latency_hiding_scheduler", measuring.removeprefix("--"))
        + '\nexport XLA_FLAGS="--xla_gpu_autotune_level=1 --xla_tpu_overlap_compute_collective_tc=true '
        '--xla_cpu_enable_fast_math=perhaps --xla_gpu_autotune_lvel=1"\nexport JAX_PLATFROMS=tpu JAX_ENABLE_X64=0'
    )
    return script_settings, known_flags.ask_libraries(script_settings)


@pytest.mark.parametrize(
    ("rule", "subject", "words_said"),
    [
        ("unknown-flag", f"--{FUSION}_fuse_all_gathr=true", f"Did you mean {FUSION}_fuse_all_gather?"),
        ("unknown-flag", "--xla_gpu_autotune_lvel=1", "Did you mean xla_gpu_autotune_level?"),
        ("wrong-variable", "--xla_dump_to=/d", "Move it to XLA_FLAGS"),
        ("wrong-variable", "--xla_tpu_overlap_compute_collective_tc=true", "Move it to LIBTPU_INIT_ARGS"),
        ("bad-value", "--xla_tpu_scoped_vmem_limit_kib=many", "Write a value of the flag's type"),
        ("bad-value", "--xla_cpu_enable_fast_math=perhaps", "Write a value of the flag's type"),
        ("unknown-variable", "JAX_PLATFROMS=tpu", "Check the name"),
    ],
)
def test_the_libraries_themselves_say_what_they_do_not_know(
    planted: tuple[Settings, Known], rule: str, subject: str, words_said: str
) -> None:
    (finding,) = [each for each in findings_of(*planted) if each.rule == rule and each.subject == subject]
    assert finding.remedy.startswith(words_said)


def test_what_the_libraries_know_is_not_found(planted: tuple[Settings, Known]) -> None:
    subjects = {f.subject for f in findings_of(*planted) if f.rule.startswith(("unknown", "bad", "wrong"))}
    assert not subjects & {f"--{FUSION}=true", "--xla_gpu_autotune_level=1", "JAX_ENABLE_X64=0"}
    assert len(subjects) == 7


def test_a_clean_script_has_no_findings_and_each_of_its_flags_was_put_to_the_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(CLEAN)
    tables = printed_by_name(capsys, "audit", str(script), "--symptom", "all-gather-stalls", "--chip", "v5p")
    assert tables["findings"]["rows"] == []
    assert [row["judgement"] for row in tables["settings"]["rows"]] == ["no finding"] * 5
    notes = " ".join(tables["findings"]["notes"])
    assert "1 flag of XLA_FLAGS was checked with jaxlib" in notes
    assert "3 flags of LIBTPU_INIT_ARGS were checked with libtpu" in notes


# --- the command --------------------------------------------------------------------------------


def test_a_script_on_stdin_that_would_not_start_fails_and_is_told_in_sentences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("export XLA_FLAGS=--xla_no_such_flag=1\n"))
    assert main(["audit", "-"]) == 1
    out = capsys.readouterr().out
    assert "ends the process  unknown-flag" in out
    assert "does not know xla_no_such_flag" in out


def test_a_flag_that_names_a_file_opens_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """libtpu reads the files that flags name; when it is asked, it may open no more files than a kernel.py."""
    (tmp_path / "secret").write_text("--xla_a_secret=1\n")
    (tmp_path / "run.sh").write_text(f"export LIBTPU_INIT_ARGS=--flagfile={tmp_path / 'secret'}\n")
    tables = printed_by_name(capsys, "audit", str(tmp_path / "run.sh"))
    assert "did not start: ERROR: Can't open flagfile" in " ".join(tables["findings"]["notes"])


def test_the_environment_is_audited_without_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_DEBUG_INFS", "1")
    tables = printed_by_name(capsys, "audit")
    assert [row["subject"] for row in tables["findings"]["rows"]] == ["JAX_DEBUG_INFS=1"]


def test_a_capture_says_that_it_records_no_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = printed_by_name(capsys, "audit", str(one_device_run(tmp_path)))
    assert tables["findings"]["rows"] == []
    assert any("contains no flags" in note for note in tables["findings"]["notes"])


def test_flags_and_the_python_tracer_in_a_capture_are_found() -> None:
    event = xplane.Event(of=xplane.Described(name="$train.py:3 step", stats={}), start_ps=0, duration_ps=1, stats={})
    lines = (xplane.Line(name="python", events=(event,), start_ps=0),)
    plane = xplane.Plane(name="/host:CPU", stats={"command": "--xla_tpu_a=1"}, described=(), lines=lines)
    space = xplane.Space(planes=(plane,), hostnames=("host",), errors=(), warnings=())
    read_settings = settings.of_capture(space, "a capture")
    assert words(read_settings, "LIBTPU_INIT_ARGS") == ["--xla_tpu_a=1"]
    assert [f.subject for f in findings_of(read_settings, is_capture=True)] == ["PYTHON_TRACER=1"]


def test_files_that_are_no_script_and_no_capture_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").write_bytes(b"\0\1\2")
    assert main(["audit", str(tmp_path / "data")]) == 4
    assert "expected a launch script" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "nowhere.sh")]) == 4
    assert main(["audit", str(corrupt_run(tmp_path))]) == 4
    assert "not a complete profile" in capsys.readouterr().err
