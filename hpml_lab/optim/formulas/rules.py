"""The update rules as the papers and the lecture print them: one line of code for each line of the formula.

A rule takes the parameter θ, the gradient g at θ and the rule's state, and returns the new θ. It uses only arithmetic (+, -, *,
/, √, max) and choices, so the same lines update a Python float under a slider, a tensor of 40 000 settings, or an mpmath
number. LARS, LAMB and NovoGrad also use the norm of a layer, whose parameters then are a tensor's first axis, or a `Floats`.

`s` holds the state under the formula's names; its entries are replaced, never changed in place. The classes in the other
modules of this package compute the same rules in torch.optim's order of operations, and so with its rounding.

α learning rate, γ momentum, ρ and β decay rates, ε smoothing term, η trust coefficient, t the number of the step, from 1.
"""

from hpml_lab.optim.formulas.arithmetic import above, largest, norm, ratio, sqrt


def gradient_descent(theta, g, s, t, lr=0.1):
    """Gradient descent: a step against the gradient.

        θ = θ − α g
    Lecture 0, slide "Gradient Descent - Recap".
    """
    theta = theta - lr * g
    return theta


def momentum(theta, g, s, t, lr=0.1, momentum=0.9):
    """Momentum in torch's form: the learning rate stands outside the velocity.

        b = γ b + g
        θ = θ − α b
    Polyak 1964; torch.optim.SGD(momentum=γ).
    """
    s.b = momentum * s.b + g
    theta = theta - lr * s.b
    return theta


def nesterov(theta, g, s, t, lr=0.1, momentum=0.9):
    """Nesterov momentum in torch's form: θ is the look-ahead point itself.

        b = γ b + g
        θ = θ − α (g + γ b)
    Sutskever et al. 2013, after a change of variables; torch.optim.SGD(momentum=γ, nesterov=True).
    """
    s.b = momentum * s.b + g
    theta = theta - lr * (g + momentum * s.b)
    return theta


def adagrad(theta, g, s, t, lr=0.01, eps=1e-10):
    """Adagrad in torch's form: ε outside the root.

        G = G + g²
        θ = θ − α g / (√G + ε)
    Duchi et al. 2011; torch.optim.Adagrad.
    """
    s.G = s.G + g * g
    theta = theta - lr * g / (sqrt(s.G) + eps)
    return theta


def adadelta(theta, g, s, t, lr=1.0, rho=0.9, eps=1e-6):
    """Adadelta: the step has the parameter's unit, so α = 1.

        E[g²] = ρ E[g²] + (1 − ρ) g²
        Δ = √(E[Δ²] + ε) / √(E[g²] + ε) · g
        E[Δ²] = ρ E[Δ²] + (1 − ρ) Δ²
        θ = θ − α Δ
    Zeiler 2012, Algorithm 1; torch.optim.Adadelta.
    """
    s.E_g2 = rho * s.E_g2 + (1 - rho) * g * g
    s.delta = sqrt(s.E_delta2 + eps) / sqrt(s.E_g2 + eps) * g
    s.E_delta2 = rho * s.E_delta2 + (1 - rho) * s.delta * s.delta
    theta = theta - lr * s.delta
    return theta


def rmsprop(theta, g, s, t, lr=0.01, alpha=0.99, eps=1e-8):
    """RMSprop: the gradient divided by a running average of its recent magnitude. Here ρ is torch's `alpha`.

        v = ρ v + (1 − ρ) g²
        θ = θ − α g / (√v + ε)
    Hinton's lecture 6e; torch.optim.RMSprop.
    """
    s.v = alpha * s.v + (1 - alpha) * g * g
    theta = theta - lr * g / (sqrt(s.v) + eps)
    return theta


def adam(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adam: both moments as running averages, corrected for their start at zero.

        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ)
        v̂ = v / (1 − β₂ᵗ)
        θ = θ − α m̂ / (√v̂ + ε)
    Kingma and Ba 2015, Algorithm 1; torch.optim.Adam.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    s.m_hat = s.m / (1 - beta1**t)
    s.v_hat = s.v / (1 - beta2**t)
    theta = theta - lr * s.m_hat / (sqrt(s.v_hat) + eps)
    return theta


