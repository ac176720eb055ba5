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
from studies import curve_kernels
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


CASES = [(name, dims) for dims, names in curve_kernels.KERNELS.items() for name in names]


@pytest.mark.parametrize(("name", "dims"), CASES)
def test_the_known_process_is_the_conditional_of_a_joint_normal(name, dims):
    rng = np.random.default_rng(0)
    kernel = study.kernel_of(name, study.draw_values(rng, dims)) + kernels.WhiteKernel(0.04)
    x, y = rng.uniform(-1, 1, (9, dims)), rng.normal(size=9)
    mean, std = study.posterior(kernel, x[:8], y[:8], x[8:])
    joint, given = multivariate_normal(cov=kernel(x)), multivariate_normal(cov=kernel(x[:8]))
    expected = joint.logpdf(y) - given.logpdf(y[:8])
    assert norm.logpdf(y[8], mean[0], std[0]) == pytest.approx(expected, rel=1e-6)
    fixed = GaussianProcessRegressor(kernel, optimizer=None).fit(x[:8], y[:8])
    np.testing.assert_allclose(fixed.predict(x[8:], return_std=True), (mean, std), rtol=1e-5)


@pytest.mark.parametrize("width", [None, 0.7])
def test_a_wave_has_its_equation_and_its_gradient(width):
    x, frequency = np.random.default_rng(0).uniform(-1, 1, (5, 2)), np.array([3.0, 7.0])
    wave = curve_kernels.Wave(frequency, width)
    value, gradient = wave(x, eval_gradient=True)
    for i, j in np.ndindex(5, 5):
        cosine = np.cos(frequency @ (x[i] - x[j]))
        assert value[i, j] == pytest.approx(cosine if width is None else np.exp((cosine - 1) / width**2))
    assert gradient.shape == (5, 5, 2 if width is None else 3)
    for place in range(gradient.shape[2]):
        step = 1e-6 * (np.arange(gradient.shape[2]) == place)
        ends = [wave.clone_with_theta(wave.theta + sign * step)(x) for sign in (1, -1)]
        np.testing.assert_allclose(gradient[:, :, place], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


def test_a_wave_of_one_input_is_scikit_learns_periodic_kernel():
    x, other = np.random.default_rng(0).uniform(-1, 1, (2, 6, 1))
    wave = curve_kernels.Wave(np.array([2 * np.pi / 0.4]), 0.8)
    np.testing.assert_allclose(wave(x, other), kernels.ExpSineSquared(0.8, 0.4)(x, other), rtol=1e-9)


class Constant:
    """A model that gives every target of task b the log-likelihood b, and those of the context another."""

    def counted(self, task):
        return task.mask_target & ~task.in_context

    def predict(self, task, num_global):
        return self

    def log_prob(self, y):
        numbers = torch.arange(len(y)).float()[:, None]
        return torch.where(torch.arange(y.shape[1]) < 2, 99.0, numbers)


def test_a_mean_is_over_the_targets_of_each_task():
    task = Task.from_points(torch.zeros(3, 5, 1), torch.zeros(3, 5, 1), torch.arange(5).expand(3, 5) < 2)
    assert study.task_means(Constant(), task).tolist() == [0.0, 1.0, 2.0]


def test_tasks_of_the_field_have_sizes_of_their_own(monkeypatch):
    """An error over tasks that share their sizes would be too small."""
    drawn = []
    monkeypatch.setattr(study, "_network_means", lambda model, task: drawn.append(task) or torch.zeros(32))
    monkeypatch.setattr(study, "_regressor_means", lambda model, known: torch.zeros(32))
    found = study.score_field(None, "rbf", 32)
    sizes = drawn[0].in_context.sum(1)
    assert (sizes[1:] != sizes[:-1]).sum() > 20
    assert 0 < found["ideal_gap"] < found["gap"]


def test_all_parts_are_measured_once(weights, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.jsonl"
    options = ["--parts", "families,field,kernels", "--count", "16", "--tasks", "16", "--fits", "2"]
    monkeypatch.setattr(sys, "argv", ["study", str(weights), str(out), *options])
    monkeypatch.setattr(study, "MANY", 1)  # a single function would have no error
    monkeypatch.setattr(study, "KERNELS", {1: ("rbf", "periodic"), 3: ("cosine × rbf",)})
    study.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["part"] for line in lines].count("field") == 3
    assert (
        len(lines) == len(study.families()) + 8 + 3 + 3
    )  # one of the nine cells of all families is listed twice
    assert all(np.isfinite(line["log_likelihood"]) for line in lines)
    for line in lines:
        if "gap" in line:
            assert line["gap"] == pytest.approx(line["exact"] - line["log_likelihood"], abs=2e-4)
            assert line["gap"] > 0  # an untrained network does not beat the truth
        if line["part"] == "field":
            assert line["regressor_gap"] < line["gap"]  # its process has learned something
    study.main()
    assert len(out.read_text().splitlines()) == len(lines)
