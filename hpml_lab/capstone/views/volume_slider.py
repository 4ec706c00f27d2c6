"""A slider through a scan: the axial slice follows it, and a coronal slice shows where it is."""

import ipywidgets
from matplotlib.patches import Circle

from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.views.scan_slices import LOOK, LUNG_WINDOW, TISSUE_WINDOW, cut, hu_slice, show_slice
from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure

WINDOWS = {"lung": LUNG_WINDOW, "soft tissue": TISSUE_WINDOW}


def explore_scan(scan: Scan) -> LiveFigure:
    """A CT scan, slice by slice. Left: the axial slice at the slider's z. Right: a coronal slice, in which a yellow line is the
    slider's z. Nodules are orange circles."""
    slices, spacing = scan.stored.shape[0], scan.spacing[0]
    middle = (scan.extent - scan.spacing) / 2
    start, coronal = (scan.nodules[0, :2] if len(scan.nodules) else middle[:2]).tolist()
    options = dict(continuous_update=True, layout=ipywidgets.Layout(width="420px"))
    controls = {
        "z": ipywidgets.IntSlider(round(start / spacing), 0, slices - 1, description="slice", **options),
        "window": ipywidgets.ToggleButtons(options=list(WINDOWS), description="window"),
    }

    def build(figure) -> list:
        axial, side = figure.subplots(1, 2, width_ratios=[1.25, 1])
        image = show_slice(axial, scan, 0, start, LUNG_WINDOW)
        axial.set_title("axial")
        show_slice(side, scan, 1, coronal, LUNG_WINDOW)
        for ball in scan.nodules:
            if (radius := cut(ball, 1, coronal)) > 0:
                side.add_patch(Circle((ball[2], ball[0]), radius, fill=False, **LOOK["nodule"]))
        side.set_title(f"coronal, y = {coronal:.0f} mm")
        line = side.axhline(start, color=style.YELLOW, linewidth=1.5)
        circles = [axial.add_patch(Circle(ball[2:0:-1], 1.0, fill=False, zorder=3, **LOOK["nodule"])) for ball in scan.nodules]
        text = axial.text(0.02, 0.98, "", color="white", transform=axial.transAxes, va="top", zorder=4)
        return [image, line, text, *circles]

    def update(artists: list, z: int, window: str) -> None:
        image, line, text, *circles = artists
        at = z * spacing
        image.set_data(hu_slice(scan, 0, at))
        image.set_clim(*WINDOWS[window])
        line.set_ydata([at, at])
        text.set_text(f"z = {at:.1f} mm")
        for circle, ball in zip(circles, scan.nodules, strict=True):
            radius = cut(ball, 0, at)
            circle.set_radius(radius)
            circle.set_visible(radius > 0)

    alt = " ".join((explore_scan.__doc__ or "").split())
    return LiveFigure(build, update, controls, alt, width=9.6, height=4.6)