def adamw(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    """AdamW: Adam with the decay λ subtracted from the parameter, not added to the gradient.

        θ = θ − α λ θ
        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ)
        v̂ = v / (1 − β₂ᵗ)
        θ = θ − α m̂ / (√v̂ + ε)
    Loshchilov and Hutter 2019, Algorithm 2; torch.optim.AdamW.
    """
    theta = theta - lr * weight_decay * theta
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    s.m_hat = s.m / (1 - beta1**t)
    s.v_hat = s.v / (1 - beta2**t)
    theta = theta - lr * s.m_hat / (sqrt(s.v_hat) + eps)
    return theta


def adamax(theta, g, s, t, lr=0.002, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adamax: Adam with the largest recent gradient in place of the second moment.

        m = β₁ m + (1 − β₁) g
        u = max(β₂ u, |g| + ε)
        θ = θ − α / (1 − β₁ᵗ) · m / u
    Kingma and Ba 2015, Algorithm 2 (there without ε); torch.optim.Adamax.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.u = largest(beta2 * s.u, abs(g) + eps)
    theta = theta - lr / (1 - beta1**t) * s.m / s.u
    return theta


def nadam(theta, g, s, t, lr=0.002, beta1=0.9, beta2=0.999, eps=1e-8, momentum_decay=0.004):
    """NAdam: Adam with Nesterov's look-ahead, whose momentum μ warms up. ψ is torch's `momentum_decay`.

        μ = β₁ (1 − ½ · 0.96^(t ψ))
        μ⁺ = β₁ (1 − ½ · 0.96^((t+1) ψ))
        Πμ = Πμ · μ
        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        v̂ = v / (1 − β₂ᵗ)
        m̂ = μ⁺ m / (1 − Πμ · μ⁺) + (1 − μ) g / (1 − Πμ)
        θ = θ − α m̂ / (√v̂ + ε)
    Dozat 2016; torch.optim.NAdam.
    """
    mu = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))
    mu_next = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
    s.mu_product = s.mu_product * mu
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    s.v_hat = s.v / (1 - beta2**t)
    s.m_hat = mu_next * s.m / (1 - s.mu_product * mu_next) + (1 - mu) * g / (1 - s.mu_product)
    theta = theta - lr * s.m_hat / (sqrt(s.v_hat) + eps)
    return theta


def radam(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    """RAdam: momentum's steps while v averages over few gradients (ρ ≤ 5); then Adam's, at first shorter by the factor r.

        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        ρ∞ = max(2 / (1 − β₂) − 1, 5)
        ρ = ρ∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)
        q = max(ρ, 5)
        r = √((q − 4) (q − 2) ρ∞ / ((ρ∞ − 4) (ρ∞ − 2) q))
        k = √(1 − β₂ᵗ) / (√v + ε)
        θ = θ − α m / (1 − β₁ᵗ) · (k r if ρ > 5, else 1)
    Liu et al. 2020, Algorithm 2; torch.optim.RAdam.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    rho_inf = largest(2 / (1 - beta2) - 1, 5)
    rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
    q = largest(rho, 5)
    r = sqrt((q - 4) * (q - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * q))
    k = sqrt(1 - beta2**t) / (sqrt(s.v) + eps)
    theta = theta - lr * s.m / (1 - beta1**t) * above(rho, 5, k * r, 1)
    return theta


def rprop(theta, g, s, t, lr=0.01, eta_minus=0.5, eta_plus=1.2):
    """Rprop: a step size Δ for each parameter, which grows while its gradient keeps its sign. α is the first one.

        c = g g⁻
        η = η⁺ if c > 0, η⁻ if c < 0, else 1
        Δ = η Δ, at first η α
        Δ = Δ, at least 10⁻⁶ and at most 50
        g⁻ = 0 if c < 0, else g
        θ = θ − Δ if g⁻ > 0, θ + Δ if g⁻ < 0
    Riedmiller and Braun 1993; torch.optim.Rprop.
    """
    c = g * s.g_prev
    eta = above(c, 0, eta_plus, above(0, c, eta_minus, 1))
    size = eta * (lr if t == 1 else s.size)
    s.size = above(size, 50, 50, largest(size, 1e-6))
    s.g_prev = above(0, c, 0, g)
    theta = above(s.g_prev, 0, theta - s.size, above(0, s.g_prev, theta + s.size, theta))
    return theta


def lars(theta, g, s, t, lr=1.0, momentum=0.9, trust_coeff=0.001, eps=1e-8):
    """LARS: momentum over steps that are in proportion to the norm of the layer's weights.

        r = η ‖θ‖ / (‖g‖ + ε), or 1 where a norm is 0
        b = γ b + r g
        θ = θ − α b
    You et al. 2017, Algorithm 1, without weight decay; hpml_lab.optim.LARS.
    """
    s.r = ratio(trust_coeff * norm(theta), norm(g) + eps)
    s.b = momentum * s.b + s.r * g
    theta = theta - lr * s.b
    return theta


def lamb(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01):
    """LAMB: AdamW's direction u, with the norm of the layer's weights as its length.

        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        u = m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε) + λ θ
        r = ‖θ‖ / ‖u‖, or 1 where a norm is 0
        θ = θ − α r u
    You et al. 2019, Algorithm 2; hpml_lab.optim.LAMB.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    u = s.m / (1 - beta1**t) / (sqrt(s.v / (1 - beta2**t)) + eps) + weight_decay * theta
    s.r = ratio(norm(theta), norm(u))
    theta = theta - lr * s.r * u
    return theta


