"""Where the time of a sample of SlowPictures goes, stage by stage."""

from time import perf_counter

from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.storage.lessons.slow_pictures import PictureStore, augment, decode

STAGES = ("label", "read", "decode", "augment")


@picture
def stage_times(store: PictureStore, samples: int):
    """Milliseconds that one sample spends in each of its four stages: one horizontal bar for each stage, the mean over some
    samples."""
    seconds = dict.fromkeys(STAGES, 0.0)
    for index in range(samples):
        moments = [perf_counter()]
        store.table()[index]
        moments.append(perf_counter())
        data = store.read(index)
        moments.append(perf_counter())
        image = decode(data)
        moments.append(perf_counter())
        augment(image)
        for stage, start, end in zip(STAGES, moments, [*moments[1:], perf_counter()], strict=True):
            seconds[stage] += end - start
    figure = style.new_figure(7.0, 2.4)
    axes = figure.subplots()
    horizontal_bars(axes, STAGES, [1e3 * seconds[stage] / samples for stage in STAGES], labels="{:.2g}")
    axes.set(xlabel="time of a sample in ms", ylabel="stage")
    return figure
