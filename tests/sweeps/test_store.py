"""Run directories in a store: an unfinished one comes back as it was, a finished one is whole or not there."""

import pytest

from odice.errors import OdiceError
from odice.sweeps.store import Store

pytest.importorskip("fsspec")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "node" / "run"
    files = {"config.json": "c", "metrics.jsonl": "m", "checkpoints/10/state": "s", ".lock": "", "policy/last/p": "p"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def content(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_unfinished_run_comes_back_as_it_was(tmp_path, run):
    store = Store((tmp_path / "store").as_uri())
    store.fetch("a/b/seed-0", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    assert store.save("a/b/seed-0", run)
    (run / "metrics.jsonl").write_text("mm")
    assert store.save("a/b/seed-0", run)
    assert not store.finished("a/b/seed-0")
    Store((tmp_path / "store").as_uri()).fetch("a/b/seed-0", tmp_path / "other")
    expected = content(run)
    del expected[".lock"]
    assert content(tmp_path / "other") == expected
    assert expected["metrics.jsonl"] == "mm"


def test_a_finished_run_is_delivered_with_its_result_last(tmp_path, run, monkeypatch):
    store = Store((tmp_path / "store").as_uri())
    store.save("a/b/seed-0", run)
    (run / "result.json").write_text("r")
    put, order = store._put, []
    monkeypatch.setattr(store, "_put", lambda path, data: (order.append(path.rpartition("/")[2]), put(path, data)))
    store.deliver("a/b/seed-0", run)
    assert order[-1] == "result.json"
    assert ".lock" not in order
    assert store.finished("a/b/seed-0")
    assert sorted(path.name for path in (tmp_path / "store/a/b").iterdir()) == ["seed-0"]  # the archive is gone
    store.fetch("a/b/seed-0", tmp_path / "whole")
    assert content(tmp_path / "whole") == {name: text for name, text in content(run).items() if name != ".lock"}
    store.fetch_small("a/b/seed-0", tmp_path / "small")
    assert content(tmp_path / "small") == {"config.json": "c", "metrics.jsonl": "m", "result.json": "r"}


def test_a_hostile_archive_stays_in_its_folder(tmp_path, run):
    import io
    import tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
    (tmp_path / "store" / "a").mkdir(parents=True)
    (tmp_path / "store" / "a" / "x.tar").write_bytes(data.getvalue())
    with pytest.raises(tarfile.OutsideDestinationError):
        Store((tmp_path / "store").as_uri()).fetch("a/x", tmp_path / "here" / "x")
    assert not (tmp_path / "here" / "outside").exists()


def test_an_address_that_nobody_knows_is_one_sentence():
    with pytest.raises(OdiceError, match="--store nowhere://x cannot be opened"):
        Store("nowhere://x")


def test_a_store_that_is_gone_is_said_in_a_sentence(tmp_path, run, monkeypatch):
    """Whatever the library behind it raises; what was saved before is as it was."""
    store = Store("memory://sweep")
    assert store.save("a/b/seed-0", run)

    def lost(*_, **__):
        raise RuntimeError("Could not connect\nto the endpoint")

    for name in ("exists", "pipe_file", "cat_file", "get", "get_file"):
        monkeypatch.setattr(store._files, name, lost, raising=True)
    (run / "result.json").write_text("r")
    calls = (lambda: store.fetch("a/b/seed-0", tmp_path / "x"), lambda: store.save("a/b/seed-0", run))
    for call in (*calls, lambda: store.deliver("a/b/seed-0", run), lambda: store.finished("a/b/seed-0")):
        with pytest.raises(OdiceError) as caught:
            call()
        says = (
            "--store memory://sweep cannot be reached (Could not connect to the endpoint); run the same command again"
        )
        assert str(caught.value) == f"{says} to go on."
    monkeypatch.undo()
    store.fetch("a/b/seed-0", tmp_path / "again")
    assert content(tmp_path / "again")["metrics.jsonl"] == "m"
    assert not store.finished("a/b/seed-0")
