"""The experiments of notebook 02: gradients by hand, by our engine and by torch, and their graphs."""

import shutil
import warnings
from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from torch import nn
from torch.autograd import gradcheck as torch_gradcheck
from torch.autograd import gradgradcheck as torch_gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from hpml_lab.autograd import engine
from hpml_lab.autograd import perceptron as neuron
from hpml_lab.autograd.dynamic import both_ways, branch, captured, compile_gelu, gelu, grown, read_out
from hpml_lab.autograd.engine import Tensor, backward_steps
from hpml_lab.autograd.figures import (
    as_lists,
    draw_backprop_by_hand,
    draw_chain_rule,
    draw_dynamic_graph,
    draw_gradcheck,
    draw_jacobian_vector,
    draw_perceptron_bce,
    draw_requires_grad,
    draw_torchview_graphs,
)
from hpml_lab.autograd.graphs import dot_graph, grad_fn_graph, graphviz_graph, model_graph
from hpml_lab.autograd.numeric import numeric_gradient
from hpml_lab.autograd.planted import Cube, CutBackward, WrongFactor, WrongWhereNegative
from hpml_lab.autograd.training import train_digits, train_xor
from hpml_lab.core.attempt import attempt
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.timing import compare, measure

NOTEBOOK = "02_autograd"


# ---- backprop-by-hand --------------------------------------------------------------------------------------


@experiment(
    "backprop-by-hand",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_backprop_by_hand,
    quick=dict(xor_epochs=2000, xor_lr=1.0, digits_epochs=14),
    full=dict(xor_epochs=10_000, xor_lr=0.1, digits_epochs=30),  # XOR as in the lecture
    lecture_says={"q": "3", "f": "-12", "df/dx": "-4", "df/dy": "-4", "df/dz": "3"},
)
def backprop_by_hand(size: Size) -> Result:
    """Backpropagation by hand through f = (x + y)z, and an engine that does it for any graph."""
    # df/df = 1; df/dq = z and df/dz = q; df/dx = df/dq · 1 and df/dy = df/dq · 1
    by_hand = {"f": 1.0, "q": -4.0, "z": 3.0, "x": -4.0, "y": -4.0}

    nodes = {name: Tensor(value, True, name) for name, value in (("x", -2), ("y", 5), ("z", -4))}
    nodes["q"] = nodes["x"] + nodes["y"]
    nodes["f"] = nodes["q"] * nodes["z"]
    order = list(backward_steps(nodes["f"]))
    gradients = dict(order)
    nodes["f"].backward()

    x, y, z = (torch.tensor(v, dtype=torch.float64, device=size.device.torch, requires_grad=True) for v in (-2.0, 5.0, -4.0))
    q = x + y
    f = q * z
    q.retain_grad()
    f.retain_grad()
    f.backward()
    in_torch = {"x": x, "y": y, "z": z, "q": q, "f": f}
    rows = [
        {
            "node": name,
            "value": node.data.item(),
            "gradient of f, by hand": by_hand[name],
            "by the engine": gradients[node].item(),
            "by torch": in_torch[name].grad.item(),
        }
        for name, node in nodes.items()
    ]

    names = {node: name for name, node in nodes.items()}
    graph, on_edges = nx.DiGraph(), []
    for name in ("x", "y", "z"):
        graph.add_node(name, label=f"{name} = {nodes[name].item():g}", kind="leaf")
    graph.add_node("q", label="q = x + y", kind="operation")
    graph.add_node("f", label="f = q × z\n= -12", kind="output")
    for node in reversed([node for node, _ in order]):
        for parent, vjp in node.parents:
            graph.add_edge(names[parent], names[node])
            on_edges.append([names[parent], names[node], parent.item(), vjp(gradients[node]).item()])

    xor = train_xor(epochs=size.xor_epochs, lr=size.xor_lr)
    digits = train_digits(epochs=size.digits_epochs)
    visited = [node for node, _ in order]
    return Result(
        rows,
        claims=[
            Claim(
                "q = 3, f = -12 and the gradients -4, -4, 3 of the lecture come out of the engine",
                [nodes[n].data.item() for n in "qf"] == [3, -12] and [nodes[n].grad.item() for n in "xyz"] == [-4, -4, 3],
            ),
            Claim(
                "by hand, by the engine and by torch: every value and every gradient is exactly the same",
                all(
                    row["gradient of f, by hand"] == row["by the engine"] == row["by torch"]
                    and row["value"] == in_torch[row["node"]].item()
                    for row in rows
                ),
            ),
            Claim(
                "going back, the engine visits each node once, and only after all that was computed from it",
                len(visited) == len(set(visited)) == 5
                and all(visited.index(node) < visited.index(parent) for node in visited for parent, _ in node.parents),
            ),
            Claim(
                "the engine by itself trains the XOR net until all four answers are right",
                xor.accuracy == 1.0,
                f"p = {', '.join(f'{p:.3f}' for p in xor.predictions[:, 0])}",
            ),
            Claim(
                "the engine by itself trains a digits classifier to above 90 % of unseen digits",
                digits.accuracy > 0.9,
                f"{digits.accuracy:.1%} after {size.digits_epochs} epochs",
            ),
        ],
        quantities={
            "q": nodes["q"].item(),
            "f": nodes["f"].item(),
            **{f"df/d{name}": nodes[name].grad.item() for name in "xyz"},
        },
        arrays={
            "graph": as_lists(graph),
            "on edges": on_edges,
            "losses": {f"XOR net 2-4-1, sigmoid, lr {size.xor_lr:g}": xor.losses, "digits 64-32-10, ReLU": digits.losses},
        },
    )


