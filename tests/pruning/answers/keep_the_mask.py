"""Answers to `keep-the-mask`: train a pruned net on, its pruned weights 0 in every forward pass and in the end."""

import contextlib

import torch
from torch.nn import functional as F
from torch.nn.utils import prune


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


def new_tensors(net, masks, optimizer, batches):
    for x, y in batches:
        for name, p in net.named_parameters():
            if name in masks:
                p = p * masks[name]
        learn(net, optimizer, x, y)


def once(net, masks, optimizer, batches):
    mask_now(net, masks)
    plain(net, masks, optimizer, batches)


def before_each(net, masks, optimizer, batches):
    for x, y in batches:
        mask_now(net, masks)
        learn(net, optimizer, x, y)


def after_backward(net, masks, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        mask_now(net, masks)
        optimizer.step()


def at_the_end(net, masks, optimizer, batches):
    plain(net, masks, optimizer, batches)
    mask_now(net, masks)


def both_ends(net, masks, optimizer, batches):
    once(net, masks, optimizer, batches)
    mask_now(net, masks)


def after_each_only(net, masks, optimizer, batches):
    for x, y in batches:
        learn(net, optimizer, x, y)
        mask_now(net, masks)


def gradients(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        mask_gradients(net, masks)
        optimizer.step()


def gradients_by_hooks(net, masks, optimizer, batches):
    mask_now(net, masks)
    handles = [net.get_parameter(name).register_hook(lambda g, m=mask: g * m) for name, mask in masks.items()]
    plain(net, masks, optimizer, batches)
    for handle in handles:
        handle.remove()


def gradients_without_the_weights(net, masks, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        mask_gradients(net, masks)
        optimizer.step()


def gradients_and_at_the_end(net, masks, optimizer, batches):
    gradients(net, masks, optimizer, batches)
    mask_now(net, masks)


def smallest_again(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        learn(net, optimizer, x, y)
        with torch.no_grad():
            for name, mask in masks.items():
                p = net.get_parameter(name)
                threshold = p.abs().flatten().kthvalue(int((~mask).sum())).values
                p[p.abs() <= threshold] = 0


def from_the_current_zeros(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        learn(net, optimizer, x, y)
        with torch.no_grad():
            for name in masks:
                p = net.get_parameter(name)
                p *= p != 0


def inverted(net, masks, optimizer, batches):
    solution(net, {name: ~mask for name, mask in masks.items()}, optimizer, batches)


def weights_only(net, masks, optimizer, batches):
    solution(net, {name: mask for name, mask in masks.items() if "weight" in name}, optimizer, batches)


def no_zero_grad(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        mask_now(net, masks)


def no_step(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        mask_now(net, masks)


def own_optimizer(net, masks, optimizer, batches):
    solution(net, masks, torch.optim.SGD(net.parameters(), lr=0.1), batches)


def forgets(net, masks, optimizer, batches):
    optimizer.state.clear()
    solution(net, masks, optimizer, batches)


def hooks_stay(net, masks, optimizer, batches):
    for name, mask in masks.items():
        layer, _, kind = name.rpartition(".")
        prune.custom_from_mask(net.get_submodule(layer), kind, mask)
    plain(net, masks, optimizer, batches)


def consumes_the_masks(net, masks, optimizer, batches):
    kept = dict(masks)
    solution(net, kept, optimizer, batches)
    masks.clear()


def twice(net, masks, optimizer, batches):
    for _ in range(2):
        solution(net, masks, optimizer, batches)


def one_layer(net, masks, optimizer, batches):
    solution(net, dict(list(masks.items())[:1]), optimizer, batches)


def last_batch_missing(net, masks, optimizer, batches):
    solution(net, masks, optimizer, batches[:-1] or batches)


def another_loss(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y, reduction="sum").backward()
        optimizer.step()
        mask_now(net, masks)


def masks_as_floats(net, masks, optimizer, batches):
    for name in masks:
        masks[name] = masks[name].double()
    solution(net, masks, optimizer, batches)


def in_evaluation_mode(net, masks, optimizer, batches):
    net.eval()
    solution(net, masks, optimizer, batches)


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


def nearly_zero(net, masks, optimizer, batches):
    def apply():
        with torch.no_grad():
            for name, mask in masks.items():
                net.get_parameter(name)[~mask] = 1e-9

    apply()
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        apply()


def cleared_before_the_step(net, masks, optimizer, batches):
    mask_now(net, masks)
    for x, y in batches:
        F.cross_entropy(net(x), y).backward()
        optimizer.zero_grad()
        optimizer.step()
        mask_now(net, masks)


WRONG = [
    ("masks-changed", masks_as_floats),
    ("evaluation-mode", in_evaluation_mode),
    ("parameters-replaced", new_parameters),
    ("frozen", frozen),
    ("nearly-zero", nearly_zero),
    ("other-batches", lambda net, masks, optimizer, batches: solution(net, masks, optimizer, batches[::-1])),
    ("nothing-learned", cleared_before_the_step),
    ("never-masked", plain),
    ("never-masked", new_tensors),
    ("masked-once", once),
    ("masked-before-the-step", before_each),
    ("masked-before-the-step", after_backward),
    ("masked-in-the-end", at_the_end),
    ("masked-at-both-ends", both_ends),
    ("first-batch-not-masked", after_each_only),
    ("gradients-only", gradients),
    ("gradients-only", gradients_by_hooks),
    ("gradients-only", gradients_without_the_weights),
    ("gradients-only", gradients_and_at_the_end),
    ("mask-chosen-anew", smallest_again),
    ("masked-once", from_the_current_zeros),
    ("inverted", inverted),
    ("weights-only", weights_only),
    ("gradients-not-cleared", no_zero_grad),
    ("no-step", no_step),
    ("no-step", own_optimizer),
    ("optimizer-starts-anew", forgets),
    ("masks-left-in-the-net", hooks_stay),
    ("masks-changed", consumes_the_masks),
    ("other-number-of-steps", twice),
    ("other-number-of-steps", last_batch_missing),
    ("not-zero-in-the-end", one_layer),
    ("another-path", another_loss),
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


ALSO_RIGHT = [
    by_indexing,
    with_a_step_hook,
    with_torchs_hooks,
    before_and_at_the_end,
    gradients_too,
    through_the_state_dict,
    with_a_closure,
    state_masked_too,
]
