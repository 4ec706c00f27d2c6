"""The optimizer lab: paths as formulas and classes give them, steps shown in full, and a picture that follows its controls."""

import base64
import io
import itertools
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from hpml_lab.adaptive.views.lab import checks
from hpml_lab.adaptive.views.lab.panels import Panels, label, look, state_names
from hpml_lab.adaptive.views.lab.rule_paths import MOST_OPTIMIZERS, SCHEDULES, first_rate, settings
from hpml_lab.adaptive.views.lab.single_step import distance, spacings, step_lines, step_table
from hpml_lab.adaptive.views.lab.widget import RATES, draw_lab, lab
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.landscape.surfaces import SURFACES, quadratic
from hpml_lab.optim.formulas import FORMULAS

SIX = ["gradient_descent", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]
NAMES, SURFACE_NAMES = list(FORMULAS), list(SURFACES)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=float)


def words(html):
    return re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*</style>", "", html))


# ---- paths -------------------------------------------------------------------------------------------------


def test_every_formula_has_the_path_of_its_class_on_every_surface():
    rows = checks.compare_with_classes(steps=30)
    assert len(rows) == len(SURFACES) * 10
    assert max(row.distance for row in rows) < 1e-11
    assert all(row.steps == 30 for row in rows), "the first rates do not diverge"


@pytest.mark.parametrize("name", NAMES)
def test_the_first_rates_descend_on_every_surface(name):
    for surface in SURFACE_NAMES:
        path = settings(surface, name, noise=0, steps=200).paths[name]
        assert path.end == "" and path.losses[-1] < path.losses[0], surface


def test_the_look_ahead_of_the_lecture_is_the_formulas_own():
    path = settings("beale", "lecture_nesterov", steps=50).paths["lecture_nesterov"]
    formula = FORMULAS["lecture_nesterov"]
    for t in range(1, 51):
        s = path.state_before(t)
        at = [formula.gradient_point(xs[t - 1], state, **path.hyper) for xs, state in zip((path.x, path.y), s, strict=True)]
        assert path.surface.gradient(*at) == (path.gx[t - 1], path.gy[t - 1])


