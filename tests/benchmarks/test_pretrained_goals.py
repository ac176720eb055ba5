"""Goals of pretraining: judged right, and the committed page and settings are those of the committed rows."""

import json
from itertools import pairwise

import pytest

from benchmarks import pretrained_goals as goals
from dsvnp.pretrained import read_card

FOLDER = goals.ROOT / "results" / "pretrained"


def reached(found):
    return [goal.is_reached for goal in found]


def kernel(name, gap, to_fitted, many):
    about = {"kernel": name, "dims": 2, "gap": gap, "gap_to_fitted": to_fitted}
    return about | {
        "gap_to_fitted_median": -to_fitted,
        "gap_to_fitted_many": many,
        "gap_to_fitted_many_error": 0.1,
    }


def test_the_committed_page_is_that_of_the_committed_rows():
    assert (FOLDER / "goals.md").read_text(encoding="utf-8").splitlines() == goals.report()


def test_each_gap_to_the_exact_process_is_judged():
    field = [
        {
            "kernel": name,
            "count": 8,
            "gap": gap,
            "gap_error": 0.0,
            "regressor_gap": 0.15,
            "regressor_gap_error": 0.0,
        }
        for name, gap in (("rbf", 0.151), ("matern52", 0.1))
    ]
    rows = [kernel("rbf", 0.2, 0, 0), kernel("periodic", 0.9, 0, 0), kernel("matern12", 0.1, 0, 0)]
    found = goals.exact_goals(field, rows)
    assert reached(found) == [False, True, True, True, False]
    assert found[-1].found == "at most 0.200 (rbf 2D); 1 of 2 kernels"


def test_gaps_to_fitted_processes_are_judged_by_means_medians_and_beyond_chance():
    assert reached(goals.kernel_goals([kernel("rbf", 0, -1.0, 0.2)])) == [True, False, True]
    found = goals.kernel_goals([kernel("rbf", 0, 1.0, 0.21), kernel("cosine", 0, 1.0, 0.0)])
    assert reached(found) == [False, True, False]
    assert [goal.found for goal in found] == [
        "behind on 2 of 2: rbf 2D, cosine 2D",
        "behind on 0 of 2",
        "behind on 1 of 2: rbf 2D",
    ]


def test_time_is_compared_in_total_by_series_and_by_row():
    rows = [("a", "points", 100.0), ("a", "blocks", 250.0), ("b", "points", 50.0), ("b", "blocks", 60.0)]
    lines = [
        {"series": series, "way": way, "model": model, "nll": nll, "cpu_seconds": seconds}
        for series, way, ratio in rows
        for model, seconds, nll in (("gp", ratio, 1.0), ("curves", 1.0, 0.0 if series == "a" else 2.0))
    ]
    nll, total, each, by_row = goals.series_goals(lines)
    assert (nll.found, nll.is_reached) == ("1 of 2; not on b", False)
    assert (total.found, total.is_reached) == ("115 times", True)
    assert (each.found, each.is_reached) == ("a 175, b 55; at least 100 on 1 of 2", False)
    assert (by_row.found, by_row.is_reached) == ("50 to 250; at least 100 on 2 of 4", False)


def test_the_slower_table_decides_and_numbers_and_classes_are_judged_apart():
    times = [
        {
            "what": f"NP{kind}, fit and 25 rows, {table}, 100 x 5, 2 threads",
            "median_seconds": seconds,
            "goal": 0.3,
        }
        for kind, table, seconds in (
            ("Regressor", "table", 0.2),
            ("Regressor", "jumps", 0.31),
            ("Classifier", "c", 0.3),
        )
    ]
    times.append(
        {"what": "NPRegressor, 1 row, table, 100 x 5, 2 threads", "median_seconds": 9.0, "goal": 0.03}
    )
    large = [{"what": "NPRegressor(), fit", "rows": 100_000, "peak_gb": 4.1}]
    found = goals.speed_goals({"times": times}, large)
    assert reached(found) == [False, True, False]
    assert [goal.found for goal in found[:2]] == ["0.20 and 0.31 s (medians)", "0.30 s (medians)"]


def test_training_counts_minutes_shares_and_repeated_seeds():
    sitting = {
        "network": "tables",
        "sitting": 1,
        "seed": 0,
        "command": "x",
        "code": "y",
        "card_minutes": 60.0,
    }
    drawing = {"tables": {"share": 0.1, "draw_ms": 2.0}}
    logs = {"tables": [{"steps_per_second": 50.0}]}
    assert reached(goals.training_goals(drawing, logs, [sitting])) == [True] * 4
    again = [sitting, sitting | {"sitting": 2, "card_minutes": 100.1, "code": None}]
    logs["tables"][0]["steps_per_second"] = 101.0  # 2 of 9.9 ms
    found = goals.training_goals(drawing, logs, again)
    assert not any(reached(found))
    assert found[-1].found == "not new: sitting 2 of tables"
    assert found[-2].found == "seed of 2 of 2, command of 2 of 2, code of 1 of 2"


@pytest.mark.parametrize("network", ["tables", "curves"])
def test_sittings_agree_with_their_logs_and_the_card(network):
    sittings = goals.of(json.loads((FOLDER / "settings.json").read_text(encoding="utf-8")), network)
    log, last = goals.read_lines(FOLDER / f"{network}-log.jsonl"), 0
    for each in sittings:
        lines = [line for line in log if line["sitting"] == each["sitting"]]
        steps = [each["after_step"], *(line["step"] for line in lines)]
        spent = sum(
            (b - a) / line["steps_per_second"] for (a, b), line in zip(pairwise(steps), lines, strict=True)
        )
        assert each["after_step"] == last == steps[1] - 500
        assert each["minutes"] == pytest.approx(spent / 60, abs=0.06)
        last = each["last_step"]
        assert 0 <= last - steps[-1] < 500
    card = read_card(network)
    assert (last, each["seed"], each["card_minutes"]) == (card.steps, card.seed, card.gpu_minutes)