# ---- requires-grad -----------------------------------------------------------------------------------------


def _state(expression: str, t: torch.Tensor, what: str = "") -> dict:
    return {
        "expression": expression,
        "requires_grad": t.requires_grad,
        "leaf": t.is_leaf,
        "grad_fn": type(t.grad_fn).__name__ if t.grad_fn is not None else "none",
        "what happens": what,
    }


@experiment(
    "requires-grad",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_requires_grad,
    lecture_says={"a.requires_grad": "False", "b.requires_grad": "True"},
)
def requires_grad(size: Size) -> Result:
    """Which tensors are tracked, and where gradients are kept."""
    device = size.device.torch
    x, y = torch.randn(5, 5, device=device), torch.randn(5, 5, device=device)
    z = torch.randn((5, 5), device=device, requires_grad=True)
    a = x + y
    b = a + z
    s = (b * b).sum()
    with torch.no_grad():
        untracked = z * 2
    rows = [
        _state("x = torch.randn(5, 5)", x, "a constant to autograd"),
        _state("z = torch.randn((5, 5), requires_grad=True)", z, "a leaf: its gradient will be kept"),
        _state("a = x + y", a, "neither operand is tracked"),
        _state("b = a + z", b, "one tracked operand is enough"),
        _state("s = (b * b).sum()", s, "the root"),
        _state("b.detach()", b.detach(), "the same memory without a history"),
        _state("with torch.no_grad(): z * 2", untracked, "nothing is recorded in this block"),
        _state("z > 0", z > 0, "True or False has no derivative"),
    ]
    names, function = [], s.grad_fn
    while function is not None:  # the first operand that is tracked, down to a leaf
        names.append(type(function).__name__)
        function = next((parent for parent, _ in function.next_functions if parent is not None), None)
    rows.append({"expression": "s.grad_fn and so on down", "what happens": " → ".join(names)})

    def tell(line: str, what: str) -> str:
        rows.append({"expression": line, "what happens": what})
        return what

    # The slide's last line, without a call and with one.
    b.backward  # noqa: B018
    idle = z.grad is None
    tell("b.backward", f"names a {type(b.backward).__name__} and does not call it: z.grad is {z.grad}")
    non_scalar = tell("b.backward()", attempt(b.backward))
    typo = tell("s.backwards()", attempt(lambda: s.backwards()))

    s.backward()
    first = z.grad.clone()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        at_b = b.grad
    told = bool(caught) and "not a leaf" in str(caught[0].message)
    tell("b.grad", f"{at_b}, and a {caught[0].category.__name__}" if caught else f"{at_b}")
    again = tell("s.backward() a second time", attempt(s.backward))

    b = a + z
    b.retain_grad()
    s = (b * b).sum()
    s.backward(retain_graph=True)
    s.backward()
    tell("retain_graph=True, then once more", "works, and z.grad has had three passes added up")
    three = torch.allclose(z.grad, 3 * first)
    kept = b.grad is not None
    in_place = tell("z += 1", attempt(lambda: z.add_(1)))
    integers = tell("torch.arange(3, requires_grad=True)", attempt(lambda: torch.arange(3, requires_grad=True)))

    # How .grad moves, call by call, for a sum: its gradient is ones.
    z.grad = None
    events: list[tuple[str, float | None]] = [("start", None)]

    def after(what: str) -> None:
        events.append((what, None if z.grad is None else z.grad.mean().item()))

    for _ in range(3):
        (x + y + z).sum().backward()
        after("backward()")
    z.grad = None
    after("z.grad = None")
    (x + y + z).sum().backward()
    after("backward()")
    z.grad = None
    (z.detach() * z).sum().backward()  # of z² this leaves the derivative of the second factor alone
    half = torch.equal(z.grad, z.detach())

    graph = nx.DiGraph()
    for name, label, kind in (
        ("x", "x (5, 5)\nnot tracked", "plain"),
        ("y", "y (5, 5)\nnot tracked", "plain"),
        ("a", "a = x + y\nnot tracked", "plain"),
        ("z", "z (5, 5)\nleaf, requires_grad", "leaf"),
        ("b", "b = a + z\nAddBackward0", "operation"),
        ("s", "s = (b·b).sum()\nSumBackward0", "output"),
    ):
        graph.add_node(name, label=label, kind=kind)
    graph.add_edges_from([("x", "a"), ("y", "a"), ("a", "b"), ("z", "b"), ("b", "s")])
    return Result(
        rows,
        claims=[
            Claim(
                "a = x + y is not tracked and has no grad_fn; b = a + z is tracked because z is",
                not a.requires_grad and a.grad_fn is None and b.requires_grad and b.grad_fn is not None,
            ),
            Claim(
                "the chain of grad_fn leads from the sum over product and addition to the leaf z",
                names == ["SumBackward0", "MulBackward0", "AddBackward0", "AccumulateGrad"],
                " → ".join(names),
            ),
            Claim(
                "gradients are kept for the leaf z and not for b, unless b.retain_grad() asks for it",
                at_b is None and told and kept and z.is_leaf and not b.is_leaf,
            ),
            Claim(
                "b.backward without a call does nothing, and with a call it needs a scalar",
                idle and non_scalar.startswith("RuntimeError: grad can be implicitly created only for scalar outputs"),
            ),
            Claim("there is no method backwards", typo.startswith("AttributeError")),
            Claim("backward adds to .grad: after three passes it is three times the gradient", three),
            Claim(
                "a second pass over the same graph fails, unless the first one keeps it with retain_graph=True",
                again.startswith("RuntimeError: Trying to backward through the graph a second time") and three,
            ),
            Claim(
                "detach and no_grad cut the graph: nothing flows back through them",
                half and not untracked.requires_grad and b.detach().data_ptr() == b.data_ptr(),
            ),
            Claim(
                "changing a tracked leaf in place and tracking integers are both refused",
                in_place.startswith("RuntimeError") and integers.startswith("RuntimeError"),
            ),
        ],
        quantities={"a.requires_grad": str(a.requires_grad), "b.requires_grad": str(b.requires_grad)},
        arrays={"graph": as_lists(graph), "events": events},
    )


