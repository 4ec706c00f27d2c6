"""With `differentiable=True` a loss after some steps has the derivative by each option that finite differences have."""

import pytest
import torch
from test_optim_specification import CLASSES, NEEDS, options_of, ours, values_of

from hpml_lab.core.system.errors import LabError

STEPS, H = 4, 1e-6
START = [[1.5, -0.7, 0.3], [0.4, 1.1, -0.9]]
SLOPES = [[1.0, 4.0, 9.0], [2.0, 3.0, 5.0]]
NUMBERS_ONLY = {"initial_accumulator_value"}  # torch takes no tensor for it either
WHOLE = {"max_iter", "ns_steps", "foreach", "t0"}
TRACKED = [name for name in CLASSES if "differentiable" in options_of(name)]


@pytest.fixture(autouse=True)
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def loss_after(name, **options):
    p, slopes = torch.tensor(START, requires_grad=True).clone(), torch.tensor(SLOPES)
    optimizer = getattr(ours, name)([p], **options, differentiable=True)
    for _ in range(STEPS):
        seen = p.clone()
        (p.grad,) = torch.autograd.grad((slopes * seen**2).sum(), seen, create_graph=True)
        optimizer.step()
    return (p**2).sum()


def numbers(name):
    """(option, part, its number, a function from another number to the options) of each option that is a number or several."""
    for option in options_of(name):
        value = next(iter(values_of(name, option)), None)
        if value is None or isinstance(value, bool | str) or option in WHOLE | NUMBERS_ONLY:
            continue
        base = {"lr": 0.05} | {key: known for key, known in NEEDS.get(option, {}).items() if key in options_of(name)}
        for part in range(len(value) if isinstance(value, tuple) else 1):

            def given(number, option=option, value=value, part=part, base=base):
                if isinstance(value, tuple):
                    kind = torch.tensor if isinstance(number, torch.Tensor) else float  # betas are all tensors, or none is
                    number = tuple(number if at == part else kind(other) for at, other in enumerate(value))
                return base | {option: number}

            yield option, part, float(value[part] if isinstance(value, tuple) else value), given


@pytest.mark.parametrize("name", TRACKED)
def test_the_derivative_by_each_option_is_that_of_finite_differences(name):
    tried = 0
    for option, part, number, given in numbers(name):
        tracked = torch.tensor(number, requires_grad=True)
        (slope,) = torch.autograd.grad(loss_after(name, **given(tracked)), tracked, allow_unused=True)
        up, down = (loss_after(name, **given(number + h)).item() for h in (H, -H))
        found = 0.0 if slope is None else slope.item()
        assert found == pytest.approx((up - down) / (2 * H), rel=1e-4, abs=1e-6), (option, part)
        tried += 1
    assert tried > 1


def test_an_option_that_torch_takes_as_a_number_only_is_refused_as_a_tensor():
    with pytest.raises((LabError, TypeError, ValueError)):
        loss_after("Adagrad", initial_accumulator_value=torch.tensor(0.5, requires_grad=True))
