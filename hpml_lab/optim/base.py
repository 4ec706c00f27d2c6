"""What the optimizers share: torch.optim's contract around one update rule.

A class of this package is a `torch.optim.Optimizer`, so parameter groups, schedulers, hooks, GradScaler and state_dict work
with it. It adds only its options, the state that it keeps for a parameter, and `update`, whose statements are the lines of
the formula. The same `update` works on

- tensors, one parameter after the other: torch's plain for-loop, to the same bits on the CPU;
- lists of tensors that calculate as one: `foreach=True`, and by default on a GPU, as in torch;
- tensors that autograd follows: `differentiable=True`.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from hpml_lab.optim.options import check_options
from hpml_lab.optim.tensors import ComplexStep, Followed, like, pairs, pieces

State = dict[str, Any]
Group = dict[str, Any]


@dataclass
class Part:
    """One parameter's part in a step: θ, its gradient (signed, with L2 decay), its state, and what is said of this step."""

    theta: Tensor
    g: Tensor
    state: dict[str, Tensor]  # by the formula's names
    numbers: dict[str, Any]

    @property
    def real(self) -> "Part":
        """The same with complex numbers seen as pairs of real ones."""
        state = {name: pairs(value) for name, value in self.state.items()}
        return Part(pairs(self.theta), pairs(self.g), state, self.numbers)


