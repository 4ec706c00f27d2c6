"""Trains the lecture's five recipes: as they are, with a tiny loss, and with a small rate; and what underflows in each."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Params
from hpml_lab.core.show.progress import progress
from hpml_lab.data.dataset import DataSet
from hpml_lab.precision.experiments.underflow import LOSS_FACTOR, histogram, vanished_share
from hpml_lab.precision.lessons.recipes import RECIPES, Trainings, loss_gradients

FP16, MIXED, SCALED, MASTER = "fp16", "mixed", "fp16, scale 1000", "fp16, scale 1000, fp32 master"


@dataclass(frozen=True)
class RecipeRun:
    """One recipe trained from all seeds: top-1 and top-5 on the test images in % and fall of the training loss, for each seed;
    shares and counts."""

    accuracies: list[float]
    top5: list[float]
    loss_falls: list[float]
    lost: float
    zeros: float
    skipped: int


def run_recipe(name: str, data: DataSet, params: Params, rate: float, factor: float) -> RecipeRun:
    trainings = Trainings(RECIPES[name], data, range(params.seeds), params.batch, rate, params.steps, factor)
    x, y = data.train_x[:2000], data.train_y[:2000]
    start = trainings.mean_loss(x, y)
    trainings.run()
    return RecipeRun(
        accuracies=[100 * share for share in trainings.accuracy(data.test_x, data.test_y)],
        top5=[100 * share for share in trainings.accuracy(data.test_x, data.test_y, top=5)],
        loss_falls=[before - after for before, after in zip(start, trainings.mean_loss(x, y), strict=True)],
        lost=float(trainings.lost),
        zeros=float(trainings.zeros),
        skipped=int(trainings.skipped.sum()),
    )


def run_recipes(data: DataSet, params: Params) -> tuple[dict[str, RecipeRun], ...]:
    """The runs of all recipes as they are, of all with the loss times 2e-5, and of three with a rate 100 times smaller."""
    settings: tuple[tuple[Iterable[str], float, float], ...] = (
        (RECIPES, params.rate, 1.0),
        (RECIPES, params.rate, LOSS_FACTOR),
        (("fp32", SCALED, MASTER), params.rate / 100, 1.0),
    )
    cases = [(index, name) for index, (names, _, _) in enumerate(settings) for name in names]
    runs: tuple[dict[str, RecipeRun], ...] = ({}, {}, {})
    for index, name in progress(cases, "recipes"):
        _, rate, factor = settings[index]
        runs[index][name] = run_recipe(name, data, params, rate, factor)
    return runs


def underflowing(data: DataSet, batch: int, rate: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Histograms of the exact gradients (of weights and of layers' outputs) at the start of training, multiplied as each
    scale multiplies them; and for each recipe the share of the gradients that become zero although they are not in float32."""
    trainings = Trainings(RECIPES["fp32"], data, (0,), batch, rate, steps=1)
    x, y = trainings.batch_of(0)
    ones = torch.ones(1, device=x.device)
    gradients = {}
    for name, recipe in RECIPES.items():
        scale = ones * (2.0**16 if recipe.scale is None else recipe.scale)
        groups = loss_gradients(trainings.weights, x, y, recipe, scale, LOSS_FACTOR)
        gradients[name] = torch.cat([gradient.flatten() for group in groups for gradient in group])
    exact = gradients["fp32"]
    histograms = {
        "loss × 1": histogram(exact / LOSS_FACTOR),
        "loss × 2e-5": histogram(exact),
        "loss × 2e-5, scale 1000": histogram(exact * 1000),
    }
    return histograms, {name: vanished_share(exact, gradient) for name, gradient in gradients.items()}
