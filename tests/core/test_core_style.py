"""Pictures have no ground of their own: their colors must be seen on a white page and on a dark one."""

import io

import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from hpml_lab.core.show import style
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS

WHITE, DARK_PAGE = "#ffffff", "#111111"  # JupyterLab's two grounds


def luminance(color):
    """The relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("color", sorted({*style.CYCLE, style.INK, style.GREY, *OPTIMIZER_COLORS.values()}))
@pytest.mark.parametrize("page", [WHITE, DARK_PAGE])
def test_a_color_is_seen_on_both_pages(color, page):
    assert contrast(color, page) >= 3


def test_text_on_a_light_ground_is_dark():
    assert contrast(style.DARK, style.WHITE_GROUND["facecolor"]) >= 7


def test_a_figure_has_no_ground():
    figure = style.new_figure(2, 1)
    with style.in_style():
        figure.subplots().plot([0, 1])
    picture = Image.open(io.BytesIO(style.png(figure)))
    assert picture.mode == "RGBA" and picture.getpixel((0, 0))[3] == 0 == picture.getpixel((199, 99))[3]