# ---- jacobian-vector ---------------------------------------------------------------------------------------

ONES, TWOS = "dz/dx with v = ones", "dz/dx with v = 2·ones, the slide's line"


@experiment(
    "jacobian-vector",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_jacobian_vector,
    lecture_says={ONES: "13", TWOS: "13 (an erratum: it gives 26)"},
)
def jacobian_vector(size: Size) -> Result:
    """backward(v) gives vᵀJ, not J: the slide's 13 is 26."""
    device = size.device.torch
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        old = torch.tensor(torch.ones(2, 2) * 2, requires_grad=True)  # the slide's way to make x
    warned = bool(caught) and "To copy construct from a tensor" in str(caught[0].message)

    def z_of(x: torch.Tensor) -> torch.Tensor:
        return 2 * (x * x) + 5 * x

    def pulled_back(f: Callable, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        x = x.detach().clone().requires_grad_()
        f(x).backward(v)
        return x.grad

    x = torch.full((2, 2), 2.0, device=device)
    jacobian = torch.autograd.functional.jacobian(z_of, x).reshape(4, 4)
    first = torch.zeros(2, 2, device=device)
    first[0, 0] = 1.0
    vectors = {
        "ones(2, 2), the slide's text": torch.ones(2, 2, device=device),
        "ones(2, 2)*2, the slide's code": torch.ones(2, 2, device=device) * 2,
        "1 at one element, 0 elsewhere": first,
    }
    products = {name: pulled_back(z_of, x, v) for name, v in vectors.items()}
    rows = [
        {"v": name, "x.grad": str(product.flatten().tolist()), "vᵀJ": str((vectors[name].flatten() @ jacobian).tolist())}
        for name, product in products.items()
    ]
    ones, twos, one = products.values()

    # A function whose outputs mix their inputs: J is full, and every v picks a mixture of its rows.
    A, t, v = (torch.randn(n, device=device, dtype=torch.float64) for n in ((5, 3), (3,), (5,)))

    def mixed(t: torch.Tensor) -> torch.Tensor:
        return A @ t**2

    full = torch.autograd.functional.jacobian(mixed, t)
    row_by_row = torch.stack([pulled_back(mixed, t, unit) for unit in torch.eye(5, device=device, dtype=torch.float64)])
    engine_x = Tensor(t.cpu().numpy(), requires_grad=True)
    engine.matmul(A.cpu().numpy(), engine_x**2).backward(v.cpu().numpy())
    vector = pulled_back(mixed, t, v)
    return Result(
        rows,
        claims=[
            Claim(
                "with v = ones every element of x.grad is 13, with the slide's v = 2·ones it is 26",
                torch.equal(ones, torch.full_like(x, 13.0)) and torch.equal(twos, torch.full_like(x, 26.0)),
            ),
            Claim(
                "backward(v) puts vᵀJ into x.grad, whatever v is",
                all(torch.equal(product.flatten(), vectors[name].flatten() @ jacobian) for name, product in products.items())
                and torch.allclose(vector, v @ full, rtol=0, atol=1e-12),
            ),
            Claim(
                "a v with a single 1 picks one row of J; one backward pass for each row gives all of J",
                torch.equal(one.flatten(), jacobian[0]) and torch.allclose(row_by_row, full, rtol=0, atol=1e-12),
            ),
            Claim(
                "the from-scratch engine gives the same vᵀJ to 1e-12",
                np.allclose(engine_x.grad, vector.cpu().numpy(), rtol=0, atol=1e-12),
            ),
            Claim(
                "torch.tensor(a tensor) makes the right x, with a warning that advises against it",
                warned and torch.equal(old.detach(), x.cpu()),
            ),
        ],
        quantities={ONES: ones[0, 0].item(), TWOS: twos[0, 0].item()},
        arrays={
            "jacobian": jacobian.tolist(),
            "products": [
                {"name": name, "v": vectors[name].flatten().tolist(), "product": product.flatten().tolist()}
                for name, product in list(products.items())[:2]
            ],
        },
    )


# ---- chain-rule --------------------------------------------------------------------------------------------


@experiment(
    "chain-rule",
    lecture="L2",
    notebook=NOTEBOOK,
    draw=draw_chain_rule,
    quick=dict(points=200),
    full=dict(points=5000),
    lecture_says={"dw/dx": "y", "dw/dy": "x"},
)
def chain_rule(size: Size) -> Result:
    """w = xy + 2: engine, torch and differences agree."""
    side = np.linspace(-3.0, 3.0, 7)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)  # for the picture
    points = np.concatenate([np.random.default_rng(0).uniform(-4, 4, (size.points, 2)), grid])

    a, b = (Tensor(column, requires_grad=True) for column in points.T)
    engine.sum_(a * b + 2).backward()  # each point is a w of its own: the sum keeps their gradients apart
    from_engine = np.stack([a.grad, b.grad], axis=1)

    s, t = (torch.tensor(column, device=size.device.torch, requires_grad=True) for column in points.T)
    (s * t + 2).sum().backward()
    from_torch = torch.stack([s.grad, t.grad], dim=1).cpu().numpy()

    def w(xy: np.ndarray) -> float:
        return xy[0] * xy[1] + 2

    numeric = np.array([numeric_gradient(w, point) for point in points[:50]])
    by_rule = points[:, ::-1]  # (∂w/∂x, ∂w/∂y) = (y, x)
    checked = torch_gradcheck(lambda s, t: s * t + 2, (s[:20], t[:20]), raise_exception=False)
    rows = [
        {
            "x": x,
            "y": y,
            "w": w((x, y)),
            "derivative": name,
            "by the rule": by_rule[i, j],
            "engine": from_engine[i, j],
            "torch": from_torch[i, j],
            "by differences": numeric[i, j],
        }
        for i, (x, y) in enumerate(points[:3].tolist())
        for j, name in enumerate(("dw/dx = y", "dw/dy = x"))
    ]
    apart = np.abs(numeric - by_rule[:50]).max()
    return Result(
        rows,
        claims=[
            Claim(
                "dw/dx = y and dw/dy = x, exactly, by the engine and by torch, at every point",
                np.array_equal(from_engine, by_rule) and np.array_equal(from_torch, by_rule),
                f"{len(points)} points",
            ),
            Claim("central differences agree to 1e-6", apart < 1e-6, f"largest difference {apart:.1e}"),
            Claim("gradcheck agrees", checked),
        ],
        quantities={
            "dw/dx": "y" if np.array_equal(from_engine[:, 0], points[:, 1]) else "something else",
            "dw/dy": "x" if np.array_equal(from_engine[:, 1], points[:, 0]) else "something else",
        },
        arrays={"points": grid, "gradients": from_engine[-len(grid) :]},
    )


