"""keep-the-mask: train a pruned net on so that its pruned weights are 0 in every forward pass, and in the end."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same

Tensor = torch.Tensor
Masks = dict[str, Tensor]
Optimizer = torch.optim.Optimizer
Train = Callable[[nn.Module, Masks, Optimizer, list], None]
Outputs = Callable[..., list[Tensor]]

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
    "a mask in one layer only, and one for a bias": ("SGD with momentum", 1, 2, ("2.weight", "0.bias")),
}


def _batches(count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    made = torch.Generator().manual_seed(seed)
    return [(torch.randn(5, _SIZES[0], generator=made).double(), torch.randint(3, (5,), generator=made)) for _ in range(count)]


def _step(net: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def _net() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(*_SIZES[:2]), nn.Tanh(), nn.Linear(*_SIZES[1:])).double()
    made = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=made, dtype=torch.float64))
    return net


def _masks(net: nn.Module, names: Sequence[str]) -> Masks:
    """Half of each tensor is pruned, at random: also large weights are, and small ones stay."""
    made, found = torch.Generator().manual_seed(8), {}
    for name in names:
        parameter = net.get_parameter(name)
        order = torch.randperm(parameter.numel(), generator=made)
        found[name] = (order < parameter.numel() // 2).view_as(parameter)
    return found


class _Trained:
    """A training that is watched: the outputs of its forward passes, and then the parameters."""

    def __init__(self, train: Train, words: str) -> None:
        kind, earlier, count, names = _CASES[words]
        self.outputs: list[Tensor] = []
        self.steps, self.evaluated, self.unmasked = 0, False, False
        self.inputs: list[Tensor] = []
        net = _net()
        optimizer = _OPTIMIZERS[kind](net.parameters())
        for x, y in _batches(earlier, seed=6):
            _step(net, optimizer, x, y)
        self.masks, batches = _masks(net, names), _batches(count, seed=7)
        handed = {name: mask.clone() for name, mask in self.masks.items()}
        before = dict(net.named_parameters())
        self.start = {name: parameter.detach().clone() for name, parameter in before.items()}
        optimizer.register_step_post_hook(self._stepped)
        net.register_forward_hook(self._forward)
        train(net, handed, optimizer, batches)
        if further := sorted({name for name, _ in net.named_parameters()} - before.keys()):
            hint = f"In the end the net has further parameters: {', '.join(further)}. It should have those that it had before."
            raise Mistake("masks-left-in-the-net", hint)
        kept = {name: mask for name, mask in handed.items() if isinstance(mask, Tensor) and mask.dtype == torch.bool}
        if kept.keys() != handed.keys() or not same(kept, self.masks):
            raise Mistake("masks-changed", "Your function changed the masks that it was given: they belong to the caller.")
        if self.evaluated or not net.training:
            raise Mistake("evaluation-mode", "You train in evaluation mode, or leave the net in it. It comes in training mode.")
        self.after = {name: net.get_parameter(name).detach().clone() for name in before}
        now = {name: net.get_parameter(name) for name in before}
        self.replaced = [name for name in before if now[name] is not before[name]]
        self.frozen = [name for name in before if not now[name].requires_grad]

    def _stepped(self, *_: object) -> None:
        self.steps += 1

    def _forward(self, net: nn.Module, inputs: tuple, output: Tensor) -> None:
        if output.requires_grad:  # one that is looked at only is no training
            self.outputs.append(output.detach().clone())
            self.inputs.append(inputs[0].detach().clone())
            self.evaluated |= not net.training
            now = dict(net.named_parameters())
            self.unmasked |= any(bool((now[name][~mask] != 0).any()) for name, mask in self.masks.items() if name in now)

    @property
    def moved(self) -> int:
        """The pruned weights that are not 0 in the end."""
        return sum(int((self.after[name][~mask] != 0).sum()) for name, mask in self.masks.items())


def _path(train: Train) -> Outputs:
    """What the net gives for each batch, and its parameters in the end."""

    def outputs(words: str) -> list[Tensor]:
        trained = _Trained(train, words)
        return [*trained.outputs, *trained.after.values()]

    return outputs


# ---- the right answer, and what students write instead ---------------------------------------------------------------


@torch.no_grad()
def apply(net: nn.Module, masks: Masks) -> None:
    for name, mask in masks.items():
        net.get_parameter(name).mul_(mask)


@torch.no_grad()
def apply_inverted(net: nn.Module, masks: Masks) -> None:
    for name, mask in masks.items():
        net.get_parameter(name).mul_(~mask)


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
    start, before_forward, before_step, after_step, end = apply, skip, skip, apply, skip
    start(net, masks)
    for x, y in batches:
        before_forward(net, masks)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        before_step(net, masks)
        optimizer.step()
        after_step(net, masks)
    end(net, masks)


RUBRIC = Rubric(
    right,
    """
