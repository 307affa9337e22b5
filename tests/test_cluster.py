"""The address of a cluster is tried before Ray is: where nothing listens, one sentence says so at once."""

import socket
import time

import pytest

from odice.cluster import check_address, check_answer
from odice.errors import OdiceError

pytestmark = pytest.mark.fast


def test_where_nothing_listens_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        began = time.monotonic()
        with pytest.raises(OdiceError, match=r"no cluster answers there .*ray start --head --port"):
            check_address(f"127.0.0.1:{taken.getsockname()[1]}", seconds=5.0)
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    "form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "ray://127.0.0.1:{}/namespace", "[127.0.0.1]:{}"]
)
def test_where_something_listens_ray_is_tried(form):
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(form.format(server.getsockname()[1]))


def test_other_addresses_are_rays_own():
    check_address("auto")
    check_address("local")
    with pytest.raises(OdiceError, match="the port is not a number"):
        check_address("head-node:gcs")


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("time.sleep(60)", r"no cluster has answered within 1 s.*6379 by default"),
        ("raise ConnectionError('nobody is there')", "no cluster answers there .ConnectionError: nobody is there"),
    ],
)
def test_what_is_no_cluster_is_one_sentence(init, message, tmp_path, monkeypatch):
    """A module that stands in for Ray, in the process that tries."""
    (tmp_path / "ray.py").write_text(f"import time\ndef init(*args, **options):\n    {init}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(OdiceError, match=message):
        check_answer("127.0.0.1:1", seconds=1.0)
    assert time.monotonic() - began < 50.0


def test_a_cluster_that_answers_is_taken(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("def init(*args, **options):\n    assert args == ('127.0.0.1:1',)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check_answer("127.0.0.1:1")