# ---- perceptron-bce ----------------------------------------------------------------------------------------


@experiment(
    "perceptron-bce",
    lecture="L2",
    notebook=NOTEBOOK,
    draw=draw_perceptron_bce,
    quick=dict(samples=50, updates=200),
    full=dict(samples=1000, updates=2000),
)
def perceptron_bce(size: Size) -> Result:
    """A perceptron with binary cross-entropy, and why its loss should start from the logit."""
    device = size.device.torch
    w, x, y, lr = np.array([0.8, 0.3]), np.array([0.5, -1.2]), 1.0, 0.1
    records = {
        "by hand": neuron.by_hand(w, x, y),
        "engine": neuron.by_engine(w, x, y),
        "torch": neuron.by_torch(w, x, y, device),
    }
    formulas = {
        "z": "w·x",
        "p": "σ(z)",
        "L": "-(y log p + (1-y) log(1-p))",
        "∂L/∂p": "-(y/p - (1-y)/(1-p))",
        "∂p/∂z": "p(1-p)",
        "∂L/∂z": "∂L/∂p · ∂p/∂z = p - y",
    }
    rows = [
        {"quantity": name, "formula": text, **{way: float(found[name]) for way, found in records.items()}}
        for name, text in formulas.items()
    ]
    for i in range(2):
        rows.append(
            {
                "quantity": f"∂L/∂w{i + 1}",
                "formula": f"∂L/∂z · x{i + 1}",
                **{way: float(found["∂L/∂w"][i]) for way, found in records.items()},
            }
        )
        rows.append(
            {
                "quantity": f"w{i + 1}, new",
                "formula": f"w{i + 1} - {lr} ∂L/∂w{i + 1}",
                **{way: float(w[i] - lr * found["∂L/∂w"][i]) for way, found in records.items()},
            }
        )

    rng = np.random.default_rng(0)
    apart, from_rule = 0.0, 0.0
    for _ in range(size.samples):
        sample = rng.normal(size=2), rng.normal(size=2), float(rng.integers(2))
        found = [neuron.by_hand(*sample), neuron.by_engine(*sample), neuron.by_torch(*sample, device)]
        apart = max(apart, *(np.abs(one[name] - found[0][name]).max() for one in found for name in one))
        from_rule = max(from_rule, abs(found[0]["∂L/∂z"] - (found[0]["p"] - sample[2])))
    losses, moved = [], w
    for _ in range(size.updates):
        record = neuron.by_hand(moved, x, y)
        losses.append(record["L"])
        moved = moved - lr * record["∂L/∂w"]

    # p at 0 and at 1, in float32: a label of 1 with a very negative logit, a label of 0 with a positive one.
    ends = {}
    for label, logit in ((1.0, -200.0), (0.0, 20.0)):
        logits = torch.tensor([logit], device=device)
        for name, (loss, gradient) in neuron.three_losses(logits, label).items():
            ends[label, name] = loss.item(), gradient.item()
            rows.append(
                {
                    "quantity": f"z = {logit:g}, y = {label:g}, float32: L and ∂L/∂z",
                    "formula": name,
                    "torch": f"{loss.item():.4g} and {gradient.item():.4g}",
                }
            )
    p = torch.zeros(1, device=device, requires_grad=True)
    clamped = nn.BCELoss()(p, torch.ones(1, device=device))
    clamped.backward()
    rows.append(
        {
            "quantity": "p = 0, y = 1, float32: L and ∂L/∂p",
            "formula": "BCELoss",
            "torch": f"{clamped.item():g} and {p.grad.item():.4g}",
        }
    )

    z = torch.linspace(-10, 40, 201, device=device)
    curves = {
        name: {"loss": loss.tolist(), "gradient": gradient.tolist()}
        for name, (loss, gradient) in neuron.three_losses(z, 0.0).items()
    }

    def near(found: tuple[float, float], loss: float, gradient: float) -> bool:
        return abs(found[0] - loss) < 1e-4 and abs(found[1] - gradient) < 1e-6

    return Result(
        rows,
        claims=[
            Claim(
                "by hand, by the engine and by torch: all values and gradients agree to 1e-12 in float64",
                apart < 1e-12,
                f"largest difference {apart:.1e} over {size.samples} samples",
            ),
            Claim("∂L/∂p · ∂p/∂z is p - y", from_rule < 1e-12, f"largest difference {from_rule:.1e}"),
            Claim(
                "repeating the weight update lowers the loss at every step",
                all(after < before for before, after in zip(losses, losses[1:], strict=False)),
                f"{losses[0]:.3f} → {losses[-1]:.3f} in {size.updates} updates",
            ),
            Claim(
                "the formula gives an infinite loss and no gradient where σ(z) is rounded to 0 or to 1",
                all(np.isinf(ends[label, "formula"][0]) and np.isnan(ends[label, "formula"][1]) for label in (0.0, 1.0)),
            ),
            Claim(
                "BCELoss gives 100 there, whatever z is, and the gradient 0: a net that is surely wrong learns nothing",
                all(near(ends[label, "BCELoss"], 100.0, 0.0) for label in (0.0, 1.0)),
            ),
            Claim(
                "BCEWithLogitsLoss gives |z| and the gradient p - y, as it should be",
                near(ends[1.0, "BCEWithLogitsLoss"], 200.0, -1.0) and near(ends[0.0, "BCEWithLogitsLoss"], 20.0, 1.0),
            ),
            Claim(
                "at p = 0 and y = 1 BCELoss stops the logarithm at -100, and ∂L/∂p is -1e12 instead of minus infinity",
                clamped.item() == 100.0 and abs(p.grad.item() / -1e12 - 1) < 1e-6,
            ),
        ],
        arrays={"z": z.tolist(), "curves": curves},
    )


