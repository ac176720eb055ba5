"""The command line as a person types it."""

import json
import re
import subprocess
import sys
from operator import attrgetter

import pytest
from typer.testing import CliRunner

import dsvnp
from dsvnp.cli import app, main
from dsvnp.models import MODELS
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.images.experiment import ImagesExperiment
from dsvnp.training import CheckpointError

PNG = b"\x89PNG\r\n\x1a\n"


def test_models_are_listed_with_a_line_each():
    lines = CliRunner().invoke(app, ["models"]).output.splitlines()
    assert [line.split()[0] for line in lines] == list(MODELS)
    assert all(len(line.split()) > 3 for line in lines)


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output == f"dsvnp {dsvnp.__version__}\n"


def test_demo_trains_nothing_and_says_how_to_train(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo.png").read_bytes()[:8] == PNG
    said = " ".join(result.output.split())
    assert "nothing was trained" in said
    assert "dsvnp demo --train" in said
    (inside,) = re.findall(r"diabetes, ten columns │ +300 │ +(\d+)%", said)
    assert 80 <= int(inside) <= 100


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["models"], ["fit", "--help"]])
def test_the_door_opens_without_what_computes(words):
    script = (
        "import sys\nfrom dsvnp.cli import app\n"
        f"app({words}, standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'sklearn', 'scipy', 'matplotlib'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_demo_with_training_prints_a_table_and_writes_the_figure(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--train", "--steps", "12", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    figure = tmp_path / "new" / "demo.png"
    assert figure.read_bytes()[:8] == PNG
    for name in ("CNP", "NP", "AttnNP", "DSVNP", "TNP", "DSVTNP"):
        assert f"│ {name} " in result.output
    assert str(figure) in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "curvs"], "Did you mean 'curves'?"),
        (["reproduce", "everything"], "ablations, ambiguity, field, completion, all."),
        (["reproduce", "curves", "--models", "dsvpn"], "Did you mean 'dsvnp'?"),
        (["reproduce", "curves", "--preset", "fast"], "unknown preset 'fast'"),
        (["reproduce", "curves", "--domain", "mnist"], "curves has no setting domain"),
        (["reproduce", "all", "--domain", "mnist"], "belong to one experiment"),
        (["report", "nowhere"], "got nowhere, which is not a folder"),
        (["reproduce", "curves", "--set", "paper.num_stesp=3"], "Did you mean 'paper.num_steps'?"),
        (["reproduce", "toy", "--set", "preset=paper"], "choose it with --preset"),
        (["reproduce", "multioutput", "--set", 'strong={"membres": 4}'], "Did you mean 'strong.members'?"),
        (["reproduce", "multioutput", "--set", "strong=null"], "strong takes settings by name"),
        (["reproduce", "multioutput", "--datasets", "wq,wq"], "wq is listed twice in datasets"),
        (["reproduce", "images", "--set", "recipes=paper,paper"], "paper is listed twice in recipes"),
        (["reproduce", "toy", "--set", "num_seeds=0"], "num_seeds must be at least 1, got 0"),
        (["reproduce", "toy", "--set", "num_steps=abc"], "num_steps: expected int, got 'abc'"),
        (["reproduce", "toy", "--set", "num_steps=2.5"], "num_steps: expected int, got 2.5"),
        (["reproduce", "toy", "--set", "num_steps=true"], "num_steps: expected int, got True"),
        (["reproduce", "toy", "--set", 'decoder=["a"]'], "decoder: expected tuple[int, ...], got"),
        (["reproduce", "toy", "--device", "gpu"], "unknown device 'gpu'"),
        (["demo", "--device", "gpu"], "unknown device 'gpu'"),
        (["fit", "t.csv", "--target", "y", "--out", "m", "--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_a_mistyped_word_is_one_line_and_exit_code_2(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dsvnp", *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "setting", ["num_steps=3", "recipe.learning_rate=1", "decoder=[4, 4]", "recipe.schedule=cosine"]
)
def test_a_setting_of_the_right_type_is_taken(setting, monkeypatch):
    made = []
    monkeypatch.setattr("dsvnp.paper.runner.run", lambda experiment, *_: made.append(experiment))
    result = CliRunner().invoke(app, ["reproduce", "toy", "--device", "cpu", "--set", setting])
    assert result.exit_code == 0, result.output
    name, _, value = setting.partition("=")
    assert str(attrgetter(name)(made[0])).strip("()") == value.strip("[]")


def test_null_takes_a_presets_limit_away(monkeypatch):
    made = []
    monkeypatch.setattr("dsvnp.paper.runner.run", lambda experiment, *_: made.append(experiment))
    words = [
        "reproduce",
        "images",
        "--preset",
        "quick",
        "--device",
        "cpu",
        "--set",
        "portions.num_train=null",
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert made[0].portions.num_train is None
    assert ImagesExperiment.presets()["quick"].portions.num_train is not None


def test_a_damaged_checkpoint_is_one_line_and_exit_code_2(monkeypatch, capsys):
    def damaged(*_):
        raise CheckpointError("step-8: damaged; delete it")

    monkeypatch.setattr("dsvnp.paper.runner.run", damaged)
    monkeypatch.setattr(sys, "argv", ["dsvnp", "reproduce", "toy", "--device", "cpu"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "dsvnp: step-8: damaged; delete it\n"


def test_python_m_dsvnp_is_the_command():
    out = subprocess.run(
        [sys.executable, "-m", "dsvnp", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout == f"dsvnp {dsvnp.__version__}\n"


def test_all_runs_what_needs_no_data_and_ends_with_the_report(tmp_path, monkeypatch):
    monkeypatch.delenv("DSVNP_DATA", raising=False)
    few = ("toy", "multioutput")  # one that needs no data and one that does are enough
    monkeypatch.setattr(EXPERIMENTS, "data", {name: EXPERIMENTS.data[name] for name in few})
    words = [
        "reproduce",
        "all",
        "--preset",
        "smoke",
        "--models",
        "cnp",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "1 of 1 experiments done" in result.output
    assert "Left out: multioutput. expected a directory of data sets" in result.output
    assert "Toy function" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "## Toy function" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_what_has_an_option_of_its_own_can_be_set_by_name_too(tmp_path):
    words = ["reproduce", "toy", "--preset", "smoke", "--models", "cnp,np", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--set", 'models=["np"]', "--set", "num_seeds=1"])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    assert {row["model"] for row in rows} - {"gp"} == {"np"}
    assert all(len(row["seeds"]) == 1 for row in rows)
