"""Every question about a repository, asked of real ones in every state that people bring."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from git import Repo
from ledger_fixtures import NAIVE, commit_all, git, hashes, identify, new_repository, repository_after, users_state
from refusals import refused

from harness.errors import RatchetError
from harness.ledger import git as questions
from harness.ledger.git import TreeEntry, index, write
from harness.ledger.git.refs import ref_on_remotes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return repository_after(0, tmp_path / "a folder, ünïcode")


@pytest.fixture
def repository(folder: Path) -> Repo:
    return questions.open_repository(folder)


def refusal(kind: str, path: Path) -> str:
    with refused(kind) as caught:
        questions.require_committable(questions.open_repository(path))
    return str(caught.value)


def test_a_fit_repository_is_found_from_below(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    repository = questions.open_repository(folder / "deep" / "er")
    questions.require_committable(repository)
    assert questions.root(repository) == folder.resolve()
    assert questions.branch(repository) == "refs/heads/main"
    assert questions.head_commit(repository) == git(folder, "rev-parse", "HEAD").strip()
    assert questions.relative_path(repository, folder / "deep" / "er") == "deep/er"


def test_no_repository(tmp_path: Path) -> None:
    assert "git init" in refusal("not-a-repository", tmp_path)
    assert questions.find_repository(tmp_path) is None


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    refusal("bare-repository", tmp_path / "bare.git")


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    refusal("no-commit", tmp_path)


def test_a_detached_head(folder: Path) -> None:
    git(folder, "checkout", "-q", "--detach")
    assert f"git -C {shlex.quote(str(folder))} switch" in refusal("detached-head", folder)


def test_a_missing_identity(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("user.name", "user.email"):
        git(folder, "config", "--unset", name)
    git(folder, "config", "user.useConfigOnly", "true")
    for name in ("EMAIL", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    message = refusal("identity", folder)
    assert "git config --global user.name" in message
    assert "git config --global user.email" in message


def test_a_repository_of_somebody_else(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody else")
    for path in (folder, folder / ".git"):
        os.chown(path, 65534, 65534)
    try:
        with refused("unsafe-repository", r"safe\.directory"):
            questions.open_repository(folder)
    finally:
        for path in (folder, folder / ".git"):
            os.chown(path, 0, 0)


def test_a_merge_that_is_not_finished(folder: Path) -> None:
    git(folder, "checkout", "-qb", "other")
    (folder / "README").write_text("theirs\n")
    git(folder, "commit", "-qam", "theirs")
    git(folder, "checkout", "-q", "main")
    (folder / "README").write_text("ours\n")
    git(folder, "commit", "-qam", "ours")
    assert subprocess.run(["git", "merge", "-q", "other"], cwd=folder, capture_output=True).returncode != 0
    assert f"git -C {shlex.quote(str(folder))} merge --continue" in refusal("in-progress", folder)
    git(folder, "merge", "--abort")
    assert subprocess.run(["git", "cherry-pick", "other"], cwd=folder, capture_output=True).returncode != 0
    assert "cherry-pick" in refusal("in-progress", folder)
    git(folder, "cherry-pick", "--abort")
    assert subprocess.run(["git", "rebase", "other"], cwd=folder, capture_output=True).returncode != 0
    with pytest.raises(RatchetError):
        questions.require_committable(questions.open_repository(folder))
    git(folder, "rebase", "--abort")
    questions.require_committable(questions.open_repository(folder))


def test_a_hook_environment_does_not_lead_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = new_repository(tmp_path / "elsewhere")
    git(elsewhere, "commit", "-q", "--allow-empty", "-m", "another")
    expected = git(folder, "rev-parse", "HEAD").strip()
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(elsewhere))
    monkeypatch.setenv("GIT_INDEX_FILE", str(elsewhere / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(elsewhere / ".git" / "objects"))
    repository = questions.open_repository(folder)
    assert questions.head_commit(repository) == expected
    assert questions.root(repository) == folder.resolve()
    (folder / "kernel.py").write_bytes(b"changed\n")
    assert index.changed_paths(repository, (folder,)) == ("kernel.py",)
    blob = write.write_blob(repository, b"here\n")
    monkeypatch.undo()
    assert git(folder, "cat-file", "-p", blob) == "here\n"


def test_changed_paths_sees_every_kind_of_change(folder: Path) -> None:
    for name in ("staged", "edited", "deleted", "clean", "assumed", "skipped", "assumed-clean", "o d\nd"):
        (folder / "judge").mkdir(exist_ok=True)
        (folder / "judge" / name).write_text(name)
    (folder / ".gitignore").write_text("*.pyc\n")
    commit_all(folder, "judge")
    (folder / "judge" / "staged").write_text("other")
    git(folder, "add", "judge/staged")
    (folder / "judge" / "staged").write_text("staged")
    (folder / "judge" / "edited").write_text("other")
    (folder / "judge" / "deleted").unlink()
    (folder / "judge" / "new").write_text("new")
    (folder / "judge" / "cache.pyc").write_text("ignored")
    (folder / "judge" / "o d\nd").write_text("other")
    git(folder, "update-index", "--assume-unchanged", "judge/assumed", "judge/assumed-clean")
    git(folder, "update-index", "--skip-worktree", "judge/skipped")
    (folder / "judge" / "assumed").write_text("other")
    (folder / "judge" / "skipped").write_text("other")
    (folder / "README").write_text("not asked about")
    git(folder, "config", "status.showUntrackedFiles", "no")
    changed = index.changed_paths(questions.open_repository(folder), (folder / "judge",))
    expected = {"staged", "edited", "deleted", "new", "assumed", "skipped", "o d\nd"}
    assert set(changed) == {f"judge/{name}" for name in expected}
    assert index.changed_paths(questions.open_repository(folder), ()) == ()


def test_a_path_is_not_a_pattern(folder: Path) -> None:
    (folder / "[k]ernel.py").write_text("a strange name")
    assert index.changed_paths(questions.open_repository(folder), (folder / "[k]ernel.py",)) == ("[k]ernel.py",)
    (folder / "kernel.py").write_text("changed")
    assert index.changed_paths(questions.open_repository(folder), (folder / "[k]ernel.py",)) == ("[k]ernel.py",)


def test_a_tree_is_made_without_the_users_index(folder: Path, repository: Repo, tmp_path: Path) -> None:
    (folder / "README").write_text("staged by the user\n")
    git(folder, "add", "README")
    before = users_state(folder)
    index = (folder / ".git" / "index").read_bytes()
    blob = write.write_blob(repository, b"new\n")
    private = tmp_path / "private" / "index"
    private.parent.mkdir()
    private.with_name("index.lock").write_text("left by a killed process")
    changes = {"experiments/0001-a b.json": TreeEntry(blob=blob), "kernel.py": TreeEntry(mode="100755", blob=blob)}
    tree = write.write_tree(repository, "HEAD", changes, private)
    listed = git(folder, "ls-tree", "-r", tree).splitlines()
    assert [line.partition("\t")[2] for line in listed] == [
        "README",
        "experiments/0001-a b.json",
        "kernel.py",
        "prepare.py",
    ]
    assert listed[2].startswith("100755")
    assert list(private.parent.iterdir()) == []
    assert (folder / ".git" / "index").read_bytes() == index
    assert users_state(folder) == before
    empty = write.write_tree(repository, None, {"a": TreeEntry(blob=blob)}, private)
    assert git(folder, "ls-tree", "--name-only", empty) == "a\n"


def test_a_ref_moves_only_from_where_it_was_seen(folder: Path, repository: Repo) -> None:
    first = questions.head_commit(repository)
    tree = git(folder, "rev-parse", "HEAD^{tree}").strip()
    second = write.write_commit(repository, tree, (first,), '小さい\n\n"body"\0\n')
    write.move_ref(repository, "refs/ratchet/root/log", first, None, "made")
    for new, old in ((second, None), (second, second), (first, second)):
        with refused("ref-moved"):
            write.move_ref(repository, "refs/ratchet/root/log", new, old, "lost")
    write.move_ref(repository, "refs/ratchet/root/log", second, first, "moved")
    commits = questions.log(repository, ("refs/ratchet/root/log",))
    assert [commit.id for commit in commits] == [second, first]
    assert commits[0].parents == (first,)
    assert commits[0].message.startswith('小さい\n\n"body"\N{REPLACEMENT CHARACTER}')
    assert [commit.id for commit in questions.log(repository, (second,), hidden=(first,))] == [second]
    assert [commit.id for commit in questions.log(repository, (second,), containing='"body"')] == [second]
    assert questions.is_ancestor(repository, first, second)
    assert not questions.is_ancestor(repository, second, first)
    assert not questions.is_ancestor(repository, "0" * 40, first)


def test_messages_are_utf8_whatever_is_configured(folder: Path, repository: Repo) -> None:
    git(folder, "config", "i18n.commitEncoding", "GBK")
    git(folder, "config", "i18n.logOutputEncoding", "GBK")
    tree = git(folder, "rev-parse", "HEAD^{tree}").strip()
    commit = write.write_commit(repository, tree, (), "提高")
    assert questions.log(repository, (commit,))[0].message.strip() == "提高"


def test_blobs_are_read_in_one_process(folder: Path, repository: Repo) -> None:
    names = ("HEAD:kernel.py", "HEAD:no such file", "HEAD:README", "HEAD")
    assert questions.read_blobs(repository, names) == (NAIVE, None, b"the user's own\n", None)
    ids = questions.blob_ids(repository, names)
    assert ids[0] == git(folder, "rev-parse", "HEAD:kernel.py").strip()
    assert (ids[1], ids[3]) == (None, None)
    assert questions.read_blobs(repository, ()) == ()
    assert questions.entry_at(repository, "HEAD", "kernel.py") == TreeEntry(blob=ids[0] or "")
    assert questions.entry_at(repository, "HEAD", "nothing") is None
    assert questions.file_at(repository, "HEAD", "kernel.py") == NAIVE


def test_line_endings_go_through_gits_own_filters(folder: Path, repository: Repo) -> None:
    (folder / ".gitattributes").write_text("kernel.py text eol=crlf\n")
    windows = NAIVE.replace(b"\n", b"\r\n")
    blob = write.write_blob(repository, windows, "kernel.py")
    assert questions.read_blobs(repository, (blob,)) == (NAIVE,)
    assert questions.in_working_tree_form(repository, blob, "kernel.py") == windows
    assert questions.hash_of(repository, windows, "kernel.py") == blob
    git(folder, "config", "core.safecrlf", "true")
    git(folder, "config", "core.autocrlf", "true")
    mixed = write.write_blob(repository, windows + b"mixed\n", "kernel.py")
    assert questions.read_blobs(repository, (mixed,)) == (NAIVE + b"mixed\n",)
    assert questions.read_blobs(repository, (write.write_blob(repository, windows),)) == (windows,)


def test_exactly_the_named_index_entries_change(folder: Path, repository: Repo) -> None:
    for name in ("staged", "removed", "renamed", "unmerged", "assumed"):
        (folder / name).write_text(f"{name}\n" * 9)
    commit_all(folder, "more")
    (folder / "staged").write_text("staged\n")
    (folder / "intended").write_text("intended\n")
    git(folder, "add", "staged")
    git(folder, "add", "--intent-to-add", "intended")
    git(folder, "rm", "-q", "removed")
    git(folder, "mv", "renamed", "moved")
    git(folder, "update-index", "--assume-unchanged", "assumed")
    git(folder, "update-index", "--skip-worktree", "kernel.py")
    blob = git(folder, "rev-parse", "HEAD:unmerged").strip()
    stages = "".join(f"100644 {blob} {stage}\tunmerged\n" for stage in (1, 2, 3))
    git(folder, "update-index", "--index-info", stdin=f"0 {'0' * 40}\tunmerged\n{stages}".encode())
    before = git(folder, "ls-files", "-s", "-v").splitlines()
    new = write.write_blob(repository, b"new\n")
    write.set_index_entries(
        repository, {"kernel.py": TreeEntry(mode="100755", blob=new), "experiments/0001-x.json": TreeEntry(blob=new)}
    )
    after = git(folder, "ls-files", "-s", "-v").splitlines()
    assert set(after) - set(before) == {f"S 100755 {new} 0\tkernel.py", f"H 100644 {new} 0\texperiments/0001-x.json"}
    assert len(set(before) - set(after)) == 1
    assert " A intended" in git(folder, "status", "--porcelain")
    entries = index.index_entries(repository, ("unmerged", "kernel.py", "nothing"))
    assert entries["unmerged"].stages == ("1", "2", "3")
    assert entries["kernel.py"].tag == "S"
    assert "nothing" not in entries


def test_a_locked_index_is_named(folder: Path, repository: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_INDEX_PATIENCE_SECONDS", 0.0)
    blob = write.write_blob(repository, b"new\n")
    (folder / ".git" / "index.lock").write_text("")
    with refused("index-locked"):
        write.set_index_entries(repository, {"kernel.py": TreeEntry(blob=blob)})


def test_signing_is_asked_for_and_its_failure_named(folder: Path, repository: Repo) -> None:
    signer = folder.parent / "signer"
    signature = "-----BEGIN PGP SIGNATURE-----\\nx\\n"
    signer.write_text(f"#!/bin/sh\ncat > /dev/null\nprintf -- '{signature}'\nprintf '[GNUPG:] SIG_CREATED ' >&2\n")
    signer.chmod(0o755)
    git(folder, "config", "gpg.program", str(signer))
    tree = git(folder, "rev-parse", "HEAD^{tree}").strip()
    git(folder, "config", "commit.gpgsign", "true")
    signed = write.write_commit(repository, tree, (), "signed")
    assert "gpgsig" in git(folder, "cat-file", "-p", signed)
    git(folder, "config", "commit.gpgsign", "false")
    plain = write.write_commit(repository, tree, (), "plain")
    assert "gpgsig" not in git(folder, "cat-file", "-p", plain)
    git(folder, "config", "commit.gpgsign", "true")
    signer.write_text("#!/bin/sh\nexit 2\n")
    with refused("signing", r"commit\.gpgsign"):
        write.write_commit(repository, tree, (), "signed")
    assert questions.is_set(repository, "commit.gpgsign", False)
    assert not questions.is_set(repository, "no.suchsetting", False)


def test_worktrees_share_refs_and_not_the_git_directory(folder: Path, tmp_path: Path) -> None:
    git(folder, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    repository = questions.open_repository(tmp_path / "tree")
    assert questions.root(repository) == (tmp_path / "tree").resolve()
    assert questions.branch(repository) == "refs/heads/other"
    assert questions.common_directory(repository) == (folder / ".git").resolve()
    assert questions.git_directory(repository) == (folder / ".git" / "worktrees" / "tree").resolve()
    questions.require_committable(repository)


def test_a_submodule_is_a_repository_of_its_own(folder: Path, tmp_path: Path) -> None:
    inner = new_repository(tmp_path / "inner")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    repository = questions.open_repository(folder / "sub")
    assert questions.root(repository) == (folder / "sub").resolve()
    assert questions.head_commit(repository) == git(inner, "rev-parse", "HEAD").strip()


def test_whether_a_ref_is_on_a_remote(folder: Path, repository: Repo, tmp_path: Path) -> None:
    assert ref_on_remotes(repository, "refs/heads/main") == ()
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(folder, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(folder, "remote", "add", "gone", str(tmp_path / "nothing.git"))
    git(folder, "push", "-q", "origin", "HEAD:refs/ratchet/root/log")
    gone, origin = ref_on_remotes(repository, "refs/ratchet/root/log")
    assert (origin.remote, origin.commit, origin.complaint) == ("origin", questions.head_commit(repository), "")
    assert gone.commit is None
    assert "nothing.git" in gone.complaint
    assert ref_on_remotes(repository, "refs/ratchet/other/log")[1].commit is None


def test_a_shallow_clone_answers(folder: Path, tmp_path: Path) -> None:
    git(folder, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{folder}", "shallow")
    identify(tmp_path / "shallow")
    repository = questions.open_repository(tmp_path / "shallow")
    questions.require_committable(repository)
    assert len(questions.log(repository, ("HEAD",))) == 1


def test_a_read_only_repository_is_refused_before_anybody_waits(folder: Path) -> None:
    before = hashes(folder)
    if os.geteuid() == 0:
        # Root may write anywhere unless the file system itself refuses.
        if subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True).returncode != 0:
            pytest.skip("a read-only file system needs mount")
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
            refusal("read-only", folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    else:
        for path in (folder / ".git" / "objects", folder / ".git"):
            path.chmod(0o555)
        refusal("read-only", folder)
        for path in (folder / ".git", folder / ".git" / "objects"):
            path.chmod(0o755)
    assert hashes(folder) == before


def test_git_itself_is_named_when_it_is_missing(
    folder: Path, repository: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert shutil.which("git") is None
    with refused("no-git"):
        questions.head_commit(repository)
