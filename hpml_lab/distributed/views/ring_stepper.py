"""Step through a ring all-reduce: which rank sends which chunk, and whose gradients each chunk contains.

ring_stepper(4)       a slider over the steps on four ranks
ring_picture(4, 2)    the picture of one step
"""

import ipywidgets
import torch
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed.lessons.ring import ring_schedule, ring_states

MOST_RANKS = 6  # each has a color
LETTERS = dict(zip(style.CYCLE, ("white", style.DARK, "white", "white", style.DARK, style.DARK, style.DARK), strict=True))
WIDTH, HEIGHT = 0.72, 0.62  # of a chunk's box, where ranks and chunks are 1 apart
SUMMED = "#f6e7b4"  # a chunk that contains all ranks


class RingDrawing:
    """The chunks of every rank: what stays, and the artists that change from step to step."""

    def __init__(self, ranks: int) -> None:
        if not 2 <= ranks <= MOST_RANKS:
            raise LabError(f"A ring of {ranks} ranks cannot be drawn.", f"Use 2 to {MOST_RANKS} ranks.")
        self.ranks, self.schedule = ranks, ring_schedule(ranks)
        gradients = [torch.tensor([1 + (3 * rank + 5 * chunk) % 9 for chunk in range(ranks)]) for rank in range(ranks)]
        self.values = list(ring_states(gradients))
        # The same ring with payloads that say whose they are: the sum counts how often each rank is contained.
        names = torch.eye(ranks, dtype=torch.int64)
        self.contained = list(ring_states([names[rank].repeat(ranks, 1).reshape(-1) for rank in range(ranks)]))
        self.width, self.height = max(7.0, 1.45 * ranks + 1.2), 0.95 * ranks + 1.35

    def build(self, figure: Figure) -> list[Artist]:
        """Draw what stays; return what changes."""
        axes = figure.add_subplot()
        axes.set(xlim=(-0.95, self.ranks - 0.05), ylim=(self.ranks - 0.45, -0.6))
        axes.set_xticks(range(self.ranks), [f"rank {rank}" for rank in range(self.ranks)])
        axes.set_yticks(range(self.ranks), [f"chunk {chunk}" for chunk in range(self.ranks)])
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        self.boxes, self.numbers, self.slots, self.arrows = {}, {}, {}, {}
        for rank in range(self.ranks):
            for chunk in range(self.ranks):
                self._draw_chunk(axes, rank, chunk)
        self.title = axes.set_title("", loc="left", pad=10)
        self.footer = axes.set_xlabel("", loc="left")
        self.title.set_text("\n")  # room for the two lines of each step
        self.footer.set_text(" ")
        artists = [*self.boxes.values(), *self.numbers.values(), self.title, self.footer]
        artists += [artist for several in (*self.slots.values(), *self.arrows.values()) for artist in several]
        return artists

    def _draw_chunk(self, axes, rank: int, chunk: int) -> None:
        key = rank, chunk
        self.boxes[key] = axes.add_patch(Rectangle((rank - WIDTH / 2, chunk - HEIGHT / 2), WIDTH, HEIGHT, linewidth=1.5))
        self.numbers[key] = axes.text(rank, chunk - 0.13, "", ha="center", va="center", fontsize=12)
        self.slots[key] = []
        side = WIDTH / (MOST_RANKS + 1)
        for other in range(self.ranks):
            color, x = style.CYCLE[other], rank + (other - (self.ranks - 1) / 2) * 1.1 * side
            frame = Rectangle((x - side / 2, chunk + 0.05), side, 0.2, facecolor=color, edgecolor="white", zorder=3)
            letter = axes.text(
                x, chunk + 0.15, str(other), color=LETTERS[color], ha="center", va="center", fontsize=8, zorder=4
            )
            self.slots[key] += [axes.add_patch(frame), letter]
        # from the box to the next one; from the last rank out of the picture, and in again on the left
        starts = [rank] if rank < self.ranks - 1 else [rank, -1]
        ends = [(x + WIDTH / 2 + 0.01, x + 1 - WIDTH / 2 - 0.01) for x in starts]
        self.arrows[key] = [
            axes.add_patch(
                FancyArrowPatch((a, chunk), (b, chunk), arrowstyle="-|>", mutation_scale=16, linewidth=3, color=style.INK)
            )
            for a, b in ends
        ]

    def show(self, step: int) -> None:
        """Show what every rank holds after `step`, and what was sent in it."""
        sends = self.schedule[step - 1].sends if step else ()
        for (rank, chunk), box in self.boxes.items():
            contained = self.contained[step][rank][chunk].tolist()
            received = bool(sends) and sends[(rank - 1) % self.ranks] == chunk
            box.set_facecolor(SUMMED if all(contained) else "none")
            box.set_edgecolor(style.INK if received else style.GREY)
            box.set_linewidth(3 if received else 1)
            number = self.numbers[rank, chunk]
            number.set_text(str(self.values[step][rank][chunk].item()))
            number.set_fontweight("bold" if all(contained) else "normal")
            number.set_color(style.DARK if all(contained) else style.INK)
            for index, artist in enumerate(self.slots[rank, chunk]):
                artist.set_visible(bool(contained[index // 2]))
            for arrow in self.arrows[rank, chunk]:
                arrow.set_visible(bool(sends) and sends[rank] == chunk)
        self.title.set_text(self._title(step))
        whole = sum(all(counts.tolist()) for chunks in self.contained[step] for counts in chunks)
        self.footer.set_text(
            f"Each rank has sent {step} chunks, {step}/{self.ranks} of its payload. Sums that are complete: "
            f"{whole} of {self.ranks**2} (yellow)."
        )

    def _title(self, step: int) -> str:
        last = len(self.schedule)
        if step == 0:
            return f"Step 0 of {last}. Each rank has its own gradient, cut into {self.ranks} chunks.\n"
        now = self.schedule[step - 1]
        does = "adds it to its own" if now.adds else "keeps it instead"
        return f"Step {step} of {last}, {now.phase}.\nEach rank sends one chunk to the right; the receiver {does}."


def _checked(ranks: int, step: int) -> RingDrawing:
    drawing = RingDrawing(ranks)
    if step not in range(len(drawing.schedule) + 1):
        raise LabError(f"There is no step {step}.", f"On {ranks} ranks there are the steps 0 to {len(drawing.schedule)}.")
    return drawing


@picture
def ring_picture(ranks: int = 4, step: int = 0):
    """A ring all-reduce after one step: columns are ranks, rows are chunks; a box shows a chunk's value and, as colored
    numbers, the ranks whose gradients it contains; arrows show what was sent in this step."""
    drawing = _checked(ranks, step)
    figure = style.new_figure(drawing.width, drawing.height)
    drawing.build(figure)
    drawing.show(step)
    return figure


def ring_stepper(ranks: int = 4, step: int = 0) -> LiveFigure:
    """A ring all-reduce on `ranks` ranks with a slider over its 2(N−1) steps, which starts at `step`."""
    drawing = _checked(ranks, step)
    slider = ipywidgets.IntSlider(
        value=step,
        min=0,
        max=len(drawing.schedule),
        description="step",
        layout=ipywidgets.Layout(width="100%", max_width="700px"),
    )
    return LiveFigure(
        drawing.build,
        lambda artists, step: drawing.show(step),
        {"step": slider},
        alt=f"Ring all-reduce on {ranks} ranks: step by step each rank sends one chunk to the right, until all hold all sums.",
        width=drawing.width,
        height=drawing.height,
        moves="step",
    )
