"""Answers to `channel-scales`: symmetric scales, one for each output channel."""

import numpy as np
import torch


def solution(weight, bits, axis):
    peaks = weight.abs().movedim(axis, 0).flatten(1).amax(1)
    scale = peaks / ((2**bits - 1) / 2)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def guarded(scale):
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def of_dimension_0(weight, bits, axis):
    return solution(weight, bits, 0)


def of_dimension_1(weight, bits, axis):
    return solution(weight, bits, 1)


def along_the_axis(weight, bits, axis):
    return guarded(weight.abs().amax(dim=axis) / ((2**bits - 1) / 2))


def along_the_axis_flat(weight, bits, axis):
    return solution(weight, bits, (axis + 1) % 2)


def one_dimension_only(weight, bits, axis):
    return guarded(weight.abs().movedim(axis, 0).amax(-1) / ((2**bits - 1) / 2))


def by_reshape(weight, bits, axis):
    return guarded(weight.reshape(weight.shape[axis], -1).abs().amax(1) / ((2**bits - 1) / 2))


def per_tensor(weight, bits, axis):
    return weight.abs().max() / ((2**bits - 1) / 2)


def per_tensor_repeated(weight, bits, axis):
    return (weight.abs().max() / ((2**bits - 1) / 2)).repeat(weight.shape[axis])


def axis_minus_one(weight, bits, axis):
    dims = [d for d in range(weight.ndim) if d != axis]
    return guarded(weight.abs().amax(dims) / ((2**bits - 1) / 2))


def signed(weight, bits, axis):
    return guarded(weight.movedim(axis, 0).flatten(1).amax(1) / ((2**bits - 1) / 2))


def affine_range(weight, bits, axis):
    rows = weight.movedim(axis, 0).flatten(1)
    return guarded((rows.amax(1) - rows.amin(1)) / (2**bits - 1))


def with_steps(steps):
    def scales(weight, bits, axis):
        return guarded(weight.abs().movedim(axis, 0).flatten(1).amax(1) / steps(bits))

    return scales


def unguarded(weight, bits, axis):
    return weight.abs().movedim(axis, 0).flatten(1).amax(1) / ((2**bits - 1) / 2)


def clamped(weight, bits, axis):
    return unguarded(weight, bits, axis).clamp(min=1e-8)


def another_epsilon(weight, bits, axis):
    return unguarded(weight, bits, axis) + 1e-30


def mean(weight, bits, axis):
    return guarded(weight.abs().movedim(axis, 0).flatten(1).mean(1) / ((2**bits - 1) / 2))


def norm(weight, bits, axis):
    return guarded(weight.movedim(axis, 0).flatten(1).norm(dim=1) / ((2**bits - 1) / 2))


def kept_dimensions(weight, bits, axis):
    dims = [d for d in range(weight.ndim) if d != axis % weight.ndim]
    return guarded(weight.abs().amax(dims, keepdim=True) / ((2**bits - 1) / 2))


def inverted(weight, bits, axis):
    return 1 / solution(weight, bits, axis)


def wrong_axis_and_127(weight, bits, axis):
    return with_steps(lambda bits: 2 ** (bits - 1) - 1)(weight, bits, 0)


def _of_rows(rows, bits):
    scale = rows.abs().amax(1) / ((2**bits - 1) / 2)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def small_is_nothing(weight, bits, axis):
    scale = solution(weight, bits, axis)
    return torch.where(scale < 1e-8, torch.ones_like(scale), scale)


def any_zero(weight, bits, axis):
    rows = weight.movedim(axis, 0).flatten(1)
    return torch.where((rows == 0).any(1), torch.ones(()).double(), _of_rows(rows, bits))


def moved_to_the_end(weight, bits, axis):
    weight = weight.movedim(axis, -1)
    return _of_rows(weight.reshape(-1, weight.shape[0]), bits)


def first_of_each_channel(weight, bits, axis):
    return _of_rows(weight.movedim(axis, 0).flatten(1)[:, :1], bits)


def as_if_last(weight, bits, axis):
    return _of_rows(weight.reshape(-1, weight.shape[axis]).T, bits)


def nothing(weight, bits, axis):
    solution(weight, bits, axis)


def in_place(weight, bits, axis):
    weight.abs_()
    return solution(weight, bits, axis)


def a_row_at_a_time(weight, bits, axis):
    return guarded(torch.stack([row.max() for row in weight]) / ((2**bits - 1) / 2))


