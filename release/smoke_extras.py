"""Does an extra do what it is for? `release/extras.py` runs this where it was installed.

python smoke_extras.py EXTRA…
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

TIDEGATE = [sys.executable, "-m", "tidegate"]
POLICIES = ["--candidate", "column:new_prob", "--lookahead", "20"]


def serve(folder: Path) -> None:
    """The service starts, takes a gate's definition, and says that the safe policy runs."""
    from tidegate.client import Client
    from tidegate.experiments.serve_demo import service

    with service(folder, 8400) as (url, token):
        client = Client(url, token)
        client.define("ranking", {"candidate": "column:new_prob", "lookahead": 20})
        assert client.policy("ranking")["policy"] == "safe"


def sign(folder: Path) -> None:
    """A signed record is confirmed."""
    log(folder).write_csv(folder / "log.csv")
    tidegate(folder, "keygen", "key")
    tidegate(folder, "gate", "log.csv", *POLICIES, "--sign-key", "key.private.pem")
    tidegate(folder, "verify", "decision.json", "log.csv", "--public-key", "key.public.pem")


def gymnasium(folder: Path) -> None:
    """The recommender is an environment."""
    import gymnasium as gym

    environment = gym.make("tidegate.simulators.gymnasium_envs:tidegate/RecoSys-v0")
    environment.reset(seed=0)
    environment.step(0)


def minari(folder: Path) -> None:
    """Episodes that Minari collected are a log."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import gymnasium as gym
    from minari import DataCollector

    environment = DataCollector(gym.make("CartPole-v1"))
    for number in range(30):
        environment.reset(seed=number)
        while not any(environment.step(environment.action_space.sample())[2:4]):
            pass
    environment.create_dataset("carts/random-v0")
    flags = ["--features", "observation_0,observation_2", "--estimate-propensities"]
    tidegate(folder, "check", "minari:carts/random-v0", "--lookahead", "5", *flags)


def lake(folder: Path) -> None:
    """A table whose first rows were replaced is a log without them; the other format's reader is there."""
    rows, policies = log(folder), ("--no-stream", *POLICIES)
    rows.with_columns(reward=-pl.col("reward")).write_delta(folder / "delta")
    rows.write_delta(folder / "delta", mode="overwrite")
    tidegate(folder, "gate", "delta", *policies)
    importlib.import_module("pyiceberg.table")  # to write one takes a catalogue


def ray(folder: Path) -> None:
    """A log in parts, read by Ray."""
    log(folder).write_parquet(folder / "log.parquet")
    tidegate(folder, "gate", "log.parquet", *POLICIES, "--engine", "ray")


def log(folder: Path) -> pl.DataFrame:
    """400 episodes whose second action is the better one."""
    action = pl.int_range(400, eager=True) // 3 % 2
    columns = {"episode": range(400), "action": action, "behavior_prob": 0.5, "reward": action * 1.0}
    return pl.DataFrame(columns).with_columns(
        pl.col("reward") + 0.1 * (pl.col("episode") * 7 % 11 - 5) / 5, new_prob=0.1 + 0.8 * pl.col("action")
    )


def tidegate(folder: Path, *words: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run([*TIDEGATE, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


TRIALS = {trial.__name__: trial for trial in (serve, sign, gymnasium, minari, lake, ray)}

if __name__ == "__main__":
    for extra in sys.argv[1:]:
        place = Path(extra).resolve()
        place.mkdir()
        TRIALS[extra](place)
