"""One head of two: the same log-probabilities as the network that has both."""

import pytest
import torch

from dsvnp import Architecture, Transformer
from dsvnp.models.tabtnp import TabTNP
from dsvnp.models.tnp import TNP
from dsvnp.pretrained import for_classes, for_numbers
from dsvnp.task import Task

SMALL = Transformer(8, 2, 2, 8, (8,))
B, T, COLUMNS, CLASSES = 3, 9, 3, 4


def joint(decoder: tuple[int, ...]) -> TabTNP:
    torch.manual_seed(0)
    arch = Architecture(
        2 * COLUMNS,
        CLASSES,
        likelihood="number-or-class",
        num_components=3,
        background=1e-3,
        decoder=decoder,
        cells=SMALL,
        transformer=SMALL,
        coded_x=True,
    )
    model = TabTNP(arch).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def some_points() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, y as numbers, and which points are context; one task has none."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(B, T, 2 * COLUMNS, generator=g, dtype=torch.float64)
    x[..., COLUMNS:] = 0.0
    y = torch.randn(B, T, 1, generator=g, dtype=torch.float64)
    return x, y, torch.arange(T) < torch.tensor([5, 0, 8])[:, None]


def scores(model, x, y, seen):
    """Log-probabilities of the points outside the context."""
    found = model.draws(Task.from_points(x, y, seen), {}).log_likelihood[0, 0]
    return found[~seen]


@pytest.mark.parametrize("decoder", [(), (6,), (6, 5)])
def test_numbers_have_the_densities_of_the_joint_network(decoder):
    model, (x, y, seen) = joint(decoder), some_points()
    plain = for_numbers(model)
    both = torch.cat([y, torch.zeros_like(y)], dim=-1)
    assert plain.arch.likelihood == "mixture"
    assert torch.allclose(scores(plain, x, y, seen), scores(model, x, both, seen), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decoder", [(), (6,), (6, 5)])
def test_classes_have_the_probabilities_of_the_joint_network(decoder):
    model, (x, y, seen) = joint(decoder), some_points()
    labels = (y.abs() * 3).long() % CLASSES
    both = torch.cat([labels.double(), torch.ones_like(y)], dim=-1)
    plain = for_classes(model, CLASSES)
    assert plain.arch.likelihood == "categorical"
    assert torch.allclose(
        scores(plain, x, labels, seen), scores(model, x, both, seen), rtol=1e-12, atol=1e-12
    )


def test_fewer_classes_have_the_probabilities_given_that_it_is_one_of_them():
    model, (x, y, seen) = joint((6,)), some_points()
    labels = (y > 0).long()
    one_each = torch.stack(
        [
            scores(
                model,
                x,
                torch.cat([torch.where(seen[..., None], labels, k).double(), torch.ones_like(y)], -1),
                seen,
            )
            for k in range(2)
        ]
    )  # of each of the two classes at the targets
    expected = one_each.log_softmax(0).gather(0, labels[~seen].T).squeeze(0)
    assert torch.allclose(scores(for_classes(model, 2), x, labels, seen), expected, rtol=1e-12, atol=1e-12)


def test_predictions_equal_the_scores_of_training():
    x, y, seen = some_points()
    plain = for_numbers(joint((6,)))
    task = Task.from_points(x, y, seen)
    assert torch.allclose(plain.predict(task).log_prob(y)[~seen], scores(plain, x, y, seen), rtol=1e-10)


def test_what_has_no_two_heads_is_refused():
    with pytest.raises(ValueError, match="expected a tabtnp with the likelihood 'number-or-class', got tnp"):
        for_numbers(TNP(Architecture(1, 1, transformer=SMALL)))
    for count in (1, CLASSES + 1):
        with pytest.raises(
            ValueError, match=f"distinguishes 2 to {CLASSES} classes, got num_classes={count}"
        ):
            for_classes(joint(()), count)
