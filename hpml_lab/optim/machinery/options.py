"""Checks of the options when an optimizer is created, with torch.optim's own error where torch has one."""

import math
from contextlib import suppress
from numbers import Real
from typing import Any

from torch import Tensor

# Each option's name in torch's error message
_NAMES = {
    "lr": "learning rate",
    "eps": "epsilon value",
    "weight_decay": "weight_decay value",
    "momentum": "momentum value",
    "lr_decay": "lr_decay value",
    "initial_accumulator_value": "initial_accumulator_value value",
    "rho": "rho value",
    "alpha": "alpha value",
    "momentum_decay": "momentum_decay value",
    "trust_coeff": "trust_coeff value",
    "lambd": "lambd value",
}


def check_options(options: dict[str, Any]) -> None:
    """Raise ValueError for an option that makes no sense and RuntimeError for options that exclude each other.

    In addition to torch's checks: infinite and nan options, momentum ≥ 1.5, negative dampening, an RMSprop α ≥ 1, a number of
    betas other than two.
    """
    lr, foreach = options["lr"], options.get("foreach")
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if isinstance(lr, Tensor) and foreach and "amsgrad" in options:
        raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
    for name, text in _NAMES.items():
        if name in options and not (name == "eps" and "beta2_decay" in options):  # Adafactor has two: below
            _check_number(name, text, options[name])
    if "rho" in options and not options["rho"] <= 1:
        raise ValueError(f"Invalid rho value: {options['rho']}")
    if "centered" in options and not options["alpha"] < 1:
        raise ValueError(
            f"Invalid alpha value: {options['alpha']}: an average that keeps {options['alpha']} of its past "
            "never forgets; give a number from 0 to just below 1"
        )
    if options.get("momentum", 0) >= 1.5:
        raise ValueError(
            f"Invalid momentum value: {options['momentum']}: the velocity grows by that factor at every step, so "
            "no learning rate converges; a usual value is 0.9"
        )
    if not 0 <= (dampening := _number("dampening", options.get("dampening", 0))) < math.inf:
        raise ValueError(
            f"Invalid dampening value: {dampening}: 1 - dampening is the gradient's share in the "
            "velocity; give a number from 0 to 1"
        )
    if "betas" in options:
        _check_betas(options["betas"], foreach, of_adam="amsgrad" in options)
    if (largest := options.get("max_grad_norm")) is not None:
        _check_number("max_grad_norm", "max_grad_norm value", largest)
        if largest == 0:
            raise ValueError("Invalid max_grad_norm value: 0: no gradient would be left; None leaves all of them as they are")
        if options["pre_normalize"]:
            raise ValueError(
                "pre_normalize divides by the whole norm, so max_grad_norm has nothing to limit; give one of the two"
            )
    if options.get("nesterov") and "dampening" in options and (options["momentum"] <= 0 or options["dampening"] != 0):
        raise ValueError("Nesterov momentum requires a momentum and zero dampening")
    if "etas" in options and not 0 < options["etas"][0] < 1 < options["etas"][1]:
        raise ValueError(f"Invalid eta values: {options['etas'][0]}, {options['etas'][1]}")
    if "beta2_decay" in options:
        _check_adafactor(options["beta2_decay"], *options["eps"], options["d"])
    if options.get("line_search_fn") not in (None, "strong_wolfe"):
        raise RuntimeError("only 'strong_wolfe' is supported")
    if "ns_coefficients" in options:
        _check_newton_schulz(**{name: options[name] for name in ("ns_coefficients", "ns_steps", "adjust_lr_fn")})
    if options.get("fused"):
        if options.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if foreach:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        raise RuntimeError("the optimizers of hpml_lab.optim have no fused kernel; leave `fused` out, or take torch.optim's")
    if options.get("capturable"):
        raise RuntimeError("the optimizers of hpml_lab.optim count their steps on the CPU; leave `capturable` out")
    if foreach and options.get("differentiable"):
        raise RuntimeError("`foreach` works on lists that autograd does not track; leave it out with `differentiable`")


def _number(name: str, value: Any) -> Any:
    """The number that an option is or, as a tensor or an array of NumPy, holds. TypeError for anything else."""
    if callable(getattr(value, "item", None)):
        with suppress(RuntimeError, ValueError):  # of several elements
            value = value.item()
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}: {value!r}")
    return value


def _check_number(name: str, text: str, value: Any) -> None:
    value = _number(name, value)
    if value != value:
        raise ValueError(f"Invalid {text}: {value}: after one step every parameter would be nan")
    if value < 0:
        raise ValueError(f"Invalid {text}: {value}")
    if value == math.inf:
        raise ValueError(f"Invalid {text}: {value}: one step with it gives only inf and nan")


def _check_adafactor(beta2_decay: float, eps1: float | None, eps2: float, d: float) -> None:
    for text, value, smallest in (("epsilon1", eps1, 0), ("epsilon2", eps2, 0), ("Clipping threshold d", d, 1)):
        if value is not None and not value >= smallest:
            raise ValueError(f"{text} should be >= {smallest} but is: {value}")
    if not beta2_decay <= 0:
        raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")


def _check_newton_schulz(ns_coefficients: Any, ns_steps: int, adjust_lr_fn: str | None) -> None:
    if adjust_lr_fn not in (None, "original", "match_rms_adamw", "spectral_unclamped"):
        raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
    if len(ns_coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    if ns_steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")


def _check_betas(betas: Any, foreach: bool | None, of_adam: bool) -> None:
    try:
        one, two = betas = tuple(betas)  # a list of a configuration or an array too, as in torch
    except (TypeError, ValueError):
        raise ValueError(f"Invalid betas: {betas}: give two numbers, (beta1, beta2)") from None
    for index, beta in enumerate(betas):
        _number(f"betas[{index}]", beta)
        if not 0 <= beta < 1:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if of_adam and isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for index, beta in enumerate(betas):
        if of_adam and foreach and isinstance(beta, Tensor):
            raise ValueError(f"betas[{index}] as a Tensor is not supported for capturable=False and foreach=True")
