"""How many times faster a training step is with autocast than in float32 on this device, interleaved: `make bench`.

The network is that of `amp-training`, at three widths. On a CPU: one thread, and bf16 if the processor multiplies it. On a GPU:
fp16 with its scaler and bf16, compared with float32 without TF32.
"""

from hpml_lab.core.device import choose_device
from hpml_lab.core.experiment import Params
from hpml_lab.precision.loop_measurements import step_seconds


def main():
    device = choose_device()
    print(f"{device}: 16 bits would be {str(device.dtype).removeprefix('torch.')}, because {device.dtype_reason}")
    for channels in (64, 128, 256) if device.is_cuda else (16, 32, 64):
        images, side = (128, 32) if device.is_cuda else (16, 16)
        seconds = step_seconds(Params(device=device, channels=channels, blocks=4, images=images, side=side, samples=9))
        print(f"{channels:4} channels, fp32 {1e3 * seconds['fp32']:8.2f} ms", end="")
        print(
            "".join(f"   {name} {seconds['fp32'] / time:5.2f} x" for name, time in seconds.items() if name != "fp32"),
            flush=True,
        )


if __name__ == "__main__":
    main()