TORCH_SCHEDULES = {
    "constant": lambda o, T: torch.optim.lr_scheduler.ConstantLR(o, factor=1.0),
    "drop by 10 at half": lambda o, T: torch.optim.lr_scheduler.MultiStepLR(o, [T // 2]),
    "cosine": lambda o, T: torch.optim.lr_scheduler.CosineAnnealingLR(o, T),
    "warm-up over a tenth": lambda o, T: torch.optim.lr_scheduler.LinearLR(o, 1 / (T // 10), total_iters=T // 10 - 1),
    "one cycle": lambda o, T: torch.optim.lr_scheduler.OneCycleLR(o, 0.3, total_steps=T, cycle_momentum=False),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [20, 50, 200])
def test_a_schedule_gives_the_rates_of_torch(schedule, steps):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = TORCH_SCHEDULES[schedule](optimizer, steps)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    path = settings("quadratic", "adam", lr=0.3, schedule=schedule, steps=steps).paths["adam"]
    np.testing.assert_allclose(path.rates, rates, rtol=1e-9, atol=1e-18)


def test_noise_is_the_same_for_all_and_from_the_seed():
    def seen(seed):
        path = settings("quadratic", "gradient_descent", noise=1.0, seed=seed).paths["gradient_descent"]
        return [g - path.surface.gradient(x, y)[0] for g, x, y in zip(path.gx, path.x, path.y, strict=False)]

    assert seen(0) == seen(0) != seen(1)
    assert 0.8 < np.std(seen(0)) < 1.2


@pytest.mark.parametrize("surface", SURFACE_NAMES)
def test_what_diverges_ends_and_is_drawn(surface):
    figure, panels, ended = style.new_figure(9.6, 5.5), Panels(), 0
    panels.build(figure)
    for name, rate in itertools.product(NAMES, (10.0, 1e300)):
        chosen = settings(surface, name, lr=rate, steps=50)
        path = chosen.paths[name]
        assert all(map(math.isfinite, [*path.x, *path.y, *path.losses]))
        assert (path.steps < 50) == bool(path.end)
        panels.set_fixed_parts(chosen)
        panels.show(chosen)
        assert bool(panels.note.get_text()) == bool(path.end or path.left is not None)
        assert "diverges" in panels.note.get_text() or not path.end
        assert step_table(path, min(50, path.steps + 1))
        ended += bool(path.end)
    figure.canvas.draw()
    assert ended >= len(NAMES)


def test_a_division_by_zero_ends_the_path():
    path = settings("quadratic", "paper_adamax", start=(1.0, 0.0)).paths["paper_adamax"]
    assert path.end == "divides by 0 at 1" and path.steps == 0
    assert "divides by 0 at step 1" in words(step_table(path, 1))


# ---- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"surface": "everest"},
        {"optimizers": ["adan"]},
        {"optimizers": []},
        {"optimizers": 3},
        {"optimizers": [["adam"]]},
        {"optimizers": NAMES[: MOST_OPTIMIZERS + 1]},
        {"lr": 0},
        {"lr": -1},
        {"lr": math.nan},
        {"lr": math.inf},
        {"lr": "fast"},
        {"lr": {"nadam": 0.1}},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"optimizers": "adam", "momentum": 0.9},
        {"beta2": 1.5},
        {"start": (1,)},
        {"start": 1.5},
        {"start": (1, math.inf)},
        {"noise": -1},
        {"schedule": "linear"},
        {"schedule": ["cosine"]},
        {"seed": "one"},
        {"seed": 1.5},
        {"steps": 5},
        {"steps": 10.5},
        {"step": -1},
        {"follow": "nadam"},
        {"speed": 3},
    ],
    ids=str,
)
def test_invalid_values_are_refused_in_words(wrong):
    for make in (draw_lab, lab):
        with pytest.raises(LabError) as caught:
            make(**wrong)
        assert caught.value.problem and caught.value.fix


def test_a_hyperparameter_goes_to_all_that_have_it_or_to_one():
    chosen = settings(optimizers=["momentum", "nesterov", "adam"], lr={"adam": 0.3}, momentum=0.5, beta1={"adam": 0.8})
    assert [chosen.hyper[name]["momentum"] for name in ("momentum", "nesterov")] == [0.5, 0.5]
    assert chosen.hyper["adam"] | {"lr": 0.3, "beta1": 0.8} == chosen.hyper["adam"]
    assert chosen.hyper["momentum"]["lr"] == first_rate(SURFACES["beale"], "momentum")


# ---- one step in full --------------------------------------------------------------------------------------


def test_the_last_line_of_every_step_is_the_paths_next_point():
    assert checks.steps_that_miss(steps=30) == 0


def test_a_step_is_shown_with_its_numbers():
    path = settings("quadratic", "adam", lr=0.1, start=(-2.0, 1.0)).paths["adam"]
    lines = step_lines(path, 1)
    assert [line.symbol for line in lines] == ["m", "v", "m̂", "v̂", "θ"]
    assert lines[0].numbers == ("0.9·0 + (1 − 0.9)·(−2)", "0.9·0 + (1 − 0.9)·25")
    assert lines[0].results == pytest.approx((-0.2, 2.5))
    assert lines[4].numbers[0] == "−2 − 0.1·(−2) / (√4 + 1e−08)"
    table = words(step_table(path, 1))
    assert "m = 0.9·0 + (1 − 0.9)·(−2) = −0.2" in table
    assert "θ = θ − α m̂ / (√v̂ + ε)" in table and "theta = theta - lr * s.m_hat / (sqrt(s.v_hat) + eps)" in table


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_put_in_calculate_to_the_result(name):
    """Read back as Python, each line gives what it says, but for the digits that are not shown."""
    path = settings("beale", name, steps=30).paths[name]
    for line in step_lines(path, 7):
        for numbers, result in zip(line.numbers, line.results, strict=True):
            code = numbers.replace("−", "-").replace("·", "*").replace("^", "**")
            code = re.sub(r"√\(", "math.sqrt(", code)
            code = re.sub(r"√([\d.e+-]+)", r"math.sqrt(\1)", code)
            code = re.sub(r"\|([^|]+)\|", r"abs(\1)", code)
            # 1 − β₁ᵗ and the like magnify the rounding of the four digits
            assert eval(code) == pytest.approx(result, rel=0.02, abs=1e-6), (line.formula, numbers)


@pytest.mark.parametrize("name", [name for name in checks.WITH_CLASS if name != "nadam"])
def test_the_class_is_a_few_spacings_away(name):
    path = settings("himmelblau", name, schedule="cosine", steps=50).paths[name]
    for t in (1, 20, 5, 50):
        assert max(distance(path, t)) < 1000, t
        assert f"hpml_lab.optim.{FORMULAS[name].torch_equivalent}" in words(step_table(path, t))


def test_nadams_class_keeps_its_product_in_float32_and_the_table_says_so():
    path = settings("himmelblau", "nadam").paths["nadam"]
    assert "Πμ is kept in float32" in step_table(path, 5)
    assert max(distance(path, 5)) > 1000


def test_a_form_without_a_class_says_so():
    path = settings("beale", "ruder_nadam").paths["ruder_nadam"]
    assert distance(path, 3) is None
    assert "No class has this form" in step_table(path, 3)


def test_spacings_count_the_numbers_between():
    assert spacings(1.0, math.nextafter(1.0, 2)) == 1
    assert spacings(-2.0, -2.0) == 0
    assert spacings(1e300, math.nextafter(math.nextafter(1e300, 0), 0)) == 2


# ---- the picture -------------------------------------------------------------------------------------------


def test_no_two_optimizers_look_alike_even_in_grey():
    looks = [look(name) for name in NAMES]
    assert len({(row["linestyle"], row["marker"]) for row in looks}) == len(NAMES), "distinguishable without color"
    assert len({(row["color"], row["linestyle"]) for row in looks}) == len(NAMES)
    assert all(len(state_names(name)) <= 2 for name in NAMES)
    assert all(len(label(name)) <= 18 for name in NAMES)


CASES = [
    {},
    {"surface": "rosenbrock", "optimizers": SIX, "follow": "momentum", "step": 40},
    {"surface": "rastrigin", "optimizers": NAMES[10:], "schedule": "one cycle", "noise": 1.0, "steps": 50},
    {"surface": "saddle", "lr": 5.0, "step": 0},
    {"surface": quadratic(100), "optimizers": "gradient_descent", "lr": 0.0123, "start": (9.0, -1.0)},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.get("surface", "first"))[:12])
