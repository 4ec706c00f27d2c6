"""keep-the-mask: train a pruned net on so that its pruned weights are 0 in every forward pass, and in the end."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same
from hpml_lab.core.judge.steps import Steps, small_batches, small_net

Tensor = torch.Tensor
Masks = dict[str, Tensor]
Optimizer = torch.optim.Optimizer
Train = Callable[[nn.Module, Masks, Optimizer, list], None]

# ---- nets to train ---------------------------------------------------------------------------------------------------

_SIZES = (4, 6, 3)
_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.5),
    "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "AdamW": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.2),
    "SGD with weight decay": partial(torch.optim.SGD, lr=0.2, weight_decay=0.1),
}
_CASES = {  # optimizer, steps that it made before, batches, what is masked
    "SGD, 3 batches": ("SGD", 0, 3, ("0.weight", "2.weight")),
    "SGD with weight decay, 3 batches": ("SGD with weight decay", 0, 3, ("0.weight", "2.weight")),
    "SGD with momentum, which has trained the net before": ("SGD with momentum", 3, 3, ("0.weight", "2.weight")),
    "AdamW, which has trained the net before": ("AdamW", 2, 4, ("0.weight", "2.weight")),
    "one batch": ("SGD", 0, 1, ("0.weight", "2.weight")),
    "layers in a block": ("SGD", 0, 2, ("0.0.weight", "0.2.weight")),
    "a mask in one layer only, and one for a bias": ("SGD with momentum", 1, 2, ("2.weight", "0.bias")),
}


def _step(net: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def _masks(net: nn.Module, names: Sequence[str]) -> Masks:
    """Half of each tensor is pruned, at random, in each check others: also large weights are, and small ones stay."""
    made, found = torch.Generator().manual_seed(drawn().randint(1, 999)), {}
    for name in names:
        parameter = net.get_parameter(name)
        order = torch.randperm(parameter.numel(), generator=made)
        found[name] = (order < parameter.numel() // 2).view_as(parameter)
    return found


class _Trained:
    """A training by its steps. Of the gradients those of weights that are not pruned count, and of the parameters the last."""

    def __init__(self, train: Train, words: str) -> None:
        kind, earlier, count, names = _CASES[words]
        net = nn.Sequential(small_net(*_SIZES)) if names[0].startswith("0.0") else small_net(*_SIZES)
        optimizer = _OPTIMIZERS[kind](net.parameters())
        for x, y in small_batches([5] * earlier, _SIZES[0], seed=6):
            _step(net, optimizer, x, y)
        masks, handed = _masks(net, names), _masks(net, names)
        kept = [masks.get(name, torch.ones_like(each) > 0).flatten() for name, each in net.named_parameters()]
        self.kept = torch.cat(kept)
        self.steps = Steps(net, optimizer, self.kept)
        train(net, handed, optimizer, small_batches([5] * count, _SIZES[0], seed=7))
        now = dict(net.named_parameters())
        if further := sorted(now.keys() - set(self.steps.names)):
            hint = f"In the end the net has further parameters: {', '.join(further)}. It should have those that it had before."
            raise Mistake("masks-left-in-the-net", hint)
        if any(now.get(name) is not each for name, each in zip(self.steps.names, self.steps.parameters, strict=True)):
            hint = "A parameter of the net is another object now, which the optimizer does not know."
            raise Mistake("parameters-replaced", f"{hint} Change the parameter in place.")
        self.path = [*self.steps.gradients, self.steps.end]

    @property
    def moved(self) -> int:
        """The pruned weights that are not 0 in the end."""
        return int((self.path[-1][~self.kept] != 0).sum())


# ---- the right answer, and what students write instead ---------------------------------------------------------------


@torch.no_grad()
def apply(net: nn.Module, masks: Masks) -> None:
    for name, mask in masks.items():
        net.get_parameter(name).mul_(mask)


@torch.no_grad()
def apply_to_matrices(net: nn.Module, masks: Masks) -> None:
    apply(net, {name: mask for name, mask in masks.items() if mask.ndim > 1})


@torch.no_grad()
def apply_anew(net: nn.Module, masks: Masks) -> None:
    """As many of the weights as they are now, the smallest."""
    for name, mask in masks.items():
        weight = net.get_parameter(name)
        smallest = weight.abs().flatten().topk(int((~mask).sum()), largest=False).indices
        weight.view(-1)[smallest] = 0


def mask_gradients(net: nn.Module, masks: Masks) -> None:
    for name, mask in masks.items():
        net.get_parameter(name).grad.mul_(mask)


def skip(*_: object) -> None:
    pass


def right(net: nn.Module, masks: Masks, optimizer: Optimizer, batches: list) -> None:
    start, before_step, after_step = apply, skip, apply
    start(net, masks)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        before_step(net, masks)
        optimizer.step()
        after_step(net, masks)


RUBRIC = Rubric(
    right,
    """
apply, skip, apply
    never-masked :: skip, skip, skip :: Pruned weights are 0 in the net's own parameters: a new tensor leaves the
        parameter as it was.
    masked-once :: apply, skip, skip :: The masks are applied once, at the start. After the first step the pruned
        weights are not 0 any more.
    gradients-only :: apply, mask_gradients, skip :: A gradient of 0 does not keep a weight in place: momentum from
        earlier steps still moves it. Mask the weights.
    mask-chosen-anew :: apply, skip, apply_anew :: Your mask is chosen anew from the weights as they are now. The
        masks that you were given say what is pruned.
    weights-only :: apply_to_matrices, skip, apply_to_matrices :: A mask may belong to a bias: its name says to
        which parameter. You apply those of the weights only.
optimizer.zero_grad()
    accumulates :: skip() :: Each step has the gradients of its own batch, without those of the batches before: zero_grad?
""",
    wrap=lambda train: lambda words: _Trained(train, words).path,
)


@exercise("keep-the-mask", notebook="17_pruning", takes="net, masks, optimizer, batches", returns=None)
def judge_keep_the_mask(answer: Train) -> None:
    RUBRIC.expect(answer, {words: (words,) for words in _CASES}, explain=lambda *_: _explain(answer))
    for words in _CASES:
        if moved := _Trained(answer, words).moved:
            raise Mistake("nearly-zero", f"For {words}, {moved} pruned weights are very small in the end, and not 0.")


def _explain(answer: Train) -> None:
    """Raise the Mistake that says where the training first differs from the right one."""
    for words in _CASES:
        got, wanted = _Trained(answer, words), _Trained(right, words)
        step = got.steps.first_difference(wanted.steps)
        seen = [int((each.parameters[~got.kept] != 0).sum()) for each in got.steps.arrived if each.step == step]
        if any(seen):
            hint = f"For {words}, {max(seen)} pruned weights were not 0 in the pass of step {step} (from 0)."
            raise Mistake("pruned-weights-in-a-pass", f"{hint} || The masks come before the first pass, and after each step.")
        got.steps.explain(wanted.steps)
        if step is not None:
            hint = f"For {words}, the gradient of step {step} (from 0) is {got.steps.factor(step, wanted.steps)} the right one."
            raise Mistake("another-gradient", f"{hint} Is it another loss, or are the batches not taken as they come?")
        if got.moved:
            hint = f"For {words}, {got.moved} pruned weights are not 0 in the end. || The last step moves them, too."
            raise Mistake("not-zero-in-the-end", hint)
        if not same(got.steps.end, wanted.steps.end):
            hint = f"For {words}, all gradients are right, and in the end other weights than the pruned ones are not."
            raise Mistake("other-weights", hint)
