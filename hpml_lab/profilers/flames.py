"""A flame graph as one SVG: hover over a box to see its share, click it to zoom in, click the lowest box to zoom out."""

from html import escape

from hpml_lab.profilers.stacks import StackNode, function_name

WIDTH, ROW, FONT = 1180, 18, 12  # pixels
LEAST_PERCENT = 0.1  # narrower boxes are not drawn: nobody would see them
COLORS = ("#E69F00", "#F0E442")  # neighbors in depth; dark letters have a contrast of 6 or more on both, on a page of any color
INK, LINE = "#111111", "#9ca3af"

# Each box knows its left edge and its width in % of all samples. Zooming moves and widens boxes; letters are never stretched.
SCRIPT = """
function zoom(graph, left, width) {
  for (const box of graph.querySelectorAll("g.box")) {
    const x = (box.dataset.left - left) / width, w = box.dataset.width / width;
    const shown = x < 1 - 1e-9 && x + w > 1e-9, from = Math.max(x, 0), to = Math.min(x + w, 1);
    box.style.display = shown ? "" : "none";
    if (!shown) continue;
    const all = graph.viewBox.baseVal.width, rect = box.querySelector("rect"), text = box.querySelector("text");
    rect.setAttribute("x", from * all); rect.setAttribute("width", (to - from) * all);
    const letters = Math.floor(((to - from) * all - 6) / 7), name = box.dataset.name;
    text.setAttribute("x", from * all + 3);
    text.textContent = letters < 3 ? "" : name.length <= letters ? name : name.slice(0, letters - 1) + "…";
  }
}
for (const graph of document.querySelectorAll("svg.flame")) {
  for (const box of graph.querySelectorAll("g.box")) {
    const go = () => zoom(graph, +box.dataset.left, +box.dataset.width);
    box.addEventListener("click", go);
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  }
}
"""


def flame_svg(root: StackNode, unit: str = "samples", script: bool = True) -> str:
    """The tree as an SVG, the root at the bottom, callers below what they call.

    unit    what the numbers count
    script  include the script for zooming; a page with several graphs includes SCRIPT once instead
    """
    height = ROW * _depth(root, LEAST_PERCENT / 100 * root.total)
    boxes: list[str] = []

    def draw(node: StackNode, left: float, level: int) -> None:
        width = 100 * node.total / root.total
        if width < LEAST_PERCENT:
            return
        name = function_name(node.frame)
        letters = int((width / 100 * WIDTH - 6) / 7)
        text = "" if letters < 3 else name if len(name) <= letters else name[: letters - 1] + "…"
        x, y = left / 100 * WIDTH, height - ROW * (level + 1)
        color = LINE if level == 0 else COLORS[level % 2]
        tip = f"{node.frame}: {node.total:,} {unit} ({width:.1f} %), itself {node.own:,}"
        boxes.append(
            f'<g class="box" tabindex="0" data-left="{left:.4f}" data-width="{width:.4f}" data-name="{escape(name)}">'
            f"<title>{escape(tip)}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{width / 100 * WIDTH:.2f}" height="{ROW - 1}" fill="{color}" stroke="{LINE}"/>'
            f'<text fill="{INK}" x="{x + 3:.2f}" y="{y + ROW - 5}">{escape(text)}</text></g>'
        )
        for child in sorted(node.children.values(), key=lambda child: child.frame):
            draw(child, left, level + 1)
            left += 100 * child.total / root.total

    draw(root, 0.0, 0)
    code = f"<script>{'//<![CDATA['}{SCRIPT}{'//]]>'}</script>" if script else ""
    return (
        f'<svg class="flame" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%" '
        f'font-family="monospace" font-size="{FONT}" role="img" aria-label="Flame graph of {root.total} {unit}">'
        f"<style>.box{{cursor:pointer}} .box:hover rect{{stroke:{INK}}}</style>{''.join(boxes)}{code}</svg>\n"
    )


def _depth(node: StackNode, least: float) -> int:
    """Levels of boxes that are wide enough to be drawn."""
    return 1 + max((_depth(child, least) for child in node.children.values() if child.total >= least), default=0)
