"""mixture-log-likelihood: the logarithm of a mixture of Gaussians, also where its densities are too small for a float."""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

HALF_LOG = math.log(2 * math.pi) / 2


def right(logits: Tensor, mu: Tensor, sigma: Tensor, t: Tensor) -> Tensor:
    log_pi = log_softmax(logits, 1)
    z = (t[:, None] - mu) / sigma
    log_n = -(z**2) / 2 - sigma.log() - HALF_LOG
    found = (log_pi + log_n).logsumexp(1)
    return found


def log_softmax(logits: Tensor, axis: int) -> Tensor:
    """As torch's, which asks all threads for help, however small the tensor: slow while others use the processor."""
    return logits - logits.logsumexp(axis, keepdim=True)


def averaged(logits: Tensor, mu: Tensor, sigma: Tensor, t: Tensor) -> Tensor:
    """One Gaussian with the mean parameters."""
    pi = log_softmax(logits, 1).exp()
    return right(logits[:, :1], (pi * mu).sum(1, keepdim=True), (pi * sigma).sum(1, keepdim=True), t)


_EPSILON = "Far from all components the density is less than the small number that you add, or clamp to: it hides the error."
RUBRIC = Rubric(
    right,
    """
(log_pi + log_n).logsumexp(1)
    weights-outside-the-log :: (log_pi.exp() * log_n).sum(1) :: You average the logarithms of the densities with the weights.
        The mixture is the logarithm of their average.
    maximum-not-added :: (log_pi + log_n - (log_pi + log_n).amax(1, keepdim=True)).logsumexp(1) :: You subtract the largest
        exponent before exp, and do not add it to the logarithm.
log_softmax(logits, 1)
    softmax-on-the-wrong-axis :: log_softmax(logits, 0) :: Your weights sum to 1 over the samples; they should over the
        components of each sample.
    weights-not-in-logs :: log_softmax(logits, 1).exp() :: You add π itself to log N. Inside the exponential a factor π becomes
        log π.
    logits-not-normalized :: logits :: Logits are not log π: the weights have to sum to 1 first.
- sigma.log()
    no-width :: - 0 * sigma :: $WIDTH
whole answer
    variance-for-sigma :: lambda logits, mu, sigma, t: right(logits, mu, sigma.sqrt(), t) :: You use the width σ as if it were
        the variance σ².
    variance-for-sigma :: lambda logits, mu, sigma, t: right(logits, mu, sigma**2, t) :: You use σ² as the width: a scale of
        torch.distributions.Normal is σ.
    mean-of-parameters :: averaged :: You average the means and the widths, and take one Gaussian: the mixture has several
        peaks.
""",
    WIDTH="A narrow Gaussian is high: 1/σ stands before its exponential. What is its logarithm?",
)


