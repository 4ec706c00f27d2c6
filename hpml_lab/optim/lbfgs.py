"""L-BFGS: Newton's step, with the inverse Hessian made of the last steps and of how the gradient changed along them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Group, Optimizer, scalar
from hpml_lab.optim.machinery.strong_wolfe import Trial, strong_wolfe
from hpml_lab.optim.machinery.tensor_stand_ins import pairs


class LBFGS(Optimizer):
    """L-BFGS (torch.optim.LBFGS). A step is up to `max_iter` iterations, each of which calls the closure at least once.

    The rule works on all parameters as one vector; its state is that of the first parameter.

    max_eval          the largest number of the closure's calls in one step, 1.25 max_iter by default
    tolerance_grad    an iteration is the last one if no element of the gradient is larger,
    tolerance_change  … or if neither θ nor the loss changes by more
    history_size      how many pairs (s, y) are kept, the newest; in torch it cannot be made smaller in mid-run
    line_search_fn    "strong_wolfe": the length of each step is searched; None: it is the learning rate
    """

    symbols = {"d": "d", "Y": "old_dirs", "S": "old_stps", "rho": "ro", "g_prev": "prev_flat_grad"}
    explained = ("curvature", "direction", "length", "update")
    one_state = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, locals())

    def add_param_group(self, param_group: Group) -> None:
        """The first group only, as all parameters are one vector."""
        super().add_param_group(param_group)
        if len(self.param_groups) > 1:
            self.param_groups.pop()
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def start(self, theta, g, group):
        return {"func_evals": 0, "n_iter": 0}

    @staticmethod
    def curvature(g, d, t, g_prev, Y, S, rho, gamma, *, history_size):
        """What the last step has shown: s, and by how much the gradient changed along it. Kept while the slope has grown.

            s = t d
            y = g − g⁻
            c = y · s
            Y = Y, y: the newest of them, if c > 10⁻¹⁰
            S = S, s: likewise
            ρ = ρ, 1 / c: likewise
            γ = c / (y · y), if c > 10⁻¹⁰
        Liu and Nocedal 1989.
        """
        s = d.mul(t)
        y = g.sub(g_prev)
        c = y.dot(s)
        if c > 1e-10:
            append_(Y, y, history_size)
        if c > 1e-10:
            append_(S, s, history_size)
        if c > 1e-10:
            append_(rho, 1.0 / c, history_size)
        gamma = c / y.dot(y) if c > 1e-10 else gamma
        return gamma

    @staticmethod
    def direction(g, g_prev, Y, S, rho, gamma, a):
        """The inverse Hessian times −g, without a matrix: γ times the unit matrix, corrected by each pair (s, y).

            d = −g
            g⁻ = g
            aᵢ = ρᵢ sᵢ · d; d = d − aᵢ yᵢ, from the newest pair to the oldest
            d = γ d
            d = d + (aᵢ − ρᵢ yᵢ · d) sᵢ, from the oldest pair to the newest
        Nocedal 1980; Nocedal and Wright 2006, Algorithm 7.4.
        """
        d = g.neg()
        g_prev.copy_(g)
        for i in reversed(range(len(Y))):
            a[i] = S[i].dot(d) * rho[i]
            d.add_(Y[i], alpha=-a[i])
        d = d.mul(gamma)
        for i in range(len(Y)):
            d.add_(S[i], alpha=a[i] - Y[i].dot(d) * rho[i])
        return d

    @staticmethod
    def length(g, *, lr, first):
        """A step of length t = 1 is right where the curvature is known; the very first one has only the gradient.

            t = α min(1, 1 / ‖g‖₁) in the very first iteration, α later
        After torch.optim.LBFGS.
        """
        t = min(1.0, 1.0 / g.abs().sum()) * lr if first else lr
        return t

    @staticmethod
    def update(theta, d, *, t):
        """With line_search_fn, t is what the search along d found.

            θ = θ + t d
        Nocedal and Wright 2006, Algorithm 7.5.
        """
        theta.add_(d, alpha=t)

    @torch.no_grad()
    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step: some iterations. Returns the closure's loss before the first of them."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        [group] = self.param_groups
        closure, params, sign = torch.enable_grad()(closure), group["params"], -1 if group["maximize"] else 1
        loss = closure()
        if not params:
            return loss
        state = self.state[params[0]]
        for name, value in self.start(params[0], params[0], group).items():
            state.setdefault(name, value)
        f, g, evaluations = sign * float(loss), self._gradient(), 1
        state["func_evals"] += 1
        if g.abs().max() <= group["tolerance_grad"]:
            return loss
        names = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
        d, t, Y, S, rho, gamma, g_prev, f_prev = map(state.get, names)
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if first := state["n_iter"] == 1:
                Y, S, rho, gamma, g_prev = [], [], [], 1, torch.empty_like(g)
            else:
                gamma = self.curvature(g, d, t, g_prev, Y, S, rho, gamma, history_size=group["history_size"])
                a = state.setdefault("al", [None] * group["history_size"])
                a.extend([None] * (len(Y) - len(a)))
            d = self.direction(g, g_prev, Y, S, rho, gamma, state.get("al"))
            f_prev, slope, t = f, g.dot(d), self.length(g, lr=scalar(group["lr"]), first=first)
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"]:
                start = [p.clone() for p in params]
                (t, f, g, _), calls = strong_wolfe(
                    Trial(0, f, g, slope),
                    t,
                    partial(self._try, closure, start, d),
                    group["max_eval"] - evaluations,
                    d.abs().max(),
                )
            self._move(d, t)
            if not group["line_search_fn"] and iteration < group["max_iter"]:
                f, g, calls = sign * float(closure()), self._gradient(), 1
            evaluations += calls
            state["func_evals"] += calls
            if (
                evaluations >= group["max_eval"]
                or g.abs().max() <= group["tolerance_grad"]
                or d.mul(t).abs().max() <= group["tolerance_change"]
                or abs(f - f_prev) < group["tolerance_change"]
            ):
                break
        state.update(zip(names, (d, t, Y, S, rho, gamma, g_prev, f_prev), strict=True))
        return loss

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one vector; the opposite ones for `maximize`. A missing one is 0."""
        [group] = self.param_groups
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in group["params"]]
        g = torch.cat([pairs(g.to_dense() if g.is_sparse else g).reshape(-1) for g in gradients])
        return g.neg_() if group["maximize"] else g

    def _move(self, d: Tensor, t: Any) -> None:
        thetas = [pairs(p) for p in self.param_groups[0]["params"]]
        for theta, part in zip(thetas, d.split([theta.numel() for theta in thetas]), strict=True):
            self.update(theta, part.view_as(theta), t=t)

    def _try(self, closure: Callable[[], Any], start: list[Tensor], d: Tensor, t: Any) -> Trial:
        """The loss, the gradient and the slope at a length; the parameters stay at the start."""
        self._move(d, t)
        [group] = self.param_groups
        f, g = float(closure()), self._gradient()
        for p, value in zip(group["params"], start, strict=True):
            p.copy_(value)
        return Trial(t, -f if group["maximize"] else f, g, g.dot(d))


def append_(kept: list[Tensor], value: Tensor, most: int) -> None:
    """Add a value to a list, of which only the newest ones are kept."""
    while len(kept) >= most:
        kept.pop(0)
    kept.append(value)
