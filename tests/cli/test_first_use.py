"""The first use of ratchet.sh on a machine that lacks something: one sentence that says what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
# Nobody listens there.
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("ratchet.sh", "requirements.lock"):
        shutil.copy(PROJECT / name, tmp_path)
    return tmp_path


def first_use(clone: Path, path: str, *words: str, **changed: str) -> subprocess.CompletedProcess[str]:
    offline = {
        "PIP_INDEX_URL": NOWHERE,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
        "UV_DEFAULT_INDEX": NOWHERE,
        "UV_NO_CACHE": "1",
        "UV_HTTP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
        "PATH": path,
    }
    return subprocess.run(
        [clone / "ratchet.sh", *words], env=os.environ | offline | changed, capture_output=True, text=True, timeout=100
    )


def programs(folder: Path, *names: str) -> str:
    """A folder with these programs of this machine alone, as a PATH."""
    folder.mkdir()
    for name in names:
        program = shutil.which(name)
        assert program is not None, name
        (folder / name).symlink_to(program)
    return str(folder)


TOOLS = ("bash", "dirname", "readlink", "cksum", "sed", "df", "tail", "tr", "rm", "uname", "env")


@pytest.mark.parametrize("uv", [False, True], ids=["pip", "uv"])
def test_an_offline_machine_is_told_what_setting_up_takes(clone: Path, tmp_path: Path, uv: bool) -> None:
    path = programs(tmp_path / "bin", *TOOLS)
    if uv:
        (tmp_path / "bin" / "uv").symlink_to(Path(sys.prefix) / "bin" / "uv")
    done = first_use(clone, path, "--python", os.path.realpath(sys.executable), "--version")
    assert done.returncode == 4, done.stderr
    assert "this needs a network (behind a proxy, set HTTPS_PROXY)" in done.stderr
    assert "1.7 GB at" in done.stderr
    # An environment that was only begun is not used: the next run begins again.
    assert not (clone / ".venv" / ".ratchet-stamp").exists()


def test_without_a_python_that_serves_it_says_which_do(clone: Path, tmp_path: Path) -> None:
    done = first_use(clone, programs(tmp_path / "bin", *TOOLS), "--version")
    assert done.returncode == 4
    assert "expected Python 3.11 to 3.13, found none" in done.stderr
    assert "/ratchet.sh --python /path/to/python3.12" in done.stderr


def test_a_python_without_venv_is_named(clone: Path, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    real = os.path.realpath(sys.executable)
    # The script asks Python for sys.executable, which would be the real one: this Python answers with its own path.
    python.write_text(
        '#!/bin/sh\nif [ "$2" = venv ]; then echo "No module named venv" >&2; exit 1; fi\n'
        f'[ "$1" = -c ] && echo {python} || exec {real} "$@"\n'
    )
    python.chmod(0o755)
    done = first_use(clone, programs(tmp_path / "bin", *TOOLS), "--python", str(python), "--version")
    assert done.returncode == 4
    assert "cannot make virtual environments (on Debian: apt install python3-venv)" in done.stderr


def test_a_copied_folder_runs_its_own_harness(clone: Path) -> None:
    """This holds also if an environment of the former kind names the folder that it was made in."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone / ".venv"], check=True)
    lock_bytes = (clone / "requirements.lock").read_bytes()
    lock = subprocess.run(["cksum"], input=lock_bytes, capture_output=True, check=True).stdout.decode()
    (clone / ".venv" / ".ratchet-stamp").write_text(f"{lock}\n", encoding="utf-8")
    (packages,) = (clone / ".venv" / "lib").glob("python3.*/site-packages")
    (packages / "kernel_ratchet.pth").write_text(f"{PROJECT}\n", encoding="utf-8")
    (clone / "harness").mkdir()
    (clone / "harness" / "__main__.py").write_text("print(__file__)", encoding="utf-8")
    done = subprocess.run([clone / "ratchet.sh"], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == (f"{clone}/harness/__main__.py\n", "")
    copy = clone.with_name(f"{clone.name} copied")
    shutil.copytree(clone, copy, symlinks=True)
    asked: list[str | Path] = [
        copy / ".venv" / "bin" / "python",
        "-P",
        "-c",
        "import harness; print(*harness.__path__)",
    ]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == f"{copy}/harness\n"
