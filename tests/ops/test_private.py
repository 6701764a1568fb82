"""Folders and files that no other user can change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphtheta.base import private

STRANGER = 65534


@pytest.fixture
def give_away() -> Callable[[Path], None]:
    """Gives a path to another user, which root alone may do."""

    def give(path: Path) -> None:
        try:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        except PermissionError:
            pytest.skip("only root can give files to another user")

    return give


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def folder(path: Path, mode: int = 0o700) -> Path:
    path.mkdir()
    path.chmod(mode)
    return path


def test_what_is_made_is_for_the_user_alone_under_any_umask(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from graphtheta.base import private
os.umask(int(sys.argv[2], 8))
folder = Path(sys.argv[1]) / "missing" / "too"
private.make_folder(folder)
private.write(folder / "file", b"content")
assert private.read(folder / "file") == b"content"
"""
    for umask in ("000", "002", "022", "077"):
        made = tmp_path / umask
        subprocess.run([sys.executable, "-c", code, str(made), umask], check=True, timeout=60)
        assert [mode(p) for p in (made, made / "missing", made / "missing/too")] == [0o700] * 3
        assert mode(made / "missing/too/file") == 0o600
        assert os.listdir(made / "missing/too") == ["file"]


@pytest.mark.parametrize(
    ("bits", "writers"),
    [(0o777, "every user"), (0o702, "every user"), (0o1777, "every user"), (0o770, "group")],
)
def test_a_folder_that_others_can_write_to_is_refused(
    bits: int, writers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_own_group", lambda group: False)
    shared = folder(tmp_path / "a folder", bits)
    with pytest.raises(
        OSError,
        match=rf"{writers}.* can write to .*/a folder \(owner {os.geteuid()}, mode {bits:04o}; "
        r"remedy: chmod go-w '.*/a folder'\)$",
    ):
        private.make_folder(shared)
    shared.chmod(0o755)
    private.make_folder(shared)


def test_a_folder_below_one_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    above = folder(tmp_path / "above", 0o777)
    with pytest.raises(
        OSError,
        match=r"every user can write to .*/above \(.*mode 0777; remedy: chmod go-w .*/above\)$",
    ):
        private.make_folder(above / "middle" / "mine")
    # others cannot replace what is mine
    above.chmod(0o1777)
    private.make_folder(above / "middle" / "mine")


@pytest.mark.parametrize("whose", ["", "mine", "mine/kernels"])
def test_a_folder_of_another_user_is_refused_and_so_is_what_lies_below(
    whose: str, tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    kernels = tmp_path / "top" / "mine" / "kernels"
    private.make_folder(kernels)
    given = tmp_path / "top" / whose
    # the mode with which planted code was run
    given.chmod(0o755)
    give_away(given)
    with pytest.raises(
        OSError,
        match=rf"{given} belongs to user {STRANGER} and not to you, user {os.geteuid()} "
        rf"\(owner {STRANGER}, mode 0755\)$",
    ):
        private.make_folder(kernels)


def test_links_are_followed_through_all_that_decides(
    tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    real = folder(tmp_path / "real")
    shared = folder(tmp_path / "shared", 0o777)
    (tmp_path / "direct").symlink_to(real)
    (tmp_path / "relative").symlink_to("real/../direct")
    private.make_folder(tmp_path / "direct")
    private.make_folder(tmp_path / "relative" / "below")
    assert (real / "below").is_dir()
    # the target is not the user's alone
    (tmp_path / "bad").symlink_to(shared)
    with pytest.raises(OSError, match=r"every user can write to .*/shared"):
        private.make_folder(tmp_path / "bad")
    # the target is, but a link on the way lies where others can replace it
    (shared / "link").symlink_to(real)
    (tmp_path / "around").symlink_to("shared/link")
    with pytest.raises(OSError, match=r"every user can write to .*/shared"):
        private.make_folder(tmp_path / "around")
    # or belongs to somebody who can
    shared.chmod(0o1777)
    private.make_folder(tmp_path / "around")
    give_away(shared / "link")
    with pytest.raises(OSError, match=rf"/shared/link belongs to user {STRANGER}"):
        private.make_folder(tmp_path / "around")


def test_links_to_nowhere_and_to_themselves_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop"):
        with pytest.raises(OSError, match=name):
            private.make_folder(tmp_path / name)


def test_a_file_or_what_cannot_be_written_to_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch(mode=0o600)
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="file"):
            private.make_folder(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OSError, match=r"cannot be written to \(owner \d+, mode 0700\)"):
        private.make_folder(tmp_path)


def test_the_private_group_of_the_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Umask 002 with a group for each user is what many Linux distributions begin with."""
    known = {
        7: SimpleNamespace(gr_name="ann", gr_mem=[]),
        8: SimpleNamespace(gr_name="staff", gr_mem=[]),
    }
    user = SimpleNamespace(pw_name="ann", pw_gid=7)
    monkeypatch.setattr(private.pwd, "getpwuid", lambda number: user)
    monkeypatch.setattr(private.grp, "getgrgid", known.__getitem__)
    own = private._own_group
    assert own(7) and not own(8) and not own(9)
    known[7].gr_mem = ["ann"]
    assert own(7)
    known[7].gr_mem = ["ann", "bob"]
    assert not own(7)
    user.pw_gid = 8
    assert not own(8)
    # in containers, users of any name
    user.pw_gid, known[0] = 0, SimpleNamespace(gr_name="ann", gr_mem=[])
    assert not own(0)
    shared = folder(tmp_path / "shared", 0o775)
    monkeypatch.setattr(private, "_own_group", lambda group: group == shared.stat().st_gid)
    private.make_folder(shared)


def test_in_a_container_without_root_its_id_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None]
) -> None:
    """Folders above may belong to the id of all users outside; what is run must still be the
    user's.
    """
    monkeypatch.setattr(private, "_system_owner", lambda: STRANGER)
    home = folder(tmp_path / "home", 0o755)
    private.make_folder(home / "kernels")
    private.write(home / "kernels" / "file", b"")
    give_away(home)
    private.make_folder(home / "kernels")
    give_away(home / "kernels" / "file")
    with pytest.raises(OSError, match="belongs to user"):
        private.read(home / "kernels" / "file")
    give_away(home / "kernels")
    with pytest.raises(OSError, match="belongs to user"):
        private.make_folder(home / "kernels")


def test_a_file_that_others_can_change_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(private, "_own_group", lambda group: False)
    file = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        private.read(file)
    private.write(file, b"content")
    for bits in (0o666, 0o620, 0o602):
        file.chmod(bits)
        with pytest.raises(
            OSError, match=rf"can write to .*/file \(owner {os.geteuid()}, mode {bits:04o}\)$"
        ):
            private.read(file)
    file.chmod(0o644)
    assert private.read(file) == b"content"
    give_away(file)
    with pytest.raises(OSError, match=rf"/file belongs to user {STRANGER} and not to you"):
        private.read(file)
    # the folder is the user's, and so is what takes the place of the file
    private.write(file, b"mine")
    assert private.read(file) == b"mine" and mode(file) == 0o600


def test_only_files_are_read_and_links_are_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    private.write(target, b"content")
    link.symlink_to(target)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, reason in (
        (link, "is a symbolic link"),
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(OSError, match=reason):
            private.read(path)
    private.write(link, b"other")
    assert (
        target.read_bytes() == b"content"
        and private.read(link) == b"other"
        and not link.is_symlink()
    )


def test_a_link_that_appears_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    private.write(tmp_path / "target", b"content")
    monkeypatch.setattr(Path, "is_symlink", lambda path: False)
    with pytest.raises(OSError):
        private.read(tmp_path / "link")


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.write(tmp_path / "file", b"old")

    def full(*args: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no space"):
            private.write(tmp_path / "file", b"new")
    assert os.listdir(tmp_path) == ["file"] and private.read(tmp_path / "file") == b"old"
