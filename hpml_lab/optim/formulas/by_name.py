"""The update rules by name, each with its title, state and defaults: `FORMULAS["adam"].run(start, gradients, lr=0.1)`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from hpml_lab.core.system.signatures import signature_of
from hpml_lab.optim.formulas import rules
from hpml_lab.optim.formulas.arithmetic import Number
from hpml_lab.optim.formulas.lines import formula_lines

State = SimpleNamespace


@dataclass(frozen=True)
class Formula:
    """One update rule: `step(theta, g, state, t, **hyperparameters)` returns the new θ."""

    name: str
    title: str
    step: Callable[..., Number]
    state: dict[str, float]  # the state's entries and their start values
    torch_equivalent: str | None = None  # the class of torch.optim, and of this package, with the same rule

    @cached_property
    def defaults(self) -> dict[str, float]:
        """The hyperparameters by name, with their defaults."""
        parameters = signature_of(self.step).parameters.values()
        return {option.name: option.default for option in parameters if option.default is not option.empty}

    @property
    def layerwise(self) -> bool:
        """Whether the rule needs norms, and so all parameters of a layer in one tensor."""
        return "norm" in self.step.__code__.co_names

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The pairs (formula, statement of code)."""
        return formula_lines(self.step)

    def start(self, theta: Number) -> State:
        """The state before the first step, of θ's shape."""
        return State(**{name: 0 * theta + value for name, value in self.state.items()})

    def run(
        self,
        start: Number,
        stream: Iterable,
        gradient: Callable[[Number, Any], Number] | None = None,
        lr: Number | Callable[[int], Number] | None = None,
        **hyper: Number,
    ) -> Iterator[tuple[Number, Number, State]]:
        """Apply the rule along a list of gradients: yields (θ, g, state) after each step.

        stream    one gradient per step; with `gradient`, whatever that function needs for a step
        gradient  (θ, item of the stream) -> gradient, for gradients that depend on where they are taken
        lr        a learning rate, or a function of the step t = 1, 2, …

        The state is the same object in every step: copy the entries that you keep.
        """
        theta, state = start, self.start(start)
        for t, item in enumerate(stream, 1):
            if lr is not None:
                hyper["lr"] = lr(t) if callable(lr) else lr
            g = item if gradient is None else gradient(self.gradient_point(theta, state, **hyper), item)
            theta = self.step(theta, g, state, t, **hyper)
            yield theta, g, state

    def gradient_point(self, theta: Number, s: State, **hyper: Number) -> Number:
        """Where the rule needs its gradient: at θ, except for the lecture's Nesterov momentum, which needs it at θ − γ v."""
        if self.step is rules.lecture_nesterov:
            return theta - hyper.get("momentum", self.defaults["momentum"]) * s.v
        return theta


def _formula(title: str, step: Callable[..., Number], torch_equivalent: str | None = None, **state: float) -> Formula:
    return Formula(step.__name__, title, step, state, torch_equivalent)


FORMULAS: dict[str, Formula] = {
    formula.name: formula
    for formula in (
        _formula("gradient descent", rules.gradient_descent, "SGD"),
        _formula("momentum", rules.momentum, "SGD", b=0.0),
        _formula("Nesterov", rules.nesterov, "SGD", b=0.0),
        _formula("Rprop", rules.rprop, "Rprop", size=0.0, g_prev=0.0),
        _formula("Adagrad", rules.adagrad, "Adagrad", G=0.0),
        _formula("Adadelta", rules.adadelta, "Adadelta", E_g2=0.0, delta=0.0, E_delta2=0.0),
        _formula("RMSprop", rules.rmsprop, "RMSprop", v=0.0),
        _formula("Adam", rules.adam, "Adam", m=0.0, v=0.0, m_hat=0.0, v_hat=0.0),
        _formula("AdamW", rules.adamw, "AdamW", m=0.0, v=0.0, m_hat=0.0, v_hat=0.0),
        _formula("Adamax", rules.adamax, "Adamax", m=0.0, u=0.0),
        _formula("NAdam", rules.nadam, "NAdam", mu_product=1.0, m=0.0, v=0.0, v_hat=0.0, m_hat=0.0),
        _formula("RAdam", rules.radam, "RAdam", m=0.0, v=0.0),
        _formula("LARS", rules.lars, r=1.0, b=0.0),
        _formula("LAMB", rules.lamb, m=0.0, v=0.0, r=1.0),
        _formula("NovoGrad", rules.novograd, v=0.0, m=0.0),
        _formula("momentum, lecture's form", rules.lecture_momentum, v=0.0),
        _formula("Nesterov, lecture's form", rules.lecture_nesterov, v=0.0),
        _formula("Adagrad, lecture's form", rules.lecture_adagrad, G=0.0),
        _formula("RMSprop, Ruder's form", rules.ruder_rmsprop, v=0.0),
        _formula("Adamax, the paper's form", rules.paper_adamax, m=0.0, u=0.0),
        _formula("NAdam, Ruder's form", rules.ruder_nadam, m=0.0, v=0.0, m_hat=0.0, v_hat=0.0),
    )
}
