"""The engine trains networks without torch: the lecture's XOR net, and a classifier of handwritten digits.

All of training is here: a network is matrix products and activations, its loss is one number, `backward` gives each parameter
its gradient, and gradient descent moves each parameter against it.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.autograd.lessons.engine import Tensor, exp, log, matmul, mean, relu, sigmoid, sum_

Activation = Callable[[Tensor], Tensor]

XOR_INPUTS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR_LABELS = np.array([[0.0], [1.0], [1.0], [0.0]])


class MLP:
    """A multilayer perceptron h ← φ(hW + b), with no activation φ after the last layer: it returns logits.

    sizes       units in each layer, inputs first: [64, 32, 10]
    activation  φ, an elementwise function of the engine
    seed        fixes the weights: uniform within ±1/√(inputs of the layer), as torch.nn.Linear draws them
    """

    def __init__(self, sizes: Sequence[int], activation: Activation = relu, seed: int = 0) -> None:
        if len(sizes) < 2:
            raise ValueError(f"a network needs at least an input and an output size; sizes={list(sizes)}")
        rng = np.random.default_rng(seed)
        self.activation = activation
        self.layers: list[tuple[Tensor, Tensor]] = []
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=1):
            bound = 1 / np.sqrt(inputs)
            weight, bias = rng.uniform(-bound, bound, (inputs, outputs)), rng.uniform(-bound, bound, outputs)
            self.layers.append((Tensor(weight, True, f"W{number}"), Tensor(bias, True, f"b{number}")))

    def parameters(self) -> list[Tensor]:
        """W1, b1, W2, b2, …"""
        return [parameter for layer in self.layers for parameter in layer]

    def __call__(self, x) -> Tensor:
        """The logits (N, outputs) of a batch x (N, inputs)."""
        *hidden, (weight, bias) = self.layers
        for w, b in hidden:
            x = self.activation(matmul(x, w) + b)
        return matmul(x, weight) + bias


def cross_entropy(logits: Tensor, labels) -> Tensor:
    """The mean over the batch of -log softmax(logits)[label].

    logits (N, C); labels (N,), integers from 0 to C-1. The largest logit is subtracted first, so that exp cannot overflow. It
    cancels in the result, whatever it is, so it can be a constant without gradient.
    """
    labels = np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"expected logits (N, C) and labels (N,), not {logits.shape} and {labels.shape}")
    classes = logits.shape[1]
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= classes)):
        raise ValueError(f"labels must be integers from 0 to {classes - 1}")
    shifted = logits - logits.data.max(axis=1, keepdims=True)
    log_softmax = shifted - log(sum_(exp(shifted), axis=1, keepdims=True))
    return -mean(log_softmax[np.arange(len(labels)), labels])


def binary_cross_entropy(logits: Tensor, labels) -> Tensor:
    """The mean of -y log σ(z) - (1-y) log(1-σ(z)) for logits z and labels y from 0 to 1, both of one shape.

    It is computed as log(e⁰ + eᶻ) - yz, which never takes the logarithm of a σ(z) that was rounded to 0. As in `cross_entropy`,
    the larger of the exponents 0 and z is subtracted before exp.
    """
    labels = np.asarray(labels, dtype=float)
    if labels.shape != logits.shape:
        raise ValueError(f"logits {logits.shape} and labels {labels.shape} must have the same shape")
    largest = np.maximum(logits.data, 0)
    log_partition = log(np.exp(-largest) + exp(logits - largest)) + largest
    return mean(log_partition - logits * labels)


def sgd_step(parameters: Sequence[Tensor], lr: float) -> None:
    """θ ← θ - lr ∂L/∂θ for every parameter; its gradient is dropped, or the next backward would add to it."""
    for parameter in parameters:
        parameter.data -= lr * parameter.grad
        parameter.grad = None


@dataclass
class EngineTraining:
    """What training returns: the trained net, the loss of each epoch, and the predictions.

    accuracy  the fraction of right answers: on the four cases of XOR, or on the digits' test set
    """

    net: MLP
    losses: list[float]
    predictions: np.ndarray
    accuracy: float


def train_xor(epochs: int = 2000, lr: float = 1.0, seed: int = 0) -> EngineTraining:
    """Train the lecture's net, 2-4-1 with sigmoids, on the four cases of XOR.

    predictions (4, 1) are the probabilities σ(logit). The lecture uses lr = 0.1 and 10 000 epochs; with lr = 1 the same net
    needs a tenth of the steps.
    """
    net, losses = MLP([2, 4, 1], activation=sigmoid, seed=seed), []
    for _ in range(epochs):
        loss = binary_cross_entropy(net(XOR_INPUTS), XOR_LABELS)
        loss.backward()
        sgd_step(net.parameters(), lr)
        losses.append(loss.item())
    predictions = sigmoid(net(XOR_INPUTS)).data
    return EngineTraining(net, losses, predictions, float(np.mean((predictions > 0.5) == XOR_LABELS)))


def train_digits(epochs: int = 30, lr: float = 0.5, batch: int = 64, seed: int = 0) -> EngineTraining:
    """Train a 64-32-10 ReLU net on scikit-learn's digits by mini-batch SGD.

    predictions (497,) are the predicted classes of the test images; an epoch's loss is the mean over its batches.
    """
    from hpml_lab.data import load

    digits = load("digits")
    train_x, test_x = (x.numpy().reshape(len(x), -1) for x in (digits.train_x, digits.test_x))
    train_y, test_y = digits.train_y.numpy(), digits.test_y.numpy()
    net, losses = MLP([64, 32, 10], seed=seed), []
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        epoch_losses = []
        order = rng.permutation(len(train_x))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            loss = cross_entropy(net(train_x[chosen]), train_y[chosen])
            loss.backward()
            sgd_step(net.parameters(), lr)
            epoch_losses.append(loss.item())
        losses.append(float(np.mean(epoch_losses)))
    predictions = net(test_x).data.argmax(axis=1)
    return EngineTraining(net, losses, predictions, float(np.mean(predictions == test_y)))
