"""A picture that reports where it was clicked and which arrow keys were pressed.

ipywidgets.Image can do neither and has no alternative text. The few lines of JavaScript below reach the browser through
anywidget; nothing is fetched from elsewhere.
"""

import anywidget
import traitlets

_FRONT_END = """
function render({ model, el }) {
  const image = document.createElement("img");
  // Without the data attribute JupyterLab uses the arrow keys to move from cell to cell.
  Object.assign(image, { className: "widget-image hpml-picture", tabIndex: 0, draggable: false, alt: model.get("alt") });
  image.dataset.lmSuppressShortcuts = "true";
  image.style.cssText = "display:block;max-width:100%;height:auto;touch-action:none;cursor:crosshair";
  image.style.width = model.get("width") + "px";
  let address = null, count = 0;
  const draw = () => {
    const old = address;
    image.src = address = URL.createObjectURL(new Blob([model.get("value")], { type: "image/png" }));
    if (old) setTimeout(() => URL.revokeObjectURL(old), 1000);
  };
  const point = event => {
    const box = image.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
    model.set("point", [x, y, ++count]);
    model.save_changes();
  };
  image.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    image.focus({ preventScroll: true });
    image.setPointerCapture(event.pointerId);
    point(event);
  });
  image.addEventListener("pointermove", event => { if (event.buttons & 1) point(event); });
  image.addEventListener("keydown", event => {
    const turn = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    if (!turn || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    model.set("turns", model.get("turns") + turn);
    model.save_changes();
  });
  model.on("change:value", draw);
  model.on("change:alt", () => { image.alt = model.get("alt"); });
  draw();
  el.appendChild(image);
  return () => { model.off("change:value", draw); URL.revokeObjectURL(address); };
}
export default { render };
"""


class ClickablePicture(anywidget.AnyWidget):
    """A PNG that reports clicks and arrow keys.

    value  the PNG
    alt    the alternative text
    width  in pixels; scaled down if there is less room
    point  where it was last clicked or dragged: (x from the left, y from the top, both from 0 to 1, number of the event)
    turns  presses of the right or up arrow key minus those of the left or down key; a page key counts ten
    """

    _esm = _FRONT_END
    value = traitlets.Bytes().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int(700).tag(sync=True)
    point = traitlets.List(trait=traitlets.Float(), default_value=[0.0, 0.0, 0.0]).tag(sync=True)
    turns = traitlets.Int(0).tag(sync=True)
