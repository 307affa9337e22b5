"""What a process keeps of a run for the next one."""

import dataclasses

from odice.algos import entry
from odice.caching import MOST, kept
from odice.training.loop import make_chunk
from odice.types import Spec


def test_the_same_arguments_give_the_same_object_and_old_ones_are_dropped():
    calls = []

    @kept
    def made(value, *, more=0):
        calls.append((value, more))
        return object()

    assert made(1) is made(1)
    assert made(1) is not made(1, more=2)
    assert made([1]) is not made([1])  # no hash: made each time
    assert calls == [(1, 0), (1, 2), ([1], 0), ([1], 0)]
    first = made(1)
    for value in range(2, MOST + 2):
        made(value)
    assert made(1) is not first


def test_a_second_run_with_the_same_settings_uses_the_same_program():
    bc = entry("bc")
    config, spec = bc.config(policy_hidden=(8,)), Spec(2, 1)
    build = lambda config, spec: bc.build(config, spec, again=True)
    one, same = (build(dataclasses.replace(config), spec) for _ in range(2))
    assert make_chunk(one, 16, 5) is make_chunk(same, 16, 5)
    others = build(dataclasses.replace(config, policy_hidden=(9,)), spec), build(config, Spec(3, 1))
    assert all(make_chunk(other, 16, 5) is not make_chunk(one, 16, 5) for other in (*others, bc.build(config, spec)))
