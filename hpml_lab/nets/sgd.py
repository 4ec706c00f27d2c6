"""SGD by hand: three spellings of `weight = weight - lr * gradient`, and what autograd sees of them."""

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


def data_form(net: nn.Module, lr: float) -> None:
    """The slide's loop. `.data` is the same memory under a name that autograd does not watch."""
    for f in net.parameters():
        f.data.sub_(f.grad.data * lr)


@torch.no_grad()
def no_grad_form(net: nn.Module, lr: float) -> None:
    """Today's form: autograd records nothing here, but still notes that the weights changed."""
    for weight in net.parameters():
        weight -= lr * weight.grad


@torch.no_grad()
def alpha_form(net: nn.Module, lr: float) -> None:
    """torch.optim.SGD's own line: w - lr·g in one operation; above, lr·g is rounded by itself first."""
    for weight in net.parameters():
        weight.sub_(weight.grad, alpha=lr)


BY_HAND: dict[str, Callable[[nn.Module, float], None]] = {
    "f.data.sub_(f.grad.data * lr)": data_form,
    "weight -= lr * weight.grad": no_grad_form,
    "weight.sub_(weight.grad, alpha=lr)": alpha_form,
}


def all_weights(net: nn.Module) -> torch.Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def all_gradients(net: nn.Module) -> torch.Tensor:
    """All gradients in one vector, in the order of `all_weights`."""
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def gradient_after(change: Callable[[nn.Module], None], net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient that backward gives when `change(net)` happens between forward and backward.

    It works on a copy of `net`. Raises torch's RuntimeError where autograd notices that a value which it kept
    for backward is no longer the same.
    """
    net = copy.deepcopy(net)
    loss = F.mse_loss(net(x), y)
    change(net)
    loss.backward()
    return all_gradients(net)


def halve_through_data(net: nn.Module) -> None:
    """Halve all weights behind autograd's back."""
    for weight in net.parameters():
        weight.data.mul_(0.5)


@torch.no_grad()
def halve_under_no_grad(net: nn.Module) -> None:
    """Halve all weights unrecorded, but noted."""
    for weight in net.parameters():
        weight.mul_(0.5)
