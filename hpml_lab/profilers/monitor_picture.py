"""The picture of a monitored run: processors, memory, disks and GPUs over time."""

from collections.abc import Callable, Sequence

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.profilers.beside import printable
from hpml_lab.profilers.monitor import MonitorSample

LONGEST_TITLE = 90  # characters


@picture
def monitored_run(samples: Sequence[MonitorSample], command: str = ""):
    """A monitored run over time: the cores that the process and all processes keep busy, memory, what the disks read and wrote,
    and the use of each GPU, where there is one. `command` is its title."""
    at, command = [sample.at for sample in samples], " ".join(printable(command).split())  # a program after -c has lines
    gpus = len(samples[0].gpus)
    figure = style.new_figure(8, 6.4 if gpus else 5.2)
    panels = figure.subplots(4 if gpus else 3, 1, sharex=True)
    cores, memory, disk = panels[:3]
    # The style takes $ for mathematics; a long command keeps its beginning, with the program, and its end.
    shown = command if len(command) <= LONGEST_TITLE else f"{command[: LONGEST_TITLE // 2]} … {command[-LONGEST_TITLE // 2 :]}"
    cores.set_title(shown, parse_math=False)
    cores.plot(
        at, _over(samples, lambda sample: sum(sample.cores) / 100), color=style.GREY, linestyle="--", label="all processes"
    )
    cores.plot(
        at, _over(samples, lambda sample: sample.process_cpu / max(sample.seconds, 1e-9)), color=style.BLUE, label="this run"
    )
    cores.set(ylabel="busy cores", ylim=(0, None))
    memory.plot(
        at, _over(samples, lambda sample: sample.memory / 1024), color=style.GREY, linestyle="--", label="all processes"
    )
    memory.plot(at, _over(samples, lambda sample: sample.rss / 1024), color=style.GREEN, label="this run")
    memory.set(ylabel="memory, GiB", ylim=(0, None))
    if all(sample.disk_read is None for sample in samples):
        disk.text(0.5, 0.5, "this system does not count its disks", ha="center", transform=disk.transAxes)
    else:
        read = _over(samples, lambda sample: sample.disk_read / 1e6 / max(sample.seconds, 1e-9))
        written = _over(samples, lambda sample: sample.disk_written / 1e6 / max(sample.seconds, 1e-9))
        disk.plot(at, read, color=style.PURPLE, label="read")
        disk.plot(at, written, color=style.ORANGE, linestyle="--", label="written")
    disk.set(ylabel="disks, MB/s", ylim=(0, None))
    for number in range(gpus):
        panels[3].plot(
            at,
            _over(samples, lambda sample, number=number: sample.gpus[number].utilization + 0.0),
            color=style.CYCLE[number % 7],
            linestyle=style.LINES[number % len(style.LINES)],
            label=f"GPU {number}",
        )
    if gpus:
        panels[3].set(ylabel="GPU use, %", ylim=(0, 105))
    panels[-1].set_xlabel("time in s")
    for axes in panels:
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


def _over(samples: Sequence[MonitorSample], figure: Callable[[MonitorSample], float]) -> list[float]:
    """A figure of each sample, with a gap where one of its parts is None."""
    values = []
    for sample in samples:
        try:
            values.append(figure(sample))
        except TypeError:
            values.append(float("nan"))
    return values