apply, skip, skip, apply, skip
    never-masked :: skip, skip, skip, skip, skip :: Pruned weights are 0 in the net's own parameters: a new tensor leaves the
        parameter as it was.
    masked-once :: apply, skip, skip, skip, skip :: The masks are applied once, at the start. After the first step the pruned
        weights are not 0 any more.
    masked-before-the-step :: skip, apply, skip, skip, skip :: $BEFORE
    masked-before-the-step :: skip, skip, apply, skip, skip :: $BEFORE
    masked-before-the-step :: apply, skip, apply, skip, skip :: $BEFORE
    masked-in-the-end :: skip, skip, skip, skip, apply :: The pruned weights are 0 only in the end: the net was trained with
        them, and then they are taken away.
    masked-at-both-ends :: apply, skip, skip, skip, apply :: At the start and in the end pruned weights are 0, but in between
        the net is trained with them.
    first-batch-not-masked :: skip, skip, skip, apply, skip :: $FIRST
    first-batch-not-masked :: skip, skip, mask_gradients, apply, skip :: $FIRST
    gradients-only :: apply, skip, mask_gradients, skip, skip :: $GRADIENTS
    gradients-only :: skip, skip, mask_gradients, skip, skip :: $GRADIENTS
    gradients-only :: apply, skip, mask_gradients, skip, apply :: $GRADIENTS
    gradients-only :: skip, skip, mask_gradients, skip, apply :: $GRADIENTS
    mask-chosen-anew :: apply, skip, skip, apply_anew, skip :: $ANEW
    mask-chosen-anew :: apply_anew, skip, skip, apply_anew, skip :: $ANEW
    mask-chosen-anew :: skip, skip, skip, apply_anew, skip :: $ANEW
    inverted :: apply_inverted, skip, skip, apply_inverted, skip :: $INVERTED
    inverted :: skip, skip, skip, apply_inverted, skip :: $INVERTED
    weights-only :: apply_to_matrices, skip, skip, apply_to_matrices, skip :: A mask may belong to a bias: its name says to
        which parameter. You apply those of the weights only.
optimizer.zero_grad()
    gradients-not-cleared :: skip() :: Each step has the gradients of its own batch, without those of the batches before:
        zero_grad?
start(net, masks)
    optimizer-starts-anew :: optimizer.state.clear(), start(net, masks) :: A new optimizer has lost the state of the old one: go
        on with the one that is given.
""",
    wrap=_path,
    BEFORE="Your masks come before the step; the optimizer then moves the pruned weights, and the last step's moves stay.",
    GRADIENTS="A gradient of 0 does not keep a weight in place: momentum from earlier steps still moves it. Mask the weights.",
    ANEW="Your mask is chosen anew from the weights as they are now. The masks that you were given say what is pruned.",
    FIRST="Your first forward pass computes with weights that are pruned: the masks come only after the first step.",
    INVERTED="What should stay is 0, and what is pruned is not: a mask is False where a weight is pruned.",
)


@exercise("keep-the-mask", notebook="17_pruning", takes="net, masks, optimizer, batches", returns=None)
def judge_keep_the_mask(answer: Train) -> None:
    RUBRIC.expect(answer, {words: (words,) for words in _CASES}, explain=lambda *_: _explain(answer))
    for words in _CASES:
        if moved := _Trained(answer, words).moved:
            raise Mistake("nearly-zero", f"For {words}, {moved} pruned weights are very small in the end, and not 0.")


def _explain(answer: Train) -> None:
    """Raise the Mistake that says where the training first differs from the right one."""
    for words, (_, _, count, _) in _CASES.items():
        got, wanted = _Trained(answer, words), _Trained(right, words)
        if same([*got.outputs, *got.after.values()], [*wanted.outputs, *wanted.after.values()]):
            continue
        if got.steps == 0:
            raise Mistake("no-step", f"For {words}, the optimizer that you were given made no step.")
        if (got.steps, len(got.outputs)) != (count, count):
            hint = f"For {words}, one step for each batch is asked for: {count}. Yours has {len(got.outputs)} forward passes "
            raise Mistake("other-number-of-steps", f"{hint}and {got.steps} steps.")
        if got.replaced:
            hint = f"{got.replaced[0]} is another object now, which the optimizer does not know: it goes on with the old one."
            raise Mistake("parameters-replaced", f"For {words}, {hint} Change the parameter in place.")
        if got.frozen:
            raise Mistake("frozen", f"For {words}, {got.frozen[0]} is frozen, with the weights in it that are not pruned.")
        moves = {n: (after - got.start[n])[got.masks.get(n, torch.ones_like(after) > 0)] for n, after in got.after.items()}
        if not any(move.any() for move in moves.values()):
            raise Mistake("nothing-learned", f"For {words}, no weight has moved: is there a gradient when the optimizer steps?")
        first = next((i for i, pair in enumerate(zip(got.outputs, wanted.outputs, strict=True)) if not same(*pair)), None)
        if got.moved:
            raise Mistake("not-zero-in-the-end", f"For {words}, {got.moved} pruned weights are not 0 in the end.")
        if first is not None:
            if not same(got.inputs, wanted.inputs):
                raise Mistake(
                    "other-batches", f"For {words}, the net does not get the batches one after another, as they come."
                )
            rest = "The pruned weights are 0 in the end, but the net has been trained with others."
            if not got.unmasked:
                rest = "The pruned weights were 0 in each pass: is it another loss, another gradient, or another step?"
            raise Mistake("another-path", f"For {words}, the output for batch {first} (from 0) differs. {rest}")
        raise Mistake("other-weights", f"For {words}, all outputs are right, but after the last step the parameters are not.")
