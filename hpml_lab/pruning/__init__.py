"""Smaller models by fewer weights: pruning, its masks, and what zeros gain (notebook 17).

Experiments, in the order of the notebook:
    pruning                 the lecture's examples counted and drawn, what a file holds, and accuracy against sparsity
    sparse_formats          why zeros alone gain nothing: time and bytes of CSR, BSR, 2:4, and of rows and channels taken out
Further figures:
    accuracy_by_sparsity    random and L1, in each layer and over all; tuned and not, at once and step by step
    lost_masks              ways to train a pruned net on, and how many pruned weights each moves
    format_bytes            the memory of a matrix in each format, by its share of zeros
Tools:
    random_mask             with l1_mask and channel_mask: what to prune of one weight; global_masks compares all layers
    apply_masks             set what the masks prune to 0; weights_of names the weights of a net
    without_zero_channels   a smaller LeNet without the channels that are all zeros (weakest and zero_channels choose and clear)
    two_of_four             a matrix in which two of every four elements are 0
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.pruning.experiments.pruning import pruning as pruning
    from hpml_lab.pruning.experiments.sparse_formats import sparse_formats as sparse_formats
    from hpml_lab.pruning.experiments.pruning.accuracies import accuracy_by_sparsity as accuracy_by_sparsity
    from hpml_lab.pruning.experiments.pruning.kept_masks import lost_masks as lost_masks
    from hpml_lab.pruning.experiments.sparse_formats.pictures import format_bytes as format_bytes
    from hpml_lab.pruning.lessons.masks import (
        apply_masks as apply_masks,
        channel_mask as channel_mask,
        global_masks as global_masks,
        l1_mask as l1_mask,
        random_mask as random_mask,
        weights_of as weights_of,
    )
    from hpml_lab.pruning.lessons.channels import (
        weakest as weakest,
        without_zero_channels as without_zero_channels,
        zero_channels as zero_channels,
    )
    from hpml_lab.pruning.lessons.sparse_layouts import two_of_four as two_of_four
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