WRONG = [
    ("axis-ignored", of_dimension_0),
    ("axis-ignored", of_dimension_1),
    ("wrong-axis", along_the_axis),
    ("wrong-axis", along_the_axis_flat),
    ("dimensions-left", one_dimension_only),
    ("reshaped-not-moved", by_reshape),
    ("one-number", per_tensor),
    ("one-for-all", per_tensor_repeated),
    ("negative-axis", axis_minus_one),
    ("sign-ignored", signed),
    ("whole-range", affine_range),
    ("other-grid", with_steps(lambda bits: 2 ** (bits - 1) - 1)),
    ("other-grid", with_steps(lambda bits: 2 ** (bits - 1))),
    ("not-halved", with_steps(lambda bits: 2**bits - 1)),
    ("bits-ignored", with_steps(lambda bits: 127.5)),
    ("not-divided", with_steps(lambda bits: 1)),
    ("wrong-number-of-steps", with_steps(lambda bits: bits)),
    ("zeros-unguarded", unguarded),
    ("zeros-unguarded", clamped),
    ("zeros-unguarded", another_epsilon),
    ("mean-instead-of-largest", mean),
    ("norm-instead-of-largest", norm),
    ("keeps-dimensions", kept_dimensions),
    ("keeps-dimensions", lambda *given: solution(*given)[:, None]),
    ("inverted", inverted),
    ("axis-ignored", wrong_axis_and_127),
    ("returns-nothing", nothing),
    ("inputs-changed", in_place),
    ("axis-ignored", a_row_at_a_time),
    ("guard-too-wide", small_is_nothing),
    ("guard-too-wide", any_zero),
    ("mixes-channels", moved_to_the_end),
    ("mixes-channels", as_if_last),
    ("too-small", first_of_each_channel),
    ("other-order", lambda *given: solution(*given).flip(0)),
    ("nearly-right", lambda weight, bits, axis: solution(weight + 1e-5 * weight.sign(), bits, axis)),
]


def by_numpy(weight, bits, axis):
    w = np.moveaxis(np.abs(weight.numpy()), axis, 0)
    scale = w.reshape(len(w), -1).max(1) * 2 / (2**bits - 1)
    scale[scale == 0] = 1
    return scale


def by_unbind(weight, bits, axis):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [float(channel.abs().max()) * 2 / (q_max - q_min) or 1.0 for channel in weight.unbind(axis)]


def by_infinity_norm(weight, bits, axis):
    dims = [d for d in range(weight.ndim) if d != axis % weight.ndim]
    scale = torch.linalg.vector_norm(weight, float("inf"), dim=dims) / (2 ** (bits - 1) - 0.5)
    return scale.masked_fill(scale == 0, 1)


def by_both_ends(weight, bits, axis):
    rows = weight.transpose(0, axis).flatten(1)
    scale = torch.maximum(-rows.amin(1), rows.amax(1)) / (2**bits - 1) * 2
    return scale + (scale == 0)


def by_repeated_maxima(weight, bits, axis):
    w = weight.abs()
    for d in reversed(range(w.ndim)):
        if d != axis % weight.ndim:
            w = w.max(d).values
    s = w / (2**bits - 1) * 2
    s[s == 0] = 1.0
    return s


def by_the_package(weight, bits, axis):
    from hpml_lab.quantization.lessons.affine import affine_parameters, value_range

    low, high = value_range(weight.double(), axis)
    high = torch.where((low == 0) & (high == 0), (2**bits - 1) / 2, high)
    return affine_parameters(low, high, bits, symmetric=True)[0]


def of_indices(weight, bits, axis):
    n = weight.shape[axis]
    peaks = torch.tensor([weight.select(axis, i).abs().max().item() for i in range(n)], dtype=torch.float64)
    return torch.where(peaks > 0, 2 * peaks / (2**bits - 1), 1.0)


ALSO_RIGHT = [by_numpy, by_unbind, by_infinity_norm, by_both_ends, by_repeated_maxima, by_the_package, of_indices]


def kept_by_shape(weight, bits, axis, known={}):  # noqa: B006
    return known.setdefault((tuple(weight.shape), bits, axis), solution(weight, bits, axis))


WRONG += [
    ("remembers-calls", kept_by_shape),
    ("guard-too-wide", lambda *given: solution(*given).clamp(min=1e-4)),
    ("nearly-right", lambda weight, bits, axis: solution(weight.half(), bits, axis).float()),
    ("nearly-right", lambda *given: solution(*given).bfloat16()),
]
