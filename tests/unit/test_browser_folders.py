"""Profile folders: their FIFO is deleted last, so that folders of killed processes are found later."""

import gc
import os

import pytest

from skitter.browser import process
from skitter.browser.watchdog import LIFELINE, delete


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an ended worker, with a profile, among other folders."""
    monkeypatch.setattr(process, "_temporary_folder", lambda: str(tmp_path))
    folder = tmp_path / "skitter-browser-left"
    (folder / "profile" / "Default").mkdir(parents=True)
    (folder / "profile" / "Default" / "Preferences").write_text("{}")
    (folder / "group").write_text("1 2 3")
    os.mkfifo(folder / LIFELINE)
    return folder


def test_a_folder_is_deleted_with_all_that_it_contains(folder):
    delete(str(folder))
    assert not folder.exists()
    delete(str(folder))


def test_the_fifo_stays_as_long_as_anything_else_does(folder, monkeypatch):
    with monkeypatch.context() as patch:
        # A process still writes.
        patch.setattr("skitter.browser.watchdog.shutil.rmtree", lambda *_, **__: None)
        delete(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted([LIFELINE, "profile"])
    process.delete_left_folders()
    assert not folder.exists()


def test_a_file_that_is_gone_already_does_not_keep_the_others(folder, monkeypatch):
    (folder / "other").write_text("")
    original = os.unlink

    def unlink(path, *, dir_fd=None):
        if dir_fd is None:
            raise FileNotFoundError(path)
        original(path, dir_fd=dir_fd)  # within the profile

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        delete(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted([LIFELINE, "group", "other"])
    gc.collect()  # an unclosed iterator would be reported
    delete(str(folder))
    assert not folder.exists()


def test_the_folder_of_a_worker_that_runs_is_not_left_over(folder):
    held = os.open(folder / LIFELINE, os.O_RDWR)
    try:
        process.delete_left_folders()
        assert folder.exists()
    finally:
        os.close(held)
    process.delete_left_folders()
    assert not folder.exists()
