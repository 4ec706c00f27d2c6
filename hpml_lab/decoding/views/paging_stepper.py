"""Step through paged decoding: who is scheduled, which blocks a request holds, and the way of one token through them."""

from collections.abc import Sequence
from typing import NamedTuple

import ipywidgets
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.decoding.lessons.batch_scheduler import BatchScheduler, DecodingRequest, StepPart
from hpml_lab.decoding.lessons.block_manager import BlockManager
from hpml_lab.decoding.lessons.decoding_clock import serve

BLOCKS, SIZE, SLOTS = 6, 4, 3
COLORS = {  # of a request's tokens where they are computed, and where they are read; and the letters on the first
    "A": (style.BLUE, "#c4cfec", "white"),
    "B": (style.ORANGE, "#f3d7ba", style.DARK),
    "C": (style.GREEN, "#b8dece", "white"),
}
FOLLOWED = ("C", 4)
ALT = "Three requests in six blocks, step by step: B shares a block with A, and C loses its blocks and finds one of them again."


class Shown(NamedTuple):
    """A request during a step: how many tokens it has, tokens[first:end] that are computed, and the blocks of its table."""

    tokens: int
    first: int
    end: int
    table: list[int]


class PagingStep(NamedTuple):
    """The requests that run and that wait, the free blocks whose old tokens can be found, and what is new, in words."""

    running: dict[str, Shown]
    waiting: list[str]
    found: dict[int, int]
    news: str


def paging_steps() -> list[PagingStep]:
    """A few steps of three requests, in which blocks are shared, run out, and are found again."""
    begin = [9, 4, 7, 1]
    requests = {
        "A": DecodingRequest([*begin, 3, 8], 7),
        "B": DecodingRequest([*begin, 5, 6, 2], 6, arrival=1),
        "C": DecodingRequest([2, 6, 6, 1, 3], 4, arrival=2),
    }
    names = {request: name for name, request in requests.items()}
    manager = BlockManager(BLOCKS, SIZE)
    scheduler, steps = BatchScheduler(manager, SLOTS), []

    def noted(parts: Sequence[StepPart]) -> list[int]:
        now = {names[r]: Shown(len(r.tokens), first, end, [*r.table]) for r, first, end in parts}
        before = steps[-1].running if steps else {}
        lost = [names[request] for request in scheduler.waiting if names[request] in before]
        news = [f"No block is free: {name} loses its own and waits." for name in lost]
        news += [f"{name} is done." for name in before if name not in now and name not in lost]
        for name in [name for name in now if name not in before]:
            again = "again, " if now[name].tokens > len(requests[name].prompt) else ""
            hit = f": block {now[name].table[0]} holds its first {now[name].first} tokens" if now[name].first else ""
            news.append(f"{name} is admitted, {again}and computes {now[name].end - now[name].first} tokens{hit}.")
        found = {block: len(prefix) // SIZE for block, prefix in manager.prefix_of.items() if block in manager.free}
        steps.append(
            PagingStep(now, [names[r] for r in scheduler.waiting], found, " ".join(news) or "Each computes one token.")
        )
        return [0] * len(parts)

    serve(scheduler, noted, requests.values())
    return steps


def where_is(step: PagingStep, name: str, token: int) -> str:
    """What becomes of a token in a step, in words."""
    shown = step.running.get(name)
    if shown is None:
        return "in no block: its request waits." if name in step.waiting else "not here."
    if token >= shown.end:
        return "not there yet."
    place = f"place {token % SIZE} of block {shown.table[token // SIZE]}"
    if token >= shown.first:
        return f"computed, its keys and values stored at {place}."
    return f"read from {place}."


def paging_stepper(step: int = 0) -> LiveFigure:
    """Three requests in six blocks, with a slider over the steps; a red frame follows one token."""
    steps, panels, (name, token) = paging_steps(), [], FOLLOWED
    wide = ipywidgets.Layout(width="100%", max_width="700px")
    slider = ipywidgets.IntSlider(value=step, min=0, max=len(steps) - 1, description="step", layout=wide)

    def build(figure) -> list:
        panels.extend(figure.subplots(1, 2, width_ratios=(1.5, 1)))
        panels[0].set_title("\n\n")  # room for two lines
        return []

    def update(_artists: list, step: int) -> int:
        with style.in_style():
            for axes in panels:
                axes.clear()
            _draw(*panels, steps[step])
            way = f"Token {token} of {name}: {where_is(steps[step], name, token)}"
            panels[0].set_title(f"Step {step} of {len(steps) - 1}. {steps[step].news}\n{way}\n", loc="left", fontsize=10)
        return step  # all of it is ground, which is drawn anew

    return LiveFigure(build, update, {"step": slider}, ALT, width=9.5, height=4.2, moves="step")


def _draw(left: Axes, right: Axes, step: PagingStep) -> None:
    """Left the tokens of each request, with their block; right the blocks, with the requests that hold them."""
    held: dict[tuple[int, int], list[str]] = {}
    for row, name in enumerate(COLORS):
        shown = step.running.get(name)
        left.text(-0.4, row, f"{name} waits" if name in step.waiting else name, ha="right", va="center", fontsize=9)
        for token in range(shown.end if shown else 0):
            block = shown.table[token // SIZE]
            held.setdefault((block, token % SIZE), []).append(name)
            _cell(left, token, row, str(block), name, token >= shown.first, (name, token) == FOLLOWED)
    for block in range(BLOCKS):
        right.text(-0.4, block, f"block {block}", ha="right", va="center", fontsize=9)
        for place in range(SIZE):
            names = held.get((block, place), [])
            tokens = {name: step.running[name].table.index(block) * SIZE + place for name in names}
            new = any(token >= step.running[name].first for name, token in tokens.items())
            text = "".join(names) or "·" * (block in step.found)
            _cell(right, place, block, text, names[0] if names else "", new, FOLLOWED in tokens.items())
    titles = "tokens, with their blocks: dark where computed, pale where read", "who holds them (· free, can be found)"
    for axes, rows, columns, title in zip((left, right), (len(COLORS), BLOCKS), (13, SIZE), titles, strict=True):
        axes.set(xlim=(-2.6, columns), ylim=(rows - 0.4, -0.6), xlabel=title, xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def _cell(axes: Axes, x: int, y: int, text: str, name: str, new: bool, followed: bool) -> None:
    """One token's place, in the color of a request; a red frame around the token to follow."""
    full, pale, letters = COLORS.get(name, ("none", "none", style.INK))
    look = dict(facecolor=full if new else pale, edgecolor=style.RED if followed else style.GREY)
    axes.add_patch(Rectangle((x + 0.06, y - 0.36), 0.88, 0.72, linewidth=3 if followed else 0.8, **look))
    color = letters if new or not name else style.DARK
    axes.text(x + 0.5, y, text, ha="center", va="center", fontsize=8, color=color)
