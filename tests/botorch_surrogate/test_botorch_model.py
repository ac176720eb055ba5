"""`NeuralProcessModel` against an exact Gaussian process behind the same contract, and with BoTorch's own functions."""

import math
import warnings

import pytest
import torch
from torch import Tensor

from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.models.transformer import Transformer
from dsvnp.objectives import Draws
from dsvnp.pretrained.curves import scaled_task
from dsvnp.sources.priors import LandscapePrior, LandscapeSettings
from dsvnp.task import Task

with warnings.catch_warnings():  # linear_operator compiles with what torch calls deprecated
    warnings.simplefilter("ignore")
    pytest.importorskip("botorch", reason="needs the extra botorch: pip install 'dsvnp[botorch]'")
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
    from botorch.generation import MaxPosteriorSampling
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler
    from botorch.sampling.get_sampler import get_sampler

    from dsvnp.botorch import DrawSampler, FunctionPosterior, MixtureLogEI, NeuralProcessModel

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.BotorchWarning"
)
NOISE, LENGTH = 0.05, 0.4


def kernel(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-0.5 * torch.cdist(a, b).square() / LENGTH**2)


class ExactGP(NeuralProcess):
    """The conditionals of a Gaussian process, as a network without weights to learn."""

    name, summary = "exact-gp", "conditionals of a Gaussian process"

    def _build(self, embedding: None) -> None:
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def noise_shapes(self, *sizes: int, shared: bool) -> dict[str, tuple[int, ...]]:
        return {}

    def draws(self, task: Task, noise: object) -> Draws:
        raise NotImplementedError

    def summarise(self, task: Task, noise: object) -> tuple[Tensor, Tensor]:
        return task.x_context, task.y_context

    def decode(self, summary: tuple[Tensor, Tensor], x_target: Tensor, noise: object) -> Tensor:
        x, y = summary
        gram = kernel(x, x) + NOISE * torch.eye(x.shape[1], dtype=x.dtype)
        cross = kernel(x_target, x)
        solved = torch.linalg.solve(gram, cross.transpose(-1, -2))
        mean = solved.transpose(-1, -2) @ y
        variance = 1 + NOISE - (cross.transpose(-1, -2) * solved).sum(-2)
        return torch.cat([mean, 0.5 * variance.log().unsqueeze(-1)], -1)[None, None]


def exact_gp() -> NeuralProcess:
    return ExactGP(Architecture(dim_x=2, dim_y=1, sigma_floor=0.0, sigma_form="exp")).double()


def latent(dim_y: int = 1) -> NeuralProcess:
    torch.manual_seed(0)
    arch = Architecture(
        dim_x=2, dim_y=dim_y, encoder=(16,), dim_lat=8, decoder=(16,), latent_hidden=(), dim_local=4
    )
    return make_model("dsvnp", arch).double()


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y = points(6, 2), torch.sin(5 * points(6, 2)[:, :1])
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def test_the_joint_gaussian_is_exact_for_a_gaussian_process() -> None:
    asked = points(3, 4, 2, seed=1)
    posterior = NeuralProcessModel(exact_gp(), X, Y, noise=NOISE).posterior(asked)
    gram = torch.linalg.inv(kernel(X, X) + NOISE * torch.eye(6, dtype=torch.float64))
    cross = kernel(asked, X.expand(3, -1, -1))
    covariance = kernel(asked, asked) - cross @ gram @ cross.transpose(-1, -2)
    torch.testing.assert_close(posterior.mean, cross @ gram @ Y)
    found = posterior.distribution.covariance_matrix
    off = ~torch.eye(4, dtype=torch.bool)
    own, exact = (each.diagonal(dim1=1, dim2=2) for each in (found, covariance))
    torch.testing.assert_close(own, exact, rtol=2e-4, atol=0)  # the likelihood holds ln σ above −12
    torch.testing.assert_close(found[:, off], covariance[:, off], atol=2e-3, rtol=0)  # shrunk by 1e-4 at most
    noisy = NeuralProcessModel(exact_gp(), X, Y, noise=NOISE).posterior(asked, observation_noise=True)
    torch.testing.assert_close(
        noisy.variance - posterior.variance, torch.full_like(noisy.variance, NOISE), rtol=1e-4, atol=0
    )


