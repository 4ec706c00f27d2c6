"""The optimizer lab: its settings, its paths in Python, the same in JavaScript, and what a notebook keeps of it."""

import ast
import base64
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from hpml_lab.core.show import style
from hpml_lab.core.show.javascript import Translation
from hpml_lab.core.system.errors import LabError
from hpml_lab.landscape import SURFACES, lab, lab_module, largest_stable_rate, quadratic
from hpml_lab.landscape.optimizer_lab.details import settings_map, step_in_numbers
from hpml_lab.landscape.optimizer_lab.lab_paths import (
    MOST_OPTIMIZERS,
    SCHEDULES,
    LabSettings,
    first_rate,
    run_path,
    settings,
    surface_named,
)
from hpml_lab.landscape.optimizer_lab.module import engine
from hpml_lab.landscape.optimizer_lab.widget import SHOWS
from hpml_lab.landscape.surfaces import unit_noise
from hpml_lab.optim.formulas.arithmetic import Floats
from hpml_lab.optim.formulas.by_name import FORMULAS

NAMES, SURFACE_NAMES = list(FORMULAS), list(SURFACES)
NODE = shutil.which("node")
LINES = 12  # steps whose lines are compared


# ---- paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_first_rates_descend_on_every_surface(name):
    for surface in SURFACE_NAMES:
        path = settings(surface, name, noise=0, steps=200).paths[name]
        assert path.end == "" and path.losses[-1] < path.losses[0], surface


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


def test_a_division_by_zero_ends_the_path():
    path = settings("quadratic", "paper_adamax", start=(1.0, 0.0)).paths["paper_adamax"]
    assert path.end == "divides by 0 at 1" and path.steps == 0


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
        {"optimizers": "rprop", "eta_minus": 1.0},
        {"optimizers": "rprop", "eta_plus": 1},
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
        {"surface": "quadratic-0.5"},
        {"panels": ["sound"]},
    ],
    ids=str,
)
def test_invalid_values_are_refused_in_words(wrong):
    with pytest.raises(LabError) as caught:
        lab(**wrong)
    assert caught.value.problem and caught.value.fix


def test_a_hyperparameter_goes_to_all_that_have_it_or_to_one():
    chosen = settings(optimizers=["momentum", "nesterov", "adam"], lr={"adam": 0.3}, momentum=0.5, beta1={"adam": 0.8})
    assert [chosen.hyper[name]["momentum"] for name in ("momentum", "nesterov")] == [0.5, 0.5]
    assert chosen.hyper["adam"] | {"lr": 0.3, "beta1": 0.8} == chosen.hyper["adam"]
    assert chosen.hyper["momentum"]["lr"] == first_rate(SURFACES["beale"], "momentum")


def test_a_bowl_of_another_condition_number_is_known_by_its_name():
    assert settings(quadratic(37)).surface == "quadratic-37" and surface_named("quadratic-37").eigenvalues == (1, 37)
    assert settings(quadratic(12.5)).surface == "quadratic-12.5" and settings(quadratic(25)).surface == "quadratic"


# ---- the same in JavaScript --------------------------------------------------------------------------------


def case(surface, optimizer, lines=0, **more):
    chosen = settings(surface, optimizer, **more)
    rest = {
        "start": chosen.start,
        "noise": chosen.noise,
        "schedule": chosen.schedule,
        "steps": chosen.steps,
        "seed": chosen.seed,
    }
    return {"surface": chosen.surface, "optimizer": optimizer, "hyper": chosen.hyper[optimizer], "lines": lines, **rest}