def test_the_labs_picture_is_the_figure_of_the_plain_call(case, same_picture):
    live, figure = lab(**case), draw_lab(**case)
    assert same_picture(live.figure(), figure)
    shown, drawn = pixels(live.image.value), pixels(style.png(figure))
    assert shown.shape == drawn.shape
    assert np.mean(np.abs(shown - drawn) > 32) < 0.001


def test_other_settings_give_another_picture(same_picture):
    assert not same_picture(draw_lab(), draw_lab("himmelblau"))


@pytest.mark.parametrize("surface", SURFACE_NAMES)
@pytest.mark.parametrize("chosen", [SIX, NAMES[-6:]], ids=["six", "long names"])
def test_nothing_is_cut_off_and_no_texts_overlap(surface, chosen):
    figure = draw_lab(surface, chosen, lr=10.0)
    figure.canvas.draw()
    box, renderer = figure.bbox, figure.canvas.get_renderer()
    texts = [text for text in figure.texts if text.get_text()]
    titles = [axes._left_title for axes in figure.axes if axes._left_title.get_text()]
    legends = [*figure.legends, *(axes.legend_ for axes in figure.axes if axes.legend_)]
    extents = [artist.get_window_extent(renderer) for artist in (*texts, *titles, *legends)]
    for extent in extents:
        assert box.x0 <= extent.x0 and extent.x1 <= box.x1 and box.y0 <= extent.y0 and extent.y1 <= box.y1
    for extent, other in itertools.combinations(extents, 2):
        assert not extent.overlaps(other)


# ---- the widget --------------------------------------------------------------------------------------------


