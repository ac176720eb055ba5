"""The study of DSVTNP's latents in the field's table: what z_G changes, and what chains do."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from dsvnp.predictive.gaussian import GaussianPredictive
from dsvnp.task import Task
from studies import field_latents

RESULTS = Path(__file__).parents[2] / "results" / "field"


def test_spread_and_share_of_a_model_whose_functions_are_known():
    class Known:
        """Draws of z_G shift y by ±1, chains by ±2; σ is 1."""

        def predict(self, task, count, num_local, generator, chunk, autoregressive=False):
            size = 2.0 if autoregressive else 1.0
            mean = size * torch.tensor([-1.0, 1.0]).repeat(count // 2).reshape(count, 1, 1, 1, 1)
            shape = (count, num_local, task.num_tasks, task.num_targets, 1)
            return GaussianPredictive(mean.expand(shape), torch.ones(()))

    task = Task.from_sets(*(torch.zeros(2, n, 1) for n in (3, 3, 4)))
    found = field_latents.measure(Known(), task, torch.Generator())
    latents, chains = field_latents.GLOBAL, field_latents.CHAINS
    assert found["spread_latent"] == pytest.approx((latents / (latents - 1)) ** 0.5)
    assert found["spread_chain"] == pytest.approx(2 * (chains / (chains - 1)) ** 0.5)
    assert found["share"] == pytest.approx(0.5 * latents / (latents - 1))


def test_the_study_reads_kept_weights_and_panels(tmp_path, monkeypatch):
    shutil.copytree(RESULTS, tmp_path / "run")
    for name in ("NUM_BATCHES", "GLOBAL", "CHAINS", "LOCAL"):
        monkeypatch.setattr(field_latents, name, 2)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "run")])
    field_latents.main()
    rows = json.loads((tmp_path / "run" / "latents.json").read_text())
    assert [row["kernel"] for row in rows[:2]] == ["rbf", "matern52"]
    assert all(row["spread_latent"] < row["spread_chain"] for row in rows[:2])
    shown = {row["model"]: row["shown"] for row in rows[2:]}
    assert shown["dsvnp"] < 0.03 < 0.1 < shown["gp"] < shown["dsvtnp"]
