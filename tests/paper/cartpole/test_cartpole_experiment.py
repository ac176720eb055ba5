"""The Cart-Pole experiment: its rows, early stopping, roll-outs that keep their z_G, and the selection."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from dsvnp.estimation import log_likelihood
from dsvnp.metrics import nll, squared_error
from dsvnp.models import Architecture, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.ambiguity.recipes import RECIPES
from dsvnp.paper.cartpole import experiment as cartpole
from dsvnp.paper.cartpole.data import Transitions, identification_task
from dsvnp.paper.cartpole.experiment import CartPoleExperiment, CartRecipe
from dsvnp.paper.cartpole.figures import _draw_path
from dsvnp.paper.cartpole.measures import UnseenCarts, measure_carts, measure_oracle, predict_carts
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS, TRAIN_ENVIRONMENTS, CartPole, euler_step
from dsvnp.paper.cartpole.rollouts import RolloutScores, roll_out, roll_out_average, shown_rollout
from dsvnp.paper.experiment import Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import Likelihoods
from dsvnp.paper.records import read_units
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment
from dsvnp.predictive import GaussianPredictive
from studies import cartpole_selection
from studies.cartpole_selection import CartGrid, select_carts, tasks_of

CPU = torch.device("cpu")
LABELS = ["cnp", "np", "attnnp", "dsvnp", "np-annealed", "dsvnp-tuned", "dsvnp-default", "oracle-average"]
SMALL = {"num_trajectories": 20, "num_points": 40, "max_context": 20, "dim_hidden": 8}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def place(out: Path) -> Workplace:
    return Workplace(out, CPU, Console(file=io.StringIO(), width=200))


def net(name: str, **changes):
    torch.manual_seed(0)
    return make_model(name, Architecture(5, 4, encoder=(8,), dim_lat=8, decoder=(8,), **changes)).eval()


def unseen(**changes) -> UnseenCarts:
    sizes = {"num_trajectories": 4, "num_context": 20, "num_rollouts": 3, "num_contexts": 2} | changes
    return UnseenCarts.draw(**sizes, generator=seeded())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("cartpole")
    run(make_experiment(CartPoleExperiment, "smoke", num_trajectories=10), place(out))
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return out, results, {unit["model"]: unit for unit in read_units(out)["units"]}


# --- Table 3 ---


def test_smoke_gives_all_rows_and_figures(smoke):
    out, results, _ = smoke
    table = {(metric, f"test-{points}") for metric in ("nll", "mse") for points in "JP"}
    rollouts = {(f"rollout-{m}", f"step-{n}") for m in ("mse", "coverage-90") for n in (1, 5, 10)}
    expected = {(model, *rest) for model in LABELS[:-1] for rest in table | rollouts}
    expected |= {(LABELS[-1], *rest) for rest in table | rollouts if rest[0] in ("mse", "rollout-mse")}
    assert {(r["model"], r["metric"], r["split"]) for r in results["rows"]} == expected
    assert all(len(r["seeds"]) == 2 and r["dataset"] == "cartpole" for r in results["rows"])
    assert {path.name for path in out.glob("*.svg")} == {
        "by-context.svg",
        "rollouts.svg",
        "rollout-error.svg",
    }
    assert all(path.stat().st_size > 1000 for path in out.glob("*.svg"))


def test_the_papers_figures_stand_beside_ours(smoke):
    _, results, _ = smoke
    paper = {(r["model"], r["metric"], r["split"]): (r["paper"], r["paper_spread"]) for r in results["rows"]}
    assert paper["dsvnp", "nll", "test-J"] == paper["dsvnp-tuned", "nll", "test-P"] == (-2.145, 9e-4)
    assert paper["attnnp", "mse", "test-P"] == (0.067, 1e-4)
    assert paper["oracle-average", "mse", "test-P"] == (None, None)


def test_the_bound_stands_next_to_likelihoods_whose_draws_suffice():
    data, model, how = unseen(), net("np"), Likelihoods("suffice", max_draws=64)
    rows, _ = measure_carts([model], data, (3, 1), 2, how)
    found = log_likelihood(model, data.task, points="J", max_draws=64)
    (bound,) = (row for row in rows if row.metric == "bound")
    assert (bound.split, bound.values) == ("test-J", (pytest.approx(-found.bound),))
    assert not any(row.metric == "bound" for row in measure_carts([model], data, (3, 1), 2)[0])


def test_units_hold_each_environment_and_each_context_size(smoke):
    _, results, units = smoke
    extras = units["np"]["extras"]
    assert len(extras["by_environment"]) == 2
    rows = {(r["metric"], r["split"]): r["seeds"] for r in results["rows"] if r["model"] == "np"}
    for metric in ("nll", "mse"):
        for values, row in zip(extras["by_environment"], rows[metric, "test-J"], strict=True):
            assert len(values[metric]) == 14
            assert sum(values[metric]) / 14 == pytest.approx(row, rel=1e-4)
        assert [len(curve) for curve in extras[metric]] == [5, 5]
    assert extras["context_sizes"] == [1, 2, 5, 10, 20]
    assert [tuple(pair) for pair in extras["environments"]] == list(TEST_ENVIRONMENTS)


def test_a_finished_run_is_drawn_again_from_its_file(smoke):
    out, _, _ = smoke
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.svg")}
    run(make_experiment(CartPoleExperiment, "smoke", num_trajectories=10), place(out), resume=True)
    assert all(path.stat().st_mtime_ns > before[path.name] for path in out.glob("*.svg"))


def test_the_reference_is_the_average_of_the_training_environments():
    data = unseen(num_trajectories=50)
    rows, extras = measure_oracle(data, TRAIN_ENVIRONMENTS, num_seeds=3)
    values = {(m.metric, m.split): m.values for m in rows}
    assert values["mse", "test-J"] == pytest.approx([0.055] * 3, abs=0.01)
    assert extras["mse"] == values["mse", "test-P"][0] != values["mse", "test-J"][0]
    assert extras["rollout_mse"][0] == values["rollout-mse", "step-1"][0]
    one, _ = measure_oracle(data, TEST_ENVIRONMENTS[:1], num_seeds=1)
    assert one[0].values[0] > values["mse", "test-J"][0]


def test_draws_and_metrics_are_of_the_test_task():
    data, model = unseen(), net("np")
    rows, extras = cartpole.measure_carts([model], data, (4, 1), 5)
    values = {(m.metric, m.split): m.values[0] for m in rows}
    predictive = predict_carts(model, data.task, (4, 1))
    assert predictive.shape[:2] == (4, 1)
    assert values["nll", "test-J"] == pytest.approx(float(nll(predictive, data.task, "J")))
    assert values["mse", "test-P"] == pytest.approx(float(squared_error(predictive, data.task, "P")))
    assert values["nll", "test-J"] != values["nll", "test-P"]
    assert extras["nll"][0][-1] != extras["nll"][0][0]


def test_context_sizes_are_nested_and_scored_outside_the_context():
    data = unseen()
    assert list(data.by_size) == [1, 2, 5, 10, 20]
    for size, made in data.by_size.items():
        assert [task.x_context.shape[1] for task in made] == [size, size]
        for task, largest in zip(made, data.by_size[20], strict=True):
            assert torch.equal(task.x_context, largest.x_context[:, :size])
    assert not torch.equal(*(task.x_context for task in data.by_size[20]))
    assert data.task.x_target.shape == (14, 40, 5)
    assert set(data.runs.x[..., 4].flatten().tolist()).isdisjoint(
        data.task.x_target[..., 4].flatten().tolist()
    )


# --- settings ---


def test_the_default_variant_has_the_local_latent_of_the_ambiguity_experiment():
    made = CartPoleExperiment()
    recipe = made.recipe_of(Label("dsvnp", "default"))
    assert made.architecture(recipe) == replace(made.architecture(made.paper), dim_local=4)
    theirs = RECIPES["dsvnp"].settings(made.num_steps).objective
    assert made.settings("dsvnp", recipe).objective == theirs


def test_the_tuned_variant_has_settings_of_its_own():
    sizes = {"dim_lat": 16, "num_global": 4, "num_local": 6}
    tuned = CartRecipe(beta_local=7.0, anneal=0.25, train_global=2, train_local=3, **sizes)
    made = CartPoleExperiment(num_steps=36, tuned=tuned)
    assert made.recipe_of(Label("dsvnp", "tuned")) == tuned
    assert made.recipe_of(Label("dsvnp")) == made.recipe_of(Label("np")) == CartRecipe(beta_local=5.0)
    settings = made.settings("dsvnp", tuned)
    assert settings.objective == Objective(7.0, anneal="linear", anneal_steps=9, num_global=2, num_local=3)
    assert made.settings("np", made.paper).objective == Objective(5.0)
    assert made.architecture(tuned).dim_lat == 16
    assert (tuned.draws, made.paper.draws) == ((4, 6), (32, 1))
    assert made.recipe_of(Label("np", "annealed")) == CartRecipe(beta_local=5.0, anneal=0.25)


def test_the_papers_architecture_and_length():
    made = CartPoleExperiment.presets()["paper"]
    arch = made.architecture(made.paper)
    assert (arch.dim_x, arch.dim_y, arch.encoder, arch.dim_lat) == (5, 4, (32, 32, 32), 32)
    assert arch.decoder == (400, 400)
    settings = made.settings("np", made.paper)
    assert (settings.num_steps, settings.learning_rate, settings.precision) == (24_000, 1e-3, "float32")
    assert (made.num_trajectories, made.num_points, made.max_context) == (400, 200, 100)


def test_only_attnnp_is_validated_and_only_its_best_weights_are_measured(tmp_path, monkeypatch):
    kept = {}
    fleet_of, measured = CartPoleExperiment.train_replicas, {}

    def fleet(self, label, *rest):
        made = kept[label.model] = fleet_of(self, label, *rest)
        if "best.params" in made.state:
            assert made.state["validation"].isfinite().all()
            made.state["best.params"].zero_()
        return made

    def measure(nets, data, draws, num_particles, how):
        measured[len(measured)] = sum(float(p.detach().abs().sum()) for p in nets[0].parameters())
        return (), {}

    monkeypatch.setattr(CartPoleExperiment, "train_replicas", fleet)
    monkeypatch.setattr(cartpole, "measure_carts", measure)
    made = CartPoleExperiment(num_steps=10, validate_every=5, num_rollouts=1, num_contexts=1, **SMALL)
    for label in ("attnnp", "np"):
        made.run_unit(Label(label), [0, 1], place(tmp_path))
    assert "best.params" not in kept["np"].state
    assert measured[0] == 0
    assert measured[1] > 0
    assert made.settings("attnnp", made.paper).patience == 20


def test_validation_is_on_held_out_trajectories_only(tmp_path, monkeypatch):
    made = CartPoleExperiment(num_steps=1, **SMALL)
    seen, held_out = made.training_data(CPU)
    assert (seen.x.shape[1], held_out.x.shape[1]) == (18, 2)
    scored = []

    def fleet(self, label, make, source, seeds, settings, where, validation):
        assert torch.equal(source.x, seen.x.flatten(1, 2))
        monkeypatch.setattr(
            cartpole, "nll", lambda p, task, *rest: scored.append(task) or nll(p, task, *rest)
        )
        trained = fleet_of(self, label, make, source, seeds, settings, where, validation)
        assert validation(trained).shape == (2,)
        return trained

    fleet_of = CartPoleExperiment.train_replicas
    monkeypatch.setattr(CartPoleExperiment, "train_replicas", fleet)
    monkeypatch.setattr(cartpole, "measure_carts", lambda *rest: ((), {}))
    made.run_unit(Label("cnp"), [0, 1], place(tmp_path))
    assert len(scored) == 2
    assert all(torch.equal(task.x_target, held_out.x.flatten(1, 2)) for task in scored)


# --- roll-outs ---


class Stub:
    """A "model" whose particles move as a test says: next state = step(task, noise)."""

    def __init__(self, step, sigma=1e-6):
        self.step, self.sigma, self.noises = step, sigma, []

    def draw_noise(self, task, shared, generator):
        assert shared
        shape = task.x_target.shape[:2]
        return {
            "global": torch.randn(1, shape[0], 1, generator=generator),
            "local": torch.randn(1, 1, *shape, 1, generator=generator),
        }

    def predict(self, task, num_global, num_local, noise, validate):
        assert (num_global, num_local) == (1, 1)
        self.noises.append(noise)
        loc = self.step(task, noise)[None, None]
        return GaussianPredictive(loc, torch.full_like(loc, self.sigma))


def exact(task, noise):
    """The Euler step of the environment whose mass and friction `named_context` wrote into y_context."""
    mass, friction = task.y_context[:, :1, 0], task.y_context[:, :1, 1]
    return euler_step(CartPole(mass, friction), task.x_target[..., :4], task.x_target[..., 4])


def named_context():
    """Test environments whose context says which one it is."""
    task = identification_task(Transitions.draw(TEST_ENVIRONMENTS, 2, 10, seeded()), 3, seeded())
    task.y_context[..., :2] = torch.tensor(TEST_ENVIRONMENTS)[:, None]
    return task


def test_a_perfect_model_rolls_out_what_happens():
    runs = Transitions.draw(TEST_ENVIRONMENTS, 3, 10, seeded(1))
    particles = roll_out(Stub(exact), named_context(), runs, 5, seeded())
    assert particles.shape == (5, 14, 3, 10, 4)
    torch.testing.assert_close(particles, runs.y.expand(5, -1, -1, -1, -1), rtol=1e-3, atol=1e-3)
    assert float(RolloutScores.of(particles, runs.y).mse.max()) < 1e-6


def test_a_particle_keeps_its_z_global_and_draws_the_rest_anew():
    stub = Stub(lambda task, noise: task.x_target[..., :4] + noise["global"].squeeze(0)[:, None])
    runs = Transitions.draw(TEST_ENVIRONMENTS, 3, 10, seeded(1))
    particles = roll_out(stub, named_context(), runs, 5, seeded())
    moves = particles.diff(dim=3)  # each step moves a particle by its own z_G
    assert float((moves - moves[:, :, :1, :1, :1]).abs().max()) < 1e-4
    assert len(set((1e4 * moves[:, :, 0, 0, 0]).round().flatten().tolist())) == 5 * 14
    first, second = stub.noises[:2]
    assert torch.equal(first["global"], second["global"])
    assert not torch.isclose(first["local"], second["local"]).any()


def test_observation_noise_is_drawn_anew_at_each_step():
    stub = Stub(lambda task, noise: torch.zeros_like(task.x_target[..., :4]), sigma=2.0)
    runs = Transitions.draw(TEST_ENVIRONMENTS, 3, 10, seeded(1))
    particles = roll_out(stub, named_context(), runs, 50, seeded())
    assert float(particles.std()) == pytest.approx(2, rel=0.02)
    assert float((particles[..., 0, :] * particles[..., 1, :]).mean()) == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize("name", ["cnp", "np", "attnnp", "dsvnp"])
def test_every_model_can_be_rolled_out_and_repeats_itself(name):
    data, model = unseen(), net(name)
    first, again = (roll_out(model, data.task, data.runs, 6, seeded(2)) for _ in range(2))
    assert first.shape == (6, 14, 3, 10, 4)
    assert first.isfinite().all()
    assert torch.equal(first, again)


def test_only_the_first_state_of_a_run_is_looked_at():
    data, model = unseen(), net("np")
    hidden = Transitions(data.runs.x.clone(), torch.full_like(data.runs.y, torch.nan))
    hidden.x[:, :, 1:, :4] = torch.nan
    particles = roll_out(model, data.task, hidden, 4, seeded())
    assert torch.equal(particles, roll_out(model, data.task, data.runs, 4, seeded()))


def test_the_reference_rolls_out_one_environment_exactly():
    runs = Transitions.draw(TRAIN_ENVIRONMENTS[:1], 3, 10, seeded(1))
    torch.testing.assert_close(roll_out_average(TRAIN_ENVIRONMENTS[:1], runs), runs.y, rtol=1e-4, atol=1e-4)


def test_scores_of_each_step():
    truth = torch.randn(20, 30, 3, 4, generator=seeded())
    particles = torch.randn(400, 20, 30, 3, 4, generator=seeded(1))
    particles[..., 1, :] += 1  # biased at the second step, by half of its spread at the third
    particles[..., 2, :] = 2 * particles[..., 2, :] + 1
    scores = RolloutScores.of(particles, truth)
    torch.testing.assert_close(scores.mse, torch.tensor([1.0, 2.0, 2.0]), rtol=0.1, atol=0)
    assert scores.coverage[0] == pytest.approx(0.9, abs=0.03)
    assert scores.coverage[1] == pytest.approx(0.736, abs=0.03)  # P(−2.645 < N(0, 1) < 0.645)
    assert scores.coverage[2] > 0.97


def test_what_is_shown_starts_where_the_run_starts():
    runs = Transitions.draw(TEST_ENVIRONMENTS, 3, 10, seeded(1))
    particles = runs.y + torch.linspace(-1, 1, 41)[:, None, None, None, None]
    path = {name: torch.tensor(values) for name, values in shown_rollout(particles, runs, 5).items()}
    for values in path.values():
        assert torch.equal(values[0], runs.x[5, 0, 0, :4])
    torch.testing.assert_close(path["truth"][1:], runs.y[5, 0])
    torch.testing.assert_close(path["low"][1:], runs.y[5, 0] - 0.9)
    torch.testing.assert_close(path["high"][1:], runs.y[5, 0] + 0.9)
    torch.testing.assert_close(path["mean"][1:], runs.y[5, 0])


# --- figures ---


def test_a_roll_out_is_drawn_with_what_a_file_lacks():
    axes = Figure().subplots()
    paths = {name: [[0.0, 1.0], [None, 2.0], [2.0, 3.0]] for name in ("low", "mean", "high", "truth")}
    _draw_path(axes, "red", paths, {"rollout": [[9.0, 7.0]] * 3}, state=1)
    mean, truth, reference = axes.get_lines()
    assert mean.get_xdata() == pytest.approx([0.0, 0.1, 0.2])
    assert [list(line.get_ydata()) for line in (mean, truth)] == [[1.0, 2.0, 3.0]] * 2
    assert (reference.get_linestyle(), list(reference.get_ydata())) == (":", [7.0] * 3)


# --- the selection ---

GRID = CartGrid(
    betas=(1.0, 50.0),
    anneal_steps=(0, 2),
    train_draws=((1, 1), (1, 2)),
    dims_lat=(4,),
    test_draws=((2, 1), (2, 3)),
    num_steps=3,
)


def test_the_selection_writes_every_cell_and_goes_on(tmp_path, monkeypatch):
    out = tmp_path / "selection.jsonl"
    done = select_carts(GRID, out, CPU, **SMALL)
    named = [(e["model"], e["anneal_steps"], tuple(e["train_draws"]), e["beta_local"]) for e in done]
    cells = [("dsvnp", a, (1, s), b) for a in (0, 2) for s in (1, 2) for b in (1.0, 50.0)]
    assert named == [("np", 0, (1, 1), 1.0), *cells]
    assert [json.loads(line) for line in out.read_text().splitlines()] == done
    for entry in done:
        assert [list(s["test_draws"]) for s in entry["scores"]] == [[2, 1], [2, 3]]
        assert all(len(s[name]) == 2 for s in entry["scores"] for name in ("nll", "mse", "kl_local"))

    class Trained(Exception):
        """Something was trained again."""

    def refuse(*args, **kwargs):
        raise Trained

    monkeypatch.setattr(cartpole_selection, "train", refuse)
    assert select_carts(GRID, out, CPU, **SMALL) == done
    with pytest.raises(Trained):  # other settings are other cells
        select_carts(GRID, out, CPU, **SMALL | {"dim_hidden": 9})


def test_only_the_weights_that_a_fleet_lacks_are_trained(tmp_path, monkeypatch):
    fleets = []
    monkeypatch.setattr(cartpole_selection, "train", lambda fleet, reporter: fleets.append(fleet))
    for betas in ((1.0,), (1.0, 50.0)):
        grid = replace(GRID, betas=betas, anneal_steps=(0,), train_draws=((1, 1),))
        select_carts(grid, tmp_path / "selection.jsonl", CPU, **SMALL)
    assert [fleet.state["beta_local"].tolist() for fleet in fleets] == [[1.0] * 2, [1.0] * 2, [50.0] * 2]


def test_the_committed_selection_can_be_added_to(tmp_path, monkeypatch):
    out = tmp_path / "selection.jsonl"
    shutil.copy(Path(__file__).parents[3] / "results" / "cartpole" / "selection.jsonl", out)
    monkeypatch.setattr(cartpole_selection, "train", None)  # nothing is left to train
    grid = {"betas": (1, 5, 20, 100, 1000), "train_draws": ((1, 1),), "seeds": (0, 1, 2)}
    done = select_carts(CartGrid(**grid, anneal_steps=(0, 12_000), dims_lat=(32,)), out, CPU)
    assert len(done) == 17


def test_the_selection_gives_each_replica_its_beta_and_compares_like_with_like(tmp_path, monkeypatch):
    fleets = []
    monkeypatch.setattr(cartpole_selection, "train", lambda fleet, reporter: fleets.append(fleet))
    select_carts(GRID, tmp_path / "selection.jsonl", CPU, **SMALL)
    betas = [fleet.state["beta_local"].tolist() for fleet in fleets]
    assert betas == [[1.0, 1.0], *[[1.0, 1.0, 50.0, 50.0]] * 4]
    assert fleets[1].seeds == (0, 1, 0, 1)
    assert [fleet.settings.objective.num_local for fleet in fleets] == [1, 1, 2, 1, 2]
    assert [fleet.settings.objective.anneal_steps for fleet in fleets] == [0, 0, 0, 2, 2]


def test_the_selection_never_sees_the_test_environments(tmp_path, monkeypatch):
    drawn, draw = [], Transitions.draw.__func__

    def watch(cls, environments, *rest):
        drawn.append(environments)
        return draw(cls, environments, *rest)

    monkeypatch.setattr(Transitions, "draw", classmethod(watch))
    select_carts(GRID, tmp_path / "selection.jsonl", CPU, **SMALL)
    assert drawn == [TRAIN_ENVIRONMENTS]


def test_held_out_environments_are_not_learned_from():
    made = CartPoleExperiment(**SMALL)
    seen, held_out = made.training_data(CPU)
    source, task = tasks_of(made, "environments", CPU)
    masses = [mass for mass, _ in TRAIN_ENVIRONMENTS]
    middle = [i for i, mass in enumerate(masses) if mass == 0.5]
    others = [i for i in range(6) if i not in middle]
    assert len(middle) == 2
    assert torch.equal(source.x, seen.x[others].flatten(1, 2))
    assert torch.equal(source.y, seen.y[others].flatten(1, 2))
    assert torch.equal(task.x_target, held_out.x[middle].flatten(1, 2))
    assert set(task.x_context[..., 4].flatten().tolist()) <= set(seen.x[middle][..., 4].flatten().tolist())


def test_held_out_trajectories_are_of_all_environments():
    made = CartPoleExperiment(**SMALL)
    seen, held_out = made.training_data(CPU)
    source, task = tasks_of(made, "trajectories", CPU)
    assert torch.equal(source.x, seen.x.flatten(1, 2))
    assert torch.equal(task.x_target, held_out.x.flatten(1, 2))
    with pytest.raises(ValueError, match="unknown way to hold out 'environment'"):
        tasks_of(made, "environment", CPU)
