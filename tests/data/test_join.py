"""Words are numbered by each log for itself: data sets that meet, and a policy that meets a log, must agree on them."""

import json
import warnings

import numpy as np
import pytest

from odice.data.dataset import UnfinishedEpisodeWarning
from odice.data.demonstrations import with_suboptimal
from odice.data.join import concatenate, recode
from odice.data.load import load
from odice.data.preprocess import Preprocess, fit
from odice.data.store import write_store
from odice.encoding import Encoding
from odice.errors import OdiceError
from odice.evaluation.ope.episodes import make_episodes
from odice.evaluation.trial import trial
from odice.policy.file import Layout
from odice.policy.policy import Policy
from tests.worlds import write

ROLES = {"observation": ("x", "mode"), "action": ("dose",), "reward": "gain", "terminated": "over"}


def table(words, modes=("on", "off"), x=None, n=40):
    """Episodes of four steps, in which the words and modes take turns."""
    return {
        "x": np.arange(n) % 3.0 if x is None else x,
        "mode": [modes[i % len(modes)] for i in range(n)],
        "dose": [words[i % len(words)] for i in range(n)],
        "gain": [1.0 if words[i % len(words)] == words[-1] else 0.0 for i in range(n)],
        "over": [i % 4 == 3 for i in range(n)],
    }


def read(content, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnfinishedEpisodeWarning)
        return load(write(content, path), **{**ROLES, **options})


def always(data, word):
    """A policy that chooses one word, whatever it sees."""
    bias = np.array([float(each == word) for each in data.meta.choices], np.float32)
    sizes = (data.spec.obs_dim, data.spec.action_dim)
    tensors = {"layers.0.weight": np.zeros(sizes, np.float32), "layers.0.bias": bias}
    about = {"preprocess": json.loads(json.dumps(fit(Preprocess(), data).to_dict()))}
    return Policy(Layout(sizes, False, "relu", "argmax"), tensors, about=about)


def test_a_log_without_one_of_the_words_is_read_in_the_policys(tmp_path):
    """The log has `b` and `c` alone, so by itself it would call them 0 and 1; for the policy they are 1 and 2."""
    policy = always(read(table(["a", "b", "c"]), tmp_path / "trained.csv"), "b")
    other = table(["b", "c"])
    by_itself, in_its_words = (
        read(other, tmp_path / "log.csv", **options) for options in ({}, {"encoding": policy.encoding})
    )
    assert by_itself.actions[:2].tolist() == [0, 1]
    assert in_its_words.actions[:2].tolist() == [1, 2]
    assert in_its_words.meta.choices == ("a", "b", "c")
    for data in (by_itself, in_its_words):
        log = make_episodes(policy, data)
        taken = np.array(other["dose"]) == "b"
        np.testing.assert_array_equal(log.decisions.choice[log.index] == log.action, taken)
        assert trial(data, data, policy=policy, limits=(0, 4)).followed == pytest.approx(0.5)


def test_an_unknown_word_is_refused_by_name(tmp_path):
    policy = always(read(table(["a", "b"]), tmp_path / "trained.csv"), "b")
    with pytest.raises(OdiceError, match=r"takes the action 'z', which is not among a, b"):
        make_episodes(policy, read(table(["a", "z"]), tmp_path / "log.csv"))
    with pytest.raises(OdiceError, match=r"'z', which is not among its categories a, b"):
        read(table(["a", "z"]), tmp_path / "log.csv", encoding=policy.encoding)


def test_words_and_plain_numbers_do_not_match(tmp_path):
    words = read(table(["a", "b"]), tmp_path / "words.csv")
    numbers = read({**table(["a", "b"]), "dose": [0, 1] * 20}, tmp_path / "numbers.csv")
    with pytest.raises(OdiceError, match="which number of an action is which word"):
        make_episodes(always(words, "a"), numbers)
    with pytest.raises(OdiceError, match="which number of an action is which word"):
        concatenate([words, numbers])
    with pytest.raises(OdiceError, match="which number of an action is which word"):
        recode(words, numbers.encoding)


def test_numbers_that_were_declared_to_be_words_are_words_for_the_next_log_too(tmp_path):
    codes = {**table(["a", "b"]), "dose": [2, 10] * 20}
    trained = read(codes, tmp_path / "trained.csv", categories=["dose"])
    assert trained.meta.choices == ("10", "2")
    again = read(codes, tmp_path / "log.csv", encoding=trained.encoding)
    np.testing.assert_array_equal(again.actions, trained.actions)


