"""Answers to `attention-backward`: P from L, D from the output, and the derivative of the softmax."""

import math

import torch
from edited_source import wrong_answers


def solution(q, k, v, output, logarithm, grad):
    q32, k32, v32, o32, g32 = (each.to(logarithm.dtype) for each in (q, k, v, output, grad))
    root = math.sqrt(q.shape[-1])
    weights = torch.exp(q32 @ k32.transpose(-2, -1) / root - logarithm)
    of_scores = weights * (g32 @ v32.transpose(-2, -1) - torch.sum(g32 * o32, -1, keepdim=True))
    dq, dk = of_scores @ k32 / root, of_scores.transpose(-2, -1) @ q32 / root
    return dq.to(q.dtype), dk.to(k.dtype), (weights.transpose(-2, -1) @ g32).to(v.dtype)


# ---- unusual, and right ----------------------------------------------------------------------------------------------------


def key_by_key(q, k, v, output, logarithm, grad):
    """One key at a time, as a kernel would take a block of them."""
    wide = logarithm.dtype
    mean = (grad.to(wide) * output.to(wide)).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q, dtype=wide), torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)
    for j in range(k.shape[-2]):
        key, value = k[..., j : j + 1, :].to(wide), v[..., j : j + 1, :].to(wide)
        p = ((q.to(wide) * key).sum(-1, keepdim=True) / q.shape[-1] ** 0.5 - logarithm).exp()
        ds = p * ((grad.to(wide) * value).sum(-1, keepdim=True) - mean) / q.shape[-1] ** 0.5
        dq = dq + ds * key
        dk[..., j, :], dv[..., j, :] = (ds * q.to(wide)).sum(-2), (p * grad.to(wide)).sum(-2)
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def with_einsum(q, k, v, output, logarithm, grad):
    q_, k_, v_, o_, g_ = (each.to(logarithm.dtype) for each in (q, k, v, output, grad))
    scale = q.size(-1) ** -0.5
    p = torch.einsum("...id,...jd->...ij", q_ * scale, k_).sub(logarithm).exp()
    ds = p * (torch.einsum("...id,...jd->...ij", g_, v_) - torch.einsum("...id,...id->...i", g_, o_)[..., None])
    dq, dk = torch.einsum("...ij,...jd->...id", ds, k_), torch.einsum("...ij,...id->...jd", ds, q_)
    dv = torch.einsum("...ij,...id->...jd", p, g_)
    return (dq * scale).to(q.dtype), (dk * scale).to(q.dtype), dv.to(q.dtype)


def in_float32_whatever_comes(q, k, v, output, logarithm, grad):
    """As the text says it."""
    q_, k_, v_, o_, g_ = (each.float() for each in (q, k, v, output, grad))
    p = torch.exp(q_ @ k_.mT / math.sqrt(q.shape[-1]) - logarithm)
    ds = p * (g_ @ v_.mT - (g_ * o_).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    return (ds @ k_).to(q.dtype), (ds.mT @ q_).to(k.dtype), (p.mT @ g_).to(v.dtype)


ALSO_RIGHT = [key_by_key, with_einsum, in_float32_whatever_comes]


def in_the_dtype_of_q(q, k, v, output, logarithm, grad):
    scale = 1 / math.sqrt(q.shape[-1])
    p = torch.exp(q @ k.mT * scale - logarithm.to(q.dtype))
    ds = p * (grad @ v.mT - (grad * output).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.mT @ q, p.mT @ grad


def of_two_dtypes(q, k, v, output, logarithm, grad):
    scale = 1 / math.sqrt(q.shape[-1])
    p = torch.exp(q @ k.mT * scale - logarithm)
    ds = p * (grad @ v.mT - (grad * output).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.mT @ q, p.mT @ grad


def by_autograd(q, k, v, output, logarithm, grad):
    inputs = [each.detach().clone().requires_grad_() for each in (q, k, v)]
    found = torch.softmax(inputs[0] @ inputs[1].mT / math.sqrt(q.shape[-1]), -1) @ inputs[2]
    return torch.autograd.grad(found, inputs, grad)


def converted_if_q_is_half(q, k, v, output, logarithm, grad):
    return (
        solution(q, k, v, output, logarithm, grad)
        if q.dtype == torch.float16
        else of_two_dtypes(q, k, v, output, logarithm, grad)
    )


DQ, DK, VALUES = "of_scores @ k32 / root", "of_scores.transpose(-2, -1) @ q32 / root", "(weights.transpose(-2, -1) @ g32)"
MEAN = "torch.sum(g32 * o32, -1, keepdim=True)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("mean-forgotten", (f" - {MEAN})", ")")),
            ("scale-forgotten", (DQ, "of_scores @ k32"), (DK, "of_scores.transpose(-2, -1) @ q32")),
            ("another-gradient", (DQ, "of_scores @ k32")),
            ("another-gradient", (DK, "of_scores.transpose(-2, -1) @ q32")),
            ("another-gradient", (VALUES, "(weights.transpose(-2, -1) @ o32)")),
            ("another-gradient", (DQ, "weights @ k32 / root")),
            ("weights-for-their-derivative", (f"weights * (g32 @ v32.transpose(-2, -1) - {MEAN})", "weights")),
            ("logarithm-forgotten", (" - logarithm)", ")")),
        ],
    ),
    ("half-precision", in_the_dtype_of_q),
    ("half-precision", of_two_dtypes),
    ("half-precision", converted_if_q_is_half),
    ("wrong-dtype", lambda *given: [each.to(given[-1].dtype) for each in solution(*given)]),
    ("softmax-again", by_autograd),
]


def quotient_of_exponentials(q, k, v, output, logarithm, grad):
    queries, keys, values, out, slope = (t.to(logarithm.dtype) for t in (q, k, v, output, grad))
    scale = 1 / math.sqrt(q.shape[-1])
    p = (queries @ keys.mT * scale).exp() / logarithm.exp()
    ds = p * (slope @ values.mT - (slope * out).sum(-1, keepdim=True)) * scale
    return (ds @ keys).to(q.dtype), (ds.mT @ queries).to(k.dtype), (p.mT @ slope).to(v.dtype)


WRONG += [("overflows", quotient_of_exponentials)]