# ---- dynamic-graph -----------------------------------------------------------------------------------------


@experiment(
    "dynamic-graph",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_dynamic_graph,
    uses=("cuda", "compiler"),
    quick=dict(elements=1 << 18),
    full=dict(elements=1 << 24),
)
def dynamic_graph(size: Size) -> Result:
    """A graph that depends on the data, and what torch.compile makes of it."""
    device = size.device.torch
    rows, graphs, by_torch, by_engine = [], {}, {}, {}
    for value in (3.0, -1.0):
        w = torch.tensor(2.0, device=device, dtype=torch.float64, requires_grad=True)
        f = grown(w, value)
        graph = grad_fn_graph(f, {"w": w})
        f.backward()
        ours = Tensor(2.0, requires_grad=True)
        grown(ours, value).backward()
        by_torch[value], by_engine[value] = w.grad.item(), ours.grad.item()
        graphs[f"x = {value:g}"] = as_lists(graph)
        rows.append(
            {
                "what": f"grown(w = 2, x = {value:g})",
                "operations": len(graph) - 1,
                "result": f"f = {f.item():.4g}, df/dw = {w.grad.item():g}",
            }
        )
    kinds = [[one["label"] for one in lists["nodes"]] for lists in graphs.values()]

    heads = [torch.randn(8, 8, device=device, requires_grad=True) for _ in range(4)]
    x = torch.randn(2, 8, device=device)
    four = grad_fn_graph(torch.cat([torch.tanh(x @ head) for head in heads]).sum())
    wide = _side_by_side(four)
    narrow = [_side_by_side(_graph_of_grown(value, device)) for value in (3.0, -1.0)]
    rows.append(
        {
            "what": "four heads tanh(x @ Wᵢ), joined and summed",
            "operations": len(four) - 4,
            "result": f"{wide} operations side by side; in the two graphs above {max(narrow)}",
        }
    )

    plus, minus = torch.ones(4, device=device), -torch.ones(4, device=device)
    counts = {}
    for function, inputs in ((branch, (plus,)), (branch, (plus, minus)), (both_ways, (plus, minus)), (read_out, (plus,))):
        taken = captured(function, *inputs)
        counts[function.__name__, len(inputs)] = len(taken)
        rows.append(
            {
                "what": f"torch.compile({function.__name__}), {len(inputs)} input{'s' * (len(inputs) > 1)}",
                "result": f"{len(taken)} graph{'s' * (len(taken) > 1)}",
            }
        )
    agree = all(torch.equal(branch(x), both_ways(x)) for x in (plus, minus))

    claims = [
        Claim(
            "two inputs make two graphs of one function: 2 multiplications and a log, or 4 and a square",
            sorted(_operations(kinds[0])) == ["Log", "Mul", "Mul"] and _operations(kinds[1]) == ["Mul"] * 5,
        ),
        Claim(
            "gradients follow the graph that was taken: n/w for log(wⁿx), 2n·w²ⁿ⁻¹x² for (wⁿx)², by torch and by our engine",
            all(
                np.isclose(found[3.0], 2 / 2, rtol=1e-12) and np.isclose(found[-1.0], 2 * 4 * 2.0**7, rtol=1e-12)
                for found in (by_torch, by_engine)
            ),
        ),
        Claim(
            "four heads stand side by side in their graph: 4 operations need not wait for each other; in a chain it is 1",
            wide == 4 and narrow == [1, 1],
        ),
        Claim(
            "a Python `if` on data breaks the compiled graph in two; a second way through it adds a third graph",
            counts["branch", 1] == 2 and counts["branch", 2] == 3,
        ),
        Claim("torch.where keeps it in one graph for both ways, with the same result", counts["both_ways", 2] == 1 and agree),
        Claim("reading a number out with .item() breaks the graph in two", counts["read_out", 1] == 2),
    ]
    arrays = {"graphs": graphs, "compiled": None, "latency": None}
    quantities, notes = {"graph breaks of an if on data": counts["branch", 1] - 1}, []
    try:
        found = compile_gelu(size.elements, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0][:160]
        notes.append(
            f"torch.compile could not build a kernel here ({reason}). It needs a C++ compiler on the CPU and "
            "Triton on a GPU: `hpml-lab doctor` says what is missing. Debian and Ubuntu: sudo apt-get "
            "install g++."
        )
        elements = torch.randn(size.elements, device=device)
        arrays["eager"] = measure(lambda: gelu(elements)).seconds
    else:
        gain = found["eager"] - found["compiled"]
        calls = found["latency"] / gain if gain > 0 else None
        rows += [
            {"what": "first compile in this process", "result": f"{found['first']:.1f} s (loads the compiler)"},
            {"what": "compile GELU", "result": f"{found['latency']:.2f} s"},
            {
                "what": f"one call on {size.elements} elements",
                "result": f"plain {found['eager'] * 1e6:.0f} µs, compiled {found['compiled'] * 1e6:.0f} µs",
            },
            {
                "what": "calls until compiling has paid",
                "result": f"{calls:.0f}" if calls else "never: the compiled call is no faster",
            },
        ]
        arrays |= {name: found[name] for name in ("eager", "compiled", "latency")}
        quantities |= {
            "compile latency, s": found["latency"],
            "first compile in this process, s": found["first"],
            "plain call over compiled call, times": found["ratio"],
            "calls until compiling has paid": calls or "never",
        }
        claims += [
            Claim(
                "the compiled call gives the same values to 1e-5", found["apart"] < 1e-5, f"{found['apart']:.1e}", exact=False
            ),
            Claim("a compiled call is faster than a plain one", found["ratio"] > 1, f"{found['ratio']:.2f} times", exact=False),
            Claim(
                "compiling has to be paid back: it costs more than the first compiled call gains",
                found["latency"] > gain,
                f"{found['latency']:.2f} s against {gain * 1e3:.2g} ms",
                exact=False,
            ),
        ]
    if not size.device.is_cuda:
        notes.append(
            "No CUDA GPU here: the gain is the CPU's. Run `hpml-lab run dynamic-graph --size full` on a machine with one."
        )
    return Result(rows, claims, quantities, notes, arrays)


