"""The small modules that every package may use: `jsonable`, `action_map`, `machine`."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from odice import machine
from odice.action_map import from_bounds, half_range, is_unit_box, to_bounds
from odice.jsonable import jsonable

NAN, INF = float("nan"), float("inf")


# --- jsonable --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": (1, 2.5, None), 3: [True, "x"]}, {"a": [1, 2.5, None], "3": [True, "x"]}),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ([np.float32(0.5), np.float64(0.1), np.int64(7), np.bool_(True)], [0.5, 0.1, 7, True]),
        (jnp.array([0.5, 2.0]), [0.5, 2.0]),
        ([NAN, INF, -INF, np.float64(NAN), np.float32(INF), np.array([1.0, NAN])], [None] * 5 + [[1.0, None]]),
        (np.float64, str(np.float64)),
    ],
)
def test_jsonable_gives_what_json_writes_and_reads_back(value, expected):
    plain = jsonable(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert repr(plain) == repr(expected)  # 1, 1.0, True and numpy's 1 are equal, but print differently


def test_words_name_the_numbers_that_json_lacks():
    plain = jsonable({"a": [NAN, INF, np.float64(-INF), np.float32(NAN)], "b": 1.0}, words=True)
    assert plain == {"a": ["nan", "inf", "-inf", "nan"], "b": 1.0}


# --- the action map --------------------------------------------------------------------------------------------------


def test_the_action_map_by_hand():
    low, high = np.array([-2.0, 0.0], np.float32), np.array([4.0, 1.0], np.float32)
    inside = np.array([[-1.0, -1.0], [0.0, 0.5], [1.0, 1.0]], np.float32)
    outside = np.array([[-2.0, 0.0], [1.0, 0.75], [4.0, 1.0]], np.float32)
    assert half_range(low, high).tolist() == [3.0, 0.5]
    assert to_bounds(inside, low, high).tolist() == outside.tolist()
    assert from_bounds(outside, low, high).tolist() == inside.tolist()
    assert to_bounds(inside, low, high).dtype == from_bounds(outside, low, high).dtype == np.float32
    assert to_bounds(np.array([9.0, -9.0], np.float32), low, high).tolist() == [4.0, 0.0]
    assert from_bounds(np.array([7.0, 2.0], np.float32), low, high).tolist() == [2.0, 3.0]


def test_the_action_map_keeps_its_bits():
    """As `data.preprocess` and the policy have always computed it: other orders of the operations round differently."""
    rng = np.random.default_rng(0)
    low, high = np.array([-0.4, -1.7], np.float32), np.array([0.4, 2.9], np.float32)
    action = rng.uniform(-1, 1, (1000, 2)).astype(np.float32)
    expected = np.clip(low + (action + 1) * ((high - low) / 2), low, high)
    assert to_bounds(action, low, high).tobytes() == expected.tobytes()
    assert from_bounds(expected, low, high).tobytes() == ((expected - low) / ((high - low) / 2) - 1).tobytes()
    about_the_center = (high + low) / 2 + (high - low) / 2 * action
    assert to_bounds(action, low, high).tobytes() != about_the_center.tobytes()
    np.testing.assert_allclose(to_bounds(action, low, high), about_the_center, atol=1e-6)


def test_the_unit_box():
    assert is_unit_box((-1.0, -1.0), (1, 1))
    assert not is_unit_box((-1.0, -1.0), (1.0, 1.5))
    assert not is_unit_box((-2.0,), (1.0,))
    small = np.float32(1e-9)
    assert to_bounds(small, np.float32(-1), np.float32(1)) != small  # why the map is left out for this box


# --- the machine -----------------------------------------------------------------------------------------------------


def test_cores_are_those_that_the_process_may_use(monkeypatch):
    assert 1 <= machine.cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert machine.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


def test_memory_is_unknown_where_the_system_does_not_say(monkeypatch, tmp_path):
    unlimited = tmp_path / "limit"
    unlimited.write_text("9223372036854771712\n")
    monkeypatch.setattr(machine, "CONTAINER_LIMITS", (str(unlimited),))
    monkeypatch.setattr(os, "sysconf_names", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__, raising=False)
    assert machine.memory() == 4_096_000
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    assert machine.memory() is None
    monkeypatch.setattr(os, "sysconf_names", {"SC_PAGE_SIZE": 1})
    assert machine.memory() is None
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory() is None
