"""Commands in errors work where the user stands, folders without a contest say so, and closed pipes change nothing."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Shell
from evidence_examples import evidence
from loop_fixtures import PROJECT, git
from narrowing import present

from harness.loop import new_contest, scaffold
from harness.shell.catalogue import EVERY
from harness.shell.program_name import renamed, work_in

EXAMPLE = Path(PROJECT) / "examples" / "matmul"


@pytest.mark.parametrize("words", [["show", "99"], ["checkout", "999"], ["lines", "999"]])
def test_errors_name_commands_with_the_folder(words: list[str], shell: Shell) -> None:
    for options in ([], [] if words[0] == "lines" else ["--json"]):
        printed = "".join(shell.run("-C", EXAMPLE, *words, *options, code=4))
        assert f"./ratchet.sh -C {shlex.quote(str(EXAMPLE))} results lists them" in printed


def test_only_what_takes_a_contest_gets_the_folder() -> None:
    work_in(Path("a b"), ["show", "checkout"])
    try:
        assert renamed("./ratchet.sh checkout 10, then") == "./ratchet.sh -C 'a b' checkout 10, then"
        assert renamed('./ratchet.sh "experiment: baseline"') == "./ratchet.sh -C 'a b' \"experiment: baseline\""
        for same in (
            "ratchet.sh new DIR",
            "./ratchet.sh -C x show 3",
            "usage: ratchet.sh show [-h]",
            "ratchet.sh showing",
            "other/ratchet.sh show",
        ):
            assert renamed(same) == same
    finally:
        work_in(None)
    assert renamed("./ratchet.sh checkout 10") == "./ratchet.sh checkout 10"


@pytest.mark.long
@pytest.mark.parametrize("is_repository", [False, True], ids=["plain", "repository"])
def test_a_folder_without_a_contest_says_so(tmp_path: Path, is_repository: bool, shell: Shell) -> None:
    if is_repository:
        git(tmp_path, "init", "-q")
    verbs = ("experiment: x", "results", "fsck", "report", "plot", "show", "checkout 1", "lines 1", "status")
    for verb in verbs:
        complaint = shell.complaint("-C", tmp_path, *([verb] if ":" in verb else verb.split()), code=4)
        assert "expected a contest (prepare.py and kernel.py), got no prepare.py" in complaint
        assert " new DIR --like attention [no-contest]" in complaint
    assert not (tmp_path / "profile_data").exists()


def test_a_folder_above_contests_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    for folder in ("mbg", "kernels/attn", "kernels/too/deep", ".venv/hidden"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("prepare.py", "kernel.py"):
            (tmp_path / folder / name).write_text("")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "prepare.py").write_text("")
    complaint = shell.complaint("-C", tmp_path, "results", code=4)
    assert f"; contests there: {tmp_path}/kernels/attn, {tmp_path}/mbg [no-contest]" in complaint
    monkeypatch.chdir(tmp_path)
    assert "; contests here: kernels/attn, mbg [no-contest]" in shell.complaint("lines", code=4)
    monkeypatch.chdir(tmp_path / "half")
    assert "contests here" not in shell.complaint("lines", code=4)


@pytest.mark.long
@pytest.mark.parametrize("verb", ["results", "status", "next", "fsck"])
def test_a_repository_without_a_commit_has_no_attempts(tmp_path: Path, verb: str, shell: Shell) -> None:
    git(tmp_path, "init", "-q")
    for name in ("prepare.py", "kernel.py"):
        (tmp_path / name).write_bytes(scaffold.text("matmul", name))
    assert "bad revision" not in "".join(shell.run(verb, "-C", tmp_path))


def test_a_ledger_is_readable_without_its_prepare_py(tmp_path: Path, shell: Shell) -> None:
    git(tmp_path, "init", "-q")
    folder = tmp_path / "examples" / "matmul"
    folder.mkdir(parents=True)
    (folder / "attempts.jsonl").write_bytes((EXAMPLE / "attempts.jsonl").read_bytes())
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=b@c", "commit", "-qm", "a ledger")
    assert "baseline" in shell.printed("-C", folder, "results")


@pytest.mark.long
@pytest.mark.parametrize(("words", "code"), [(["results"], 0), (["diff", "1", "999"], 4)])
def test_a_pipe_that_is_closed_early_changes_no_exit_code(words: list[str], code: int) -> None:
    program = "import sys; from harness.shell.main import program; sys.exit(program())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "-C", str(EXAMPLE), *words],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        present(process.stdout).close()
        if code:
            present(process.stderr).close()
        assert process.wait(60) == code


def test_output_that_nobody_reads_is_dropped() -> None:
    program = (
        "import sys; from harness.shell import main; main.prepare_output()\n"
        "for _ in range(9999): print('x' * 99)\n"
        "print('still here', file=sys.stderr); sys.exit(3)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with present(process.stdout) as printed:
            printed.read(9)
        assert present(process.stderr).read() == b"still here\n"
        assert process.wait(60) == 3


def test_an_expectation_may_begin_with_a_minus() -> None:
    for words in (["--expect", "-5%"], ["--expect=-5%"]):
        assert EVERY["experiment"].parse(["experiment: x", *words]).expect == "-5%"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["results", "--since"], "expected --since N, got nothing after it: only attempts from number N on"),
        (["results", "--grep"], "expected --grep TEXT, got nothing after it: only hypotheses that contain this text"),
        (["new", "mine", "--like", "rmsnrm"], "got 'rmsnrm' (did you mean rmsnorm?); TEMPLATE is one of "),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(
    words: list[str], answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(tmp_path)
    assert answer in shell.complaint(*words, code=(2, 4))


@pytest.mark.parametrize(
    ("text", "words", "answer"),
    [
        ("def mlp(x):\n    return x\n", ["simulate", "{}", "--chip", "v7x"], "expected a function of it: {}:mlp ["),
        ("raise SystemExit\ndef _b(): 0\ndef a(): 0", ["hlo", "{}", "--arg", "f32[8]"], "it: {}:a or {}:_b ["),
        ("x = 1\n", ["simulate", "{}", "--chip", "v7x"], "defines no function; expected {}:FUNCTION ["),
        ("def mlp(x:\n", ["simulate", "{}", "--chip", "v7x"], "is not valid Python: "),
        ("def mlp(x):\n    return x\n", ["whatif", "{}:mlp"], "MODULE.py:FUNCTION` simulates a function of a file"),
    ],
)
def test_a_python_file_in_place_of_dumps_is_answered_with_its_functions(
    text: str, words: list[str], answer: str, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "mlp.py").write_text(text)
    path = str(tmp_path / "mlp.py")
    assert answer.replace("{}", path) in shell.complaint(*(word.replace("{}", path) for word in words), code=2)


def test_new_prints_the_order_in_which_the_kernel_takes_its_arguments() -> None:
    statement = evidence().problem
    signature = new_contest._signature(statement, b"def kernel_fn(v, q, k):\n    return q\n")
    array = f"{list(statement.inputs[0].shape)} {statement.inputs[0].dtype}"
    assert signature.startswith(f"kernel_fn(v {array}, q {array}, k {array}) -> ")
    assert "; compute_flops(), if there is one, must return " in signature
    assert new_contest._signature(statement, b"def kernel_fn(a, b, c):\n    return a\n").startswith(
        f"kernel_fn(q {array}, k {array}, v {array}) -> "
    )
