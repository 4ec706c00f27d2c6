"""Autograd: gradients by hand, by an engine of 250 lines, and by torch; and the graphs behind them (notebook 02).

Experiments, in the order of the notebook:
    backprop_by_hand   f = (x + y)z by hand, by the engine and by torch; the engine trains two networks
    requires_grad      which tensors are tracked, and where gradients are kept
    jacobian_vector    backward(v) gives vᵀJ, not J
    chain_rule         w = xy + 2 by the engine, by torch and by differences
    perceptron_bce     a perceptron with binary cross-entropy, and why its loss should start from the logit
    dynamic_graph      a graph that depends on the data, and what torch.compile makes of it
    torchview_graphs   networks drawn from their modules, with shapes
    gradcheck          what gradcheck finds, and what it costs
Further figures of their results:
    loss_curves        of backprop_by_hand: two networks trained by the engine
    accumulation       of requires_grad: how .grad adds up
    break_even         of dynamic_graph: after how many calls compiling has paid
Tools:
    Tensor, backward_steps, topological_order    the engine
    MLP, train_xor, train_digits                 networks trained by it
    stepper, step_picture, pass_table, graph_of  a backward pass step by step, on a slider, as a picture and in words
    numeric_gradient                             central differences
    perceptron_by_hand, perceptron_by_engine, perceptron_by_torch, three_losses
    grown, branch, both_branches, read_out       functions whose graph depends on the data
    captured_graphs                              the graphs that torch.compile captures of a function
    grad_fn_graph, model_graph, model_picture    the graph of gradients, and of a model's modules
    Cube, WrongFactor, WrongWhereNegative, CutBackward    autograd functions with a right and with wrong backwards
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.backprop_by_hand": ["backprop_by_hand", "loss_curves"],
        "experiments.requires_grad": ["requires_grad", "accumulation"],
        "experiments.jacobian_vector": ["jacobian_vector"],
        "experiments.chain_rule": ["chain_rule"],
        "experiments.perceptron_bce": ["perceptron_bce"],
        "experiments.dynamic_graph": ["dynamic_graph", "break_even"],
        "experiments.torchview_graphs": ["torchview_graphs"],
        "experiments.gradcheck": ["gradcheck"],
        "engine": ["Tensor", "backward_steps", "topological_order"],
        "training": ["MLP", "train_xor", "train_digits"],
        "step_pictures": ["stepper", "step_picture"],
        "steps": ["pass_table", "graph_of"],
        "numeric": ["numeric_gradient"],
        "perceptron": ["perceptron_by_hand", "perceptron_by_engine", "perceptron_by_torch", "three_losses"],
        "dynamic": ["grown", "branch", "both_branches", "read_out", "captured_graphs"],
        "graphs": ["grad_fn_graph", "model_graph", "model_picture"],
        "cubes": ["Cube", "WrongFactor", "WrongWhereNegative", "CutBackward"],
    },
)
