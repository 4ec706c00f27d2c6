"""The figure of the notebook's last training: accuracy by epoch."""

from collections.abc import Sequence

from matplotlib.ticker import MaxNLocator

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture


@picture
def accuracy_curves(history: Sequence[tuple[float, float]]):
    """Accuracy on the training and the test images after each epoch: both rise steeply in the first epochs, then the test curve
    stays a little below."""
    figure = style.new_figure(6.5, 3.2)
    ax = figure.subplots()
    epochs = range(1, len(history) + 1)
    for values, label, line in zip(zip(*history, strict=True), ("training", "test"), ("-", "--"), strict=True):
        ax.plot(epochs, [100 * value for value in values], line, label=f"{label}, {100 * values[-1]:.1f} % at the end")
    ax.set(xlabel="epoch", ylabel="accuracy (%)", title="Three fully connected layers")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
    return figure
