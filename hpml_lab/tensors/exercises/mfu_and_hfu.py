"""mfu-and-hfu: MFU and HFU of a training step on several GPUs, from what a script has in its logs."""

from collections.abc import Callable
from typing import Any

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric

PEAKS = {"float32": 67e12, "tf32": 495e12, "bfloat16": 989e12}  # of an H100, by its data sheet, without sparsity


def right(weights, tokens, dtype, peaks, returned, finished, devices, recomputed) -> tuple[float, float]:
    forward = 2 * weights * tokens
    model = 3 * forward
    hardware = model + forward * recomputed
    most = finished * peaks[dtype] * devices
    return model / most, hardware / most


RUBRIC = Rubric(
    right,
    """
2 * weights * tokens
    multiply-adds-as-one :: weights * tokens :: Each weight is multiplied and added: how many FLOPs is that by convention?
3 * forward
    backward-forgotten :: forward :: A training step has a backward pass, too.
    one-gradient-only :: 2 * forward :: A backward pass has two products for each of the forward pass. For which two gradients?
    update-counted :: 4 * forward :: That is one forward pass too many for a step without recomputation.
model + forward * recomputed
    recomputation-forgotten :: model :: With recomputation the hardware computes more than the model needs. What comes again?
    backward-recomputed :: model + 2 * forward * recomputed :: Only the forward pass is computed again.
    always-recomputed :: model + forward :: Without recomputation HFU is MFU.
peaks[dtype]
    peak-of-another-precision :: peaks["float32"] :: $PEAK
    peak-of-another-precision :: peaks["bfloat16"] :: $PEAK
    peak-of-another-precision :: min(peaks.values()) :: $PEAK
finished * peaks
    not-synchronized :: returned * peaks :: When the last call returns, the GPU may be far behind. When is the step done?
* devices
    peak-of-one-device :: * 1 :: All devices together make the step. So what could they have computed?
model / most, hardware / most
    hfu-for-mfu :: hardware / most, hardware / most :: MFU counts what the model needs, however it is computed.
    swapped :: hardware / most, model / most :: The first of the two is MFU, which leaves out what is computed again.
    upside-down :: most / model, most / hardware :: What was done, over what could have been.
""",
    PEAK="Which number format do the products of this run have? That one's peak is the limit.",
)


@exercise(
    "mfu-and-hfu",
    notebook="01_tensors",
    takes="weights, tokens, dtype, peaks, returned, finished, devices, recomputed",
    returns=(float, float),
)
def judge_mfu_and_hfu(answer: Callable[..., Any]) -> None:
    """6 FLOPs for each weight and token, 8 with recomputation, over seconds · peak · devices."""
    runs = (
        (7_000_000_000, 4_000_000, "bfloat16", 40.0, 8, True),
        (124_000_000, 3_001, "bfloat16", 0.007, 2, False),
        (1_300_000_000, 65_536, "float32", 21.0, 1, True),
        (350_000_000, 262_144, "tf32", 1.5, 4, False),
    )
    cases = {
        f"{devices} GPUs, {dtype}{', recomputed' * again}": (n, tokens, dtype, PEAKS, 0.3 * seconds, seconds, devices, again)
        for n, tokens, dtype, seconds, devices, again in runs
    }
    RUBRIC.expect(answer, cases, but=("large", "small"))
