"""The optimizer lab: choose a surface and optimizers, drag the sliders, and see paths, losses, step sizes and state change.

    lab("rosenbrock", ["momentum", "adam"])                  # in a notebook: controls, picture, one step in full
    draw_lab("rosenbrock", ["momentum", "adam"], step=20)    # the same picture as a matplotlib figure

Both take the arguments of `lab_paths.settings`. The other modules: lab_paths.py (settings, paths), lab_panels.py (the picture),
lab_picture.py (clicks), lab_steps.py (one step, formula by formula).
"""

import contextlib
from typing import Any

import ipywidgets
from matplotlib.figure import Figure

from hpml_lab.adaptive.views.lab.clickable_picture import ClickablePicture
from hpml_lab.adaptive.views.lab.panels import HEIGHT, WIDTH, Panels, label
from hpml_lab.adaptive.views.lab.rule_paths import MOST_OPTIMIZERS, SCHEDULES, LabSettings, first_rate, settings
from hpml_lab.adaptive.views.lab.single_step import step_table
from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import Frame, PictureBox
from hpml_lab.core.show.picture import Picture
from hpml_lab.landscape.surfaces import SURFACES
from hpml_lab.optim.formulas import FORMULAS

ALT = (
    "Paths of optimizers on the contours of a surface, and over the steps their losses, and the step sizes and the state "
    "of one of them."
)

AT_ONCE = 40  # up to this step the class is compared while a slider is dragged

