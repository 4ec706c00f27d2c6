"""Neural networks: a net and its loss, SGD by hand, XOR over many seeds, a move to the GPU (notebook 03).

Experiments, in the order of the notebook:
    three_layer_net    three fully connected layers, and a loss that broadcasts
    manual_sgd         SGD by hand, compared with torch.optim.SGD bit by bit
    xor                how many of many seeds learn XOR, and when
    move_to_gpu        model and data to the GPU: the same result, and when it is faster
Networks:
    ThreeLayerNet, XorNet      the lecture's two nets
    parameter_count            how many numbers training adjusts
    layer_table, shape_graph   shapes and parameters layer by layer, as rows or as a graph
SGD by hand:
    data_form, no_grad_form, alpha_form   three ways to write the update
Many XOR nets as one program:
    stack_of_nets              the parameters of many seeds, stacked
    batched_forward, batched_gradients, train_batched   forward pass, gradients and training of all nets
    train_one                  the lecture's loop for one net
    xor_surfaces               the answers of one net over the square, at four epochs
Training on real images:
    load, batches              a data set as tensors on the device, and shuffled batches of it (from hpml_lab.data)
    accuracy_curves            the figure of accuracies by epoch
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.three_layer_net": ["three_layer_net"],
        "experiments.manual_sgd": ["manual_sgd"],
        "experiments.xor": ["xor"],
        "experiments.move_to_gpu": ["move_to_gpu"],
        "networks": ["ThreeLayerNet", "XorNet", "parameter_count", "layer_table", "shape_graph"],
        "sgd": ["data_form", "no_grad_form", "alpha_form"],
        "batched_xor": ["stack_of_nets", "batched_forward", "batched_gradients", "train_batched", "train_one"],
        "surfaces": ["xor_surfaces"],
        "curves": ["accuracy_curves"],
        "hpml_lab.data": ["load", "batches"],
    },
)
