"""What the optimizers share: torch.optim's contract around one update rule.

A class of this package is a `torch.optim.Optimizer`, so parameter groups, schedulers, hooks, GradScaler and state_dict work
with it. It adds only its options, the state that it keeps for a parameter, and `update`, whose statements are the lines of
the formula. The same `update` works on

- tensors, one parameter after the other: bitwise identical to torch's plain for-loop on the CPU;
- lists of tensors updated together: `foreach=True`, the default on a GPU, as in torch;
- tensors that autograd tracks: `differentiable=True`.

A parameter that is listed twice is updated as by torch's for-loop only without `foreach=True`: with it, torch's results differ
from those of its own loop, and these here can differ from both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.signatures import signature_of
from hpml_lab.optim.machinery.options import check_options
from hpml_lab.optim.machinery.tensor_stand_ins import ComplexStep, Tracked, chunks, like, pairs

if TYPE_CHECKING:
    from hpml_lab.optim.formulas.explain import Explanation  # a training loop does not need it

NUMBERS = ("step", "eta", "mu", "mu_product")  # in a state, which may hold others of the reader's own
State = dict[str, Any]
Group = dict[str, Any]


@dataclass
class ParamState:
    """One parameter in a step: θ, its gradient (sign and L2 decay applied), its state, and the numbers of this step."""

    theta: Tensor
    g: Tensor
    state: dict[str, Tensor]  # under the formula's names
    numbers: dict[str, Any]

    @property
    def real(self) -> "ParamState":
        """The same parameter with complex numbers viewed as pairs of real numbers."""
        state = {name: pairs(value) for name, value in self.state.items()}
        return ParamState(pairs(self.theta), pairs(self.g), state, self.numbers)


class Optimizer(torch.optim.Optimizer):
    """An optimizer given by `symbols`, `start`, `numbers` and `update`."""

    symbols: dict[str, str] = {}  # a state tensor's name in the formula: its name in state_dict, which is torch.optim's
    takes_sparse = False  # `update` also works on sparse gradients
    takes_lists = True  # … and on lists of tensors, and on pieces of a large one
    exact_numbers: tuple[str, ...] = ()  # numbers in the state that keep their precision when loaded
    plain_numbers: tuple[str, ...] = ()  # … and those that are no tensors, as in torch.optim
    started_by: dict[str, str | None] = {}  # a state tensor that may be started later: the option with which it is, None: any
    complex_as_pairs = True  # a complex parameter is updated as pairs of real numbers
    decay_as_pairs = False  # … and so is its decay
    complex_step = False  # … except in the last line, as in torch.optim, because complex numbers are rounded differently
    update_sparse: Callable | None = None  # the rule for sparse gradients, if it differs
    one_state = False  # the state of all parameters together is kept as that of the first one
    explained: tuple[str, ...] = ("update",)  # the methods whose lines `explain` shows

    def __init__(self, params: ParamsT, options: dict[str, Any]) -> None:
        """`options` are the local variables of the class's own __init__: its signature is the list of its options."""
        options = {name: value for name, value in options.items() if name not in ("self", "params", "__class__")}
        check_options(options)
        super().__init__(params, options)

    def add_param_group(self, param_group: Group) -> None:
        """Like torch's method, but options given for one group are checked too; torch accepts them unchecked."""
        if isinstance(param_group, dict):
            check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    # ---- what a class defines -------------------------------------------------------------------------------

    def start(self, theta: Tensor, g: Tensor, group: Group) -> State:
        """The state before the first step, in torch.optim's names and order."""
        raise NotImplementedError

    def numbers(self, state: State, group: Group, new: bool) -> dict[str, Any]:
        """The numbers shared by all elements of a parameter in this step. Counts the step: t starts at 1."""
        step = state["step"]
        step.fill_(step.item() + 1)  # takes a third of the time of += 1
        return {"t": step.item()}  # read from the state again: float32 holds no odd number above 2²⁴

    def before_updates(self) -> None:
        """What a step needs to know about all gradients together, before the first update."""

    @staticmethod
    def update(theta: Tensor, g: Tensor, **state_numbers_and_options: Any) -> None:
        """The rule: changes θ and the state in place, one statement for each line of the formula."""
        raise NotImplementedError

    # ---- what all classes share ------------------------------------------------------------------------------------

    @staticmethod  # None in a class that has none, or whose `update` contains it
    def decay(theta: Tensor, g: Tensor, lr: Any, weight_decay: Any, decoupled: bool) -> Tensor:
        """Weight decay λ: subtracted from θ itself (decoupled, as in AdamW) or added to the gradient (L2). Returns g.

            θ = θ − α λ θ, if decoupled
            g = g + λ θ, if not
        Loshchilov and Hutter 2019.
        """
        if weight_decay and decoupled: theta.mul_(1 - lr * weight_decay)  # fmt: skip
        if weight_decay and not decoupled: g = g.add(theta, alpha=weight_decay)  # fmt: skip
        return g

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that has a gradient. Returns the closure's loss, or None without a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # As in torch.optim it is what the optimizer was made for: a file that says otherwise does not change the parameters.
        tracked = self.defaults.get("differentiable", False)
        with torch.set_grad_enabled(tracked):
            self.before_updates()
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                for p in params:
                    self._require_taken(p)
                as_lists = group.get("foreach")
                if as_lists is None:
                    as_lists = bool(params) and all(p.is_cuda for p in params)
                started: set[Tensor] = set()
                if as_lists and self.takes_lists and not tracked:
                    self._update_lists([self._param_state(p, group, started) for p in params], group)
                    continue
                # One after the other, as torch does: a parameter may be twice in a group, and decayed gradients are copies.
                update = self._update_tracked if tracked else self._update_single
                for p in params:
                    update(self._param_state(p, group, started), group)
        return loss

    @torch.optim.Optimizer.profile_hook_step
    def _step_with_hooks(self, *closure: Any, **by_name: Any) -> Any:
        return self._step(*closure, **by_name)

    @wraps(_step)
    def step(self, *closure: Any, **by_name: Any) -> Any:  # hooks see the arguments as they were given
        if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _hooks_or_profiler_active():
            return self._step_with_hooks(*closure, **by_name)
        return self._step(*closure, **by_name)

    # torch.optim would wrap `step` on its own; its profiler record costs a fifth of a small net's step even without a profiler.
    step.hooked = True

    def _require_taken(self, p: Tensor) -> None:
        """Raise RuntimeError for a parameter or a gradient of a kind that the rule does not take: before any is updated."""
        if p.grad.is_sparse and not (self.takes_sparse or self.update_sparse):
            raise RuntimeError(self._sparse_error_message())

    def _param_state(self, p: Tensor, group: Group, started: set[Tensor]) -> ParamState:
        """Apply sign and decay to the gradient of one parameter, create its state if needed, and count its step.

        `started` collects whose state is new in this step: it is new at each place of a parameter that is twice in the group.
        """
        g, weight_decay = p.grad, group.get("weight_decay", 0)
        if group.get("maximize"):
            g = -g
        if weight_decay and self.decay:
            g = self._decayed(p, g, group)
        state = self.state.get(p)
        if not state:
            state = self.start(p, g, group)
            if state:
                self.state[p] = state
            started.add(p)
        elif any(name not in state and (not option or group[option]) for name, option in self.started_by.items()):  # on since
            state.update({name: value for name, value in self.start(p, g, group).items() if name not in state})
            started.add(p)
        numbers = self.numbers(state, group, p in started)
        return ParamState(p, g, {symbol: state[name] for symbol, name in self.symbols.items() if name in state}, numbers)

    def _decayed(self, p: Tensor, g: Tensor, group: Group) -> Tensor:
        """The gradient after weight decay, which changes p itself if it is decoupled."""
        options = scalar(group["lr"]), group["weight_decay"], group.get("decoupled_weight_decay", False)
        if not self.defaults.get("differentiable", False):
            return self.decay(pairs(p), pairs(g), *options) if self.decay_as_pairs else self.decay(p, g, *options)
        theta = Tracked(kept := p.clone())  # the decay, too, may require a gradient, which needs θ as it was
        g = self.decay(theta, Tracked(g), *options).tensor
        if theta.tensor is not kept:
            p.copy_(theta.tensor)
        return g

    def _sparse_error_message(self) -> str:
        return f"{type(self).__name__} does not support sparse gradients"

    def _update_single(self, param: ParamState, group: Group) -> None:
        rule = self.update_sparse if param.g.is_sparse and self.update_sparse else self.update
        theta = param.theta
        if theta.is_complex() and self.complex_as_pairs:
            param = param.real
            theta = ComplexStep(theta) if self.complex_step else param.theta
        rule(theta, param.g, **param.state, **_arguments(rule, param.numbers, group))

    def _update_tracked(self, param: ParamState, group: Group) -> None:
        if param.g.is_sparse and self.update_sparse:  # it changes single elements, in place
            return self._update_single(param, group)
        p, param = param.theta, param.real if self.complex_as_pairs else param
        theta = Tracked(param.theta.clone())  # a rule may keep θ for the backward pass, and p is changed below
        state = {symbol: Tracked(value) for symbol, value in param.state.items()}
        self.update(theta, Tracked(param.g), **state, **_arguments(self.update, param.numbers, group))
        for symbol, value in state.items():
            self.state[p][self.symbols[symbol]] = like(p, value.tensor)
        p.copy_(like(p, theta.tensor))

    def _update_lists(self, params: list[ParamState], group: Group) -> None:
        """The same rule for lists of tensors, in chunks that stay in the cache. Sparse and complex ones are updated singly."""
        batches: dict[tuple, list[ParamState]] = {}
        for param in params:
            if param.g.is_sparse or param.theta.is_complex():
                self._update_single(param, group)
            else:
                key = param.theta.device, param.theta.dtype, param.g.dtype, *param.state, *param.numbers.values()
                batches.setdefault(key, []).append(param)
        for batch in batches.values():
            names, arguments = ("theta", "g", *batch[0].state), _arguments(self.update, batch[0].numbers, group)
            for columns in chunks([(param.theta, param.g, *param.state.values()) for param in batch]):
                self.update(**dict(zip(names, columns, strict=True)), **arguments)

    def explain(self, parameter: int = 0) -> "Explanation":
        """Show formula, line of code and state tensors of one parameter side by side, with their present values.

        parameter  its index, counted over all groups. Raises LabError if there is no such parameter.
        """
        from hpml_lab.optim.formulas.explain import Explanation

        return Explanation(self, parameter)

    def load_state_dict(self, state_dict: State) -> None:
        """Like torch's method, but `exact_numbers` keep their dtype: torch casts them to θ's (8 bits for bfloat16)."""
        given: State = {}
        last = self.register_load_state_dict_pre_hook(lambda _, loaded: given.update(loaded))  # what other hooks made of it
        self._loaded = given
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
            del self._loaded

    def __setstate__(self, state: State) -> None:
        if getattr(self, "_loaded", {}):
            self._check_loaded(state)
        known = "differentiable" in (state.get("defaults") or self.defaults)
        super().__setstate__(state)
        if not known:  # torch gives each optimizer this default, and a group must not get it as an option
            self.defaults.pop("differentiable", None)
        for group in self.param_groups:  # a group saved by an older version
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        if given := getattr(self, "_loaded", {}):
            indices = chain.from_iterable(group["params"] for group in given["param_groups"])
            mine = chain.from_iterable(group["params"] for group in self.param_groups)
            for index, p in zip(indices, mine, strict=True):
                saved = given["state"].get(index, {})
                for name in self.exact_numbers:
                    if name in saved:
                        self.state[p][name] = saved[name].clone() if isinstance(saved[name], Tensor) else saved[name]
        for saved in self.state.values():
            if not isinstance(saved, dict):
                continue
            for name, value in saved.items():  # older versions of torch have plain numbers, other programs those of NumPy
                if name in NUMBERS and isinstance(value, Real) and name not in self.plain_numbers:
                    saved[name] = number(value)
            if all(value is None for value in saved.values()):  # torch's SGD without momentum may save a velocity of None
                saved.clear()

    def _check_loaded(self, loaded: State) -> None:
        """Raise LabError for a file that lacks a state of the rule. torch.optim takes it, and fails at the next step."""
        for group in loaded["param_groups"]:
            for p in group["params"]:
                known, bare = loaded["state"].get(p), torch.empty_like(p, device="meta")
                for name, value in self.start(bare, bare, {**self.defaults, **group}).items() if known else ():
                    may_start = name in self.started_by and (self.started_by[name] or self.defaults.keys() <= group.keys())
                    found = known.get(name, None if may_start else torch.empty(0))
                    if isinstance(found, Tensor) and isinstance(value, Tensor) and found.numel() != value.numel():
                        raise LabError(
                            f"this file has no {name!r} as {type(self).__name__} keeps it for a parameter of the shape "
                            f"{tuple(p.shape)}: it has {', '.join(known)}.",
                            "Load a file that an optimizer of the same class has saved, of the same parameters.",
                        )


