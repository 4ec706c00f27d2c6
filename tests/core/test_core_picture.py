"""A drawing function's figure is shown with its docstring as caption."""

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture


@picture
def line(values):
    """One line
    through the values."""
    figure = style.new_figure()
    figure.subplots().plot(values)
    return figure


def test_the_docstring_is_the_caption():
    drawn = line([1, 2, 3])
    assert drawn.caption == "One line through the values." and repr(drawn) == f"Figure: {drawn.caption}"
    assert drawn.figure.axes[0].lines and line.__name__ == "line"
