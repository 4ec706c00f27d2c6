"""An optimizer and a GradScaler that record what a student's training step does with them."""

import torch

from hpml_lab.core.judge.mistake import Mistake

BARE_STEP = "optimizer.step() also steps on infinite gradients: scaler.step(optimizer) looks first."


class RecordingOptimizer:
    """Plain gradient descent with the interface that GradScaler needs. It records the gradients of each step."""

    def __init__(self, parameters: list[torch.Tensor], lr: float) -> None:
        self.param_groups, self.lr = [{"params": parameters}], lr
        self.stepped: list[torch.Tensor | None] = []

    @property
    def parameters(self) -> list[torch.Tensor]:
        return self.param_groups[0]["params"]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        self.stepped.append(self.gradient())
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter -= self.lr * parameter.grad

    def gradient(self) -> torch.Tensor | None:
        """All gradients in one vector (a copy), or None if there are none."""
        gradients = [parameter.grad.flatten() for parameter in self.parameters if parameter.grad is not None]
        return torch.cat(gradients) if gradients else None


class RecordingScaler(torch.amp.GradScaler):
    """A real GradScaler that records, for one training step, the calls and the gradients at each call."""

    def __init__(self, optimizer: RecordingOptimizer) -> None:
        super().__init__("cpu", init_scale=1024.0)
        self.optimizer, self.seen, self.inside = optimizer, {}, False

    def _record(self, name: str) -> None:
        if not self.inside:
            self.seen[name] = self.optimizer.gradient()

    def scale(self, outputs):
        self._record("scale")
        return super().scale(outputs)

    def unscale_(self, optimizer):
        if not self.inside and "step" in self.seen:
            raise Mistake("unscale-after-step", "unscale_ comes after scaler.step: the weights have already changed.")
        if not self.inside and "unscale_" in self.seen:
            raise Mistake("unscaled-twice", "unscale_ is called twice in one step. Call it once, right after backward().")
        if not self.inside and "scale" not in self.seen:
            self._without_scale("unscale_", "unscaled-before-backward")
        self._record("unscale_")
        super().unscale_(optimizer)

    def step(self, optimizer):
        if "update" in self.seen:
            raise Mistake("update-before-step", "scaler.update() comes before scaler.step(): it must be the last call.")
        if "step" in self.seen:
            raise Mistake("stepped-twice", "scaler.step(optimizer) is called twice in one step.")
        if "scale" not in self.seen:
            self._without_scale("scaler.step", "zeroed-too-early")
        self._record("step")
        if self.seen["step"] is None:  # GradScaler itself raises an error about its inf checks here
            hint = "At scaler.step there are no gradients: call backward() before it, and do not call zero_grad in between."
            raise Mistake("zeroed-too-early", hint)
        self.inside = True  # step calls unscale_ itself if nobody has
        try:
            return super().step(optimizer)
        finally:
            self.inside = False

    def update(self, new_scale=None):
        if "update" in self.seen:
            raise Mistake("updated-twice", "scaler.update() is called twice in one step. Call it once, at the end.")
        if not {"step", "unscale_"} & self.seen.keys():  # GradScaler has seen no gradients, and would raise an error
            if self.optimizer.stepped:
                raise Mistake("step-without-scaler", BARE_STEP)
            hint = "scaler.update() comes before scaler.step(): it must be the last call of the step."
            raise Mistake("update-before-step", hint)
        self._record("update")
        super().update(new_scale)

    def _without_scale(self, name: str, mistake: str) -> None:
        """Raise the Mistake of a call that needs a scaled loss and has none."""
        if self.optimizer.gradient() is None:
            raise Mistake(mistake, f"At {name} there are no gradients yet: call it after backward().")
        hint = (
            f"At {name} there are gradients, but of a loss that scaler.scale has not seen: call scaler.scale(loss).backward()."
        )
        raise Mistake("loss-not-scaled", hint)
