"""A second set of trained weights in one model."""

import copy

import torch
from torch import nn

from raysweep.training.trainable import QueryWeights


class Tied(nn.Module):
    """Two layers with one matrix, and a recurrent layer, which keeps a list of its own weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.recurrent = nn.LSTM(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.recurrent(self.second(self.first(inputs)))[0]
        return outputs


def test_tied_and_recurrent_weights_are_replaced_everywhere() -> None:
    model = Tied()
    own, other = copy.deepcopy(model), copy.deepcopy(model)
    trained = {name: value for name, value in model.named_parameters() if name != "first.bias"}
    weights = QueryWeights(model, trained)
    with torch.no_grad():
        for name, value in weights.parameters.items():
            value.add_(0.1 * torch.randn(value.shape))
            other.get_parameter(name).copy_(value)
    inputs = torch.randn(3, 4)
    with weights.used():
        outputs = model(inputs)
    (outputs.sum() + model(inputs).square().sum()).backward()
    expected = other(inputs), own(inputs)
    (expected[0].sum() + expected[1].square().sum()).backward()
    torch.testing.assert_close(outputs, expected[0])
    for name, value in trained.items():
        torch.testing.assert_close(weights.parameters[name].grad, other.get_parameter(name).grad)
        torch.testing.assert_close(value.grad, own.get_parameter(name).grad)
    shared = sum(pair.first.bias.grad for pair in (own, other))
    torch.testing.assert_close(model.first.bias.grad, shared)
    assert model.second.weight is model.first.weight is trained["first.weight"]
