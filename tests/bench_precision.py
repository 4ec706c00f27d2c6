"""How many times faster a training step is with autocast than in float32 on this device, interleaved: `make bench`.

The network is that of `amp-training`, at three widths. On a CPU: one thread, and bf16 if the processor multiplies it. On a GPU:
fp16 with its scaler and bf16, compared with float32 without TF32.
"""

from hpml_lab.core.experiment import Params
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.timing.clock import PLACEBO
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.precision.experiments.amp_training.loop_measurements import FP32, step_times


def main():
    device = choose_device()
    print(f"{device}: 16 bits would be {str(device.dtype).removeprefix('torch.')}, because {device.dtype_reason}")
    for channels in (64, 128, 256) if device.is_cuda else (16, 32, 64):
        images, side = (128, 32) if device.is_cuda else (16, 16)
        times = step_times(Params(device=device, channels=channels, blocks=4, images=images, side=side, samples=9))
        print(f"{channels:4} channels, fp32 {1e3 * times[FP32].seconds:8.2f} ms", flush=True)
        for name in times.keys() - {FP32, PLACEBO}:
            print(f"     {name}: {speed_up(times, FP32, name)}", flush=True)


if __name__ == "__main__":
    main()