def test_conditioning_equals_a_longer_context_and_fantasies_have_their_own() -> None:
    for network in (exact_gp(), latent()):
        more = NeuralProcessModel(network, X[:4], Y[:4]).condition_on_observations(X[4:], Y[4:])
        asked = points(5, 3, 2, seed=2)
        torch.testing.assert_close(
            more.posterior(asked).mean, NeuralProcessModel(network, X, Y).posterior(asked).mean
        )
        model = NeuralProcessModel(network, X, Y)
        sampler = get_sampler(model.posterior(X[:1]), torch.Size([3]), seed=0)
        dreamt = model.fantasize(points(5, 1, 2), sampler)
        assert dreamt.batch_shape == (3, 5)
        mean = dreamt.posterior(asked).mean
        alone = NeuralProcessModel(network, dreamt.train_inputs[0][1, 2], dreamt.train_targets[1, 2])
        torch.testing.assert_close(mean[1, 2], alone.posterior(asked[2]).mean)
        single = model.fantasize(points(1, 1, 2), sampler)  # [3, 1] contexts serve any batch
        torch.testing.assert_close(single.posterior(asked).mean[1, 2], single.posterior(asked[2]).mean[1, 0])


def test_observations_have_gradients_and_a_context_may_be_empty() -> None:
    known = Y.clone().requires_grad_()
    for network in (exact_gp(), latent()):
        model = NeuralProcessModel(network, X, known)
        for _ in range(2):  # a graph that was kept would serve one backward pass only
            (slope,) = torch.autograd.grad(model.posterior(points(3, 1, 2)).mean.sum(), known)
            assert (slope != 0).all()
        assert NeuralProcessModel(network, X[:0], Y[:0]).posterior(X).mean.isfinite().all()


@pytest.mark.parametrize("make", [exact_gp, latent])
def test_gradients_of_samples_are_right(make) -> None:
    model = NeuralProcessModel(make(), X, Y, num_draws=4)
    asked = points(2, 2, 2, seed=3).requires_grad_()

    def samples(x: Tensor) -> Tensor:
        posterior = model.posterior(x)
        return get_sampler(posterior, torch.Size([4]), seed=0)(posterior)

    assert torch.autograd.gradcheck(samples, (asked,), atol=1e-4)


def test_draws_are_functions_joint_over_calls_without_noise() -> None:
    model = NeuralProcessModel(latent(dim_y=2), X, Y.expand(-1, 2), num_draws=8, num_local=3)
    posterior = model.posterior(points(4, 3, 2, seed=4))
    assert isinstance(posterior, FunctionPosterior)
    assert posterior.values.shape == (4, 8, 3, 2)
    joined = torch.cat([X.expand(4, -1, -1), points(4, 3, 2, seed=4)], 1)
    torch.testing.assert_close(model.posterior(joined).values[:, :, 6:], posterior.values)
    sampler = get_sampler(posterior, torch.Size([10]), seed=1)
    assert isinstance(sampler, DrawSampler)
    samples = sampler(posterior)  # [10, 4, 3, 2]: each function once, then from the first again
    torch.testing.assert_close(samples[:8], posterior.values.movedim(1, 0))
    torch.testing.assert_close(samples[8:], samples[:2])
    noisy = model.posterior(X, observation_noise=True)
    assert (noisy.variance > model.posterior(X).variance).float().mean() > 0.8
    assert model.posterior(X, output_indices=[1]).mean.shape == (6, 1)


def test_expected_improvement_does_not_ask_for_observed_points_again() -> None:
    model = NeuralProcessModel(exact_gp(), X, Y)
    chosen = qLogExpectedImprovement(model, best_f=Y.max(), sampler=SobolQMCNormalSampler(torch.Size([64])))
    assert chosen(X.unsqueeze(1)).max() < chosen(points(200, 1, 2, seed=5)).max()
    new, _ = optimize_acqf(chosen, UNIT, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 10})
    assert new.shape == (2, 2)
    assert torch.cdist(new, X).min() > 0.01


@pytest.mark.parametrize("make", [exact_gp, latent])
def test_noisy_expected_improvement_and_thompson_sampling(make) -> None:
    model = NeuralProcessModel(make(), X, Y, num_draws=16)
    chosen = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=False)
    new, value = optimize_acqf(chosen, UNIT, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 5})
    assert new.shape == (1, 2)
    assert math.isfinite(float(value))
    assert MaxPosteriorSampling(model)(points(20, 2, seed=6), num_samples=3).shape == (3, 2)
    generator = torch.Generator().manual_seed(0)
    one, other = (model.draw_function(points(5, 2, seed=7), generator) for _ in range(2))
    asked = points(9, 2, seed=8)
    assert one.posterior(asked).mean.shape == (9, 1)
    torch.testing.assert_close(one.posterior(asked).mean, one.posterior(asked).mean)
    assert (one.posterior(asked).mean - other.posterior(asked).mean).abs().max() > 1e-3


