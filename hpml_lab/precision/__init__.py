"""Mixed precision: matrix products in 16 bits, automatic mixed precision, loss scaling, number formats (notebook 12).

Experiments, in the order of the notebook:
    gemm_tensor_cores  matrix products by number format: rate, kernel, error
    amp_training       the fp32 loop and the AMP loop next to each other
    loss_scaling       what underflows in fp16, and the lecture's five recipes
    fp16_vs_bf16       range, rounding, and when an update is lost
    low_precision_formats  FP8, MXFP4 and NVFP4: rounding, error with outliers, layers that can be rounded
Tools:
    FP32, BF16, FP16   number formats derived from their bits: range, spacing, rounding
    accumulate         sums of products in which each addition is rounded to a format
    autocast_table     which operator runs in which dtype under autocast
For the notebook:
    train_fp32, train_amp, train_slide   training loops, shown by side_by_side
    scaler_for         the gradient scaler for a dtype
    then_and_now       the lectures' ways to write mixed precision today
    RECIPES            what the five recipes store in fp16
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.precision.experiments.gemm_tensor_cores import gemm_tensor_cores as gemm_tensor_cores
    from hpml_lab.precision.experiments.amp_training import amp_training as amp_training
    from hpml_lab.precision.experiments.loss_scaling import loss_scaling as loss_scaling
    from hpml_lab.precision.experiments.fp16_vs_bf16 import fp16_vs_bf16 as fp16_vs_bf16
    from hpml_lab.precision.experiments.low_precision_formats import low_precision_formats as low_precision_formats
    from hpml_lab.precision.lessons.formats import FP32 as FP32, BF16 as BF16, FP16 as FP16
    from hpml_lab.precision.lessons.sums import accumulate as accumulate
    from hpml_lab.precision.tools.autocast import autocast_table as autocast_table
    from hpml_lab.precision.views.code_columns import side_by_side as side_by_side
    from hpml_lab.precision.lessons.loops import (
        train_fp32 as train_fp32,
        train_amp as train_amp,
        train_slide as train_slide,
        scaler_for as scaler_for,
    )
    from hpml_lab.precision.experiments.amp_training.old_spellings import then_and_now as then_and_now
    from hpml_lab.precision.lessons.recipes import RECIPES as RECIPES
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
