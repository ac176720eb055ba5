"""The study of curves: its exact answers against the library's own, and that it writes what it measures."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from dsvnp import Architecture, Transformer, make_model
from dsvnp.pretrained import Card, save_pretrained
from dsvnp.task import Task
from studies import curves_validation as study


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    sizes = Transformer(8, 1, 2, 8, (8,), equivariant=True, rotary=20.0)
    arch = Architecture(
        6, 1, "mixture", num_components=2, decoder=(8,), sigma_form="exp", coded_x=True, transformer=sizes
    )
    folder = tmp_path_factory.mktemp("weights")
    save_pretrained(make_model("tnp", arch), Card("curves"), folder)
    return folder


@pytest.mark.parametrize("name", study.KERNELS)
def test_the_known_process_is_the_conditional_of_a_joint_normal(name):
    rng = np.random.default_rng(0)
    kernel = study.kernel_of(name, 0.3, 0.4) + kernels.WhiteKernel(0.04)
    x, y = rng.uniform(-1, 1, (9, 1)), rng.normal(size=9)
    mean, std = study.posterior(kernel, x[:8], y[:8], x[8:])
    joint, given = multivariate_normal(cov=kernel(x)), multivariate_normal(cov=kernel(x[:8]))
    expected = joint.logpdf(y) - given.logpdf(y[:8])
    assert norm.logpdf(y[8], mean[0], std[0]) == pytest.approx(expected, rel=1e-6)
    fixed = GaussianProcessRegressor(kernel, optimizer=None).fit(x[:8], y[:8])
    np.testing.assert_allclose(fixed.predict(x[8:], return_std=True), (mean, std), rtol=1e-5)


class Constant:
    """A model that gives every target of task b the log-likelihood b, and those of the context another."""

    def draws(self, task, noise):
        counted = task.mask_target & ~task.in_context
        value = torch.where(counted, torch.arange(len(counted))[:, None].float(), 99.0)
        return type("Draws", (), {"log_likelihood": value[None, None], "counted": counted})


def test_a_mean_is_over_the_targets_of_each_task():
    task = Task.from_points(torch.zeros(3, 5, 1), torch.zeros(3, 5, 1), torch.arange(5).expand(3, 5) < 2)
    assert study.task_means(Constant(), task).tolist() == [0.0, 1.0, 2.0]


def test_all_parts_are_measured_once(weights, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.jsonl"
    options = ["--parts", "families,field,kernels", "--count", "16", "--fits", "2"]
    monkeypatch.setattr(sys, "argv", ["study", str(weights), str(out), *options])
    monkeypatch.setattr(study, "KERNELS", ("rbf", "periodic"))
    study.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["part"] for line in lines].count("field") == 3
    assert (
        len(lines) == len(study.families()) + 8 + 3 + 2
    )  # one of the nine cells of all families is listed twice
    assert all(np.isfinite(line["log_likelihood"]) for line in lines)
    for line in lines:
        if "gap" in line:
            assert line["gap"] == pytest.approx(line["exact"] - line["log_likelihood"], abs=2e-4)
            assert line["gap"] > 0  # an untrained network does not beat the truth
    study.main()
    assert len(out.read_text().splitlines()) == len(lines)