def test_a_network_with_one_output_serves_several() -> None:
    both = torch.cat([Y, Y.square()], -1)
    model = NeuralProcessModel(exact_gp(), X, both)
    asked = points(3, 2, 2, seed=9)
    joint = model.posterior(asked)
    assert joint.mean.shape == (3, 2, 2)
    for output in range(2):
        alone = NeuralProcessModel(exact_gp(), X, both[:, [output]]).posterior(asked)
        torch.testing.assert_close(joint.mean[..., [output]], alone.mean)
        torch.testing.assert_close(joint.variance[..., [output]], alone.variance)


def test_the_pretrained_network_for_tables_answers_as_its_estimator_does() -> None:
    from dsvnp.pretrained.heads import for_numbers
    from dsvnp.pretrained.loading import load_pretrained
    from dsvnp.pretrained.tables import TableUse, predict_numbers

    x, y, asked = 7 * points(12, 3), 100 + 9 * points(12, 1, seed=1), 7 * points(4, 3, seed=2)
    model = NeuralProcessModel.pretrained("tables", x, y, noise=0.0)
    expected = predict_numbers(
        for_numbers(load_pretrained("tables")), x, y[:, 0], asked, TableUse(num_orders=4)
    )
    found = model.posterior(asked.unsqueeze(1))
    torch.testing.assert_close(found.mean[:, 0], expected.mean[0], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.variance[:, 0], expected.variance[0], rtol=1e-3, atol=1e-3)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="up to 3 inputs, got 5"):
        NeuralProcessModel(exact_gp(), points(4, 5), points(4, 1), scaling="curves")
    with pytest.raises(ValueError, match="one output row per input row"):
        NeuralProcessModel(exact_gp(), X, Y[:3])


def test_improvement_under_a_mixture_is_exact() -> None:
    model = NeuralProcessModel(exact_gp(), X, Y, noise=0.0)
    asked = points(4, 1, 2, seed=1)
    for best in (0.3, 3.0):  # one Gaussian: BoTorch's formula
        torch.testing.assert_close(
            MixtureLogEI(model, best)(asked), LogExpectedImprovement(model, best)(asked)
        )
    torch.manual_seed(0)
    network = make_model("tnp", Architecture(2, 1, likelihood="mixture", num_components=3)).double()
    model = NeuralProcessModel(network, X, Y)
    grid = torch.linspace(0.3, 40, 200_001, dtype=torch.float64)
    above = 1 - model._reader.ask(model._context(), asked[:, 0][None]).cdf(grid.reshape(-1, 1, 1, 1))
    expected = torch.trapezoid(above[:, 0, :, 0], grid, dim=0).log()  # ∫ P(y > t) dt
    torch.testing.assert_close(MixtureLogEI(model, 0.3)(asked), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="draws whole functions"):
        MixtureLogEI(NeuralProcessModel(latent(), X, Y), 0.3)(asked)


@pytest.mark.parametrize(("scaling", "dims"), [("curves", 2), ("landscapes", 3)])
def test_scalings_read_points_as_the_networks_learned_them(scaling: str, dims: int) -> None:
    torch.manual_seed(0)
    small = Transformer(width=16, num_layers=2, num_heads=2, feedforward=16, embedder=(16,))
    columns = {"curves": 3, "landscapes": 10}[scaling]
    arch = Architecture(2 * columns, 1, decoder=(16,), transformer=small, cells=small, coded_x=True)
    network = make_model({"curves": "tnp", "landscapes": "tabtnp"}[scaling], arch)
    x, y, asked = points(9, dims), 50 + 4 * points(9, 1, seed=1), points(5, dims, seed=2)
    if scaling == "curves":
        scaled = scaled_task(x, y[:, 0], asked)
        expected = scaled.back(network.predict(scaled.task)).mean[0]
    else:  # what `LandscapePrior` makes of these points
        cube = torch.nn.functional.pad(2 * torch.cat([x, asked]) - 1, (0, columns - dims))
        values = torch.cat([y, torch.zeros_like(asked[:, :1])])
        pool = {"x": cube[None], "y": values[None, :, 0], "sizes": torch.tensor([9])}
        pool["used"] = (torch.arange(columns) < dims)[None]
        prior = LandscapePrior(
            LandscapeSettings(batch_size=1, num_points=14, min_context=9, max_context=9, max_inputs=columns)
        )
        task = prior.batch(pool, {}, torch.tensor(0)).to(dtype=torch.float32)
        expected = y.mean() + y.std(correction=0) * network.predict(task).mean[0, 9:]
    found = NeuralProcessModel(network, x, y, scaling=scaling).posterior(asked.unsqueeze(1)).mean[:, 0]
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-4)
