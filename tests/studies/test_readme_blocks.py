"""The README's tables come from results and agree with those that are committed."""

import json
from pathlib import Path

import pytest
from made_runs import row, write_run

from dsvnp.paper.report.contents import Report
from dsvnp.paper.report.markdown import markdown_page
from dsvnp.paper.report.page import write_report
from studies.readme_blocks import BLOCK, PAGES, main, rebuilt

ROOT = Path(__file__).parents[2]
BLOCKS = "# A title\n\n<!-- dsvnp report results: {} -->\nold\n<!-- end -->\nafter\n"


def block(folder: Path, name: str) -> str:
    text, count = rebuilt(BLOCKS.format(name), Report.find(folder))
    assert count == 1
    assert text.startswith("# A title\n\n<!-- dsvnp report results:")
    assert text.endswith("<!-- end -->\nafter\n")
    return BLOCK.search(text)[4]


@pytest.fixture
def results(tmp_path) -> Path:
    folder = tmp_path / "results"
    rows = [
        row("cnp", [-0.8, -0.9], -0.802, split="inter-P-max"),
        row("dsvnp", [-1.0, -1.1], -0.97, split="inter-P-max"),
        row("dsvnp-wide", [-1.3], -0.97, split="inter-P-max"),
        row("np", [-9.0], split="inter-J"),  # not among the lines
    ]
    write_run(
        folder / "curves", rows, config={"num_global": 32}, figures=("functions-wide.svg", "training.svg")
    )
    wq = {"dataset": "wq (1060 of 1060 rows)", "metric": "mse", "split": "test"}
    rows = [row("nn", [0.9], **wq, unit="standard"), row("nn", [5.0], **wq, unit="raw")]
    write_run(folder / "multioutput", rows, "multioutput")
    return folder


def test_a_line_a_quantity_and_a_column_a_model_with_the_papers_in_brackets(results):
    key, blank, *table = block(results, "results").splitlines()
    assert "by more than two standard errors, paired over the seeds that both have" in key
    assert blank == ""
    assert table == [
        "|  | NN | CNP | DSVNP | seeds |",
        "| --- | --- | --- | --- | --- |",
        "| Curves, interpolation: NLL (32 draws) ↓ | – | −0.850 ± 0.071 (−0.802) | **−1.050 ± 0.071 (−0.97)** | 2 |",
        "| … wider networks (32 draws) ↓ | – | – | −1.300 (−0.97) | 1 |",
        "| Water Quality: MSE, unit variance (1060 of 1060 rows) ↓ | 0.900 | – | – | 1 |",
    ]


def test_ranks_on_real_tables_come_from_their_summary(results):
    assert block(results, "tables") == ""  # not measured: left out
    (results / "tables").mkdir()
    lines = [
        "# Regression, 39 tables, 5 folds",
        "",
        "Mean ranks; two differ if they are 1.44 apart (Nemenyi, 5 %).",
        "",
        "| model | rank, nll | rank, crps | rank, rmse | mean nll | mean coverage | mean cpu_seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ridge | 2.90 | 2.80 | 2.20 | 1.040 | 0.916 | 0.092 |",
        "| np | 1.26 | 1.37 | 1.80 | 0.487 | 0.895 | 2.110 |",
        "",
        "## nll",
        "",
        "| table | ridge | np |",
        "| --- | --- | --- |",
        "| a/b | 1.0 | 0.5 |",
    ]
    (results / "tables" / "test-regression.md").write_text("\n".join(lines), encoding="utf-8")
    key, _, _, _, *rows = block(results, "tables").splitlines()
    assert (
        key == "Mean rank of 2 models on 39 real tables; bold is 1.44 ahead of all others, more than chance."
    )
    assert rows == [
        "| **NPRegressor** | **1.3** | 1.4 | 1.8 | 89.5 % | 2.1 |",  # 1.43 and 0.4 ahead may be chance
        "| ridge | 2.9 | 2.8 | 2.2 | 91.6 % | 0.1 |",
    ]


