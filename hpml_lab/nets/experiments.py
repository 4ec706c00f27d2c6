"""The experiments of notebook 03: a net and its loss, SGD by hand, XOR over many seeds, a move to the GPU."""

import copy
import math
import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam

from hpml_lab.core.attempt import attempt
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.core.threads import all_threads
from hpml_lab.core.timing import compare, measure
from hpml_lab.nets import xor as batched
from hpml_lab.nets.figures import draw_manual_sgd, draw_move_to_gpu, draw_three_layer_net, draw_xor
from hpml_lab.nets.networks import ThreeLayerNet, XorNet, layer_table, parameter_count, shape_graph
from hpml_lab.nets.sgd import BY_HAND, all_gradients, all_weights, gradient_after, halve_through_data, halve_under_no_grad

NOTEBOOK = "03_nets"


def _loss_and_warning(output: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, str]:
    """nn.MSELoss and the start of the warning that it gave, "" for none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = nn.MSELoss()(output, target)
    return loss, str(caught[0].message).split(" (")[0] if caught else ""


# ---- three-layer-net ---------------------------------------------------------------------------------------


def _fit(net: nn.Module, x: torch.Tensor, target: torch.Tensor, steps: int, lr: float) -> tuple[list[float], torch.Tensor]:
    """Train a copy of `net` on MSELoss(net(x), target): the losses as printed, the last predictions (N,)."""
    net = copy.deepcopy(net)
    optimizer, losses = SGD(net.parameters(), lr=lr), []
    for _ in range(steps):
        loss, _ = _loss_and_warning(net(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return losses, net(x)[:, 0]


@experiment(
    "three-layer-net",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_three_layer_net,
    quick=dict(samples=64, steps=300, lr=0.05),
    full=dict(samples=512, steps=3000, lr=0.05),
    lecture_says={"layers": "256-120-84-10"},
)
def three_layer_net(size: Size) -> Result:
    """Three fully connected layers, and a loss that broadcasts."""
    device = size.device.torch
    net, batch = ThreeLayerNet().to(device), torch.randn(4, 256).to(device)
    table = layer_table(net, batch)
    rows = [
        {
            "what": f"{row['layer']}: {row['kind']}",
            "shapes": f"{row['input']} → {row['output']}",
            "parameters": row["parameters"],
            "gives": None,
        }
        for row in table
    ]
    total = parameter_count(net)
    ends = f"{table[0]['input']} → {table[-1]['output']}"
    rows.append({"what": "whole net", "shapes": ends, "parameters": total, "gives": None})

    def tell(what: str, output: torch.Tensor, target: torch.Tensor, gives: str) -> None:
        shapes = f"{tuple(output.shape)} and {tuple(target.shape)}"
        rows.append({"what": what, "shapes": shapes, "parameters": None, "gives": gives})

    # The slide's own lines: one sample, and an integer target.
    sample, target = torch.randn(256).to(device), torch.arange(1, 11, device=device)
    output = net(sample)
    loss, word = _loss_and_warning(output, target)
    right, _ = _loss_and_warning(net(sample), target.float())
    integers = attempt(lambda: nn.MSELoss()(target, target))
    tell("MSELoss, int64 target", output, target, f"{loss.item():.4f}, {word or 'no warning'}")
    promoted = word == "" and torch.equal(loss, right)
    tell("… its backward pass in this torch", output, target, attempt(loss.backward))
    tell("MSELoss, both int64", target, target, integers)
    tell("MSELoss, float target", output, target, f"{right.item():.4f}, backward {attempt(right.backward)}")

    # The same target against a batch: every sample meets the same ten numbers.
    outputs = net(batch).detach()
    batch_loss, batch_word = _loss_and_warning(outputs, target.float())
    every_sample = torch.stack([(one - target) ** 2 for one in outputs]).mean()
    tell("MSELoss, batch of 4", outputs, target, f"{batch_loss.item():.4f}, warning: {batch_word} …")

    # One number a sample, the commonest case: (N, 1) against (N,) is (N, N).
    x = torch.randn(size.samples, 256)
    truth = (x @ torch.randn(256) / 16 + 2).to(device)
    column, x = truth.unsqueeze(1), x.to(device)
    single = ThreeLayerNet(outputs=1).to(device)
    guess = single(x).detach()
    pairs, pairs_word = _loss_and_warning(guess, truth)
    mended, mended_word = _loss_and_warning(guess, column)
    n = len(truth)
    tell("one number a sample, broadcast", guess, truth, f"{pairs.item():.4f}, mean of {n * n} squares")
    tell("one number a sample, mended", guess, column, f"{mended.item():.4f}, mean of {n} squares")
    split = guess.var(correction=0) + truth.var(correction=0) + (guess.mean() - truth.mean()) ** 2
    wrong_losses, wrong = _fit(single, x, truth, size.steps, size.lr)
    good_losses, good = _fit(single, x, column, size.steps, size.lr)
    spread = (wrong.std() / truth.std()).item()
    off_mean = abs((wrong.mean() - truth.mean()).item())
    error = (F.mse_loss(good, truth) / truth.var()).item()
    graph = shape_graph(net, batch)
    parts = [row["parameters"] for row in table]
    widths = [net.fc1.in_features, *(layer.out_features for layer in net.children())]
    return Result(
        rows,
        claims=[
            Claim(
                "The net has (256 + 1)·120 + (120 + 1)·84 + (84 + 1)·10 = 41 854 parameters",
                parts == [30_840, 10_164, 850] and total == 41_854,
                " + ".join(map(str, parts)),
            ),
            Claim(
                "The slide's int64 target is promoted in the forward pass without a word: float's loss",
                promoted,
                f"{loss.item():.4f} and {right.item():.4f}",
            ),
            Claim(
                "Two integer tensors are refused with NotImplementedError", integers.startswith("NotImplementedError"), integers
            ),
            Claim(
                "(4, 10) against (10,) only warns, and compares every sample with the same ten numbers",
                "target size" in batch_word and torch.allclose(batch_loss, every_sample),
                f"{batch_loss.item():.4f} and {every_sample.item():.4f}",
            ),
            Claim(
                "(N, 1) against (N,) only warns, and gives the mean over all N² pairs: "
                "var(output) + var(target) + (difference of their means)²",
                "target size" in pairs_word and torch.allclose(pairs, split, rtol=1e-4),
                f"{pairs.item():.5f} and {split.item():.5f}",
            ),
            Claim(
                "(N, 1) against (N, 1) does not warn, and gives the mean over the N samples",
                mended_word == "" and torch.allclose(mended, (guess[:, 0] - truth).square().mean()),
                f"{mended.item():.5f}",
            ),
            Claim(
                "Trained on the broadcast loss, the net gives nearly one value, the mean of the targets",
                spread < 0.1 and off_mean < 0.1,
                f"spread {spread:.3f} of the targets'",
            ),
            Claim(
                "Trained on the mended loss, the same net fits the targets",
                error < 0.1,
                f"error {error:.1e} of the targets' variance",
            ),
        ],
        quantities={"layers": "-".join(map(str, widths)), "parameters": total},
        arrays={
            "nodes": [{"name": name, **data} for name, data in graph.nodes(data=True)],
            "edges": [list(edge) for edge in graph.edges],
            "losses": {"(N, 1) and (N,)": wrong_losses, "(N, 1) and (N, 1)": good_losses},
            "predictions": {"(N, 1) and (N,)": wrong.tolist(), "(N, 1) and (N, 1)": good.tolist()},
            "targets": truth.tolist(),
        },
    )


# ---- manual-sgd --------------------------------------------------------------------------------------------

BY_TORCH = {"torch.optim.SGD, as it comes": {}, "torch.optim.SGD, foreach=True": {"foreach": True}}
SLIDE, PLAIN, ALPHA = BY_HAND


@experiment(
    "manual-sgd",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_manual_sgd,
    quick=dict(batch=32, steps=200, lr=0.01),
    full=dict(batch=32, steps=2000, lr=0.01),
)
def manual_sgd(size: Size) -> Result:
    """SGD by hand, bit for bit torch.optim.SGD, and why .data is out of date."""
    device, lr = size.device.torch, size.lr
    start = ThreeLayerNet().to(device)
    x, y = torch.randn(size.batch, 256).to(device), torch.arange(1.0, 11.0).repeat(size.batch, 1).to(device)
    judge = copy.deepcopy(start)
    judged_by = SGD(judge.parameters(), lr=lr, foreach=False)  # a plain loop over the parameters
    nets = {name: copy.deepcopy(start) for name in [*BY_HAND, *BY_TORCH]}
    steps: dict[str, Callable[[], object]] = {
        name: lambda name=name, update=update: update(nets[name], lr) for name, update in BY_HAND.items()
    }
    steps |= {name: SGD(nets[name].parameters(), lr=lr, **how).step for name, how in BY_TORCH.items()}

    losses: dict[str, list[float]] = {name: [] for name in nets}
    apart: dict[str, list[float]] = {name: [] for name in nets}
    slide_is_plain, first_apart_by_rounding = True, False
    for step in progress(range(size.steps), "steps by hand and by torch"):
        judge.zero_grad()
        F.mse_loss(judge(x), y).backward()
        before, moved = all_weights(judge), lr * all_gradients(judge)
        judged_by.step()
        for name, net in nets.items():
            net.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            steps[name]()
            losses[name].append(loss.item())
            apart[name].append((all_weights(net) - all_weights(judge)).abs().max().item())
        slide_is_plain &= torch.equal(all_weights(nets[SLIDE]), all_weights(nets[PLAIN]))
        if step == 0:  # from the same weights: two roundings against one
            bound = 2 * torch.finfo(torch.float32).eps * (before.abs() + moved.abs())
            difference = (all_weights(nets[PLAIN]) - all_weights(judge)).abs()
            first_apart_by_rounding = bool((difference <= bound).all())
    same_bits = {name: max(apart[name]) == 0 for name in nets}
    rows = [
        {
            "update": name,
            "bits of torch.optim.SGD": "the same" if same_bits[name] else "others",
            "largest difference on the way": max(apart[name]),
            "first loss": losses[name][0],
            "last loss": losses[name][-1],
        }
        for name in nets
    ]

    # What autograd notices when the weights change between forward and backward.
    true = gradient_after(lambda net: None, start, x, y)
    silent = gradient_after(halve_through_data, start, x, y)
    off = ((silent - true).norm() / true.norm()).item()
    refused = attempt(lambda: gradient_after(halve_under_no_grad, start, x, y))
    return Result(
        rows,
        claims=[
            Claim(
                "weight.sub_(weight.grad, alpha=lr) has the bits of torch.optim.SGD(foreach=False) after every step",
                same_bits[ALPHA],
                f"{size.steps} steps",
            ),
            Claim(
                "The slide's f.data.sub_(f.grad.data * lr) has the bits of weight -= lr * weight.grad after every step",
                slide_is_plain,
                f"{size.steps} steps",
            ),
            Claim(
                "These two part from torch.optim.SGD at the first step by rounding: ≤ 2ε(|w| + |lr·g|)",
                first_apart_by_rounding,
                f"largest {apart[PLAIN][0]:.1e}",
            ),
            Claim(
                "weight -= lr * weight.grad has the bits of torch.optim.SGD, too",
                same_bits[PLAIN],
                f"up to {max(apart[PLAIN]):.1e} apart: lr·g is rounded by itself first",
                exact=False,
            ),
            *(
                Claim(f"{name} has the bits of foreach=False", same_bits[name], f"{max(apart[name]):.0e} apart", exact=False)
                for name in BY_TORCH
            ),
            Claim(
                "The loss falls under every spelling",
                all(line[-1] < line[0] for line in losses.values()),
                f"{losses[PLAIN][0]:.2f} → {losses[PLAIN][-1]:.3g}",
            ),
            Claim(
                "Weights halved through .data between forward and backward: a wrong gradient, and no error",
                off > 0.1,
                f"off by {off:.0%} of its length",
            ),
            Claim(
                "Weights halved under no_grad between forward and backward: backward raises RuntimeError",
                refused.startswith("RuntimeError"),
                refused,
            ),
        ],
        quantities={
            "loss before the first step": losses[PLAIN][0],
            "loss before the last step": losses[PLAIN][-1],
            "steps": size.steps,
        },
        arrays={"losses": losses, "apart": apart},
    )


# ---- xor ---------------------------------------------------------------------------------------------------

EPOCHS_SHOWN = (1000, 2000, 5000, 10_000, 20_000)
PANELS = (0, 1000, 3000, 4000, 5000, 10_000)
CURVES = 60  # loss curves kept, of all seeds trained
LECTURE, FASTER, MOMENTUM, TANH, ADAM = (
    "SGD 0.1, sigmoid (lecture)",
    "SGD 1.0",
    "SGD 0.1, momentum 0.9",
    "SGD 0.1, tanh hidden",
    "Adam 0.05",
)
SETTINGS: dict[str, tuple[batched.MakeOptimizer, str]] = {  # name: (optimizer, hidden activation)
    LECTURE: (lambda parameters: SGD(parameters, lr=0.1), "sigmoid"),
    FASTER: (lambda parameters: SGD(parameters, lr=1.0), "sigmoid"),
    MOMENTUM: (lambda parameters: SGD(parameters, lr=0.1, momentum=0.9), "sigmoid"),
    TANH: (lambda parameters: SGD(parameters, lr=0.1), "tanh"),
    ADAM: (lambda parameters: Adam(parameters, lr=0.05), "sigmoid"),
}


def _one_epoch(seeds: range, device: torch.device) -> tuple[Callable[[], None], Callable[[], None]]:
    """One epoch of the lecture's loop for one net, and one epoch of all nets as a batch, to be timed."""
    net = XorNet().to(device)
    x, y, criterion = batched.INPUTS.to(device), batched.TARGETS.to(device), nn.BCELoss()
    optimizer = SGD(net.parameters(), lr=0.1)
    stack = batched.stack_of_nets(seeds, device=device)
    optimizer_of_all = SGD(stack, lr=0.1)

    def alone() -> None:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def together() -> None:
        for parameter, gradient in zip(stack, batched.gradients(stack, x, y[:, 0]), strict=True):
            parameter.grad = gradient
        optimizer_of_all.step()

    return alone, together


