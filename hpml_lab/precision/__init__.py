"""Mixed precision: matrix products in 16 bits, automatic mixed precision, loss scaling, number formats (notebook 11).

Experiments, in the order of the notebook:
    gemm_tensor_cores  matrix products by number format: rate, kernel, error
    amp_training       the fp32 loop and the AMP loop next to each other
    loss_scaling       what underflows in fp16, and the lecture's five recipes
    fp16_vs_bf16       range, rounding, and when an update is lost
Tools:
    FORMATS            number formats derived from their bits (FP32, TF32, BF16, FP16, E5M2, E4M3): range, spacing, rounding
    is_lost            whether an update is too small to change a weight
    sheet_peaks        the dense peak rates in the data sheet of a GPU
    accumulate         sums of products in which each addition is rounded to a format
    autocast_table     which operator runs in which dtype under autocast
For the notebook:
    train_fp32, train_amp, train_slide   training loops, shown by side_by_side
    scaler_for         the gradient scaler for a dtype
    then_and_now       the lectures' ways to write mixed precision today
    RECIPES            what the five recipes store in fp16
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.gemm_tensor_cores": ["gemm_tensor_cores"],
        "experiments.amp_training": ["amp_training"],
        "experiments.loss_scaling": ["loss_scaling"],
        "experiments.fp16_vs_bf16": ["fp16_vs_bf16"],
        "formats": ["FORMATS", "FP32", "TF32", "BF16", "FP16", "E5M2", "E4M3", "is_lost"],
        "data_sheets": ["sheet_peaks"],
        "gemm": ["accumulate"],
        "autocast": ["autocast_table"],
        "code_columns": ["side_by_side"],
        "loops": ["train_fp32", "train_amp", "train_slide", "scaler_for"],
        "old_spellings": ["then_and_now"],
        "recipes": ["RECIPES"],
    },
)
