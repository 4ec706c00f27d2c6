"""SGD by hand: three ways to write `weight = weight - lr * gradient`, and which changes autograd notices."""

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


def data_form(net: nn.Module, lr: float) -> None:
    """The slide's loop. `.data` is the same memory as a tensor that autograd does not track."""
    for f in net.parameters():
        f.data.sub_(f.grad.data * lr)


@torch.no_grad()
def no_grad_form(net: nn.Module, lr: float) -> None:
    """Today's form: autograd records no operation here, but still counts that the weights changed."""
    for weight in net.parameters():
        weight -= lr * weight.grad


@torch.no_grad()
def alpha_form(net: nn.Module, lr: float) -> None:
    """As in torch.optim.SGD: w - lr·g in one operation; in the forms above lr·g is rounded first."""
    for weight in net.parameters():
        weight.sub_(weight.grad, alpha=lr)


SLIDE, NO_GRAD, ALPHA = "f.data.sub_(f.grad.data * lr)", "weight -= lr * weight.grad", "weight.sub_(weight.grad, alpha=lr)"
BY_HAND: dict[str, Callable[[nn.Module, float], None]] = {SLIDE: data_form, NO_GRAD: no_grad_form, ALPHA: alpha_form}


def all_weights(net: nn.Module) -> torch.Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def all_gradients(net: nn.Module) -> torch.Tensor:
    """All gradients in one vector, in the order of `all_weights`."""
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def gradient_after(change: Callable[[nn.Module], None], net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient that backward computes if `change(net)` runs between forward and backward, on a copy of `net`.

    Raises torch's RuntimeError if autograd notices that a value which it saved for backward has changed.
    """
    net = copy.deepcopy(net)
    loss = F.mse_loss(net(x), y)
    change(net)
    loss.backward()
    return all_gradients(net)


def halve_through_data(net: nn.Module) -> None:
    """Halve all weights without autograd noticing."""
    for weight in net.parameters():
        weight.data.mul_(0.5)


@torch.no_grad()
def halve_under_no_grad(net: nn.Module) -> None:
    """Halve all weights: the operation is not recorded, but the change is counted."""
    for weight in net.parameters():
        weight.mul_(0.5)
