"""An optimizer and a GradScaler that write down what a student's training step does with them."""

import torch

from hpml_lab.core.exercises import Mistake

BARE_STEP = "optimizer.step() steps on infinite gradients, too: use scaler.step(optimizer)."


class WatchedDescent:
    """Plain descent with what GradScaler asks of an optimizer; it notes the gradients that it steps with."""

    def __init__(self, parameters: list[torch.Tensor], lr: float) -> None:
        self.param_groups, self.lr = [{"params": parameters}], lr
        self.stepped: list[torch.Tensor | None] = []

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self.param_groups[0]["params"]:
            one.grad = None

    def step(self) -> None:
        self.stepped.append(self.gradient())
        with torch.no_grad():
            for one in self.param_groups[0]["params"]:
                if one.grad is not None:
                    one -= self.lr * one.grad

    def gradient(self) -> torch.Tensor | None:
        """All gradients in one vector (a copy), or None where there is none."""
        grads = [one.grad.flatten() for one in self.param_groups[0]["params"] if one.grad is not None]
        return torch.cat(grads) if grads else None


class WatchedScaler(torch.amp.GradScaler):
    """A real GradScaler that notes, for one training step, what was called and the gradients at that moment."""

    def __init__(self, optimizer: WatchedDescent) -> None:
        super().__init__("cpu", init_scale=1024.0)
        self.optimizer, self.seen, self.inside = optimizer, {}, False

    def _note(self, name: str) -> None:
        if not self.inside:
            self.seen[name] = self.optimizer.gradient()

    def scale(self, outputs):
        self._note("scale")
        return super().scale(outputs)

    def unscale_(self, optimizer):
        if not self.inside and "step" in self.seen:
            raise Mistake("unscale-after-step", "unscale_ comes after scaler.step: the weights have moved already.")
        if not self.inside and "unscale_" in self.seen:
            raise Mistake("unscaled-twice", "unscale_ is called twice in one step. Once, right after backward().")
        if not self.inside and "scale" not in self.seen:
            raise Mistake("unscaled-before-backward", "At unscale_ no loss has been scaled yet: it comes after backward().")
        self._note("unscale_")
        super().unscale_(optimizer)

    def step(self, optimizer):
        self._note("step")
        if self.seen["step"] is None:  # GradScaler itself fails here, in words about its inf checks
            hint = "At scaler.step there are no gradients: backward() comes before it, and zero_grad not between the two."
            raise Mistake("zeroed-too-early", hint)
        self.inside = True  # step unscales by itself where nobody has
        try:
            return super().step(optimizer)
        finally:
            self.inside = False

    def update(self, new_scale=None):
        if "step" not in self.seen and self.optimizer.stepped:
            raise Mistake("step-without-scaler", BARE_STEP)
        if "step" not in self.seen:
            raise Mistake("update-before-step", "scaler.update() comes before scaler.step(): it closes the step.")
        self._note("update")
        super().update(new_scale)
