"""One head of two: a network that learned numbers and classes becomes one that predicts either.

With the "number-or-class" likelihood a layer reads y as [value, flag, one-hot], and the decoder puts out the raw
numbers of both heads. Numbers have flag 0 and no one-hot, labels have value 0 and flag 1:

    numbers   W [value, 0, 0] + b   = W_value · value + b
    classes   W [0, 1, one-hot] + b = W_one-hot · one-hot + (b + W_flag)

and the last layer of the decoder keeps the rows of its head. Nothing else changes, so the predictions are the same;
with fewer classes than the network has, they are those of the first classes, given that it is one of these.
"""

from dataclasses import replace

from dsvnp.likelihoods import NumberOrClass
from dsvnp.models.base import NeuralProcess
from dsvnp.models.tabtnp import TabTNP
from dsvnp.networks import WithoutDraws

READS_Y = ("cells.output", "output")


def for_numbers(model: NeuralProcess) -> NeuralProcess:
    """The network as one for numbers, with a "mixture" likelihood of one output."""
    both = _both(model)
    return _cut(model, "mixture", 1, slice(0, 1), folded=False, rows=slice(0, both.numbers.dim_raw))


def for_classes(model: NeuralProcess, num_classes: int) -> NeuralProcess:
    """The network as a classifier of the labels 0 … num_classes − 1."""
    both = _both(model)
    largest = both.classes.num_classes
    if not 2 <= num_classes <= largest:
        raise ValueError(f"the network distinguishes 2 to {largest} classes, got num_classes={num_classes}")
    first = both.numbers.dim_raw
    columns, rows = slice(2, 2 + num_classes), slice(first, first + num_classes)
    return _cut(model, "categorical", num_classes, columns, folded=True, rows=rows)


def _both(model: NeuralProcess) -> NumberOrClass:
    """The likelihood of a network that has both heads."""
    if not isinstance(model, TabTNP) or not isinstance(model.likelihood, NumberOrClass):
        raise ValueError(
            f"expected a tabtnp with the likelihood 'number-or-class', got {model.name} with "
            f"{model.arch.likelihood!r}; only such a network has two heads to choose from"
        )
    return model.likelihood


def _cut(
    model: NeuralProcess, likelihood: str, dim_y: int, columns: slice, folded: bool, rows: slice
) -> NeuralProcess:
    """Make the network with one head, of a likelihood with `dim_y` outputs or classes, and give it the other's weights.

    Left are some columns of the layers that read y, whose biases take the flag's column in where `folded`, and some
    rows of the decoder's last layer.
    """
    with WithoutDraws():
        made = type(model)(replace(model.arch, likelihood=likelihood, dim_y=dim_y))
    own = {name for name in made.state_dict() if not name.startswith("likelihood.")}
    tensors = {name: value for name, value in model.state_dict().items() if name in own}
    for layer in READS_Y:
        weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
        tensors[f"{layer}.bias"] = bias + weight[:, 1] if folded else bias
        tensors[f"{layer}.weight"] = weight[:, columns]
    for name in _last_layer(model):
        tensors[name] = tensors[name][rows]
    parameter = next(model.parameters())
    made = made.to(parameter.device, parameter.dtype)
    made.load_state_dict(made.state_dict() | tensors)
    return made.train(model.training)


def _last_layer(model: NeuralProcess) -> tuple[str, str]:
    """Names of weight and bias of the decoder's last layer."""
    hidden = len(model.arch.decoder)
    if not hidden:
        return "decoder.first.weights.0", "decoder.first.bias"
    return f"decoder.rest.{hidden - 1}.weight", f"decoder.rest.{hidden - 1}.bias"