@pytest.mark.parametrize("order", [("mode", "x"), ("x", "mode")])
def test_columns_and_categories_are_matched_by_name(order, tmp_path):
    trained = read(table(["a", "b"], modes=("on", "off", "idle")), tmp_path / "trained.csv")
    assert trained.meta.obs_names == ("x", "mode=idle", "mode=off", "mode=on")
    log = read(table(["a", "b"], modes=("on", "idle")), tmp_path / "log.csv", observation=order)
    data = recode(log, trained.encoding)
    assert data.meta.obs_names == trained.meta.obs_names
    assert data.step_observations()[:2].tolist() == [[0, 0, 0, 1], [1, 1, 0, 0]]
    with pytest.raises(OdiceError, match=r"'mode' holds 'turbo', which is not among idle, off, on"):
        recode(read(table(["a", "b"], modes=("on", "turbo")), tmp_path / "log.csv"), trained.encoding)
    with pytest.raises(OdiceError, match="lacks the column 'x'"):
        recode(read(table(["a", "b"]), tmp_path / "log.csv", observation=("mode",)), trained.encoding)
    with pytest.raises(OdiceError, match="has the column 'mode', which"):
        recode(log, Encoding(({"name": "x"},), trained.meta.choices))
    as_number = read({**table(["a", "b"]), "mode": [0, 1] * 20}, tmp_path / "log.csv")
    with pytest.raises(OdiceError, match="the column 'mode' is a number, and a category for"):
        recode(as_number, trained.encoding)


def test_missing_values_are_filled_as_in_the_policys_log(tmp_path):
    gaps = [None if i % 5 == 0 else float(i % 3) for i in range(40)]
    options = {"missing": "impute", "missing_indicator": True}
    trained = read(table(["a", "b"], x=gaps), tmp_path / "trained.csv", **options)
    others = [None if i % 7 == 0 else 100.0 + i for i in range(40)]
    log = table(["a", "b"], x=others)
    data = read(log, tmp_path / "log.csv", **options, encoding=trained.encoding)
    fill = trained.meta.obs_columns[0]["fill"]
    np.testing.assert_array_equal(data.step_observations()[::7, 0], fill)
    np.testing.assert_array_equal(data.step_observations()[:, 1], [float(i % 7 == 0) for i in range(40)])
    with pytest.raises(OdiceError, match="a missing value of 'x' became"):
        recode(read(log, tmp_path / "log.csv", **options), trained.encoding)
    never = read(table(["a", "b"]), tmp_path / "never.csv")
    with pytest.raises(OdiceError, match="column 'x' has 6 empty cells, and in the log of the policy"):
        read(log, tmp_path / "log.csv", **options, encoding=never.encoding)


def test_demonstrations_and_suboptimal_data_share_one_encoding(tmp_path):
    """By themselves, both logs would call their two words 0 and 1, and their two modes alike."""
    expert = read(table(["b", "c"], modes=("on", "off")), tmp_path / "expert.csv")
    others = read(table(["a", "b"], modes=("off", "idle")), tmp_path / "others.csv")
    union = with_suboptimal(expert, others)
    assert union.meta.choices == ("b", "c", "a")
    assert union.spec.action_dim == 3
    words = np.array(union.meta.choices)[union.actions]
    assert words.tolist() == [*table(["b", "c"])["dose"], *table(["a", "b"])["dose"]]
    modes = [name.removeprefix("mode=") for name in union.meta.obs_names[1:]]
    taken = np.array(modes)[union.step_observations()[:, 1:].argmax(axis=1)]
    assert taken.tolist() == [*table("b")["mode"], *table("b", modes=("off", "idle"))["mode"]]
    assert fit(Preprocess(), union).choices == ("b", "c", "a")


def test_shards_of_a_store_share_the_encoding_of_the_first(tmp_path):
    first, second = (read(table(words), tmp_path / f"{i}.csv") for i, words in enumerate((["a", "b", "c"], ["b", "c"])))
    store = write_store([first, second], tmp_path / "store")
    assert np.array(store.meta.choices)[store.actions[40:42]].tolist() == ["b", "c"]
    with pytest.raises(OdiceError, match="the action 'a', which is not among b, c"):
        write_store([second, first], tmp_path / "other")


def test_the_fingerprint_knows_the_words(tmp_path):
    """The same numbers with other words are other data: a run on the one is not continued on the other."""
    one, two = (read(table(words), tmp_path / "log.csv") for words in (["a", "b"], ["a", "c"]))
    np.testing.assert_array_equal(one.actions, two.actions)
    assert one.fingerprint != two.fingerprint


def test_a_saved_log_keeps_its_words(tmp_path):
    data = read(table(["b", "c"]), tmp_path / "log.csv")
    trained = read(table(["a", "b", "c"]), tmp_path / "trained.csv")
    for name in ("log.parquet", "log.hdf5"):
        again = load(data.save(tmp_path / name), encoding=trained.encoding)
        assert np.array(again.meta.choices)[again.actions].tolist() == table(["b", "c"])["dose"]
