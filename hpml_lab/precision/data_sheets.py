"""The peak rates of matrix products in NVIDIA's data sheets, by GPU and number format."""

import re

_HOPPER_SXM = {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8 e4m3": 1979}
_HOPPER_NVL = {"fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8 e4m3": 1670.5}
# Dense peaks in TFLOP/s (no sparsity), with fp32 accumulation (P100: fp16 arithmetic), by a pattern of
# torch.cuda.get_device_name(). Sources: NVIDIA's data sheets of the P100, V100, T4, A100, L4, L40S, H100, H200 and GH200, which
# give the newer ones with sparsity (twice as much), and the white papers of the GA102 and AD102 chips for the GeForce cards.
# A pattern that ends with $ leaves out a part of a GPU (MIG) and a virtual one: their names continue.
PEAKS: dict[str, dict[str, float]] = {
    r"P100-SXM2": {"fp32": 10.6, "fp16": 21.2},
    r"P100-PCIE": {"fp32": 9.3, "fp16": 18.7},
    r"V100-SXM2": {"fp32": 15.7, "fp16": 125},
    r"V100-PCIE": {"fp32": 14, "fp16": 112},
    r"\bT4$": {"fp32": 8.1, "fp16": 65},
    r"^(NVIDIA )?A100-(SXM4?|PCIE)-[48]0GB$|\bA100 80GB PCIe$": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},
    r"\bL4$": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8 e4m3": 242.5},
    r"\bL40S$": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8 e4m3": 733},
    r"\bH100 PCIe$": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "fp8 e4m3": 1513},
    r"\bH100 NVL$|\bH200 NVL$": _HOPPER_NVL,
    r"\bH100( SXM5)?( 80GB)?( HBM3)?$|\bH200( SXM5?)?( 141GB)?( HBM3e)?$|\bGH200( \d+GB?)?( HBM3e?)?$": _HOPPER_SXM,
    r"RTX 3090$": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71},
    r"RTX 4090$": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8 e4m3": 330.3},
}


def sheet_peaks(gpu: str) -> dict[str, float]:
    """The data sheet's dense peaks in TFLOP/s by number format for the GPU called `gpu`; empty if the table has no such GPU."""
    return next((peaks for pattern, peaks in PEAKS.items() if re.search(pattern, gpu)), {})
