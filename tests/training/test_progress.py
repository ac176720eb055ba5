"""What a reporter writes: a bar or lines for people, JSON for programs."""

import io
import json
import re
import sys
import types

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dsvnp.cli import app
from dsvnp.training import Reporter, reporting_to
from dsvnp.training.hooks import tensorboard

VALUES = {"log_likelihood": [1.0, 2.0], "kl_local": [0.5, float("nan")], "validation": []}


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=200, legacy_windows=False)


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "logs" / "of a run" / "train.jsonl"


def report(reporter: Reporter, *steps: int, start: int = 0) -> str:
    with reporter:
        reporter.start(start)
        for step in steps:
            reporter.report(step, VALUES)
    return reporter.console.file.getvalue()


# --- for people ---


def test_plain_lines_where_there_is_no_terminal():
    text = report(Reporter("np", 100, console=console(False)), 10, 20)
    lines = text.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"np: step 20/100  LL 1.500  KL_L 0.500  \d+ steps/s  \d+ s left", lines[1])
    assert "\x1b" not in text


def test_long_lines_are_not_broken():
    reporter = Reporter("np", 100, console=Console(file=io.StringIO(), force_terminal=False, width=20))
    report(reporter, 10)
    reporter.say("a line of more than twenty characters")
    assert len(reporter.console.file.getvalue().splitlines()) == 2


def test_people_read_the_standard_error(capsys):
    with Reporter("np", 100) as reporter:
        reporter.report(10, VALUES)
    out, err = capsys.readouterr()
    assert out == ""
    assert "np: step 10/100" in err


def test_a_mean_of_nothing_is_a_dash():
    with Reporter("np", 100, console=console(False)) as reporter:
        reporter.report(10, {"log_likelihood": [float("nan"), float("inf")]})
    assert "LL –" in reporter.console.file.getvalue()


def test_a_bar_on_a_terminal():
    text = report(Reporter("np", 100, console=console(True)), 25)
    assert "\x1b[" in text
    assert "25%" in text
    assert "LL 1.500" in text
    assert "steps/s" in text
    assert "step 25/100" not in text


def test_the_bar_starts_where_training_goes_on():
    reporter = Reporter("np", 100, console=console(True))
    with reporter:
        reporter.start(40)
    assert "40%" in reporter.console.file.getvalue()


def test_the_bar_is_taken_down_at_the_end():
    terminal = console(True)
    report(Reporter("np", 100, console=terminal), 25)
    report(Reporter("np", 100, console=terminal), 25)  # rich allows one live bar at a time
    assert terminal._live_stack == []


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_writes_what_matters_only(terminal):
    reporter = Reporter("np", 100, console=console(terminal), quiet=True)
    with reporter:
        reporter.start(0)
        reporter.report(10, VALUES)
        reporter.say("replica 1 stopped")
    assert reporter.console.file.getvalue() == "np: replica 1 stopped\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_are_text(terminal):
    reporter = Reporter("np [seed 3]", 100, console=console(terminal))
    with reporter:
        reporter.start(0)
        reporter.report(10, VALUES)
        reporter.say("shape [R]")
    text = reporter.console.file.getvalue()
    assert "np [seed 3]: shape [R]" in text
    assert text.count("np [seed 3]") > 1


def test_speed_counts_from_where_training_went_on(log, monkeypatch):
    clock = iter([0.0, 0.0, 2.0, 3.0])
    monkeypatch.setattr("dsvnp.training.progress.time.perf_counter", lambda: next(clock))
    report(Reporter("np", 100, log=log, console=console(False)), 50, 60, start=40)
    assert [line["steps_per_second"] for line in lines_of(log)] == [5.0, 10.0]


def test_the_time_left_is_by_the_speed(monkeypatch):
    clock = iter([0.0, 0.0, 2.0])
    monkeypatch.setattr("dsvnp.training.progress.time.perf_counter", lambda: next(clock))
    assert "5 steps/s  18 s left" in report(Reporter("np", 100, console=console(False)), 10)


# --- for programs ---


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("quiet", [True, False])
def test_json_lines_always_with_a_value_per_replica(log, terminal, quiet):
    report(Reporter("np", 100, log=log, console=console(terminal), quiet=quiet), 10, 20)
    assert [line["step"] for line in lines_of(log)] == [10, 20]
    assert lines_of(log)[0]["log_likelihood"] == [1.0, 2.0]
    assert lines_of(log)[0]["kl_local"] == [0.5, None]  # JSON has no NaN


def test_lines_are_there_at_once(log):
    with Reporter("np", 100, log=log, console=console(False)) as reporter:
        reporter.start(0)
        reporter.report(10, VALUES)
        assert [line["step"] for line in lines_of(log)] == [10]


def test_going_on_takes_later_lines_back(log):
    report(Reporter("np", 100, log=log, console=console(False)), 10, 20, 30)
    with log.open("a") as file:
        file.write('{"step": 35, "log_li')  # the process died here
    report(Reporter("np", 100, log=log, console=console(False)), 30, 40, start=20)
    assert [line["step"] for line in lines_of(log)] == [10, 20, 30, 40]
    assert [path.name for path in log.parent.iterdir()] == [log.name]


def test_a_new_run_starts_a_new_log(log):
    report(Reporter("np", 100, log=log, console=console(False)), 10, 20)
    report(Reporter("np", 100, log=log, console=console(False)), 10)
    assert [line["step"] for line in lines_of(log)] == [10]


def test_lines_that_are_no_reports_are_dropped(log):
    log.parent.mkdir(parents=True)
    log.write_text('[1]\n{"other": 2}\n\nnonsense\n{"step": 5}\n')
    report(Reporter("np", 100, log=log, console=console(False)), 20, start=10)
    assert [line["step"] for line in lines_of(log)] == [5, 20]


def test_a_process_that_dies_while_it_takes_lines_back_loses_none(log, monkeypatch):
    report(Reporter("np", 100, log=log, console=console(False)), 10, 20)

    def die(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", die)
        with pytest.raises(KeyboardInterrupt):
            report(Reporter("np", 100, log=log, console=console(False)), 20, start=10)
    assert [line["step"] for line in lines_of(log)] == [10, 20]


# --- hooks ---


def test_a_hook_gets_what_is_finite_of_each_replica_inside_its_block():
    got = []
    with reporting_to(lambda *each: got.append(each)):
        report(Reporter("np", 100, console=console(False)), 10)
    report(Reporter("np", 100, console=console(False)), 20)
    assert got == [("np", 10, {"log_likelihood/0": 1.0, "log_likelihood/1": 2.0, "kl_local/0": 0.5})]


def test_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"not installed; pip install 'dsvnp\[tensorboard\]'"):
        tensorboard(tmp_path).__enter__()


def test_tensorboard_gets_a_fit_of_the_command_line(tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, step):
            written.append(name)

        def close(self):
            written.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    rows = "".join(f"{i},{i % 7}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text("x,y\n" + rows)
    words = f"fit {tmp_path}/rows.csv --target y --out {tmp_path}/model --model cnp --steps 3 --replicas 2"
    done = CliRunner().invoke(app, [*words.split(), "--log-dir", str(tmp_path / "log")])
    assert done.exit_code == 0, done.output
    assert (written[0], written[-1]) == (str(tmp_path / "log"), "closed")
    assert "NPRegressor/log_likelihood/1" in written