def novograd(theta, g, s, t, lr=0.001, beta1=0.95, beta2=0.98, eps=1e-8):
    """NovoGrad: momentum over gradients that are divided by an average of the layer's norm: v is one number.

        n = ‖g‖
        v = n² at the first step, β₂ v + (1 − β₂) n² later
        m = β₁ m + g / (√v + ε)
        θ = θ − α m
    Ginsburg et al. 2019, Algorithm 1, without weight decay; hpml_lab.optim.NovoGrad.
    """
    n = norm(g)
    s.v = n * n if t == 1 else beta2 * s.v + (1 - beta2) * n * n
    s.m = beta1 * s.m + g / (sqrt(s.v) + eps)
    theta = theta - lr * s.m
    return theta


def lecture_momentum(theta, g, s, t, lr=0.1, momentum=0.9):
    """Momentum as the lecture writes it: the learning rate is inside the velocity.

        v = γ v + α g
        θ = θ − v
    Lecture 0, slide "Momentum".
    """
    s.v = momentum * s.v + lr * g
    theta = theta - s.v
    return theta


def lecture_nesterov(theta, g, s, t, lr=0.1, momentum=0.9):
    """Nesterov momentum as the lecture writes it: g is the gradient at the look-ahead point θ − γ v.

        v = γ v + α g
        θ = θ − v
    Lecture 0, slide "Nesterov Momentum".
    """
    s.v = momentum * s.v + lr * g
    theta = theta - s.v
    return theta


def lecture_adagrad(theta, g, s, t, lr=0.01, eps=1e-8):
    """Adagrad as the lecture writes it: ε inside the root.

        G = G + g²
        θ = θ − α g / √(G + ε)
    Lecture 0, slide "Adagrad".
    """
    s.G = s.G + g * g
    theta = theta - lr * g / sqrt(s.G + eps)
    return theta


def ruder_rmsprop(theta, g, s, t, lr=0.001, alpha=0.9, eps=1e-8):
    """RMSprop as Ruder writes it: ε inside the root.

        v = ρ v + (1 − ρ) g²
        θ = θ − α g / √(v + ε)
    Ruder 2016, which the lecture names for further reading.
    """
    s.v = alpha * s.v + (1 - alpha) * g * g
    theta = theta - lr * g / sqrt(s.v + eps)
    return theta


def paper_adamax(theta, g, s, t, lr=0.002, beta1=0.9, beta2=0.999):
    """Adamax as its paper writes it: without ε, so a gradient that starts at zero divides 0 by 0.

        m = β₁ m + (1 − β₁) g
        u = max(β₂ u, |g|)
        θ = θ − α / (1 − β₁ᵗ) · m / u
    Kingma and Ba 2015, Algorithm 2.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.u = largest(beta2 * s.u, abs(g))
    theta = theta - lr / (1 - beta1**t) * s.m / s.u
    return theta


def ruder_nadam(theta, g, s, t, lr=0.002, beta1=0.9, beta2=0.999, eps=1e-8):
    """NAdam as Ruder writes it: a constant momentum in place of Dozat's schedule.

        m = β₁ m + (1 − β₁) g
        v = β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ)
        v̂ = v / (1 − β₂ᵗ)
        θ = θ − α (β₁ m̂ + (1 − β₁) g / (1 − β₁ᵗ)) / (√v̂ + ε)
    Ruder 2016, which the lecture names for further reading.
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    s.m_hat = s.m / (1 - beta1**t)
    s.v_hat = s.v / (1 - beta2**t)
    theta = theta - lr * (beta1 * s.m_hat + (1 - beta1) * g / (1 - beta1**t)) / (sqrt(s.v_hat) + eps)
    return theta
