"""Settings: what is refused, what each replica gets, and what a resumed run must share."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from dsvnp.objectives import Objective
from dsvnp.training import Adam, Schedule, Settings


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_steps": 0}, "num_steps must be a whole number, at least 1, got 0"),
        ({"log_every": 0}, "log_every must be a whole number, at least 1, got 0"),
        ({"keep": 0}, "keep must be a whole number, at least 1, got 0"),
        ({"validate_every": -1}, "validate_every must be a whole number and not negative, got -1"),
        ({"patience": -1}, "patience must be a whole number and not negative, got -1"),
        ({"checkpoint_every": -1}, "checkpoint_every must be a whole number and not negative, got -1"),
        ({"patience": 3}, "patience counts validations; set validate_every as well"),
        ({"precision": "float"}, "unknown precision 'float'. Did you mean 'float"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
        ({"learning_rate": -1e-3}, "learning_rate must be finite and not negative, got -0.001"),
        ({"learning_rate": math.nan}, "learning_rate must be finite and not negative, got nan"),
        (
            {"learning_rate": (1e-3, -1.0)},
            r"learning_rate must be finite and not negative, got \(0.001, -1.0\)",
        ),
        ({"beta_local": (1.0, -1.0)}, r"beta_local must be finite and not negative, got \(1.0, -1.0\)"),
        *(
            ({name: bad}, f"{name} must be ")
            for name in (
                "num_steps",
                "log_every",
                "keep",
                "validate_every",
                "patience",
                "checkpoint_every",
                "chunk_size",
            )
            for bad in (math.nan, math.inf, 1.5)
        ),
        ({"learning_rate": math.inf}, "learning_rate must be finite and not negative, got inf"),
        ({"beta_global": (math.nan,)}, r"beta_global must be finite and not negative, got \(nan,\)"),
    ],
)
def test_bad_values_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Settings(**{"num_steps": 10} | bad)


def test_the_least_values_are_taken():
    settings = Settings(1, log_every=1, keep=1, patience=1, validate_every=1, chunk_size=1, learning_rate=0.0)
    assert replace(settings, beta_local=(0.0,), beta_global=(0.0,)).patience == 1


def test_settings_do_not_change():
    with pytest.raises(FrozenInstanceError):
        Settings(10).num_steps = 11


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("float64", torch.float64),
        ("float32", torch.float32),
        ("tf32", torch.float32),
        ("bf16", torch.float32),
    ],
)
def test_weights_are_single_precision_unless_double_is_asked_for(precision, dtype):
    assert Settings(10, precision=precision).dtype == dtype


def test_one_value_serves_all_replicas():
    assert Settings(10, learning_rate=0.5).per_replica("learning_rate", 3) == [0.5, 0.5, 0.5]


def test_each_replica_may_have_its_own():
    settings = Settings(10, learning_rate=(0.1, 0.2), beta_local=(1.0, 5.0))
    assert settings.per_replica("learning_rate", 2) == [0.1, 0.2]
    assert settings.per_replica("beta_local", 2) == [1.0, 5.0]


def test_weights_of_the_bound_come_from_the_objective_unless_given_per_replica():
    settings = Settings(10, objective=Objective(beta_local=7.0, beta_global=2.0), beta_local=(3.0,))
    assert settings.per_replica("beta_local", 1) == [3.0]
    assert settings.per_replica("beta_global", 1) == [2.0]


def test_as_many_values_as_replicas():
    with pytest.raises(ValueError, match="learning_rate has 2 values but the fleet has 3 replicas"):
        Settings(10, learning_rate=(0.1, 0.2)).per_replica("learning_rate", 3)


def test_json_can_hold_them():
    settings = Settings(10, optimizer=Adam(clip_norm=1.0), learning_rate=(0.1, 0.2))
    record = json.loads(json.dumps(settings.to_dict()))
    assert record["num_steps"] == 10
    assert record["optimizer"]["clip_norm"] == 1.0
    assert record["learning_rate"] == [0.1, 0.2]


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.5},
        {"optimizer": Adam("adamw")},
        {"schedule": Schedule(warmup=3)},
        {"objective": Objective(beta_local=2.0)},
        {"beta_local": (2.0,)},
        {"precision": "float64"},
        {"chunk_size": 1},
        {"validate_every": 5},
    ],
)
def test_what_changes_the_weights_is_part_of_the_outcome(change):
    assert replace(Settings(10), **change).outcome() != Settings(10).outcome()


@pytest.mark.parametrize(
    "change",
    [
        {"log_every": 7},
        {"checkpoint_every": 7},
        {"keep": 7},
        {"compile": True},
        {"capture": False},
        {"num_steps": 20},
    ],
)
def test_what_does_not_is_not(change):
    assert replace(Settings(10), **change).outcome() == Settings(10).outcome()


def test_the_length_of_a_cosine_decides_its_outcome():
    cosine = Settings(10, schedule=Schedule("cosine"))
    assert replace(cosine, num_steps=20).outcome() != cosine.outcome()