def _graph_of_grown(value: float, device: torch.device) -> nx.DiGraph:
    return grad_fn_graph(grown(torch.tensor(2.0, device=device, dtype=torch.float64, requires_grad=True), value))


def _operations(labels: list[str]) -> list[str]:
    """Mul, Log, … of the nodes that are operations."""
    return [label.removesuffix("Backward0") for label in labels if label.endswith("Backward0")]


def _side_by_side(graph: nx.DiGraph) -> int:
    """The most operations in one layer of a graph: none of them needs another's result."""
    operations = graph.subgraph(node for node, data in graph.nodes(data=True) if data["kind"] != "leaf")
    return max(len(layer) for layer in nx.topological_generations(operations))


# ---- torchview-graphs --------------------------------------------------------------------------------------


class SmallTransformer(nn.Module):
    """Token numbers (N, T) → logits (N, T, words): embedding, one encoder layer, a linear head."""

    def __init__(self, words: int = 100, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, dim_feedforward=2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)))


@experiment(
    "torchview-graphs",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_torchview_graphs,
    uses=("graphviz",),
    quick=dict(more=()),
    full=dict(more=("resnet50", "densenet121", "vit_b_16")),
)
def torchview_graphs(size: Size) -> Result:
    """Networks drawn from their modules, with shapes, with and without graphviz."""
    from torchvision import models

    image = torch.zeros(1, 3, 224, 224, device="meta")
    with torch.device("meta"):  # shapes without numbers: nothing is allocated, nothing computed
        mlp = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        resnet, transformer = models.resnet18(weights=None), SmallTransformer()
        more = {name: getattr(models, name)(weights=None) for name in size.more}
        block_in = torch.zeros(1, 64, 56, 56)
        tokens = torch.zeros(2, 8, dtype=torch.long)
        pixels = torch.zeros(1, 64)
    shown = {
        "MLP 64-32-10": (mlp, pixels, 1),
        "one block of ResNet-18": (resnet.layer2[0], block_in, 1),
        "ResNet-18, blocks closed": (resnet, image, 2),
        "small Transformer": (transformer, tokens, 3),
    }
    asked = shown | {"ResNet-18, all open": (resnet, image, 3)} | {name: (net, image, 3) for name, net in more.items()}
    graphs = {name: model_graph(net, x, depth=depth) for name, (net, x, depth) in progress(asked.items(), "recording models")}
    rows, ends = [], {}
    for name, (net, x, depth) in asked.items():
        graph = graphs[name].graph
        ends[name] = [data["label"].split("\n")[1] for _, data in graph.nodes(data=True) if data["kind"] == "output"]
        rows.append(
            {
                "network": name,
                "parameters": sum(p.numel() for p in net.parameters()),
                "depth": depth,
                "nodes": len(graph),
                "edges": graph.number_of_edges(),
                "input": str(tuple(x.shape)),
                "output": ends[name][0],
                "nodes with two inputs": sum(degree == 2 for _, degree in graph.in_degree),
            }
        )
    claims = [
        Claim(
            "the text for graphviz and the graph for networkx name the same nodes and edges",
            all(_same(one.graph, dot_graph(one.dot)) for one in graphs.values()),
            f"{len(graphs)} graphs",
        ),
        Claim(
            "the shapes in the pictures are those that the networks give",
            all(ends[name] == [str(tuple(net(x).shape))] for name, (net, x, _) in shown.items()),
        ),
        Claim("ResNet-18 has 8 skip connections: 8 additions with two inputs each", rows[4]["nodes with two inputs"] == 8),
        Claim(
            "a network on the device meta has shapes and no numbers",
            all(p.is_meta for net, _, _ in asked.values() for p in net.parameters()),
        ),
    ]
    notes = []
    if shutil.which("dot"):
        try:
            same = all(_same(one.graph, graphviz_graph(one.dot)) for one in graphs.values())
            counted = f"{sum(len(one.graph) for one in graphs.values())} nodes"
        except LabError as error:
            same, counted = False, str(error)
        claims.append(Claim("graphviz laid out the same nodes and edges", same, counted, exact=False))
    else:
        notes.append(
            "No graphviz here: the pictures are drawn by networkx and matplotlib alone. For graphviz's own "
            "layout: sudo apt-get install graphviz, or conda install graphviz."
        )
    return Result(rows, claims, notes=notes, arrays={"graphs": {name: as_lists(graphs[name].graph) for name in shown}})