def _case(seed: int, samples: int, components: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(seed)
    logits, mu, width = torch.randn(3, samples, components, dtype=torch.float64, generator=made)
    t = torch.randn(samples, dtype=torch.float64, generator=made)
    return tuple(part.to(dtype) for part in (logits, mu, width.abs() / 2 + 0.4, t))


@exercise("mixture-log-likelihood", notebook="18_targets", takes="logits, mu, sigma, t", returns=like("t"))
def judge_mixture_log_likelihood(answer: Callable) -> None:
    """log Σ_k π_k N(t; μ_k, σ_k²) of each sample, by log-sum-exp: finite wherever the logarithm is."""
    cases = {
        "one component, which is an ordinary Gaussian": _case(0, 6, 1),
        "4 samples and 2 components": _case(1, 4, 2),
        "3 samples and 3 components": _case(2, 3, 3),
        "one sample and 5 components": _case(3, 1, 5),
        "float32": _case(4, 5, 3, torch.float32),
    }
    RUBRIC.expect(answer, cases, tolerance=1e-5, explain=_explain)
    _judge_far(answer)
    _judge_rare(answer)
    logits, mu, sigma, t = _case(9, 4, 3)
    # In float32, too, the square of such a width is not 0 yet.
    cases["components of width 1e-15"] = logits, 1e-15 * mu, 1e-15 * sigma, 1e-15 * t
    cases["means near 1000"] = logits, mu + 1000, sigma / 15, mu[:, 0] + 1000 + t / 15  # float32 has too few digits
    rare_near = [torch.tensor(part, dtype=torch.float64) for part in ([[-30.0, 0.0]], [[0.0, 6.0]], [[1.0, 1.0]], [0.0])]
    cases["a rare component near, and a frequent one 6 σ away"] = tuple(rare_near)
    cases |= {"100 components": _case(5, 3, 100), "a single sample of a single component": _case(6, 1, 1)}
    RUBRIC.expect(answer, cases, tolerance=1e-5)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which part of the mixture is wrong."""
    if any(row.got.shape != row.wanted.shape for row in judged):
        return
    case = _case(1, 4, 2)
    together, alone = (answer(*copy.deepcopy(given)) for given in (case, tuple(part[-1:] for part in case)))
    if not same(together[-1:], alone, 1e-5):
        raise Mistake("depends-on-the-others", "Your value for one sample changes with the other samples that are given.")
    _explain_one(answer, _case(0, 6, 1))
    _explain_weights(answer)


def _explain_one(answer: Callable, case: tuple[Tensor, ...]) -> None:
    """Raise the Mistake that compares a z² + b log σ + c with a Gaussian's logarithm, of which every log-density is made."""
    _, mu, sigma, t = case
    own = answer(*copy.deepcopy(case))
    if same(own, right(*case), 1e-5):
        return
    basis = torch.stack([((t - mu[:, 0]) / sigma[:, 0]) ** 2, sigma[:, 0].log(), torch.ones_like(t)], 1)
    factors = torch.linalg.lstsq(basis, own[:, None]).solution
    if not same(basis @ factors, own[:, None], 1e-5):
        hint = "With one component yours is not made of z², log σ and a constant, where z = (t − μ)/σ, as a Gaussian's is."
        raise Mistake("not-a-gaussian", hint)
    a, b, c = (round(factor, 6) + 0.0 for factor in factors[:, 0].tolist())  # no −0
    hint = f"With one component yours is {a:.4g} z² + {b:.4g} log σ + {c:.4g}, where z = (t − μ)/σ; compare it with a Gaussian."
    raise Mistake("wrong-factor", hint)


def _explain_weights(answer: Callable) -> None:
    """Raise the Mistake that shows the weights: at the center of one of two distant components only its own counts."""
    logits, sigma = (torch.tensor([pair] * 2, dtype=torch.float64) for pair in ([-1.0, 0.5], [0.5, 2.0]))
    mu, t = torch.tensor([[0.0, 90.0]] * 2, dtype=torch.float64), torch.tensor([0.0, 90.0], dtype=torch.float64)
    own = answer(logits.clone(), mu.clone(), sigma.clone(), t.clone()) + HALF_LOG
    weights, wanted = own.exp() * sigma[0], logits[0].softmax(0)
    if same(weights, wanted, 1e-4):
        hint = "Far from all others each component is right. Where several contribute, your value is not log Σ π N."
        raise Mistake("wrong-sum", hint)
    yours, theirs = (" and ".join(f"{weight:.4g}" for weight in found.tolist()) for found in (weights, wanted))
    hint = f"For logits −1 and 0.5, widths 0.5 and 2, your values at the two centers are those of the weights {yours}"
    raise Mistake("other-weights", f"{hint}; the softmax is {theirs}.")


def _judge_far(answer: Callable) -> None:
    """Raise Mistake if the densities underflow for a target far from all components."""
    for dtype, distance in ((torch.float32, 30.0), (torch.float64, 300.0)):
        logits, mu, sigma, t = _case(7, 4, 3, dtype)
        given = logits, mu, sigma, t + distance
        own, wanted = _two(answer, given)
        if not own.isfinite().all():
            hint = "exp() of a large negative number is 0, and the logarithm of 0 is −inf: never leave the logarithms."
            lost = own[~own.isfinite()][0]
            raise Mistake("underflows", f"For a target far from all components yours is {lost:g}. {hint}")
        if (own > wanted + 1e-2).any() and own.max() - own.min() < 0.1 * (wanted.max() - wanted.min()):
            raise Mistake("epsilon-in-the-log", _EPSILON)
        if same(own, own[:1].expand_as(own)):
            hint = "You replace −inf, but the logarithm is finite there: never leave the logarithms."
            raise Mistake("underflows", f"For each target far from all components yours is {own[0]:g}. {hint}")
        expect_function(answer, right, {f"targets {distance:g} away, in {dtype}": given}, tolerance=1e-5)


def _explain_shift(answer: Callable) -> None:
    """Raise Mistake if exp() is 0 for all components, since the largest density was subtracted and not the largest term."""
    logits, mu, t = torch.tensor([[-1000.0, 0.0]]).double(), torch.tensor([[0.0, 20.0]]).double(), torch.zeros(1).double()
    own, wanted = _two(answer, (logits, mu, torch.full_like(mu, 0.5), t))
    if not own.isfinite().all():
        hint = (
            f"One component is at its target and has logit −1000, the other has logit 0 and is 40 σ away: yours is {own[0]:g}"
        )
        why = "Of each row, subtract the largest log π + log N before exp, not the largest of only one of the two"
        raise Mistake("shifted-by-one-part", f"{hint}, not {wanted[0]:.0f}. {why}: else all exponentials can be 0.")


def _two(answer: Callable, given: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """What the answer gives, and what is right."""
    return answer(*copy.deepcopy(given)), right(*given)


def _judge_rare(answer: Callable) -> None:
    """Raise Mistake if a component of a tiny weight is lost, although all others are far away, or if logits overflow."""
    logits = torch.tensor([[-1000.0, 0.0], [0.0, -2000.0]], dtype=torch.float64)
    mu, sigma = torch.tensor([[0.0, 100.0], [100.0, 0.0]]).double(), torch.full((2, 2), 0.5).double()
    given = logits, mu, sigma, torch.tensor([0.1, 0.2]).double()
    own, wanted = _two(answer, given)
    where = "A component with logit −1000 is the only one near its target."
    if own.isfinite().all() and (own > wanted + 1e-2).any():
        hint = f"You keep its weight above a small number, so that {own[0]:g} stands for {wanted[0]:g}: use log_softmax."
        raise Mistake("epsilon-in-the-log", f"{where} {hint}")
    if not same(own, wanted, 1e-5):
        _explain_shift(answer)
        hint = "softmax gives 0 for a very rare component, and log(0) is −inf: take both steps at once, log_softmax."
        raise Mistake("log-of-softmax", f"{where} {hint}")
    for dtype, size in ((torch.float32, 120.0), (torch.float64, 1200.0)):
        logits, *rest = _case(8, 4, 3, dtype)
        given = (logits + size, *rest)
        if not _two(answer, given)[0].isfinite().all():
            hint = "A softmax does not change if all logits grow alike, but exp() of a large one is inf: take log_softmax."
            raise Mistake("logits-overflow", f"For logits near {size:g}, in {dtype}, your result is not finite. {hint}")
        expect_function(answer, right, {f"logits near {size:g}": given}, tolerance=1e-4, but=("large",))  # few digits left
