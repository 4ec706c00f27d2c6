"""Step times of the optimizers against torch's for-loop, one thread, in turns: `make bench`.

The sizes are the lecture's net 3 (271 160 parameters in 8 tensors) and ResNet-18 (11.7 million in 62).
"""

from inspect import signature

import torch
import torchvision

import hpml_lab.optim
from hpml_lab.core.timing.noise import compare

NET3 = [shape for a, b in ((784, 300), (300, 100), (100, 50), (50, 10)) for shape in ((b, a), (b,))]
RULES = {
    "SGD with momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "Nesterov": ("SGD", {"lr": 1e-3, "momentum": 0.9, "nesterov": True}),
    "Adagrad": ("Adagrad", {}),
    "Adadelta": ("Adadelta", {}),
    "RMSprop": ("RMSprop", {}),
    "Adam": ("Adam", {}),
    "AdamW": ("AdamW", {}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "Rprop": ("Rprop", {}),
    "ASGD": ("ASGD", {}),
}


def optimizer(module, name, shapes, **options):
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return getattr(module, name)(parameters, **options)


def main():
    with torch.device("meta"):
        resnet = [tuple(parameter.shape) for parameter in torchvision.models.resnet18().parameters()]
    print(
        f"{'step of':28}{'torch, loop':>13}  as a share of it: "
        f"{'ours, loop':>13}{'ours, lists':>13}{'torch foreach':>15}{'torch fused':>13}"
    )
    for size, shapes, samples in (("net 3", NET3, 15), ("ResNet-18", resnet, 7)):
        for title, (name, options) in RULES.items():
            ratios = []
            for module, more in (
                (hpml_lab.optim, {"foreach": False}),
                (hpml_lab.optim, {"foreach": True}),
                (torch.optim, {"foreach": True}),
                (torch.optim, {"fused": True}),
            ):
                if "fused" in more and "fused" not in signature(getattr(module, name)).parameters:
                    continue  # torch has no such kernel of this class
                mine = optimizer(module, name, shapes, **options, **more)
                loop = optimizer(torch.optim, name, shapes, **options, foreach=False)
                turns = compare(mine.step, loop.step, samples=samples)
                ratios.append(turns.ratio)
            seconds = f"{turns.b.seconds * 1e6:10.0f} µs"
            print(f"{size + ', ' + title:30}{seconds}" + "".join(f"{ratio:11.2f} x" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
