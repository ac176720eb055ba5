"""Studies of scaling: laws that made the points are found again, and operations are counted as by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from dsvnp.pretrained.recipes import tables
from studies import scaling, scaling_rows


def courses(noise=0.0):
    rng = np.random.default_rng(0)
    theta = np.array([0.5, np.log(0.2), 0.4, np.log(0.3), 0.5])
    made = []
    for size, last in ((0.25, 16_000), (1.0, 21_000), (4.0, 6_000)):
        steps = np.arange(2000, last, 500.0)
        loss = scaling.law(theta, np.array(size), steps / scaling.UNIT)
        made.append(scaling.Course(size, steps, loss + noise * rng.normal(size=len(steps))))
    return theta, made


def test_the_law_is_found_and_its_best_size_is_where_the_slopes_agree(monkeypatch):
    theta, made = courses()
    assert scaling.fit_law(made) == pytest.approx(theta, rel=0.05)
    size, loss = scaling.best_size(theta, 10.0)
    # On N·S = C the slopes balance: α A N^−α = β B S^−β.
    _, a, alpha, b, beta = theta
    best = (alpha * np.exp(a) / (beta * np.exp(b)) * 10.0**beta) ** (1 / (alpha + beta))
    assert size == pytest.approx(best, rel=0.02)
    assert loss == pytest.approx(scaling.law(theta, best, 10.0 / best), abs=1e-4)
    monkeypatch.setattr(scaling, "NUM_DRAWS", 10)
    found = scaling.predictions(courses(0.005)[1], 2.0)["ahead"]["10"]["loss"]
    assert found[1] <= found[0] + 0.02
    assert found[0] <= found[2] + 0.02
    assert found[0] == pytest.approx(scaling.best_size(theta, 20.0)[1], abs=0.05)


def test_the_law_is_tested_on_later_steps_and_what_it_misses_widens_its_intervals(monkeypatch):
    monkeypatch.setattr(scaling, "NUM_DRAWS", 4)
    monkeypatch.setattr(scaling, "TEST_DRAWS", 2)
    theta, (_, main, _) = courses()
    steps = np.array([50_000.0])
    worse = scaling.Course(1.0, steps, scaling.law(theta, np.array(1.0), steps / scaling.UNIT) + 0.1)
    tests = scaling.held_out(main, worse)
    assert [(test["fitted_to"], test["asked_at"]) for test in tests] == [
        (8000, 20_000),
        (12_000, 20_000),
        (20_500, 50_000),
    ]
    errors = [test["error_per_e_fold"] for test in tests]
    assert errors == pytest.approx([0, 0, -0.1 / np.log(50_000 / 20_500)], abs=0.005)
    assert len(scaling.held_out(main, None)) == 2
    plain, wide = (scaling.predictions([main], 2.0, error)["ahead"] for error in (0.0, 0.1))
    assert wide["1"] == plain["1"]
    value, low, high = wide["10"]["loss"]
    margin = 1.2816 * 0.1 * np.log(10)
    assert (value - low, high - value) == pytest.approx((margin, margin), abs=0.01)


def test_only_lines_at_the_constant_rate_of_the_fourth_sitting_are_asked_for(tmp_path):
    assert scaling.read_later(tmp_path / "log.jsonl") is None
    lines = [{"step": step, "log_likelihood": [-1.0]} for step in (47_286, 47_786, 53_786, 54_286)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert scaling.read_later(tmp_path / "log.jsonl").steps.tolist() == [47_786, 53_786]


def test_the_page_states_what_was_fitted():
    root = Path(__file__).parents[2]
    found = json.loads((root / "results" / "pretrained" / "scaling" / "fit.json").read_text())
    text = (root / "docs" / "scaling.md").read_text(encoding="utf-8")
    for times in ("10", "100"):
        value, low, high = found["ahead"][times]["loss"]
        assert f"| {times} times | {value:.2f} ({low:.2f} to {high:.2f}) |" in text
    for test in found["held_out"]:
        value, low, high = test["predicted"]
        assert f"| {value:.3f} ({low:.3f} to {high:.3f}) | {test['measured']:.3f} |" in text
    assert f"by {found['error_per_e_fold']:.2f} nats per e-fold" in " ".join(text.split())


def test_a_log_is_read_without_its_warm_up(tmp_path):
    lines = [{"step": step, "log_likelihood": [-1.0 / step]} for step in (500, 1500, 2000, 2500)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    course = scaling.read_course(tmp_path / "log.jsonl", 2.0)
    assert course.steps.tolist() == [2000, 2500]
    assert course.loss == pytest.approx([1 / 2000, 1 / 2500])


def test_a_log_that_ends_in_the_warm_up_is_refused(tmp_path):
    (tmp_path / "small.jsonl").write_text(json.dumps({"step": 500, "log_likelihood": [-1.0]}) + "\n")
    with pytest.raises(ValueError, match=r"small\.jsonl has no line beyond step 1500.*train for longer"):
        scaling.read_course(tmp_path / "small.jsonl", 0.25)


def test_logs_of_three_sizes_are_fitted_together(tmp_path, monkeypatch, capsys):
    """As `dsvnp pretrain --width` writes them: the best size for more compute is then no longer the main one."""
    for name, course in zip(("small", "main", "large"), courses()[1], strict=True):
        lines = [
            {"sitting": 1, "step": int(step), "log_likelihood": [-loss]}
            for step, loss in zip(course.steps, course.loss, strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scored = {"sitting": 1, "step": 2500, "numbers": 1.2, "classes": 0.8}
    (tmp_path.parent / "tables-validation.jsonl").write_text(json.dumps(scored) + "\n")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scaling, "NUM_DRAWS", 3)
    monkeypatch.setattr(scaling, "TEST_DRAWS", 3)
    monkeypatch.setattr(scaling, "flops_of_step", lambda recipe: 1e12)
    monkeypatch.setattr("sys.argv", ["", "."])
    scaling.main()
    found = json.loads((tmp_path / "fit.json").read_text())
    assert found == json.loads(capsys.readouterr().out)
    assert found["steps"] == {"small": 15_500, "main": 20_500, "large": 5_500}
    assert found["ahead"]["100"]["size"][0] > 2 * found["ahead"]["1"]["size"][0]
    assert "tables of classes" in (tmp_path / "docs" / "images" / "scaling.svg").read_text()


def test_operations_grow_with_the_square_of_the_width():
    steps = [scaling.flops_of_step(tables().widened(width)) for width in (0.25, 0.5)]
    assert 3 < steps[1] / steps[0] < 4
    arch = tables().make.args[0]
    costs = [scaling_rows.cost(arch, rows, 20) for rows in (1e3, 1e6)]
    assert costs[0]["attention"] < 0.3 < 0.99 < costs[1]["attention"]
    by_hand = 1.1e6 * 1e6 * 4 * 256 * 6 / 1e12  # scores and sums of values, in six layers
    assert costs[1]["tera_operations"] * costs[1]["attention"] == pytest.approx(by_hand, rel=0.01)


def test_the_power_of_rows_is_found():
    sizes = np.array(scaling_rows.SIZES, float)
    loss = (0.3 + 2 * sizes**-0.5)[None] + np.array([[-0.5], [0.5]])
    floor, a, b = scaling_rows.fit_power(loss)
    assert (floor, np.exp(a), b) == pytest.approx((0.3, 2, 0.5), rel=1e-3)