# Round values, for sliders on a logarithmic scale.
RATES = [round(digit * 10.0**power, 10) for power in range(-5, 1) for digit in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)] + [10.0]
DECAYS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9999]
WEIGHT_DECAYS = [0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
NOISES = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
STEPS = [20, 50, 100, 200, 500]
# The hyperparameters that have a slider: its label and its values.
SLIDERS = {
    "lr": ("rate α", RATES),
    "momentum": ("momentum γ", DECAYS),
    "rho": ("decay ρ", DECAYS),
    "alpha": ("decay ρ", DECAYS),
    "beta1": ("decay β₁", DECAYS),
    "beta2": ("decay β₂", DECAYS),
    "weight_decay": ("weight λ", WEIGHT_DECAYS),
}


def draw_lab(*chosen: Any, **more: Any) -> Figure:
    """The lab's picture as a matplotlib figure; takes the arguments of `settings`. Raises LabError for invalid values."""
    return _figure(settings(*chosen, **more))


def show_lab(*chosen: Any, caption: str = ALT, **more: Any) -> Picture:
    """The same figure with a caption, for a notebook without a kernel or for a report."""
    return Picture(draw_lab(*chosen, **more), caption)


def _figure(chosen: LabSettings) -> Figure:
    figure, panels = style.new_figure(WIDTH, HEIGHT), Panels()
    with style.in_style():
        panels.build(figure)
    panels.set_fixed_parts(chosen)
    panels.show(chosen)
    return figure


def lab(*chosen: Any, **more: Any) -> "OptimizerLab":
    """The lab with its controls; takes the arguments of `settings`. Raises LabError for invalid values."""
    return OptimizerLab(settings(*chosen, **more))


def _slider(name: str, values: list[float], value: float) -> ipywidgets.SelectionSlider:
    slider = ipywidgets.SelectionSlider(options=[("0", 0.0)], description=name, layout=_wide("310px"))
    _offer(slider, values, value)
    return slider


def _offer(slider: ipywidgets.SelectionSlider, values: list[float], value: float) -> None:
    """Set a slider's values and its value, which is added to them if missing."""
    options = [(f"{option:g}", option) for option in sorted({*values, value})]
    if tuple(options) != tuple(slider.options):
        slider.options = options
    slider.value = value


def _wide(width: str) -> ipywidgets.Layout:
    return ipywidgets.Layout(width=width)


class OptimizerLab(PictureBox):
    """The lab in a notebook: controls, the picture, and below it one step in full.

    `chosen` holds the settings that are shown. The sliders of rate and decays set the followed optimizer, or all chosen ones
    if "sliders for all" is ticked.
    """

    def __init__(self, chosen: LabSettings) -> None:
        self.chosen, self._panels, self._silent_depth, self._step_shown = chosen, Panels(), 0, None
        self._frame = Frame(self._panels.build, WIDTH, HEIGHT)
        self._ground: tuple | None = None
        self._surfaces = SURFACES | {chosen.surface.name: chosen.surface}
        # The settings of each optimizer, so that one that is removed and chosen again has its former settings.
        self._hyper = {name: dict(values) for name, values in chosen.hyper.items()}
        self._make_controls()
        picture = ClickablePicture(value=self._render(), alt=ALT, width=self._frame.size[0])
        super().__init__([*self._rows(), picture, self.table], picture, self._render, ALT)
        self._show_step()
        self._watch(picture)

    def _make_controls(self) -> None:
        chosen, dropdown = self.chosen, ipywidgets.Dropdown
        self.surface = dropdown(
            options=[(surface.title, name) for name, surface in self._surfaces.items()],
            value=chosen.surface.name,
            description="surface",
            layout=_wide("300px"),
        )
        self.schedule = dropdown(options=list(SCHEDULES), value=chosen.schedule, description="schedule", layout=_wide("250px"))
        self.steps = dropdown(
            options=sorted({*STEPS, chosen.steps}), value=chosen.steps, description="steps", layout=_wide("150px")
        )
        self.noise = _slider("noise", NOISES, chosen.noise)
        self.optimizers = {
            name: ipywidgets.Checkbox(value=name in chosen.hyper, description=label(name), indent=False, layout=_wide("157px"))
            for name in FORMULAS
        }
        self.follow = dropdown(description="follow", layout=_wide("300px"))
        self.together = ipywidgets.Checkbox(
            value=False, description="sliders for all", indent=False, layout=ipywidgets.Layout(width="130px")
        )
        self.hyper = {key: _slider(text, values, values[0]) for key, (text, values) in SLIDERS.items()}
        self.hyper["lr"].layout.width = "480px"  # it has the most values
        self.start = [ipywidgets.FloatSlider(description=f"start {name}", layout=_wide("310px")) for name in "xy"]
        self.step = ipywidgets.IntSlider(value=chosen.step, min=0, max=chosen.steps, description="step", layout=_wide("350px"))
        self.back = ipywidgets.Button(description="◀ back", layout=_wide("90px"), tooltip="one step back (left arrow key)")
        self.forward = ipywidgets.Button(
            description="forward ▶", layout=_wide("100px"), tooltip="one step forward (right arrow key)"
        )
        self.table = ipywidgets.HTML(layout=ipywidgets.Layout(max_width="960px"))
        self._fit_controls()

    def _rows(self) -> list[ipywidgets.Widget]:
        row = ipywidgets.HBox
        boxes = ipywidgets.GridBox(
            list(self.optimizers.values()),
            layout=ipywidgets.Layout(
                grid_template_columns="repeat(6, max-content)", grid_gap="0 14px", padding="4px 0 4px 12px"
            ),
        )
        wrap = ipywidgets.Layout(flex_flow="row wrap", max_width="980px")
        hint = ipywidgets.HTML("Click the surface: start; a curve: step; then arrow keys.")
        self._hyper_row = row([], layout=wrap)
        self._fit_controls()
        return [
            row([self.surface, self.schedule, self.steps], layout=wrap),
            boxes,
            row([self.follow, self.together, self.hyper["lr"]], layout=wrap),
            self._hyper_row,
            row(self.start, layout=wrap),
            row([self.step, self.back, self.forward, hint], layout=wrap),
        ]

    def _fit_controls(self) -> None:
        """Set the controls' ranges and values from the settings."""
        chosen = self.chosen
        with self._silently():
            names = list(chosen.hyper)
            options = [(label(name), name) for name in names]
            if tuple(options) != tuple(self.follow.options):
                self.follow.options = options
            self.follow.value = chosen.follow
            followed = chosen.hyper[chosen.follow]
            for key, slider in self.hyper.items():
                if key in followed:
                    _offer(slider, SLIDERS[key][1], followed[key])
            if hasattr(self, "_hyper_row"):
                decays = [slider for key, slider in self.hyper.items() if key in followed and key != "lr"]
                children = (*decays, self.noise)
                if children != self._hyper_row.children:
                    self._hyper_row.children = children
            _offer(self.noise, NOISES, chosen.noise)
            x0, x1, y0, y1 = chosen.surface.window
            for slider, value, low, high in zip(self.start, chosen.start, (x0, y0), (x1, y1), strict=True):
                slider.min, slider.max = min(low, value, slider.min), max(high, value, slider.max)
                slider.value, slider.step = value, 0.05 if high - low > 4 else 0.02
                slider.min, slider.max = min(low, value), max(high, value)
            self.step.max = max(chosen.steps, self.step.value)
            self.step.value = chosen.step
            self.step.max = chosen.steps
            for name, box in self.optimizers.items():
                box.value = name in chosen.hyper
                box.disabled = (len(names) == 1 and box.value) or (len(names) == MOST_OPTIMIZERS and not box.value)

    @contextlib.contextmanager
    def _silently(self):
        """Inside, controls are set without a redraw."""
        self._silent_depth += 1
        try:
            yield
        finally:
            self._silent_depth -= 1

    def _watch(self, picture: ClickablePicture) -> None:
        self.surface.observe(self._on(self._take_surface), "value")
        self.follow.observe(self._on(self._take_follow), "value")
        for box in self.optimizers.values():
            box.observe(self._on(self._take_optimizers), "value")
        for key, slider in self.hyper.items():
            slider.observe(self._on(lambda change, key=key: self._take_hyper(key, change.new)), "value")
        for control in (self.schedule, self.steps, self.noise, *self.start, self.step):
            control.observe(self._on(lambda change: self._take()), "value")
        picture.observe(self._on(lambda change: self._take_point(*change.new[:2])), "point")
        picture.observe(self._on(lambda change: self._turn(change.new - change.old)), "turns")
        self.back.on_click(self._on(lambda button: self._turn(-1)))
        self.forward.on_click(self._on(lambda button: self._turn(1)))

    def _on(self, take):
        """A callback: apply the change, then draw the picture and show the step, one change at a time."""

        def callback(change: Any) -> None:
            if self._silent_depth:
                return
            with self._lock:
                take(change)
                self.redraw()
                self._show_step()

        return callback

    def _take(self, **changed: Any) -> None:
        """Take the settings from the controls, except those given in `changed`."""
        old = self.chosen
        values = {
            "surface": old.surface,
            "hyper": old.hyper,
            "start": tuple(slider.value for slider in self.start),
            "noise": self.noise.value,
            "schedule": self.schedule.value,
            "steps": self.steps.value,
            "seed": old.seed,
            "follow": old.follow,
            "step": min(self.step.value, self.steps.value),
        } | changed
        self.chosen = LabSettings(**values)
        self._fit_controls()

    def _take_surface(self, change: Any) -> None:
        """A new surface sets its own start, its noise, and rates that suit it."""
        surface = self._surfaces[change.new]
        for name, values in self._hyper.items():
            values["lr"] = first_rate(surface, name)
        hyper = {name: dict(self._hyper[name]) for name in self.chosen.hyper}
        self._take(surface=surface, hyper=hyper, start=surface.start, noise=surface.noise)

    def _take_optimizers(self, change: Any) -> None:
        """The order is that of the boxes; a newly chosen optimizer is followed."""
        names = [name for name, box in self.optimizers.items() if box.value]
        for name in names:
            if name not in self._hyper:
                self._hyper[name] = FORMULAS[name].defaults | {"lr": first_rate(self.chosen.surface, name)}
        added = [name for name in names if name not in self.chosen.hyper]
        follow = added[0] if added else self.chosen.follow if self.chosen.follow in names else names[-1]
        self._take(hyper={name: dict(self._hyper[name]) for name in names}, follow=follow)

    def _take_follow(self, change: Any) -> None:
        self._take(follow=change.new)

    def _take_hyper(self, key: str, value: float) -> None:
        for name in self.chosen.hyper if self.together.value else [self.chosen.follow]:
            if key in self._hyper[name]:
                self._hyper[name][key] = value
        self._take(hyper={name: dict(self._hyper[name]) for name in self.chosen.hyper})

    def _take_point(self, x: float, y: float) -> None:
        found = self._panels.target_at(x, y)
        if found is None:
            return
        kind, (across, up) = found
        if kind == "surface":
            self._take(start=(round(across, 2), round(up, 2)))
        else:
            self._take(step=round(across))

    def _turn(self, steps: int) -> None:
        self._take(step=min(max(self.chosen.step + int(steps), 0), self.chosen.steps))

    def _render(self) -> bytes:
        ground = Panels.ground(self.chosen)
        if ground != self._ground:
            self._panels.set_fixed_parts(self.chosen)
            self._ground = ground
        self._panels.show(self.chosen)
        return self._frame.png(ground)

    def _show_step(self) -> None:
        """Show the step in full. The class takes longer than the picture: far into the run it runs only if the step changed."""
        path, step = self.chosen.paths[self.chosen.follow], self.chosen.step
        self.table.value = step_table(path, step, compare=step != self._step_shown or step <= AT_ONCE)
        self._step_shown = step

    def figure(self) -> Figure:
        """The picture that is shown, as a figure to keep."""
        return _figure(self.chosen)