def _hooks_or_profiler_active() -> bool:
    return torch.autograd._profiler_enabled() or bool(_global_optimizer_pre_hooks or _global_optimizer_post_hooks)


@cache
def _names(rule: Callable) -> tuple[str, ...]:
    return tuple(signature_of(rule).parameters)


def _arguments(rule: Callable, numbers: dict[str, Any], group: Group) -> dict[str, Any]:
    """The rule's arguments by name, taken from the step's numbers and the group's options."""
    known = {**group, **numbers, "lr": scalar(group["lr"])}
    if "betas" in group:
        known["beta1"], known["beta2"] = map(scalar, group["betas"])
    if "etas" in group:
        known["etas"] = tuple(map(scalar, group["etas"]))
    return {name: known[name] for name in _names(rule) if name in known}


def zeros(theta: Tensor) -> Tensor:
    """A state tensor of θ's shape, strides, dtype and device, filled with 0."""
    return torch.zeros_like(theta, memory_format=torch.preserve_format)


def number(value: float) -> Tensor:
    """A number in the state: on the CPU, in float32 unless the default dtype is float64, as in torch.optim."""
    return torch.tensor(value, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)


def scalar(value: Any) -> Any:
    """A one-element tensor as a 0-dimensional one; anything else unchanged."""
    return value.squeeze() if isinstance(value, Tensor) and value.ndim else value
