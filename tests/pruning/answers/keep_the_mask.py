"""Answers to `keep-the-mask`: train a pruned net on, its pruned weights 0 in every forward pass and in the end."""

import contextlib

import torch
from edited_source import wrong_answers
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint


def solution(net, masks, optimizer, batches):
    parameters = dict(net.named_parameters())

    def apply():
        with torch.no_grad():
            for name, mask in masks.items():
                parameters[name].mul_(mask)

    apply()
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        apply()


def mask_now(net, masks):
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name in masks:
                p *= masks[name]


def mask_gradients(net, masks):
    for name, p in net.named_parameters():
        if name in masks:
            p.grad *= masks[name]


def learn(net, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def plain(net, masks, optimizer, batches):
    for x, y in batches:
        learn(net, optimizer, x, y)


def hooks_stay(net, masks, optimizer, batches):
    for name, mask in masks.items():
        layer, _, kind = name.rpartition(".")
        prune.custom_from_mask(net.get_submodule(layer), kind, mask)
    plain(net, masks, optimizer, batches)


def new_parameters(net, masks, optimizer, batches):
    def apply():
        for name, mask in masks.items():
            path, _, last = name.rpartition(".")
            setattr(net.get_submodule(path), last, torch.nn.Parameter(net.get_parameter(name).detach() * mask))

    apply()
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        apply()


def frozen(net, masks, optimizer, batches):
    mask_now(net, masks)
    for name in masks:
        net.get_parameter(name).requires_grad_(False)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


FIRST = "    apply()\n    for"
AFTER, STEP = "optimizer.step()\n        apply()", "optimizer.step()"
CLEAR = "        optimizer.zero_grad()\n"
MASK = "parameters[name].mul_(mask)"


def before(line):
    """An edit: the line comes before everything else."""
    return FIRST, f"    {line}\n{FIRST}"


WRONG = [
    *wrong_answers(
        solution,
        [
            ("evaluation-mode", before("net.eval()")),
            ("nearly-zero", (MASK, "parameters[name][~mask] = 1e-9")),
            ("not-cleared-at-first", (CLEAR, ""), (AFTER, f"{AFTER}\n{CLEAR}")),
            ("another-gradient", ("in batches:", "in batches[::-1]:")),
            ("pruned-weights-in-a-pass", (FIRST, FIRST.removeprefix("    apply()\n"))),
            ("not-zero-in-the-end", (FIRST, "    for"), (CLEAR, f"        apply()\n{CLEAR}"), (AFTER, STEP)),
            ("other-weights", before("optimizer.state.clear()")),
            ("other-weights", (AFTER, f"{AFTER}\n    net[0].weight.data.mul_(0.9)")),
        ],
    ),
    ("masks-left-in-the-net", hooks_stay),
    ("parameters-replaced", new_parameters),
    ("parameter-without-gradient", frozen),
]


def by_indexing(net, masks, optimizer, batches):
    def silence():
        for name, mask in masks.items():
            net.get_parameter(name).data[~mask] = 0.0

    silence()
    for x, y in batches:
        learn(net, optimizer, x, y)
        silence()


def with_a_step_hook(net, masks, optimizer, batches):
    handle = optimizer.register_step_post_hook(lambda *_: mask_now(net, masks))
    mask_now(net, masks)
    plain(net, masks, optimizer, batches)
    handle.remove()


def with_torchs_hooks(net, masks, optimizer, batches):
    layers = []
    for name, mask in masks.items():
        layer, _, kind = name.rpartition(".")
        layers.append((net.get_submodule(layer), kind))
        prune.custom_from_mask(*layers[-1], mask.to(torch.float64))
    plain(net, masks, optimizer, batches)
    for layer, kind in layers:
        prune.remove(layer, kind)


def before_and_at_the_end(net, masks, optimizer, batches):
    for x, y in batches:
        mask_now(net, masks)
        learn(net, optimizer, x, y)
    mask_now(net, masks)


def gradients_too(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        mask_gradients(net, masks)
        optimizer.step()
        mask_now(net, masks)


def through_the_state_dict(net, masks, optimizer, batches):
    def apply():
        state = net.state_dict()
        state.update({name: torch.where(mask, state[name], torch.zeros_like(state[name])) for name, mask in masks.items()})
        net.load_state_dict(state)

    apply()
    for x, y in batches:
        loss = F.nll_loss(F.log_softmax(net(x), dim=1), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        apply()


def with_a_closure(net, masks, optimizer, batches):
    with contextlib.suppress(StopIteration):
        left = iter(batches)
        while True:
            x, y = next(left)
            mask_now(net, masks)

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    mask_now(net, masks)


def state_masked_too(net, masks, optimizer, batches):
    """Moments of pruned weights are cleared as well; those of the others stay."""
    parameters = dict(net.named_parameters())
    mask_now(net, masks)
    for x, y in batches:
        learn(net, optimizer, x, y)
        mask_now(net, masks)
        for name, mask in masks.items():
            for value in optimizer.state.get(parameters[name], {}).values():
                if isinstance(value, torch.Tensor) and value.shape == mask.shape:
                    value.mul_(mask)
        with torch.no_grad():
            net(x)


def in_other_passes(backward):
    """A training whose passes are not one call of the net for each batch."""

    def train(net, masks, optimizer, batches):
        mask_now(net, masks)
        for x, y in batches:
            optimizer.zero_grad()
            backward(net, x, y)
            optimizer.step()
            mask_now(net, masks)

    return train


def in_halves(net, x, y):
    for a, b in zip(x.split(2), y.split(2), strict=True):
        (F.cross_entropy(net(a), b, reduction="sum") / len(y)).backward()


def with_the_accuracy(net, x, y):
    F.cross_entropy(net(x), y).backward()
    net.eval()
    (net(x).argmax(1) == y).double().mean().item()
    net.train()


def masked_in_a_function(net, masks, optimizer, batches):
    """The net computes with masked copies; its own parameters are masked in the end."""
    parameters = dict(net.named_parameters())
    for x, y in batches:
        masked = {name: p * masks[name] if name in masks else p for name, p in parameters.items()}
        optimizer.zero_grad()
        F.cross_entropy(torch.func.functional_call(net, masked, (x,)), y).backward()
        optimizer.step()
    mask_now(net, masks)


ALSO_RIGHT = [
    masked_in_a_function,
    in_other_passes(in_halves),
    in_other_passes(with_the_accuracy),
    in_other_passes(lambda net, x, y: F.cross_entropy(checkpoint(net, x, use_reentrant=False), y).backward()),
    by_indexing,
    with_a_step_hook,
    with_torchs_hooks,
    before_and_at_the_end,
    gradients_too,
    through_the_state_dict,
    with_a_closure,
    state_masked_too,
]