def _apart_from_plain(seeds: range, epochs: int, device: torch.device) -> float:
    """Largest difference of any parameter between the batched program and the lecture's loop.

    In float64: the difference that float32's rounding makes could hide a mistake.
    """
    make_optimizer, _ = SETTINGS[LECTURE]
    together = batched.train(seeds, epochs, make_optimizer, device=device, dtype=torch.float64).parameters
    apart = 0.0
    for place, seed in enumerate(seeds):
        alone = batched.train_plainly(seed, epochs, make_optimizer, device=device, dtype=torch.float64)
        for stacked, own in zip(together, alone.parameters(), strict=True):
            apart = max(apart, (stacked[place] - own.detach()).abs().max().item())
    return apart


def _curve(history: batched.History) -> dict[str, list]:
    """The fraction of right seeds at about 200 epochs."""
    dot = max(1, len(history.epochs) // 200)
    return {"epochs": history.epochs[::dot].tolist(), "right": history.right[::dot].double().mean(1).tolist()}


def _panel(which: str, seed: int, snapshots: dict[int, batched.Parameters]) -> dict:
    """One net's parameters at each snapshot, from which its surface is drawn."""
    steps = [
        {"epoch": epoch, "parameters": [part[seed : seed + 1].tolist() for part in parameters]}
        for epoch, parameters in snapshots.items()
    ]
    return {"which": which, "seed": seed, "snapshots": steps}


@experiment(
    "xor",
    lecture="L2",
    notebook=NOTEBOOK,
    draw=draw_xor,
    quick=dict(seeds=200, epochs=10_000, mended_epochs=2000, checked_epochs=1000),
    full=dict(seeds=1000, epochs=20_000, mended_epochs=10_000, checked_epochs=10_000),
    lecture_says={"predictions for 00, 01, 10, 11": "0 1 1 0"},
)
def xor(size: Size) -> Result:
    """XOR by a 2-4-1 net: how many of many seeds learn it, and when."""
    device, seeds = size.device.torch, range(size.seeds)
    histories = {
        name: batched.train(
            seeds,
            size.epochs if name == LECTURE else size.mended_epochs,
            make_optimizer,
            activation=activation,
            device=device,
            snapshots=PANELS if name == LECTURE else (),
        )
        for name, (make_optimizer, activation) in SETTINGS.items()
    }
    marks = [epoch for epoch in EPOCHS_SHOWN if epoch <= size.epochs]
    percent = {
        name: {epoch: 100 * one.fraction_right(epoch) for epoch in marks if epoch <= one.epochs[-1]}
        for name, one in histories.items()
    }
    rows = []
    for name, one in histories.items():
        learned = sorted(epoch for epoch in one.first_right() if epoch is not None)
        rows.append(
            {
                "setting": name,
                "seeds": size.seeds,
                **{f"right at {epoch}, %": percent[name].get(epoch) for epoch in marks},
                "median first right epoch": learned[len(learned) // 2] if learned else None,
            }
        )
    apart = _apart_from_plain(range(3), size.checked_epochs, device)
    speed = compare(*_one_epoch(seeds, device), samples=5)
    faster = speed.ratio * size.seeds

    history = histories[LECTURE]
    first = history.first_right()
    by_speed = sorted(seeds, key=lambda seed: (first[seed] or math.inf, history.loss[-1, seed].item()))
    median, slowest = by_speed[len(by_speed) // 2], by_speed[-1]
    p = torch.sigmoid(batched.forward(history.snapshots[10_000], batched.INPUTS)[1])[median]
    plateau = history.loss[history.epochs == 1000].median().item()
    early, late = ({name: percent[name][epoch] for name in SETTINGS} for epoch in (1000, 2000))
    end = percent[LECTURE][10_000]
    thin = max(1, len(history.epochs) // 100)
    return Result(
        rows,
        claims=[
            Claim(
                "The lecture's loop, run for seeds 0, 1 and 2 in float64, ends at the parameters of the "
                "batched "
                "program to 10⁻¹⁰",
                apart < 1e-10,
                f"{apart:.0e} apart after {size.checked_epochs} epochs",
            ),
            Claim(
                "Under the lecture's setting fewer than 1 seed in 10 is right after 1000 epochs, "
                "and the median loss is still within 0.01 of ln 2",
                early[LECTURE] < 10 and abs(plateau - math.log(2)) < 0.01,
                f"{early[LECTURE]:.1f} %, loss {plateau:.4f}",
            ),
            Claim(
                "Two changes mend it: with lr 1.0, or with momentum 0.9, more than 9 seeds in 10 are right "
                "after 2000 epochs; without them fewer than 1 in 10",
                min(late[FASTER], late[MOMENTUM]) > 90 and late[LECTURE] < 10,
                f"{late[FASTER]:.1f} %, {late[MOMENTUM]:.1f} %, {late[LECTURE]:.1f} %",
            ),
            Claim(
                "A tanh hidden layer at the lecture's rate mends it too: over 9 in 10 after 2000 epochs",
                late[TANH] > 90,
                f"{late[TANH]:.1f} %",
            ),
            Claim(
                "Adam at 0.05 is ahead of the lecture's setting after 1000 epochs, but leaves seeds wrong "
                "that 1000 more epochs do not mend",
                early[ADAM] > early[LECTURE] and late[ADAM] < 100 and late[ADAM] - early[ADAM] < 1,
                f"{early[ADAM]:.1f} %, then {late[ADAM]:.1f} %",
                exact=False,
            ),
            Claim("After the lecture's 10 000 epochs not every seed is right", end < 100, f"{end:.1f} %", exact=False),
            Claim(
                "After the lecture's 10 000 epochs the fraction of right seeds is far from 1 (below 0.8)",
                end < 80,
                f"{end / 100:.3f}; after 5000: {percent[LECTURE][5000] / 100:.3f}",
                exact=False,
            ),
            Claim(
                "One batch of all seeds beats one seed after another more than tenfold",
                faster > 10,
                f"{faster:.0f} times with {size.seeds} seeds",
                exact=False,
            ),
        ],
        quantities={
            "predictions for 00, 01, 10, 11": " ".join(str(int(value > 0.5)) for value in p),
            **{f"seeds right after {epoch} epochs, %": value for epoch, value in percent[LECTURE].items()},
            "one epoch of one seed in the lecture's loop, µs": speed.a.seconds * 1e6,
            "one epoch of all seeds as one batch, µs": speed.b.seconds * 1e6,
        },
        arrays={
            "panels": [_panel(which, seed, history.snapshots) for which, seed in (("median", median), ("slowest", slowest))],
            "epochs": history.epochs[::thin].tolist(),
            "losses": [[round(loss, 4) for loss in line] for line in history.loss[::thin, :CURVES].tolist()],
            "fractions": {name: _curve(one) for name, one in histories.items()},
            "first_right": first,
        },
    )


# ---- move-to-gpu -------------------------------------------------------------------------------------------


def _training_step(net: nn.Module, x: torch.Tensor, y: torch.Tensor, criterion: nn.Module) -> Callable[[], None]:
    """One step of training: forward, loss, backward, SGD."""
    optimizer = SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()

    return step


def _step_flops(net: nn.Module, samples: int) -> int:
    """FLOPs of one step's matrix products: for each weight and sample 2 forward and 4 backward.

    The first layer needs no gradient of its input: 2 less there.
    """
    weights = [layer.weight.numel() for layer in net.modules() if isinstance(layer, nn.Linear)]
    return samples * (6 * sum(weights) - 2 * weights[0])


def _times(
    net: nn.Module, x: torch.Tensor, y: torch.Tensor, criterion: nn.Module, device: torch.device, threads: int, samples: int
) -> dict[str, float]:
    """Columns with the time of a training step on the CPU and, where `device` is a GPU, on it."""
    flops, on_cpu = _step_flops(net, len(x)), copy.deepcopy(net)
    step = _training_step(on_cpu, x, y, criterion)
    if device.type == "cpu":
        timing = measure(step, samples=samples, threads=threads, flops=flops)
        return {"CPU step, µs": timing.seconds * 1e6, "CPU GFLOP/s": timing.gflop_per_s}
    on_gpu = _training_step(net.to(device), x.to(device), y.to(device), criterion)
    both = compare(step, on_gpu, samples=samples, threads=threads)
    copying = measure(lambda: (x.to(device), y.to(device)), samples=samples)
    return {
        "CPU step, µs": both.a.seconds * 1e6,
        "CPU GFLOP/s": flops / both.a.seconds / 1e9,
        "GPU step, µs": both.b.seconds * 1e6,
        "GPU GFLOP/s": flops / both.b.seconds / 1e9,
        "CPU time / GPU time": both.ratio,
        "copy of the batch, µs": copying.seconds * 1e6,
    }


@experiment(
    "move-to-gpu",
    lecture="L2",
    notebook=NOTEBOOK,
    draw=draw_move_to_gpu,
    quick=dict(widths=(16, 64, 256, 1024), batch=128, same_steps=500, threads=1, samples=5),
    full=dict(widths=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), batch=128, same_steps=2000, threads=None, samples=7),
    uses=("cuda",),
)
def move_to_gpu(size: Size) -> Result:
    """Model and data to the GPU: the same result, and when it pays."""
    device = size.device.torch
    threads = size.threads or all_threads()

    # The same result: float32 on the device against float64 on the CPU, from the same start.
    def make_optimizer(parameters):
        return SGD(parameters, lr=1.0)

    here = batched.train_plainly(0, size.same_steps, make_optimizer, device=device)
    exact = batched.train_plainly(0, size.same_steps, make_optimizer, dtype=torch.float64)
    with torch.no_grad():
        answers = here(batched.INPUTS.to(device)).cpu().double()
        apart = (answers - exact(batched.INPUTS.double())).abs().max().item()

    # What .to does. "meta" is a second device on every machine: tensors there have a shape but no numbers.
    net, x = XorNet(), batched.INPUTS
    moved_net, moved_x = net.to("meta"), x.to("meta")
    module_moves = moved_net is net and all(parameter.is_meta for parameter in net.parameters())
    tensor_stays = moved_x.is_meta and x.device.type == "cpu"
    forgotten = attempt(lambda: XorNet().to(device)(x if device.type == "cuda" else moved_x))

    cases = [("XOR net", 4, XorNet(), batched.INPUTS, batched.TARGETS, nn.BCELoss())]
    for width in size.widths:
        x, y = torch.randn(size.batch, 256), torch.randn(size.batch, 10)
        net = ThreeLayerNet(hidden=(width, width))
        cases.append((f"256-{width}-{width}-10", width, net, x, y, nn.MSELoss()))
    rows = [
        {
            "net": name,
            "width": width,
            "batch": len(x),
            "parameters": parameter_count(net),
            "MFLOP a step": _step_flops(net, len(x)) / 1e6,
            **_times(net, x, y, criterion, device, threads, size.samples),
        }
        for name, width, net, x, y, criterion in progress(cases, "widths")
    ]

    tiny, narrow, wide = rows[0], rows[1], rows[-1]
    longer, more = (wide[column] / narrow[column] for column in ("CPU step, µs", "MFLOP a step"))
    claims = [
        Claim(
            "Trained on the chosen device in float32, the XOR net answers as on the CPU in float64 to 10⁻³",
            apart < 1e-3,
            f"{apart:.1e} apart after {size.same_steps} steps on {device}",
        ),
        Claim(
            "net.to(device) moves the module itself; x.to(device) gives a new tensor and leaves x in place",
            module_moves and tensor_stays,
        ),
        Claim(
            "A net and its input on two devices are refused with RuntimeError", forgotten.startswith("RuntimeError"), forgotten
        ),
        Claim(
            "From the narrowest 256-width-width-10 to the widest, the CPU's time grows less than half as much as the FLOPs",
            longer < more / 2,
            f"{more:.0f} times the FLOPs, {longer:.0f} times the time",
            exact=False,
        ),
    ]
    quantities: dict[str, float | int | str] = {
        "XOR step on the CPU, µs": tiny["CPU step, µs"],
        "widest net's step on the CPU, µs": wide["CPU step, µs"],
        "CPU threads": threads,
    }
    if device.type == "cpu":
        note = (
            "No GPU was used, so only the CPU's half was measured: "
            "run `hpml-lab run move-to-gpu --size full` on a machine with one."
        )
        return Result(rows, claims, quantities, notes=[note])
    ratio = "CPU time / GPU time"
    pays = [row["width"] for row in rows[1:] if row[ratio] > 1]
    quantities |= {
        "XOR step on the GPU, µs": tiny["GPU step, µs"],
        "widest net's step on the GPU, µs": wide["GPU step, µs"],
        "narrowest net for which the GPU is faster, units": pays[0] if pays else "none of these",
    }
    claims += [
        Claim("The GPU loses on the XOR net", tiny[ratio] < 1, f"{ratio} {tiny[ratio]:.2f}", exact=False),
        Claim("The GPU wins on the widest net", wide[ratio] > 1, f"{ratio} {wide[ratio]:.1f}", exact=False),
    ]
    return Result(rows, claims, quantities)