def test_every_control_moves_the_picture_and_its_settings():
    live = lab(optimizers=SIX, follow="adam")
    moves = [
        lambda: setattr(live.hyper["lr"], "value", 0.5),
        lambda: setattr(live.hyper["beta1"], "value", 0.5),
        lambda: setattr(live.hyper["beta2"], "value", 0.9),
        lambda: setattr(live.start[0], "value", 2.0),
        lambda: setattr(live.start[1], "value", -1.0),
        lambda: setattr(live.noise, "value", 2.0),
        lambda: setattr(live.schedule, "value", "cosine"),
        lambda: setattr(live.steps, "value", 50),
        lambda: setattr(live.step, "value", 33),
        lambda: setattr(live.follow, "value", "momentum"),
        lambda: setattr(live.hyper["momentum"], "value", 0.5),
        lambda: setattr(live.optimizers["adam"], "value", False),
        lambda: setattr(live.optimizers["adamw"], "value", True),
        lambda: setattr(live.hyper["weight_decay"], "value", 0.5),
        lambda: setattr(live.surface, "value", "saddle"),
        lambda: setattr(live.image, "point", [0.3, 0.6, 1.0]),
        lambda: setattr(live.image, "point", [0.8, 0.5, 2.0]),
        lambda: setattr(live.image, "turns", 3),
        live.back.click,
        live.forward.click,
    ]
    for number, move in enumerate(moves):
        before = live.image.value, live.chosen
        move()
        assert live.image.value != before[0], f"move {number}"
        assert live.chosen != before[1]
        assert (np.abs(pixels(live.image.value) - pixels(style.png(live.figure()))) > 32).mean() < 0.001


def test_sliders_set_the_followed_optimizer_or_all():
    live = lab()
    before = {name: dict(values) for name, values in live.chosen.hyper.items()}
    live.hyper["lr"].value = 0.5
    assert live.chosen.hyper == before | {"adam": before["adam"] | {"lr": 0.5}}
    live.together.value = True
    live.hyper["lr"].value = 0.003
    assert {values["lr"] for values in live.chosen.hyper.values()} == {0.003}


def test_an_optimizer_comes_back_as_it_was_left():
    live = lab()
    live.hyper["lr"].value = 0.5
    live.optimizers["adam"].value = False
    assert list(live.chosen.hyper) == ["gradient_descent", "momentum"] and live.chosen.follow == "momentum"
    live.optimizers["adam"].value = True
    assert live.chosen.follow == "adam" and live.hyper["lr"].value == 0.5


def test_there_is_always_an_optimizer_and_never_too_many():
    live = lab(optimizers="adam")
    assert live.optimizers["adam"].disabled
    for name in NAMES[: MOST_OPTIMIZERS - 1]:
        live.optimizers[name].value = True
    assert len(live.chosen.hyper) == MOST_OPTIMIZERS
    assert all(box.disabled != box.value for box in live.optimizers.values())


def test_a_click_sets_the_start_where_the_picture_shows_it():
    live = lab("quadratic")
    figure = draw_lab("quadratic")
    figure.canvas.draw()
    x, y = figure.axes[0].transData.transform((1.5, -0.5)) / figure.bbox.size
    live.image.point = [x, 1 - y, 1.0]
    assert live.chosen.start == (1.5, -0.5)
    assert [slider.value for slider in live.start] == [1.5, -0.5]
    live.image.point = [0.52, 0.99, 2.0]
    assert live.chosen.start == (1.5, -0.5), "nothing lies there"


def test_going_back_and_forward_shows_the_same():
    assert checks.back_and_forth(moves=6)
    live = lab(step=0)
    live.back.click()
    assert live.chosen.step == 0 and "before the first step" in live.table.value
    live.image.turns = 1000
    assert live.chosen.step == live.chosen.steps


def test_the_class_does_not_hold_up_a_slider_far_into_the_run():
    live = lab(step=150)
    assert "spacing" in words(live.table.value)
    live.hyper["lr"].value = 0.5
    assert "Move a step forward or back" in live.table.value
    live.forward.click()
    assert "spacing" in words(live.table.value)


def test_moves_leave_no_trace_in_the_picture():
    assert checks.drawn_anew(moves=5)


def test_a_rate_between_the_sliders_values_is_kept():
    live = lab(lr={"adam": 0.0123})
    assert live.hyper["lr"].value == live.chosen.hyper["adam"]["lr"] == 0.0123
    live.follow.value = "momentum"
    assert len(live.hyper["lr"].options) == len(RATES)


def test_the_lab_leaves_a_picture_with_a_text_in_the_notebook():
    live = lab()
    data, metadata = live._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == live.image.value
    assert data["text/plain"].startswith("OptimizerLab: Paths of optimizers")
    assert live.image.alt == metadata["image/png"]["alt"] == live.alt


def test_the_latency_is_measured_per_move():
    seconds = checks.slider_seconds(lab(), 12)
    assert len(seconds) >= 11 and all(0 < sample < 10 for sample in seconds)