def test_speed_comes_from_the_benchmark(results):
    assert block(results, "speed") == ""  # not measured: left out
    rows = [
        {
            "what": "train",
            "library": library,
            "model": "np",
            "how": how,
            "device": device,
            "replicas": replicas,
        }
        | {"ms_per_model_step": ms, "size": "width 128", "precision": precision, "clip_norm": clip}
        for library, how, device, replicas, ms, precision, clip in (
            ("dsvnp", "eager", "cuda", 1, 9.0, None, None),
            ("dsvnp", "compiled and captured", "cuda", 1, 0.25612, "tf32", None),
            ("dsvnp", "compiled and captured", "cuda", 10, 0.05593, "tf32", None),
            ("dsvnp", "compiled and captured", "cuda", 1, 0.1, "tf32", 1.0),
            ("dsvnp", "compiled and captured", "cuda", 1, 0.7, "float32", None),
            ("neuralprocesses", "eager", "cuda", 1, 25.8463, None, None),
        )
    ]
    (results / "speed").mkdir()
    file = {"machine": {"device": "NVIDIA H200"}, "rows": rows}
    (results / "speed" / "h200.json").write_text(json.dumps(file), encoding="utf-8")
    assert block(results, "speed").splitlines()[2:] == [
        "| NP | H200 | width 128 | 9 | 0.256 | 0.0559 | 25.8 |",
        "| NP float32 | H200 | width 128 | – | 0.7 | – | – |",
    ]


def test_blocks_from_another_folder_are_left_alone(results):
    text = BLOCKS.format("speed").replace("results:", "others:")
    assert rebuilt(text, Report.find(results)) == (text, 0)


def test_an_unknown_block_is_named(results):
    with pytest.raises(ValueError, match="block 'sped'; there are results"):
        rebuilt(BLOCKS.format("sped"), Report.find(results))


def test_what_is_not_still_is_marked(results):
    counted = {"metric": "log-likelihood", "split": "marginal", "dataset": "rbf", "method": ["prior"]}
    rows = [
        row("np", [0.3], **counted, draws=[128], still=[True]),
        row("dsvnp", [0.4], **counted, draws=[16384], still=[False]),
    ]
    write_run(results / "field", rows, "field")
    assert "| 0.300 | 0.400<br>not still | 1 |" in block(results, "results")


def test_the_script_rebuilds_the_pages_of_a_clone_and_the_report_leaves_them_alone(results, monkeypatch):
    root = results.parent
    readme, page = root / "README.md", root / "docs" / "training.md"
    page.parent.mkdir()
    readme.write_text(BLOCKS.format("results"), encoding="utf-8")
    page.write_text(BLOCKS.format("speed"), encoding="utf-8")
    assert all(path.parent == results for path in write_report(results))
    assert readme.read_text(encoding="utf-8") == BLOCKS.format("results")
    monkeypatch.setattr("sys.argv", ["readme_blocks", "--root", str(root)])
    main()
    assert "| Curves, interpolation: NLL (32 draws) ↓ |" in readme.read_text(encoding="utf-8")
    assert "old" not in page.read_text(encoding="utf-8")


REMEDY = "run `dsvnp report results` and `python -m studies.readme_blocks`, and commit what they write"


@pytest.mark.parametrize("name", PAGES)
def test_our_pages_agree_with_the_committed_results(name):
    committed = (ROOT / name).read_text(encoding="utf-8")
    text, count = rebuilt(committed, Report.find(ROOT / "results"))
    assert count == 1
    assert text == committed, REMEDY


@pytest.mark.parametrize("folder", ["field", "completion-mnist", "ambiguity"])
def test_every_committed_likelihood_keeps_the_draws_behind_it(folder):
    rows = json.loads((ROOT / "results" / folder / "results.json").read_text(encoding="utf-8"))["rows"]
    likelihoods = [each for each in rows if each["metric"].startswith(("nll", "log-likelihood"))]
    assert likelihoods
    for each in likelihoods:
        assert len(each["draws"]) == len(each["still"]) == len(each["seeds"]), each


def test_the_committed_report_agrees_with_the_committed_results():
    committed = (ROOT / "results" / "report.md").read_text(encoding="utf-8")
    assert committed == markdown_page(Report.find(ROOT / "results")), REMEDY
