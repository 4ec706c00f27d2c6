"""Autograd: gradients by hand, by an engine of 250 lines, and by torch; and the graphs behind them (notebook 02).

Experiments, in the order of the notebook:
    backprop_by_hand   f = (x + y)z by hand, by the engine and by torch; the engine trains two networks
    requires_grad      which tensors are tracked, and where gradients are kept
    jacobian_vector    backward(v) gives vᵀJ, not J
    perceptron_bce     a perceptron with binary cross-entropy, and why its loss should start from the logit
    dynamic_graph      a graph that depends on the data, and what torch.compile makes of it
    torchview_graphs   networks drawn from their modules, with shapes
    chain_rule         w = xy + 2 by the engine, by torch and by differences
    gradcheck          what gradcheck finds, and what it costs
Further figures of their results:
    loss_curves        of backprop_by_hand: two networks trained by the engine
    accumulation       of requires_grad: how .grad adds up
    break_even         of dynamic_graph: after how many calls compiling has paid
Lessons:
    Tensor, topological_order   the engine
    numeric_gradient            central differences
    perceptron_by_hand, perceptron_by_engine, perceptron_by_torch, three_losses
    grown, branch, both_branches    functions whose graph depends on the data
    captured_graphs             the graphs that torch.compile captures of a function
    Cube, WrongFactor, CutBackward    autograd functions with a right and with wrong backwards
Tools:
    grad_fn_graph, model_graph, model_picture   the graph of gradients, and of a model's modules
To play with:
    stepper, pass_table         a backward pass step by step, on a slider and in words
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.autograd.experiments.backprop_by_hand import backprop_by_hand as backprop_by_hand, loss_curves as loss_curves
    from hpml_lab.autograd.experiments.requires_grad import requires_grad as requires_grad, accumulation as accumulation
    from hpml_lab.autograd.experiments.jacobian_vector import jacobian_vector as jacobian_vector
    from hpml_lab.autograd.experiments.perceptron_bce import perceptron_bce as perceptron_bce
    from hpml_lab.autograd.experiments.dynamic_graph import dynamic_graph as dynamic_graph, break_even as break_even
    from hpml_lab.autograd.experiments.torchview_graphs import torchview_graphs as torchview_graphs
    from hpml_lab.autograd.experiments.chain_rule import chain_rule as chain_rule
    from hpml_lab.autograd.experiments.gradcheck import gradcheck as gradcheck
    from hpml_lab.autograd.lessons.engine import Tensor as Tensor, topological_order as topological_order
    from hpml_lab.autograd.views.step_slider import stepper as stepper
    from hpml_lab.autograd.views.pass_steps import pass_table as pass_table
    from hpml_lab.autograd.lessons.central_differences import numeric_gradient as numeric_gradient
    from hpml_lab.autograd.lessons.perceptron import (
        perceptron_by_hand as perceptron_by_hand,
        perceptron_by_engine as perceptron_by_engine,
        perceptron_by_torch as perceptron_by_torch,
        three_losses as three_losses,
    )
    from hpml_lab.autograd.lessons.dynamic_functions import (
        grown as grown,
        branch as branch,
        both_branches as both_branches,
        captured_graphs as captured_graphs,
    )
    from hpml_lab.autograd.tools.torch_graphs import (
        grad_fn_graph as grad_fn_graph,
        model_graph as model_graph,
        model_picture as model_picture,
    )
    from hpml_lab.autograd.lessons.custom_functions import Cube as Cube, WrongFactor as WrongFactor, CutBackward as CutBackward
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
