"""`examples/serve`: a real server on loopback, a real client, and what its log is good for."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import odice
from odice import Policy
from odice.cli.main import main
from odice.core.policies import CategoricalPolicy
from odice.data.preprocess import Fitted
from odice.encoding import encode
from odice.policy.guard import fit_guard
from odice.types import Spec

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "examples" / "serve"
COLUMNS = ({"name": "age", "fill": 50.0, "indicator": True}, {"name": "ward", "values": ["north", "south"]})
WORDS = ("wait", "treat")
SCHEMA = """observation = ["age", "ward"]
action = "treatment"
reward = "reward"
episode = "episode"
terminated = "ended"
"""


def people(count: int, seed: int, older: float = 0.0) -> list[dict]:
    rng = np.random.default_rng(seed)
    ages, wards = rng.normal(50 + older, 10, count).round(1), rng.choice(["north", "south"], count)
    return [{"age": float(age), "ward": str(ward)} for age, ward in zip(ages, wards, strict=True)]


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    log = np.stack([encode(COLUMNS, row) for row in people(800, 0)])
    guard = fit_guard(log[:400], log[400:], ("age", "age is missing", "ward=north", "ward=south"))
    network = CategoricalPolicy(jax.random.key(1), Spec(4, 2, True), (16,))
    fitted = Fitted(obs_mean=(50.0, 0.0, 0.5, 0.5), obs_scale=(10.0, 1.0, 0.5, 0.5))
    made = Policy.from_network(network.deterministic(), fitted, guard=guard)
    about = {**made.about, "preprocess": {"columns": list(COLUMNS), "choices": list(WORDS)}}
    return dataclasses.replace(made, about=about).save(tmp_path_factory.mktemp("serve") / "policy")


class Server:
    """uvicorn on a free port."""

    def __init__(self, policy: Path, log: Path):
        environment = {**os.environ, "POLICY": str(policy), "LOG": str(log), "FALL_BACK": "wait"}
        environment |= {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        command = ["-m", "uvicorn", "app:app", "--app-dir", str(SERVE), "--port", "0", "--no-access-log"]
        self.process = subprocess.Popen(
            [sys.executable, *command], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self.process.stderr is not None
        said = ""
        while "running on" not in said:
            said = self.process.stderr.readline()
            assert said, "the server ended"
        self.client = httpx.Client(base_url=said.split("running on ")[1].split()[0], timeout=30)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.terminate()
        self.process.communicate(timeout=20)


def entries(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def test_rows_in_decisions_out_and_the_log_goes_back_to_odice(policy, tmp_path, capsys):
    log, loaded = tmp_path / "decisions.jsonl", Policy.load(policy)
    with Server(policy, log) as server:
        assert server.client.get("/health").json()["columns"] == ["age", "ward"]
        rows = people(300, 5)
        answers = [server.client.post("/decide", json={"rows": [row], "episode": str(i // 3)}).json()[0]
                   for i, row in enumerate(rows)]  # fmt: skip
        strange = server.client.post(
            "/decide", json={"rows": [{"age": 500, "ward": "north"}, {"ward": "east"}, {"ward": "south"}]}
        ).json()
        assert server.client.post("/decide", json={"rows": []}).status_code == 422
        for i, answer in enumerate(answers):
            outcome = {"id": answer["id"], "reward": float(answer["action"] == "treat"), "ended": i % 3 == 2}
            assert server.client.post("/outcome", json=outcome).json() == {"logged": True}
    for row, answer in zip(rows, answers, strict=True):
        action, novelty, decision = loaded.guarded(row)
        assert (answer["decision"], answer["novelty"]) == (decision, pytest.approx(float(novelty)))
        assert answer["action"] == ("wait" if decision == "fall back" else WORDS[action])
    assert (strange[0]["decision"], strange[0]["action"]) == ("fall back", "wait")
    assert strange[0]["reason"][0].startswith("age is 500; the log has")
    assert (strange[1]["decision"], strange[1]["action"]) == ("fall back", "wait")
    assert "'ward' is 'east'; the policy knows north, south" in strange[1]["reason"][0]
    assert strange[2]["decision"] in ("act", "warn", "fall back")  # a missing age is filled

    def script(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(SERVE / name), *words], capture_output=True, text=True)

    made = script("table.py", str(log), str(tmp_path / "trial.csv"), "--action", "treatment")
    assert made.stdout.endswith(
        "100 episodes, 300 decisions; 3 that are not over or lack an outcome or an action are left out\n"
    )
    known = {"episode": "episode", "observation": ("age", "ward"), "action": "treatment", "reward": "reward"}
    table = odice.load(tmp_path / "trial.csv", **known, terminated="ended", encoding=loaded.encoding)
    assert (table.n_episodes, table.n_steps) == (100, 300)
    assert table.rewards.sum() == sum(answer["action"] == "treat" for answer in answers)
    result = odice.trial(table, table, policy=loaded)
    assert result.followed is not None
    assert result.followed > 0.95
    (tmp_path / "log.toml").write_text(SCHEMA)
    words = ["trial", str(tmp_path / "trial.csv"), "--control", str(tmp_path / "trial.csv"), "--policy", str(policy)]
    assert main([*words, "--schema", str(tmp_path / "log.toml")]) == 0
    said = capsys.readouterr().out
    assert f"trial.csv: 100 episodes, mean return {result.mean:.4g}\n" in said
    assert f"the policy was followed in {result.followed:.0%} of the trial's steps\n" in said
    steady = script("drift.py", str(policy), str(log))
    assert (steady.returncode, steady.stdout) == (0, "no change in 303 decisions\n"), steady
    log.write_text("".join(json.dumps({"row": row}) + "\n" for row in people(300, 6, older=8.0)))
    older = script("drift.py", str(policy), str(log))
    assert older.returncode == 1
    assert "age: " in older.stdout


BAD = [
    ("/decide", '{"rows": 5, "episode": NaN}', 422),
    ("/decide", '{"rows": [[NaN, 0]]}', 422),
    ("/decide", '{"rows": [{"age": %s}]}' % ("9" * 5000), 400),
    ("/decide", '{"rows": [{"age": 50, "note": "%s"}]}' % ("x" * 5_000_000), 413),
    ("/decide", "[" * 100_000, 400),
    ("/outcome", '{"id": "x", "reward": NaN}', 422),
    ("/outcome", '{"id": "x", "reward": 1e400}', 422),
]


def test_a_request_that_makes_no_sense_is_refused_and_leaves_nothing_in_the_log(policy, tmp_path):
    log, kind = tmp_path / "decisions.jsonl", {"content-type": "application/json"}
    with Server(policy, log) as server:
        for path, body, code in BAD:
            answer = server.client.post(path, content=body, headers=kind)
            assert (answer.status_code, len(answer.text) < 500) == (code, True), body[:60]
        unmeasured = server.client.post("/decide", content=iter([b'{"rows": [[0, 0]]}']), headers=kind)
        assert unmeasured.status_code == 413
        assert log.read_text() == ""
        assert server.client.post("/decide", json={"rows": people(1, 0)}).status_code == 200
    assert len(entries(log)) == 1


def test_what_was_answered_is_in_the_log_when_the_server_is_stopped(policy, tmp_path):
    log, answered, refused = tmp_path / "decisions.jsonl", [], []

    def ask(base: str, seed: int) -> None:
        with httpx.Client(base_url=base, timeout=30) as client:
            for row in people(2000, seed):
                try:
                    answered.append(client.post("/decide", json={"rows": [row]}).raise_for_status().json()[0]["id"])
                except (httpx.TransportError, httpx.HTTPStatusError) as error:
                    refused.append(error)
                    return

    with Server(policy, log) as server:
        threads = [threading.Thread(target=ask, args=(str(server.client.base_url), seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        while len(answered) < 50:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        assert server.process.wait(20) == 0 or server.process.returncode == -signal.SIGTERM
    assert len(refused) == 4  # each client met the closed door once
    assert set(answered) == {entry["id"] for entry in entries(log)}


def test_only_episodes_that_are_over_are_in_the_table(tmp_path):
    """Rows may lack a value, actions may be lists, and a crash may cut the last line."""
    decided = lambda i, episode, row, action: {"id": str(i), "episode": episode, "row": row, "action": action}
    came = lambda i, ended: {"id": str(i), "reward": 1.5, "ended": ended}
    lines = [
        *(decided(0, "a", {"ward": "north"}, [0.1, 0.2]), came(0, False)),
        *(decided(1, "a", {"ward": "north", "age": 3}, [0.3, 0.4]), came(1, True)),
        *(decided(2, "no action", {"age": 1}, None), came(2, True)),
        *(decided(3, "goes on", {"age": 1}, [0.5, 0.6]), came(3, False)),
        *(
            decided(4, "no outcome", {"age": 1}, [0.5, 0.6]),
            decided(5, "no outcome", {"age": 1}, [0, 0]),
            came(5, True),
        ),
        *(decided(6, None, {"age": 9, "ward": "south"}, [0.7, 0.8]), came(6, False)),
        came("of a decision that is not in the log", True),
    ]
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "7", "epi')
    command = [sys.executable, str(SERVE / "table.py"), str(tmp_path / "log"), str(tmp_path / "t.csv")]
    assert "2 episodes, 3 decisions; 3 that" in subprocess.run(command, capture_output=True, text=True).stdout
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "episode,ward,action_0,action_1,reward,ended,age",
        "a,north,0.1,0.2,1.5,0,",
        "a,north,0.3,0.4,1.5,1,3",
        "6,south,0.7,0.8,1.5,1,9",
    ]