CASES = [case(surface, name, LINES) for surface in SURFACE_NAMES for name in NAMES]
CASES += [case(surface, name, lr=lr, steps=20) for surface in SURFACE_NAMES for name in NAMES for lr in (10.0, 1e300)]
CASES += [
    case("quadratic-37", name, noise=2.0, schedule=schedule, seed=seed, steps=100)
    for name in NAMES
    for seed, schedule in enumerate(SCHEDULES)
]
CASES += [case("quadratic", name, start=(1.0, 0.0)) for name in NAMES]
NOISES = [(step, seed) for step in (1, 2, 3, 77, 500) for seed in (0, 1, 10**9)]
BOUNDARIES = [
    ("quadratic", "gradient_descent", {}),
    ("quadratic-37", "momentum", {"momentum": 0.7}),
    ("noisy-valley", "lecture_nesterov", {"momentum": 0.9}),
    ("quadratic", "adam", {}),
    ("beale", "momentum", {"momentum": 0.7}),
]
MAPPED = [("quadratic-37", "momentum"), ("beale", "adam"), ("noisy-valley", "adadelta"), ("quadratic-37", "gradient_descent")]
MAPPED += [("quadratic-37", "lars"), ("beale", "lamb"), ("saddle", "novograd")]


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What Node computes: {"paths": one for each of CASES, …}."""
    if NODE is None:
        pytest.skip("no node here; on Debian: apt-get install nodejs")
    folder = tmp_path_factory.mktemp("engine")
    (folder / "engine.mjs").write_text(engine(["quadratic-37"]), encoding="utf-8")
    maps = []
    for surface, name in MAPPED:
        chosen = case(surface, name)
        maps.append(
            {"surface": surface, "name": name, "hyper": chosen["hyper"], "chosen": chosen, "columns": 12, "rows": 8, "row": 5}
        )
    asked = {"cases": CASES, "noises": NOISES, "maps": maps, "boundaries": BOUNDARIES}
    (folder / "cases.json").write_text(json.dumps(asked), encoding="utf-8")
    command = [NODE, str(Path(__file__).with_name("compare.mjs")), str(folder / "engine.mjs"), str(folder / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python_path(case):
    chosen = {key: case[key] for key in ("noise", "schedule", "steps", "seed")}
    return run_path(surface_named(case["surface"]), case["optimizer"], case["hyper"], tuple(case["start"]), **chosen)


def test_every_path_in_javascript_is_pythons_path(computed, capsys):
    equal, worst = 0, 0.0
    for given, found in zip(CASES, computed["paths"], strict=True):
        path, (x0, x1, *_) = python_path(given), surface_named(given["surface"]).window
        name = given["surface"], given["optimizer"], given["schedule"], given["hyper"]["lr"]
        assert found["end"] == path.end and len(found["x"]) == len(path.x), name
        # A ratio keeps the steps long where the minimum is: what bounces there parts after a hundred steps or so.
        compared = 40 if given["optimizer"] in ("lars", "lamb") else None
        pairs = [pair for key in ("x", "y") for pair in zip(found[key][:compared], getattr(path, key)[:compared], strict=True)]
        # What diverges is compared with its own size.
        distance = max((abs(a - b) / max(x1 - x0, abs(b)) for a, b in pairs), default=0.0)
        chaotic = given["surface"] == "rastrigin" and given["hyper"]["lr"] == 10
        assert distance <= (1e-9 if given["optimizer"] == "radam" else 1e-12) or chaotic, name  # ρ is what is left of ρ∞
        exact = (found["x"], found["y"], found["losses"], found["rates"]) == (path.x, path.y, path.losses, path.rates)
        if "**" not in "".join(code for _, code in FORMULAS[given["optimizer"]].lines) and given["surface"] != "rastrigin":
            assert exact or given["schedule"] in ("cosine", "one cycle"), f"{name}: nothing but + − · / √ max was computed"
        equal, worst = equal + exact, max(worst, 0.0 if chaotic else distance)
    with capsys.disabled():
        print(f"\n{equal} of {len(CASES)} paths bitwise equal, the others within {worst:.1e} of the window")


def test_every_line_of_every_step_in_javascript_is_pythons_line(computed):
    """Each statement is run here on its own; the numbers that the page inserts, read back as Python, give what it says."""
    for given, found in zip(CASES, computed["paths"], strict=True):
        formula, steps = FORMULAS[given["optimizer"]], found["steps"]
        theta = Floats(given["start"])
        scope = {**given["hyper"], "theta": theta, "s": formula.start(theta)}
        for t, lines in enumerate(steps, 1):
            at = formula.gradient_point(scope["theta"], scope["s"], **given["hyper"])
            g = Floats(surface_named(given["surface"]).seen_gradient(*at, t, given["noise"], given["seed"]))
            scope.update(g=g, t=t, lr=found["rates"][t - 1])
            for (text, code), line in zip(formula.lines, lines, strict=True):
                assert (line["formula"], line["code"]) == (text, code)
                exec(code, formula.step.__globals__, scope)
                python = eval(ast.unparse(ast.parse(code).body[0].targets[0]), {}, scope)
                python = python if isinstance(python, Floats) else [python] * 2
                assert line["results"] == pytest.approx(python, rel=1e-9, abs=1e-12), (given, t, code)
            assert tuple(lines[-1]["results"]) == (found["x"][t], found["y"][t]), "the last line is the path's next point"
            if t in (1, 7):
                for line in lines:
                    for numbers, result in zip(line["numbers"], line["results"], strict=True):
                        # 1 − β₁ᵗ and the like magnify the rounding of the four digits
                        assert eval(as_python(numbers)) == pytest.approx(result, rel=0.02, abs=2e-4), (line["formula"], numbers)


def as_python(numbers):
    code = numbers.replace("−", "-").replace("·", "*").replace("^", "**")
    code = re.sub(r"‖\(([^‖]*)\)‖", r"math.hypot(\1)", code)
    code = re.sub(r"√\(", "math.sqrt(", code)
    code = re.sub(r"√([\d.]+(e[+-]?\d+)?)", r"math.sqrt(\1)", code)
    return re.sub(r"\|([^|]+)\|", r"abs(\1)", code)


def test_a_step_is_shown_with_its_numbers(computed):
    first = next(found for given, found in zip(CASES, computed["paths"], strict=True) if given["optimizer"] == "adam")["steps"][
        0
    ]
    assert first[0]["numbers"] == ["0.9·0 + (1 − 0.9)·(−3.5)", "0.9·0 + (1 − 0.9)·25"]
    assert first[4]["numbers"][0] == "−3.5 − 0.2·(−3.5) / (√12.25 + 1e−8)"


def test_noise_and_boundaries_are_the_same_in_javascript(computed):
    assert [tuple(pair) for pair in computed["noises"]] == [unit_noise(step, seed) for step, seed in NOISES]
    expected = [2 / 25, largest_stable_rate("momentum", 0.7, 37), largest_stable_rate("nesterov", 0.9, 4.0), None, None]
    assert computed["boundaries"] == pytest.approx(expected)
    assert computed["rules"] == NAMES


def test_a_cell_of_the_map_counts_the_steps_to_a_thousandth_of_the_starts_height(computed):
    kinds = set()
    for (surface, name), found in zip(MAPPED, computed["maps"], strict=True):
        ground = surface_named(surface)
        assert settings_map(settings(surface, name), 12, 8)[5].tolist() == found["cells"], "the picture's map is the page's"
        lowest = min(ground.value(*point) for point in ground.minima)
        for cell, hyper in zip(found["cells"], found["settings"], strict=True):
            path = python_path(case(surface, name) | {"hyper": hyper})
            above = [t for t, loss in enumerate(path.losses) if loss > lowest + 1e-3 * (path.losses[0] - lowest)][-1]
            assert cell == (-1 if path.end else above + 1 if above < 200 else 0), hyper
            kinds.add(min(cell, 1))
            if name in ("momentum", "gradient_descent"):
                limit = largest_stable_rate("momentum", hyper.get("momentum", 0.0), 37)
                assert path.end == "" if hyper["lr"] < limit else path.losses[-1] > path.losses[0]
    assert kinds == {-1, 0, 1}, "some cells diverge, some are slow, some arrive"


def test_what_has_no_translation_is_refused_in_words():
    def surface(x, y):
        return math.gamma(x) + [y][0]

    def between(x, y):
        return x if 0 < x < y else y

    def from_one(x, y):
        for i in range(1, y):
            x = x + i
        return x

    def by_name(x, y):
        return between(x, y=y)

    def unequal(x, y):
        return x if x != y else 0

    for function in (surface, between, from_one, by_name, unequal):
        with pytest.raises(LabError, match="no translation"):
            Translation().function(function)


# ---- what a notebook keeps ---------------------------------------------------------------------------------


def test_the_lab_leaves_a_figure_with_a_text_and_its_settings_in_the_notebook():
    live = lab("quadratic-37", ["gradient_descent", "momentum"], panels=["surface", "map"])
    data, metadata = live._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert (
        data["text/plain"].startswith("OptimizerLab: ")
        and "a map of settings" in live.alt
        and metadata["image/png"]["alt"] == live.alt
    )
    kept = json.loads(json.dumps(metadata["image/png"]["optimizer_lab"]))
    assert LabSettings(**kept).options == live.options, "another page can show the same lab"
    assert "quadratic-37" in live._esm and "quadratic-37" not in lab_module()


def test_settings_that_come_back_from_the_page_are_the_labs():
    live = lab()
    live.options = live.options | {"start": [1.0, -1.0], "follow": "momentum", "step": 33}
    assert live.chosen.start == [1.0, -1.0] and live.chosen.follow == "momentum"
    assert live.chosen.paths["momentum"].x[0] == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_has_the_pages_step_in_numbers(computed, name):
    given, found = next(pair for pair in zip(CASES, computed["paths"], strict=True) if pair[0]["optimizer"] == name)
    for t in (1, 4):
        lines = step_in_numbers(settings(given["surface"], name, step=t))[1:]  # the first is the gradient
        for (formula, _, values), line in zip(lines, found["steps"][t - 1], strict=True):
            assert formula == line["formula"] and tuple(values) == pytest.approx(line["results"], rel=1e-9, abs=1e-12)


def test_a_step_that_a_path_does_not_have_has_no_numbers():
    assert step_in_numbers(settings("beale", "adam", step=0)) == []
    assert step_in_numbers(settings("beale", "gradient_descent", lr=10.0, step=50)) == []


@pytest.mark.parametrize(
    "panels, titles",
    [
        (["surface", "map"], ["Quadratic bowl, 60 steps", "Nesterov: steps to a thousandth"]),
        (["surface", "schedule"], ["Quadratic bowl, 60 steps", "rate α: cosine"]),
        (["loss", "sizes", "schedule"], ["loss f − lowest f", "Nesterov: step sizes; rate: cosine"]),
        (["state", "step"], ["Nesterov: state"]),
    ],
)
def test_the_picture_draws_the_panels_that_were_asked_for(panels, titles):
    live = lab("quadratic-37", ["momentum", "nesterov"], schedule="cosine", steps=60, step=7, panels=panels)
    figure = live.figure()
    assert [axes.get_title("left") for axes in figure.axes if axes.get_title("left")] == titles
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any(text.startswith("Nesterov, step 7") for text in texts) is ("step" in panels)
    assert all((SHOWS[panel] in live.alt) is (panel in panels) for panel in SHOWS)


@pytest.mark.parametrize("surface", ["quadratic-37", "rastrigin"])
def test_the_figure_shows_what_diverges_and_says_so(surface):
    figure = lab(surface, ["gradient_descent", "momentum", "adam"], lr=10.0).figure()
    losses = next(axes for axes in figure.axes if axes.get_title("left").startswith("loss"))
    texts = [text.get_text() for text in losses.legend_.get_texts()]
    assert len(texts) == 3 and any("diverges at" in text for text in texts)
    assert len(style.png(figure)) > 5000


def test_no_two_optimizers_look_alike_even_in_grey():
    from hpml_lab.landscape.optimizer_lab.figure import look

    looks = [look(name) for name in NAMES]
    assert len({(row["linestyle"], row["marker"]) for row in looks}) == len(NAMES), "distinguishable without color"
    assert len({(row["color"], row["linestyle"]) for row in looks}) == len(NAMES)
