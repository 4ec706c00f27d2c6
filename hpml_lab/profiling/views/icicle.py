"""A tree of stacks drawn as an icicle, the flame graph upside down."""

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.profilers.stacks import StackNode, function_name


def draw_icicle(axes, root: StackNode, hot: str = "") -> None:
    """Draw a tree as an icicle, the flame graph upside down: a box a frame, as wide as its share, below the one that called it.

    hot  the function whose boxes are drawn in red
    """

    def box(node: StackNode, left: float, depth: int) -> None:
        width = 100 * node.total / root.total
        name = function_name(node.frame)
        color = style.RED if name == hot else style.GREY if depth == 0 else (style.BLUE, style.PURPLE)[depth % 2]
        axes.barh(depth, width, 0.96, left, align="center", color=color, edgecolor="white", linewidth=0.8)
        room = int(width)  # letters of this size in a box of this width, in a figure nine inches wide
        if room >= 4:
            text = name if len(name) <= room else f"{name[: room - 1]}…"
            axes.text(left + 0.4, depth, text, va="center", fontsize=8, color="white", clip_on=True)
        for child in sorted(node.children.values(), key=lambda child: child.frame):
            box(child, left, depth + 1)
            left += 100 * child.total / root.total

    box(root, 0.0, 0)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the samples, %", ylabel="depth of the call")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False)


@picture
def icicle(root: StackNode, hot: str = ""):
    """Icicle of a tree of stacks: each box is a function, as wide as its share of the samples, below the one that called it."""
    figure = style.new_figure(8, 2.6)
    draw_icicle(figure.subplots(), root, hot)
    return figure