class Optimizer(torch.optim.Optimizer):
    """An optimizer given by `symbols`, `start`, `numbers` and `update`."""

    symbols: dict[str, str] = {}  # a state tensor's name in the formula: its name in state_dict, which is torch.optim's
    takes_sparse = False  # `update` works on sparse gradients as it stands
    complex_as_pairs = True  # a complex parameter is updated as pairs of real numbers
    complex_step = False  # … but for the last line, as in torch.optim: complex numbers are rounded otherwise
    update_sparse: Callable | None = None  # the rule for sparse gradients, where it is another one
    explained: tuple[str, ...] = ("update",)  # the methods whose lines `explain` shows

    def __init__(self, params: Iterable, options: dict[str, Any]) -> None:
        """`options` are the local variables of the class's own __init__: its signature is the list of its options."""
        options = {name: value for name, value in options.items() if name not in ("self", "params", "__class__")}
        check_options(options)
        super().__init__(params, options)

    def add_param_group(self, param_group: Group) -> None:
        """As torch's, but a group's own options are checked as the common ones are; torch takes them unseen."""
        if isinstance(param_group, dict):
            check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    # ---- what a class writes -------------------------------------------------------------------------------

    def start(self, theta: Tensor, g: Tensor, group: Group) -> State:
        """The state before the first step, in torch.optim's names and order."""
        raise NotImplementedError

    def numbers(self, state: State, group: Group, new: bool) -> dict[str, Any]:
        """What is the same for all elements of a parameter in this step: its number t, from 1. Counts the step."""
        t = state["step"].item() + 1
        state["step"].fill_(t)  # a third of the time of += 1
        return {"t": t}

    @staticmethod
    def update(theta: Tensor, g: Tensor, **state_numbers_and_options: Any) -> None:
        """The rule: changes θ and the state in place, one statement a line of the formula."""
        raise NotImplementedError

    # ---- what all share ------------------------------------------------------------------------------------

    @staticmethod
    def decay(theta: Tensor, g: Tensor, lr: Any, weight_decay: Any, decoupled: bool) -> Tensor:
        """Weight decay λ: taken from θ itself (decoupled, as in AdamW), or added to the gradient (L2). Gives g.

            θ = θ − α λ θ, if decoupled
            g = g + λ θ, if not
        Loshchilov and Hutter 2019.
        """
        if weight_decay and decoupled: theta.mul_(1 - lr * weight_decay)  # fmt: skip
        if weight_decay and not decoupled: g = g.add(theta, alpha=weight_decay)  # fmt: skip
        return g

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that has a gradient. Gives the closure's loss, None without a closure."""
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _somebody_watches():
            return self._watched_step(closure)
        return self._step(closure)

    # torch.optim would wrap `step` by itself; its record for a profiler costs a fifth of a small net's step when there is none.
    step.hooked = True

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        follow = self.defaults.get("differentiable", False)
        with torch.set_grad_enabled(follow):
            for group in self.param_groups:
                parts = [self._part(p, group) for p in group["params"] if p.grad is not None]
                as_lists = group.get("foreach")
                if as_lists is None:
                    as_lists = bool(parts) and all(one.theta.is_cuda for one in parts)
                if follow:
                    for one in parts:
                        self._update_followed(one, group)
                elif as_lists:
                    self._update_lists(parts, group)
                else:
                    for one in parts:
                        self._update_one(one, group)
        return loss

    _watched_step = torch.optim.Optimizer.profile_hook_step(_step)

    def _part(self, p: Tensor, group: Group) -> Part:
        """Sign, decay and state of one parameter; its step is counted."""
        g, weight_decay = p.grad, group.get("weight_decay", 0)
        if g.is_sparse and not (self.takes_sparse or self.update_sparse):
            raise RuntimeError(self._refusal_of_sparse())
        if group["maximize"]:
            g = -g
        if weight_decay:
            g = self.decay(p, g, _scalar(group["lr"]), weight_decay, group.get("decoupled_weight_decay", False))
        state = self.state.get(p)
        if new := not state:
            state = self.start(p, g, group)
            if state:
                self.state[p] = state
        numbers = self.numbers(state, group, new)
        return Part(p, g, {symbol: state[name] for symbol, name in self.symbols.items() if name in state}, numbers)

    def _refusal_of_sparse(self) -> str:
        return f"{type(self).__name__} does not support sparse gradients"

    def _update_one(self, part: Part, group: Group) -> None:
        rule = self.update_sparse if part.g.is_sparse and self.update_sparse else self.update
        theta = part.theta
        if theta.is_complex() and self.complex_as_pairs:
            part = part.real
            theta = ComplexStep(theta) if self.complex_step else part.theta
        rule(theta, part.g, **part.state, **_asked(rule, part.numbers, group))

    def _update_followed(self, part: Part, group: Group) -> None:
        p, part = part.theta, part.real if self.complex_as_pairs else part
        theta, state = Followed(part.theta), {symbol: Followed(value) for symbol, value in part.state.items()}
        self.update(theta, Followed(part.g), **state, **_asked(self.update, part.numbers, group))
        for symbol, value in state.items():
            self.state[p][self.symbols[symbol]] = like(p, value.tensor)
        p.copy_(like(p, theta.tensor))

    def _update_lists(self, parts: list[Part], group: Group) -> None:
        """The same rule for lists of tensors, in pieces that stay in the cache. What does not fit in goes by itself."""
        alike: dict[tuple, list[Part]] = {}
        for one in parts:
            if one.g.is_sparse or one.theta.is_complex():
                self._update_one(one, group)
            else:
                key = one.theta.device, one.theta.dtype, one.g.dtype, *one.state, *one.numbers.values()
                alike.setdefault(key, []).append(one)
        for same in alike.values():
            names, asked = ("theta", "g", *same[0].state), _asked(self.update, same[0].numbers, group)
            for columns in pieces([(one.theta, one.g, *one.state.values()) for one in same]):
                self.update(**dict(zip(names, columns, strict=True)), **asked)

    def explain(self, parameter: int = 0):
        """Formula, line of code and state tensors of one parameter side by side, as they are now.

        parameter  its number, counted through the groups; LabError where there is none.
        """
        from hpml_lab.optim.explain import Explanation  # a training loop does not need what draws

        return Explanation(self, parameter)

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # one that an older version saved
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for saved in self.state.values():  # torch's SGD without momentum may save that there is no velocity
            if isinstance(saved, dict) and all(value is None for value in saved.values()):
                saved.clear()


def _somebody_watches() -> bool:
    return torch.autograd._profiler_enabled() or bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks)


@cache
def _names(rule: Callable) -> tuple[str, ...]:
    return tuple(inspect.signature(rule).parameters)


def _asked(rule: Callable, numbers: dict[str, Any], group: Group) -> dict[str, Any]:
    """What the rule asks for by name, from the step's numbers and the group's options."""
    known = {**group, **numbers, "lr": _scalar(group["lr"])}
    if "betas" in group:
        known["beta1"], known["beta2"] = map(_scalar, group["betas"])
    return {name: known[name] for name in _names(rule) if name in known}


def zeros(theta: Tensor) -> Tensor:
    """A state tensor of θ's shape, strides, dtype and device, filled with 0."""
    return torch.zeros_like(theta, memory_format=torch.preserve_format)


def number(value: float) -> Tensor:
    """A number in the state: on the CPU, and in float32 unless the default dtype is float64, as torch.optim keeps it."""
    return torch.tensor(value, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)


def _scalar(value: Any) -> Any:
    """A tensor with one element as a 0-dimensional one; anything else as it is."""
    return value.squeeze() if isinstance(value, Tensor) and value.ndim else value
