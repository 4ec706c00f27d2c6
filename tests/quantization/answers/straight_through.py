"""Answers to `straight-through`: fake quantization with the clipped gradient."""

import torch
from edited_source import wrong_answers

from hpml_lab import quantization


def solution(x, scale, zero_point, quant_min, quant_max):
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            q = torch.round(x * (1 / scale)) + zero_point
            ctx.save_for_backward((quant_min <= q) & (q <= quant_max))
            return (q.clamp(quant_min, quant_max) - zero_point) * scale

        @staticmethod
        def backward(ctx, g):
            (within,) = ctx.saved_tensors
            return g * within

    return Rounded.apply(x)


def detached_where_clamped(x, scale, zero_point, quant_min, quant_max):
    q = torch.round(x.detach() / scale) + zero_point
    kept = torch.where((q >= quant_min) & (q <= quant_max), x, x.detach())
    return kept + ((q.clamp(quant_min, quant_max) - zero_point) * scale - x).detach()


def masked_zero(x, scale, zero_point, quant_min, quant_max):
    with torch.no_grad():
        q = (x / scale).round() + zero_point
        values = (q.clip(quant_min, quant_max) - zero_point) * scale
        within = (q == q.clip(quant_min, quant_max)).to(x)
    return values + within * (x - x.detach())


def by_a_hook(x, scale, zero_point, quant_min, quant_max):
    q = (x.detach() / scale).round() + zero_point
    copied = x.clone()
    copied.register_hook(lambda g: g * ((q >= quant_min) & (q <= quant_max)))
    return copied + ((q.clamp(quant_min, quant_max) - zero_point) * scale - x).detach()


def with_the_packages_integers(x, scale, zero_point, quant_min, quant_max):
    q = quantization.quantize(x.detach(), scale, zero_point, quant_min, quant_max)
    far = quantization.quantize(x.detach(), scale, zero_point, quant_min - 1, quant_max + 1)
    kept = torch.where(q == far, x, x.detach())
    return kept - kept.detach() + quantization.dequantize(q, scale, zero_point)


class Estimator(torch.autograd.Function):
    @staticmethod
    def forward(x, scale, zero_point, quant_min, quant_max):
        return quantization.dequantize(quantization.quantize(x, scale, zero_point, quant_min, quant_max), scale, zero_point)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale, ctx.zero_point, ctx.low, ctx.high = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        q = torch.round(ctx.saved_tensors[0] / ctx.scale) + ctx.zero_point
        g = g.clone()
        g[(q < ctx.low) | (q > ctx.high)] = 0
        return g, None, None, None, None


def with_setup_context(x, scale, zero_point, quant_min, quant_max):
    return Estimator.apply(x, scale, zero_point, quant_min, quant_max)


def masked_product(x, scale, zero_point, quant_min, quant_max):
    """What passes the gradient on is x times 0 or 1; its value is taken away again."""
    q = torch.round(x.detach() * (1 / scale)) + zero_point
    passes = x * torch.logical_and(q.ge(quant_min), q.le(quant_max)).float()
    return (q.clamp(quant_min, quant_max) - zero_point) * scale + (passes - passes.detach())


ALSO_RIGHT = [detached_where_clamped, masked_zero, by_a_hook, with_the_packages_integers, with_setup_context, masked_product]


def plain_formula(x, scale, zero_point, quant_min, quant_max):
    return ((torch.round(x / scale) + zero_point).clamp(quant_min, quant_max) - zero_point) * scale


def by_the_package(x, scale, zero_point, quant_min, quant_max):
    return 1.0 * quantization.fake_quantize(x, scale, zero_point, quant_min, quant_max)


MASK = "(quant_min <= q) & (q <= quant_max)"
BACK = "return g * within"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("passes-where-clamped", (BACK, "return torch.where(within, g, 0.1 * g)")),
            ("another-gradient", (BACK, "return (2 * g).clamp(-1, 1) * within")),
            ("one-gradient-for-each-input", ("(ctx, x)", "(ctx, x, scale)"), ("apply(x)", "apply(x, scale)")),
            ("stopped-where-rounded", (MASK, "q.abs() <= quant_max")),
        ],
    ),
    ("no-gradient", lambda *given: plain_formula(*given).detach()),
    ("borrowed", lambda *given: torch.fake_quantize_per_tensor_affine(*given)),
    ("borrowed", by_the_package),
]


def by_a_hook_on_x(x, scale, zero_point, quant_min, quant_max):
    with torch.no_grad():
        q = torch.round(x * (1 / scale)) + zero_point
        values = (q.clamp(quant_min, quant_max) - zero_point) * scale
    x.register_hook(lambda g: g * ((q >= quant_min) & (q <= quant_max)))
    return x - x.detach() + values


WRONG += [("other-gradient", by_a_hook_on_x)]
