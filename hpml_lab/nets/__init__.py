"""Neural networks: a net and its loss, SGD by hand, XOR over many seeds, a move to the GPU, costs by layer (notebook 03).

Experiments, in the order of the notebook:
    three_layer_net    three fully connected layers, and a loss that broadcasts
    manual_sgd         SGD by hand, compared with torch.optim.SGD bit by bit
    xor                how many of many seeds learn XOR, and when
    move_to_gpu        model and data to the GPU: the same result, and when it is faster
    layer_table        where the parameters, the FLOPs and the memory of five known nets are
Networks:
    ThreeLayerNet, XorNet      the lecture's two nets
    parameter_count            how many numbers training adjusts
    layer_costs                a net of your own, layer by layer: parameters, values, FLOPs, bytes, receptive field
Many XOR nets as one program:
    stack_of_nets              the parameters of many seeds, stacked
    batched_forward            the forward pass of all nets
    xor_surfaces               the answers of one net over the square, at four epochs
Training on real images:
    load, batches              a data set as tensors on the device, and shuffled batches of it (from hpml_lab.data)
    accuracy_curves            the figure of accuracies by epoch
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.nets.experiments.three_layer_net import three_layer_net as three_layer_net
    from hpml_lab.nets.experiments.manual_sgd import manual_sgd as manual_sgd
    from hpml_lab.nets.experiments.xor import xor as xor
    from hpml_lab.nets.experiments.move_to_gpu import move_to_gpu as move_to_gpu
    from hpml_lab.nets.experiments.layer_table import layer_table as layer_table
    from hpml_lab.nets.lessons.networks import (
        ThreeLayerNet as ThreeLayerNet,
        XorNet as XorNet,
        parameter_count as parameter_count,
    )
    from hpml_lab.nets.lessons.layer_costs import layer_costs as layer_costs
    from hpml_lab.nets.lessons.batched_xor import stack_of_nets as stack_of_nets, batched_forward as batched_forward
    from hpml_lab.nets.views.xor_surfaces import xor_surfaces as xor_surfaces
    from hpml_lab.nets.views.accuracy_curves import accuracy_curves as accuracy_curves
    from hpml_lab.data import load as load, batches as batches
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
