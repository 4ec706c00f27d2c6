"""NAdam: Adam with Nesterov's look-ahead."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros


class NAdam(Optimizer):
    """NAdam (torch.optim.NAdam), with Dozat's warm-up of the momentum; ψ is torch's `momentum_decay`."""

    symbols = {"m": "exp_avg", "v": "exp_avg_sq"}
    explained = ("numbers", "update")
    exact_numbers = ("mu_product",)
    decay_as_pairs = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"step": number(0.0), "mu_product": number(1.0), "exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}

    def numbers(self, state, group, new):
        """The momentum of this step: it warms up with t.

            t = t + 1
            μₜ, μₜ₊₁ = β₁ (1 − ½ · 0.96^(k ψ)) for k = t, t + 1
            Πμ = Πμ · μₜ
        Dozat 2016.
        """
        t = super().numbers(state, group, new)["t"]
        mu, mu_next = (group["betas"][0] * (1 - 0.5 * 0.96 ** (k * group["momentum_decay"])) for k in (t, t + 1))
        product = state["mu_product"] = _times(state["mu_product"], mu)
        return {"t": t, "mu": mu, "mu_next": mu_next, "mu_product": product if product.requires_grad else product.item()}

    @staticmethod
    def update(theta, g, m, v, *, t, mu, mu_next, mu_product, lr, beta1, beta2, eps):
        """The momentum of the next step is applied already. Πμ is the product of all momenta so far.

            m = β₁ m + (1 − β₁) g
            v = β₂ v + (1 − β₂) g²
            s = √(v / (1 − β₂ᵗ)) + ε
            θ = θ − α (1 − μₜ) / (1 − Πμ) · g / s
            θ = θ − α μₜ₊₁ / (1 − Πμ · μₜ₊₁) · m / s
        Dozat 2016.
        """
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        s = v.div(1 - beta2**t).sqrt_().add_(eps)
        theta.addcdiv_(g, s, value=-lr * (1 - mu) / (1 - mu_product))
        theta.addcdiv_(m, s, value=-lr * mu_next / (1 - mu_product * mu_next))


def _times(product: Tensor, mu: float | Tensor) -> Tensor:
    """The product with μ, in place unless a derivative passes through it: the factors are needed for that."""
    tracked = product.requires_grad or isinstance(mu, Tensor) and mu.requires_grad
    return product * mu if tracked else product.mul_(mu)
