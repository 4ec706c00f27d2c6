"""How long the optimizer lab takes from a slider's event to the new picture in Chromium, with a busy kernel: `make bench`.

The goal is 16 ms in the median and 25 ms at the 95th percentile on two cores. "drawn" ends when the last canvas is drawn,
"shown" with the frame after it. The times of the map start when the start of the paths moves.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

import nbformat

sys.path.insert(0, str(Path(__file__).parent / "browser"))
from lab import CHROMIUM, browser, cell_errors, lab_server, open_notebook, run_all_cells

MOVES = 200
CODE = "from hpml_lab.adaptive import lab\nlab('rosenbrock', {names})"
BUSY = """import threading, time

def burn():
    end = time.time() + 120
    while time.time() < end:
        sum(range(10000))

threading.Thread(target=burn).start()"""
OPTIMIZERS = {
    "three optimizers": ["gradient_descent", "momentum", "adam"],
    "six optimizers": ["gradient_descent", "momentum", "nesterov", "adagrad", "rmsprop", "adam"],
}
# A slider is moved by events as a hand would send them, every 20 ms.
MEASURE = """async ([label, moves]) => {
  const host = document.querySelector('.hpml-lab'), range = host.shadowRoot.querySelector(`input[aria-label="${label}"]`);
  const low = Number(range.min), high = Number(range.max), drawn = [], shown = [];
  const wait = ms => new Promise(f => setTimeout(f, ms));
  for (let move = 0; move < moves; move++) {
    const time = performance.now();
    const done = new Promise(f => host.addEventListener('drawn', () => {
      drawn.push(performance.now() - time);
      requestAnimationFrame(() => { shown.push(performance.now() - time); f(); });
    }, { once: true }));
    range.value = String(low + (high - low) * (0.3 + 0.4 * (move * 13 % 89) / 89));
    range.dispatchEvent(new Event('input', { bubbles: true }));
    await done;
    await wait(20 * Math.random());
  }
  return [drawn, shown];
}"""
MAP = """async () => {
  const host = document.querySelector('.hpml-lab'), found = {};
  const box = host.shadowRoot.querySelector('input[aria-label="start x"]');
  host.dataset.map = '';
  const time = performance.now();
  const watch = new Promise(f => new MutationObserver(() => {
    found[host.dataset.map] ??= performance.now() - time;
    if (host.dataset.map === '120') f();
  }).observe(host, { attributes: true }));
  box.value = String(Number(box.value) + 0.3);
  box.dispatchEvent(new Event('change', { bubbles: true }));
  await watch;
  return [found['30'], found['120']];
}"""


def summary(times):
    return f"{median(times):5.1f} ms median, {quantiles(times, n=20)[-1]:5.1f} p95"


def main():
    if CHROMIUM is None:
        return print("no Chromium here; on Debian: apt-get install chromium")
    for label, names in OPTIMIZERS.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "work").mkdir()
            cells = [nbformat.v4.new_code_cell(code) for code in (CODE.format(names=names), BUSY)]
            kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
            notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
            nbformat.write(notebook, folder / "work" / "lab.ipynb")
            with (
                lab_server(folder / "work", folder / "state") as (address, token),
                browser(folder / "profile", 1366, 768) as context,
            ):
                page = open_notebook(context, address, token, "lab.ipynb")
                run_all_cells(page)
                assert cell_errors(page) == []
                page.locator(".hpml-lab[data-map='120']").wait_for()
                page.evaluate(MEASURE, ["Adam: rate α", 20])  # fonts and first draws
                drawn, shown = page.evaluate(MEASURE, ["Adam: rate α", MOVES])
                print(f"{label:17} drawn {summary(drawn)}; shown {summary(shown)}, over {len(drawn)} moves")
                coarse, fine = page.evaluate(MAP)
                print(f"{'':17} map of Adam: coarse after {coarse:.0f} ms, 120 × 80 settings after {fine:.0f} ms")


if __name__ == "__main__":
    main()
