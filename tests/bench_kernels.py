"""Adam and GELU compared with torch's own and with the bandwidth of a copy, interleaved in one run: `make bench`.

On a GPU also the share of the copy bandwidth that the Triton Adam reaches at 100 M parameters, for several block sizes.
"""

import torch
import torch.nn.functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import copy_bandwidth, measure
from hpml_lab.core.timing.noise import compare
from hpml_lab.tuning.experiments.fused_layernorm import library_layer_norm
from hpml_lab.tuning.experiments.fused_optimizers import BYTES, parameters_with_gradients
from hpml_lab.tuning.lessons.compositions import gelu, layer_norm

BLOCKS = ((512, 4), (1024, 4), (1024, 8), (2048, 8), (4096, 8))


def optimizers(device: torch.device) -> None:
    models = {"400 tensors of 4096": [4096] * 400, "one of 4 M": [1 << 22]}
    for name, sizes in models.items():
        fused = torch.optim.Adam(parameters_with_gradients(sizes, device), fused=True)
        for options in ({"foreach": False}, {"foreach": True}):
            other = torch.optim.Adam(parameters_with_gradients(sizes, device), **options)
            both = compare(other.step, fused.step)
            print(f"{name:20} fused over {str(options):18} {both.ratio:6.2f} x  ({both.b.seconds * 1e6:.0f} µs)", flush=True)


def triton_adam_blocks(device: torch.device, n: int, bandwidth: float) -> None:
    from hpml_lab.tuning.lessons import triton_adam

    fused = torch.optim.Adam(parameters_with_gradients([n], device), fused=True)
    for triton_adam.BLOCK, triton_adam.WARPS in BLOCKS:
        own = triton_adam.TritonAdam(parameters_with_gradients([n], device))
        both = compare(fused.step, own.step)
        share = [BYTES * n / time.seconds / 1e9 / bandwidth for time in (both.a, both.b)]
        print(
            f"Triton Adam, {n / 1e6:.0f} M, block {triton_adam.BLOCK}, {triton_adam.WARPS} warps: {both.ratio:.3f} x fused; "
            f"share of the copy bandwidth: fused {share[0]:.1%}, Triton {share[1]:.1%}",
            flush=True,
        )


def main() -> None:
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    bandwidth = copy_bandwidth(device).gb_per_s
    print(f"copy on {device}: {bandwidth:.1f} GB/s")
    optimizers(device)
    x = torch.randn(1_000_000, device=device)
    print(f"F.gelu over the formula: {compare(lambda: gelu(x), lambda: F.gelu(x)).ratio:.2f} x")
    rows, weight, bias = torch.randn(2048, 512, device=device), *torch.ones(2, 512, device=device)
    norms = compare(lambda: layer_norm(rows, weight, bias), lambda: library_layer_norm(rows, weight, bias))
    print(f"layer norm, torch's own over the composition, forward: {norms.ratio:.2f} x")
    if device.type != "cuda":
        print("no CUDA GPU: the Triton kernels run in the interpreter here and are not timed")
        return
    try:
        from hpml_lab.tuning import triton_gelu

        large = torch.randn(1 << 28, device=device)
        own = measure(lambda: triton_gelu(large), bytes=2.0 * large.nbytes)
        print(f"Triton GELU, 268 M numbers: {own.gb_per_s / bandwidth:.1%} of the copy bandwidth")
        triton_adam_blocks(device, 100_000_000, bandwidth)
    except LabError as error:
        print(error)


if __name__ == "__main__":
    main()
