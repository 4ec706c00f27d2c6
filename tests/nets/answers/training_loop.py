"""Answers to `training-loop`: forward, loss, zero_grad, backward, step, and the loss as a plain number."""

import numpy as np
import torch.nn.functional as F


def solution(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def no_zero_grad(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def zero_grad_after_backward(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        losses.append(loss.item())
    return losses


def step_first(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.step()
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
    return losses


def no_step(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
    return losses


def step_on_cleared_gradients(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        optimizer.step()
        loss.backward()
        losses.append(loss.item())
    return losses


def forward_once(net, optimizer, x, y, steps):
    losses = []
    loss = F.binary_cross_entropy(net(x), y)
    for _ in range(steps):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def target_first(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(y, net(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def squared_error(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def starts_at_one(net, optimizer, x, y, steps):
    losses = []
    for _ in range(1, steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def list_of_tensors(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


def last_loss(net, optimizer, x, y, steps):
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def no_return(net, optimizer, x, y, steps):
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def measured_again(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(F.binary_cross_entropy(net(x), y).item())
    return losses


def tuple_of_tensors(*given):
    return tuple(list_of_tensors(*given))


def what_backward_returns(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(F.binary_cross_entropy(net(x), y).backward())
        optimizer.step()
    return losses


def numbers_of_numpy(*given):
    return list(np.array(solution(*given), dtype=np.float32))


ALSO_RIGHT = [numbers_of_numpy]
WRONG = [
    ("accumulates", no_zero_grad),
    ("zeroed-before-step", zero_grad_after_backward),
    ("step-before-backward", step_first),
    ("never-steps", no_step),
    ("never-steps", step_on_cleared_gradients),
    ("one-forward", forward_once),
    ("arguments-swapped", target_first),
    ("wrong-loss", squared_error),
    ("one-step-short", starts_at_one),
    ("keeps-graphs", list_of_tensors),
    ("keeps-graphs", tuple_of_tensors),
    ("loss-after-step", measured_again),
    ("wrong-value", what_backward_returns),
    ("one-loss", last_loss),
    ("returns-nothing", no_return),
]
