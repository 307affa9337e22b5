"""Complete or not there."""

import json
import os

import pytest

from odice.errors import OdiceError
from odice.files import (
    complete_file,
    complete_folder,
    delete,
    recover,
    refuse_links_below,
    refuse_links_in,
    sealed,
    unsealed,
)


def names(folder):
    return sorted(os.listdir(folder))


def test_a_file_appears_when_it_is_complete(tmp_path):
    with complete_file(tmp_path / "new" / "a.txt") as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "new" / "a.txt").exists()
        temporary.write_text("whole")
    assert names(tmp_path / "new") == ["a.txt"]
    assert (tmp_path / "new" / "a.txt").read_text() == "whole"


def test_a_file_that_failed_leaves_the_old_one(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def interrupted():
        with complete_file(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    for content in ("first", "second"):
        with complete_folder(tmp_path / "a") as temporary:
            (temporary / content).write_text("")
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["second"]


def test_a_folder_that_failed_leaves_the_old_one(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_text("")
    with pytest.raises(ZeroDivisionError), complete_folder(tmp_path / "a"):
        raise ZeroDivisionError
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["old"]


@pytest.mark.parametrize("killed", ["before the first rename", "between the renames", "after the second rename"])
def test_recover_after_a_kill(killed, tmp_path):
    """The three states in which a killed writer can leave a folder, made by hand."""
    path, new, old = tmp_path / "a", tmp_path / ".a.12ab34cd.tmp", tmp_path / ".a.old"
    before, after = (old, path) if killed == "after the second rename" else (path, new)
    if killed == "between the renames":
        before = old
    for folder, name in ((before, "old"), (after, "new")):
        folder.mkdir()
        (folder / name).write_text("")
    (tmp_path / ".ab.1.tmp").write_text("somebody else's")
    recover(path)
    recover(path)  # nothing is left to do
    assert names(tmp_path) == [".ab.1.tmp", "a"]
    assert names(path) == (["new"] if killed == "after the second rename" else ["old"])


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    with complete_file(tmp_path / "a") as temporary:
        temporary.write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


# --- links --------------------------------------------------------------------------------------------------------


def test_a_file_replaces_a_link_and_not_what_it_names(tmp_path):
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / "a").symlink_to(tmp_path / "other")
    with complete_file(tmp_path / "a") as temporary:
        temporary.write_text("new")
    assert ((tmp_path / "a").read_text(), (tmp_path / "other").read_text()) == ("new", "somebody's")


def test_a_folder_is_not_written_through_a_link(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_text("somebody's")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(OdiceError, match="symbolic link"), complete_folder(tmp_path / "link"):
        pass
    (tmp_path / ".new.old").symlink_to(tmp_path / "other")
    with complete_folder(tmp_path / "new") as temporary:
        (temporary / "b").write_text("")
    with complete_folder(tmp_path / "link" / "inner") as temporary:  # the user may name a folder behind a link
        (temporary / "b").write_text("")
    assert names(tmp_path / "new") == names(tmp_path / "other" / "inner") == ["b"]
    assert (tmp_path / "other" / "a").read_text() == "somebody's"


def test_recover_and_delete_stay_in_their_folder(tmp_path):
    (tmp_path / "other" / "inner").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    for name in (".a.01234567.tmp", ".a.old"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "other")
    recover(tmp_path / "run" / "a")
    assert not (tmp_path / "run" / "a").exists()
    with pytest.raises(OdiceError, match="symbolic link"):
        delete(tmp_path / "run" / ".a.old" / "inner")
    delete(tmp_path / "run" / ".a.old")
    assert names(tmp_path / "run") == []
    assert names(tmp_path / "other") == ["inner"]


def test_links_are_refused_at_every_depth_but_not_above(tmp_path):
    (tmp_path / "disk" / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    refuse_links_in(tmp_path / "link")
    refuse_links_below(tmp_path / "link", tmp_path / "link" / "a" / "b" / "missing")
    (tmp_path / "disk" / "a" / "b" / "c").symlink_to(tmp_path)
    with pytest.raises(OdiceError, match="link/a/b/c is a symbolic link"):
        refuse_links_in(tmp_path / "link")
    refuse_links_in(tmp_path / "link", unchecked=("b",))
    with pytest.raises(OdiceError, match="link/a/b/c is a symbolic link"):
        refuse_links_below(tmp_path / "link", tmp_path / "link" / "a" / "b" / "c" / "d")


# --- seals --------------------------------------------------------------------------------------------------------


def test_a_seal_notices_every_flipped_bit_of_the_text():
    """Also one in the name of the checksum itself. A space for a line break changes nothing, so nothing is said."""
    content = {"steps": 200, "name": "é", "nested": {"lam": 0.1 + 0.2, "list": [1, None, True]}}
    text = json.dumps(sealed(content), indent=1).encode()
    assert unsealed(json.loads(text), "x") == content
    noticed = 0
    for at in range(len(text)):
        for bit in range(8):
            data = bytearray(text)
            data[at] ^= 1 << bit
            try:
                result = json.loads(bytes(data))
            except ValueError:
                continue
            try:
                assert unsealed(result, "x") == content
            except OdiceError:
                noticed += 1
    assert noticed > 100


def test_an_object_without_a_seal_is_of_an_older_version():
    assert unsealed({"step": 3}, "x") == {"step": 3}