def _same(a: nx.DiGraph, b: nx.DiGraph) -> bool:
    return set(a) == set(b) and set(a.edges) == set(b.edges)


# ---- gradcheck ---------------------------------------------------------------------------------------------

COST = "gradcheck of 100 elements over a plain pass, times"
TIMES, FAST_TIMES = "times a plain pass", "fast mode, times a plain pass"


def _cost_of_gradcheck(n: int, device: torch.device) -> dict:
    """Calls and time of gradcheck, full and fast, for the sum of x³ over n elements; a plain pass is forward
    and backward."""
    x = torch.linspace(-2, 2, n, dtype=torch.float64, device=device).requires_grad_()
    calls = 0

    def loss(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return Cube.apply(x).sum()

    def plain() -> None:
        x.grad = None
        loss(x).backward()

    row = {"function": f"sum of x³ over {n} elements", "elements": n}
    for fast, count, times in ((False, "calls", TIMES), (True, "calls in fast mode", FAST_TIMES)):
        calls = 0
        torch_gradcheck(loss, (x,), fast_mode=fast)
        row[count] = calls
        row[times] = compare(lambda fast=fast: torch_gradcheck(loss, (x,), fast_mode=fast), plain, samples=5).ratio
    return row


@experiment(
    "gradcheck",
    lecture="L4",
    notebook=NOTEBOOK,
    draw=draw_gradcheck,
    quick=dict(sizes=(1, 10, 100)),
    full=dict(sizes=(1, 10, 100, 1000, 10_000)),
    lecture_says={COST: "relatively expensive: for debugging only"},
)
def gradcheck(size: Size) -> Result:
    """gradcheck finds wrong gradients, at a price."""
    device = size.device.torch

    def at(*values: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device, requires_grad=True)

    def says(check: Callable, function: Callable, x: torch.Tensor) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for float32 it warns before it fails
            try:
                check(function, (x,))
            except GradcheckError:
                return "finds a mismatch"
        return "passes"

    positive, mixed = (0.5, 1.0, 2.0), (-1.5, 1.0, 2.0)
    cases = [
        ("x³, right", Cube.apply, at(*mixed)),
        ("x³ with backward 2x²", WrongFactor.apply, at(*mixed)),
        ("x³ with backward 3x|x|, at x > 0 only", WrongWhereNegative.apply, at(*positive)),
        ("x³ with backward 3x|x|, at both signs", WrongWhereNegative.apply, at(*mixed)),
        ("x³ with a detach in its backward", CutBackward.apply, at(*mixed)),
        ("x³, right, but in float32", Cube.apply, at(*mixed, dtype=torch.float32)),
        ("relu, right, at its kink x = 0", torch.relu, at(0.0, 0.0)),
    ]
    rows = [
        {
            "function": name,
            "gradcheck": says(torch_gradcheck, function, x),
            "gradgradcheck": says(torch_gradgradcheck, function, x),
        }
        for name, function, x in cases
    ]
    verdict = {row["function"]: (row["gradcheck"], row["gradgradcheck"]) for row in rows}
    fine, found = "passes", "finds a mismatch"

    costs = [_cost_of_gradcheck(n, device) for n in progress(size.sizes, "gradcheck")]
    rows += costs
    cost = next(row[TIMES] for row in costs if row["elements"] == 100)
    return Result(
        rows,
        claims=[
            Claim(
                "gradcheck passes the right backward and finds the planted factor",
                verdict["x³, right"] == (fine, fine) and verdict["x³ with backward 2x²"][0] == found,
            ),
            Claim(
                "it checks only the points that it is given: a mistake at x < 0 is not seen at x > 0",
                verdict["x³ with backward 3x|x|, at x > 0 only"][0] == fine
                and verdict["x³ with backward 3x|x|, at both signs"][0] == found,
            ),
            Claim(
                "gradgradcheck finds the detach that gradcheck lets pass",
                verdict["x³ with a detach in its backward"] == (fine, found),
            ),
            Claim("gradgradcheck alone is not enough: it passes the wrong factor", verdict["x³ with backward 2x²"][1] == fine),
            Claim(
                "false alarms: float32, whose differences are too rough, and a kink",
                verdict["x³, right, but in float32"][0] == found and verdict["relu, right, at its kink x = 0"][0] == found,
            ),
            Claim(
                "gradcheck calls the function twice for each element of the input, and 2 times more; in fast "
                "mode 4 times in all",
                all(row["calls"] == 2 * row["elements"] + 2 and row["calls in fast mode"] == 4 for row in costs),
            ),
            Claim("gradcheck of 100 elements costs more than ten plain passes", cost > 10, f"{cost:.0f} times", exact=False),
        ],
        quantities={COST: cost},
        arrays={
            "sizes": list(size.sizes),
            "ratios": {
                "gradcheck": [row[TIMES] for row in costs],
                "gradcheck(fast_mode=True)": [row[FAST_TIMES] for row in costs],
            },
        },
    )
