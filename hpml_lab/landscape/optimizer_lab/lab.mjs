// The page of the optimizer lab: controls, canvases and one step in numbers. It draws in the browser and asks nobody.
//     mount(element, options, {alt, changed})   on any page; `options` are LabSettings.options, `changed` gets the new ones
//     export default {render}                   as an anywidget

const E = engine();
const SLIDERS = {
  lr: ["rate α", u => 10 ** u, Math.log10, -5, 1.5],
  momentum: ["momentum γ", E.decay, E.memory, 0, 4],
  rho: ["decay ρ", E.decay, E.memory, 0, 4],
  alpha: ["decay ρ", E.decay, E.memory, 0, 4],
  beta1: ["decay β₁", E.decay, E.memory, 0, 4],
  beta2: ["decay β₂", E.decay, E.memory, 0, 4],
  weight_decay: ["weight decay λ", u => u ** 3, Math.cbrt, 0, 1],
  noise: ["noise", u => 50 * u ** 3, v => Math.cbrt(v / 50), 0, 1],
};
const TURNS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [10, 0], PageDown: [-10, 0] };
const STROKES = [["solid", []], ["dashed", [4, 3]], ["dotted", [1.6, 2.4]]];
const PARAMETERS = [["x", "#1c7f3c"], ["y", "#aa4499"]];
const GREY = "#8c8c8c", MOST = 6, FAST = [30, 20], FINE = [120, 80], LOWEST_LOSS = 1e-6, LOWEST_STEP = 1e-5;
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
// Points, turn in degrees and depth of the notches, by matplotlib's names.
const MARKERS = { o: [24, 0, 1], s: [4, 45, 1], v: [3, 90, 1], "^": [3, -90, 1], D: [4, 0, 1], P: [4, 0, 0.45], X: [4, 45, 0.45],
  "<": [3, 180, 1], ">": [3, 0, 1], d: [4, 0, 0.72], h: [6, 0, 1], p: [5, -90, 1], "*": [5, -90, 0.42], 8: [8, 22, 1], H: [6, 30, 1] };

const CSS = `
:host { display: block; container-type: inline-size; max-width: 1060px; font: 12px/1.3 var(--jp-ui-font-family, system-ui, sans-serif);
  color: var(--jp-content-font-color1, var(--color-foreground-primary, CanvasText)); }
* { box-sizing: border-box; }
.row { display: flex; flex-wrap: wrap; gap: 2px 10px; align-items: center; margin: 1px 0 2px; }
.chips { gap: 0 6px; } .chips label { gap: 2px; }
label, .field { display: inline-flex; align-items: center; gap: 4px; white-space: nowrap; min-height: 24px; }
select, button, input { font: inherit; color: inherit; min-height: 24px; }
select, button, input.number { background: var(--jp-layout-color2, var(--color-background-secondary, Canvas)); border: 1px solid ${GREY};
  border-radius: 4px; padding: 0 4px; }
button { cursor: pointer; }
input.number { width: 4.2em; } select { max-width: 165px; }
input[type=range] { width: 84px; accent-color: currentColor; margin: 0; }
input[type=checkbox] { margin: 0; min-height: 0; width: 14px; height: 14px; accent-color: currentColor; }
input[type=range].wide { flex: 1; min-width: 140px; }
svg { overflow: visible; }
details { position: relative; } summary { cursor: pointer; min-height: 24px; padding-top: 3px; }
details > div { position: absolute; z-index: 5; right: 0; padding: 4px 10px; border: 1px solid ${GREY}; border-radius: 6px;
  background: var(--jp-layout-color1, var(--color-background-primary, Canvas)); display: grid; }
.panels { display: grid; gap: 6px 12px; grid-template-columns: minmax(0, 1.25fr) minmax(0, 1fr); }
.panels.three { grid-template-columns: minmax(0, 1.2fr) minmax(0, 0.95fr) minmax(0, 1fr); }
.panels.one { grid-template-columns: minmax(0, 1fr); max-width: 560px; }
.column { display: flex; flex-direction: column; height: 272px; gap: 1px; }
figure { margin: 0; display: flex; flex-direction: column; flex: 1; min-height: 0; }
figure.tall { flex: 1.35; } figure[hidden] { display: none; }
figcaption { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; } figcaption b { margin-right: 6px; }
figcaption i { display: inline-block; width: 14px; margin: 0 3px 3px 8px; border-top: 2px solid; }
.canvas { position: relative; flex: 1; min-height: 0; } canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
canvas.live { cursor: crosshair; touch-action: none; } canvas:focus-visible, summary:focus-visible { outline: 2px solid currentColor; }
.status { min-height: 1.3em; margin: 1px 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; line-height: 1.25; font-size: 11.5px; }
caption { text-align: left; font-weight: bold; padding-bottom: 1px; } th, td { text-align: left; vertical-align: top; padding: 1px 9px 0 0;
  border-top: 1px solid ${GREY}55; font-weight: normal; } th { font-weight: bold; }
code { font: 10.5px/1.25 var(--jp-code-font-family, monospace); }
table { table-layout: fixed; } th:first-child { width: 19%; } th.code { width: 27%; } .number { font-variant-numeric: tabular-nums; }
@container (max-width: 980px) { .column { height: 234px; } .row { gap: 1px 8px; } }
@container (max-width: 640px) { .column { height: 272px; } .panels, .panels.three { grid-template-columns: minmax(0, 1fr); }
  .code { display: none; } .status { white-space: normal; } }
`;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
function markerPath(marker, radius) {
  const [points, turn, depth] = MARKERS[marker], corners = [];
  for (let k = 0; k < 2 * points; k++) {
    const angle = (turn + 180 * k / points) * Math.PI / 180, notch = depth < 1 ? depth : Math.cos(Math.PI / points);
    const r = k % 2 ? radius * notch : radius;
    corners.push(`${(r * Math.cos(angle)).toFixed(2)} ${(r * Math.sin(angle)).toFixed(2)}`);
  }
  return `M${corners.join("L")}Z`;
}
function sample({ color, dash, marker }) {
  const box = make("span");
  box.innerHTML = `<svg width="18" height="10" aria-hidden="true"><path d="M0 5H18" stroke="${color}" stroke-width="2" `
    + `stroke-dasharray="${dash.join(" ")}"/><path transform="translate(9 5)" d="${markerPath(marker, 4.5)}" fill="${color}"/></svg>`;
  return box.firstChild;
}
const label = name => E.RULES[name].title.replace(/, (?:the )?(\w+)'s form/, " ($1)");
const digits = value => String(value).replace("-", "⁻").replace(/\d/g, d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
const powerOfTen = k => (k === 0 ? "1" : k === 1 ? "10" : `10${digits(k)}`);
const short = value => String(Number(value.toPrecision(4)));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
// The step from which a path's height stays below a thousandth of the start's, or null.
function arrived(path, floor) {
  const low = floor + 1e-3 * (path.losses[0] - floor);
  const above = path.losses.findLastIndex(loss => loss > low);
  return path.end || above === path.losses.length - 1 ? null : above + 1;
}
// What the worker does: a coarse map at once, then a fine one, unless another was asked for meanwhile.
function serve(engine, post, listen, FAST, FINE) {
  const E = engine();
  let current = 0;
  const pause = () => new Promise(done => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  });
  listen(async asked => {
    current = asked.id;
    for (const [columns, rows] of [FAST, FINE]) {
      const cells = new Int16Array(columns * rows);
      for (let row = 0; row < rows; row++) {
        cells.set(E.mapRow(asked, columns, rows, row), row * columns);
        if (columns > FAST[0]) await pause();
        if (current !== asked.id) return;
      }
      post({ id: asked.id, columns, rows, cells });
    }
  });
}
function makeWorker() {
  const sizes = JSON.stringify([FAST, FINE]).slice(1, -1);
  const text = `(${serve})(${engine}, answer => postMessage(answer), act => { onmessage = event => act(event.data); }, ${sizes})`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  return worker;
}

export function mount(el, options, { alt = "Optimizer lab", changed = () => {} } = {}) {
  const chosen = structuredClone(options), has = panel => chosen.panels.includes(panel);
  const first = structuredClone(options);
  const hyper = structuredClone(options.hyper);  // of removed rules too: they come back as they were
  chosen.hyper = Object.fromEntries(Object.keys(hyper).map(name => [name, hyper[name]]));
  const host = make("div", { class: "hpml-lab", role: "group", "aria-label": alt, "data-lm-suppress-shortcuts": "true" });
  const root = host.attachShadow({ mode: "open" });
  root.append(make("style", {}, CSS));
  let paths = {}, preview = null, map = null, asked = "", ground = null, ink = "#000", font = "", drawn = 0, waiting = 0, together = false;
  const surface = () => E.SURFACES[chosen.surface], rule = () => E.RULES[chosen.follow];

  // ---- controls -------------------------------------------------------------------------------------------------------
  const update = () => { waiting ||= requestAnimationFrame(draw); };
  let telling = 0;
  const tell = () => {
    clearTimeout(telling);
    telling = setTimeout(() => changed(structuredClone({ ...chosen })), 400);  // at rest, not while something is dragged
  };
  const take = what => { Object.assign(chosen, what); fit(); update(); tell(); };
  const select = (text, entries, value, take) => {
    const box = make("select", { "aria-label": text }, ...entries.map(([value, text]) => new Option(text, value)));
    box.value = value;
    box.addEventListener("change", () => take(box.value));
    return [make("label", {}, text, box), box];
  };
  // A number is taken on leaving its field and by the enter key, which JupyterLab keeps to itself.
  const entered = (box, act) => {
    const taken = () => act(box.value.trim() ? Number(box.value) : NaN);
    box.addEventListener("change", taken);
    box.addEventListener("keydown", event => { if (event.key === "Enter") taken(); });
  };
  // A slider with a field for exact values; `get` and `set` its value.
  const slider = (key, get, set) => {
    const [, from, to, min, max] = SLIDERS[key], words = make("span");
    const range = make("input", { type: "range", min: String(min), max: String(max), step: "any" });
    const number = make("input", { class: "number", inputmode: "decimal", type: "text" });
    const fit = name => {
      words.textContent = name;
      range.setAttribute("aria-label", name);
      number.setAttribute("aria-label", `${name}, exact value`);
      range.value = String(clamp(to(get()), min, max));
      range.setAttribute("aria-valuetext", short(get()));
      if (root.activeElement !== number) number.value = short(get());
    };
    const put = value => set(key === "lr" ? Math.max(value, 1e-9) : to === E.memory ? clamp(value, 0, 0.9999) : Math.max(value, 0));
    range.addEventListener("input", () => put(from(Number(range.value))));
    range.addEventListener("keydown", event => {  // a hundredth of the range by itself; a finer one with the shift key
      if (!event.key.startsWith("Arrow") || !event.shiftKey) return;
      event.preventDefault();
      const [right, up] = TURNS[event.key];
      put(from(to(get()) + (right + up) * (max - min) / 5000));
    });
    entered(number, value => { if (Number.isFinite(value)) put(value); number.value = short(get()); });
    return { box: make("span", { class: "field" }, words, range, number), fit };
  };
  const setHyper = (key, value) => {
    for (const name of together ? Object.keys(chosen.hyper) : [chosen.follow]) if (key in hyper[name]) hyper[name][key] = value;
    take({ hyper: Object.fromEntries(Object.keys(chosen.hyper).map(name => [name, hyper[name]])) });
  };
  const setSurface = name => {
    for (const other in hyper) hyper[other].lr = E.SURFACES[name].rates[other];
    take({ surface: name, start: [...E.SURFACES[name].start], noise: E.SURFACES[name].noise });
  };
  const setRules = names => {
    const added = names.find(name => !(name in chosen.hyper));
    for (const name of names) hyper[name] ??= { ...E.RULES[name].hyper, lr: surface().rates[name] };
    const follow = added ?? (names.includes(chosen.follow) ? chosen.follow : names.at(-1));
    take({ hyper: Object.fromEntries(names.map(name => [name, hyper[name]])), follow });
  };
  const setStart = (x, y) => take({ start: [Number(x.toFixed(3)), Number(y.toFixed(3))] });
  const setStep = step => take({ step: clamp(Math.round(step), 0, chosen.steps) });

  const names = Object.keys(E.RULES), chips = {};
  const chip = name => {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => setRules(names.filter(name => chips[name].checked)));
    chips[name] = box;
    return make("label", {}, box, sample(E.RULES[name]), label(name));
  };
  const titled = ([name, { title, eigenvalues }]) => [name, /^quadratic/.test(name) ? `${title}, κ = ${eigenvalues[1]}` : title];
  const offered = Object.entries(E.SURFACES).filter(([name]) => name === options.surface || !/-\d/.test(name));
  const schedules = Object.keys(E.SCHEDULES).map(name => [name, name]);
  const counts = [...new Set([20, 50, 100, 200, 500, chosen.steps])].sort((a, b) => a - b).map(count => [count, count]);
  const setSteps = text => take({ steps: Number(text), step: Math.min(chosen.step, Number(text)) });
  const [surfaceLabel, surfaceBox] = select("surface", offered.map(titled), chosen.surface, setSurface);
  const [scheduleLabel, scheduleBox] = select("schedule", schedules, chosen.schedule, schedule => take({ schedule }));
  const [stepsLabel, stepsBox] = select("steps", counts, chosen.steps, setSteps);
  const noise = slider("noise", () => chosen.noise, value => take({ noise: value }));
  const starts = [0, 1].map(i => {
    const box = make("input", { class: "number", type: "number", step: "0.1", "aria-label": `start ${"xy"[i]}` });
    entered(box, value => { if (Number.isFinite(value)) setStart(...chosen.start.map((old, k) => (k === i ? value : old))); });
    return box;
  });
  const again = make("button", { type: "button" }, "reset");
  again.addEventListener("click", () => {
    for (const name in hyper) delete hyper[name];
    Object.assign(hyper, structuredClone(first.hyper));
    take({ ...structuredClone(first), hyper: Object.fromEntries(Object.keys(first.hyper).map(name => [name, hyper[name]])) });
  });
  const [followLabel, followBox] = select("move", [], "", follow => take({ follow }));
  const all = make("input", { type: "checkbox" });
  all.addEventListener("change", () => { together = all.checked; fit(); });
  const allLabel = make("label", {}, all, "all together");
  const sliders = Object.fromEntries(Object.keys(SLIDERS).filter(key => key !== "noise")
    .map(key => [key, slider(key, () => hyper[chosen.follow][key] ?? 0, value => setHyper(key, value))]));
  const top = make("div", { class: "row" });
  if (has("choose")) top.append(surfaceLabel);
  if (has("schedule")) top.append(scheduleLabel, stepsLabel, noise.box);
  top.append(make("span", { class: "field" }, "start", ...starts), again);
  const rules = make("div", { class: "row chips", role: "group", "aria-label": "Optimizers" });
  if (has("choose")) {
    const folded = name => E.RULES[name].form || E.RULES[name].layerwise;
    rules.append(...names.filter(name => !folded(name)).map(chip));
    rules.append(make("details", {}, make("summary", {}, "more rules"), make("div", {}, ...names.filter(folded).map(chip))));
  } else {
    top.append(...Object.keys(chosen.hyper).map(name => make("span", { class: "field" }, sample(E.RULES[name]), label(name))));
  }
  const moved = make("div", { class: "row" }, followLabel, ...Object.values(sliders).map(({ box }) => box), allLabel);
  root.append(top, ...(has("choose") ? [rules] : []), moved);

  // ---- panels ---------------------------------------------------------------------------------------------------------
  const panels = {}, columns = [];
  const panel = (key, text, live) => {
    const about = live ? { role: "application", class: "live", tabindex: "0" } : { role: "img" };
    const canvas = make("canvas", { "aria-label": text, ...about }), caption = make("figcaption");
    const figure = make("figure", { class: key === "loss" ? "tall" : "" }, caption, make("div", { class: "canvas" }, canvas));
    return (panels[key] = { canvas, caption, figure });
  };
  const CURVES = { loss: "Loss by step", sizes: "Step size by step", state: "State by step" }, curves = Object.keys(CURVES).filter(has);
  const SURFACE = "Paths on the surface. Click or drag to set the start; arrow keys go through the steps.";
  const MAP = "Map of settings: steps to the minimum. Click or drag to choose a setting; arrow keys move it.";
  if (has("surface")) columns.push([panel("surface", SURFACE, true)]);
  const plots = curves.map(key => panel(key, CURVES[key], false));
  if (plots.length) columns.push(plots);
  if (has("map")) columns.push([panel("map", MAP, true)]);
  const grid = make("div", { class: `panels ${["", "one", "", "three"][columns.length]}` },
    ...columns.map(column => make("div", { class: "column" }, ...column.map(({ figure }) => figure))));
  const status = make("p", { class: "status", role: "status" });
  root.append(grid, status);

  const stepRange = make("input", { type: "range", min: "0", class: "wide", "aria-label": "step" });
  stepRange.addEventListener("input", () => setStep(Number(stepRange.value)));
  const button = (text, turn) => {
    const made = make("button", { type: "button" }, text);
    made.addEventListener("click", () => setStep(chosen.step + turn));
    return made;
  };
  const table = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "One step in formulas and numbers" });
  if (has("step")) root.append(make("div", { class: "row" }, "step", stepRange, button("◀ back", -1), button("forward ▶", 1)), table);

  // Set the controls from what was chosen.
  function fit() {
    const followed = chosen.hyper[chosen.follow], listed = Object.keys(chosen.hyper);
    surfaceBox.value = chosen.surface; scheduleBox.value = chosen.schedule; stepsBox.value = chosen.steps;
    noise.fit("noise");
    starts.forEach((box, i) => { if (root.activeElement !== box) box.value = String(chosen.start[i]); });
    if (followBox.dataset.names !== listed.join()) {
      followBox.replaceChildren(...listed.map(name => new Option(label(name), name)));
      followBox.dataset.names = listed.join();
    }
    followBox.value = chosen.follow;
      followLabel.style.display = allLabel.style.display = listed.length < 2 ? "none" : "";
    for (const key in sliders) {
      sliders[key].box.style.display = key in followed ? "" : "none";
      if (key in followed) sliders[key].fit(`${together ? "all" : label(chosen.follow)}: ${SLIDERS[key][0]}`);
    }
    for (const name in chips) {
      chips[name].checked = name in chosen.hyper;
      chips[name].disabled = name in chosen.hyper ? listed.length === 1 : listed.length === MOST;
    }
    stepRange.max = String(chosen.steps);
    stepRange.value = String(chosen.step);
    if (panels.state) panels.state.figure.hidden = !Object.keys(rule().state).some(key => STATE[key]);
  }

  // ---- pointers and keys ----------------------------------------------------------------------------------------------
  // Where a pointer is in a panel's box, both from 0 to 1, from the left and from below.
  const where = (key, event) => {
    const { canvas, box } = panels[key], frame = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left - box.left, event.clientY - frame.top - box.top];
    return [clamp(x / box.width, 0, 1), clamp(1 - y / box.height, 0, 1)];
  };
  const drag = (key, act, hover = null) => {
    const { canvas } = panels[key];
    canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      act(...where(key, event));
    });
    canvas.addEventListener("pointermove", event => (event.buttons & 1 ? act : hover)?.(...where(key, event)));
  };
  const keys = (key, act) => panels[key].canvas.addEventListener("keydown", event => {
    const turns = TURNS[event.key];
    if (!turns || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    act(...turns);
  });
  if (panels.surface) {
    drag("surface", (across, up) => {
      const [x0, x1, y0, y1] = surface().window;
      setStart(x0 + (x1 - x0) * across, y0 + (y1 - y0) * up);
    });
    keys("surface", (right, up) => setStep(chosen.step + right + up));
  }
  for (const key of has("step") ? curves : []) {
    panels[key].canvas.classList.add("live");
    drag(key, across => setStep(across * chosen.steps));
  }
  if (panels.map) {
    const put = (across, up) => {
      preview = null;
      Object.assign(hyper[chosen.follow], E.setting(chosen.surface, chosen.follow, hyper[chosen.follow], across, up));
      take({});
    };
    drag("map", put, (across, up) => {
      preview = E.setting(chosen.surface, chosen.follow, hyper[chosen.follow], across, up);
      update();
    });
    panels.map.canvas.addEventListener("pointerleave", () => { preview = null; update(); });
    keys("map", (right, up) => {
      const [across, high] = onMap(hyper[chosen.follow]);
      put(clamp(across + right / FINE[0], 0, 1), clamp(high + up / FINE[1], 0, 1));
    });
  }
  const onMap = values => {
    const { rates: [a, b], memories: [c, d] } = E.axes(chosen.surface, chosen.follow), key = E.second(chosen.follow);
    return [(Math.log10(values.lr) - a) / (b - a), key ? (E.memory(values[key]) - c) / (d - c) : 0.5];
  };

  // ---- the map's worker -----------------------------------------------------------------------------------------------
  let worker = null, here = null;
  const took = answer => {
    if (answer.id !== drawn) return;
    map = { of: `${chosen.surface} ${chosen.follow}`, ...mapPicture(answer) };
    host.dataset.map = String(answer.columns);
    update();
  };
  if (has("map")) {
    try {
      worker = makeWorker();
      worker.onmessage = event => took(event.data);
    } catch {  // a page that allows no workers computes the coarse map itself
      serve(engine, took, listen => { here = listen; }, FAST, FAST);
    }
  }
  function askForMap() {
    const { follow: name, start, noise, schedule, steps, seed } = chosen, { lr, ...values } = hyper[name];
    delete values[E.second(name)];
    const wanted = JSON.stringify([chosen.surface, name, values, start, noise, schedule, steps, seed]);
    if (wanted === asked) return;
    asked = wanted;
    host.dataset.map = "";
    const rest = { start, noise, schedule, steps, seed };
    const request = { id: ++drawn, surface: chosen.surface, name, hyper: { ...hyper[name] }, chosen: rest };
    if (worker) worker.postMessage(request); else here?.(request);
  }
  const color = share => {
    const k = Math.min(Math.floor(4 * share), 3);
    return VIRIDIS[k].map((from, i) => from + (VIRIDIS[k + 1][i] - from) * (4 * share - k));
  };
  function mapPicture({ columns, rows, cells }) {
    const picture = new OffscreenCanvas(columns, rows), image = new ImageData(columns, rows);
    const fewest = cells.reduce((least, value) => (value > 0 && value < least ? value : least), chosen.steps);
    const share = value => Math.log(value / fewest) / Math.log((chosen.steps + 1) / fewest);
    cells.forEach((value, at) => {
      const [column, row] = [at % columns, rows - 1 - Math.floor(at / columns)];
      const shade = value < 0 ? [0, 0, 0, 0] : value === 0 ? [140, 140, 140, 110] : [...color(share(value)), 255];
      image.data.set(shade, 4 * (row * columns + column));
    });
    picture.getContext("2d").putImageData(image, 0, 0);
    return { picture, fewest };
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------
  function open(key, left, bottom, right = 8, top = 4) {
    const found = panels[key], { canvas } = found, { clientWidth: width, clientHeight: height } = canvas, scale = devicePixelRatio;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    Object.assign(c, { font, fillStyle: ink, strokeStyle: GREY, lineWidth: 1, lineJoin: "round" });
    found.box = { left, top, width: width - left - right, height: height - bottom - top };
    return [c, found.box];
  }
  const caption = (key, bold, ...rest) => {
    const text = [bold, ...rest].join("|");
    if (panels[key].text === text) return;
    panels[key].text = text;
    panels[key].caption.replaceChildren(make("b", {}, bold), ...rest.flatMap(part => {
      const [words, color, line = "solid"] = part.split("~");
      return color ? [make("i", { style: `border-color: ${color}; border-top-style: ${line}` }), words] : [words];
    }));
    panels[key].caption.title = panels[key].caption.textContent;
  };
  const line = (c, style, dash, width) => { Object.assign(c, { strokeStyle: style, lineWidth: width }); c.setLineDash(dash); c.beginPath(); };
  const mark = (c, name, x, y, radius = 5) => {
    c.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, x * devicePixelRatio, y * devicePixelRatio);
    c.fillStyle = E.RULES[name].color;
    c.fill(new Path2D(markerPath(E.RULES[name].marker, radius)));
    c.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  };
  const clip = (c, { left, top, width, height }) => { c.save(); c.beginPath(); c.rect(left, top, width, height); c.clip(); };

  function drawGround(width, height) {
    const scale = devicePixelRatio, key = [chosen.surface, width, height, scale, ink].join();
    if (ground?.key === key) return ground.picture;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)], f = surface(), [x0, x1, y0, y1] = f.window;
    const floor = E.lowest(chosen.surface), at = (i, j) => f.value(x0 + (x1 - x0) * i / 49, y0 + (y1 - y0) * j / 49) - floor;
    const heights = Array.from({ length: 2500 }, (_, k) => at(k % 50, Math.floor(k / 50))).sort((a, b) => a - b);
    // Areas between two lines are of equal size, except for finer ones on the valley's floor.
    const levels = [0.01, 0.03, 0.07, 0.15, 0.25, 0.37, 0.5, 0.63, 0.76, 0.88].map(share => heights[Math.floor(2499 * share)]);
    const picture = new OffscreenCanvas(w, h), image = new ImageData(w, h), [perX, perY] = [(x1 - x0) / w, (y1 - y0) / h];
    for (let row = 0, at = 0; row < h; row++) {
      for (let column = 0; column < w; column++, at += 4) {
        const x = x0 + perX * (column + 0.5), y = y1 - perY * (row + 0.5), [gx, gy] = f.gradient(x, y), height = f.value(x, y) - floor;
        let band = 0, near = Infinity;
        for (const level of levels) { if (height > level) band++; near = Math.min(near, Math.abs(height - level)); }
        const distance = near / Math.hypot(gx * perX, gy * perY);  // from the nearest line, in pixels
        image.data[at] = image.data[at + 1] = image.data[at + 2] = 128;
        image.data[at + 3] = Math.max(8 * band, 190 * clamp(0.6 * scale + 0.5 - distance, 0, 1));
      }
    }
    picture.getContext("2d").putImageData(image, 0, 0);
    ground = { key, picture };
    return picture;
  }

  function drawSurface() {
    const f = surface(), [x0, x1, y0, y1] = f.window, [c, box] = open("surface", 28, 18), { left, top, width, height } = box;
    const toX = x => left + width * (x - x0) / (x1 - x0), toY = y => top + height * (y1 - y) / (y1 - y0);
    const inside = (x, y) => x >= x0 && x <= x1 && y >= y0 && y <= y1;
    caption("surface", f.title, f.formula);
    if (width < 20 || height < 20) return;
    c.drawImage(drawGround(width, height), left, top, width, height);
    c.textAlign = "center";
    const tick = value => short(value).replace("-", "−");
    for (const x of [x0, (x0 + x1) / 2, x1]) c.fillText(tick(x), clamp(toX(x), left + 8, left + width - 8), top + height + 13);
    c.textAlign = "right";
    for (const y of [y0, (y0 + y1) / 2, y1]) c.fillText(tick(y), left - 4, clamp(toY(y) + 4, top + 9, top + height));
    clip(c, box);
    for (const [x, y] of f.minima) {
      c.translate(toX(x), toY(y));
      const star = new Path2D(markerPath("*", 9));
      c.fillStyle = "#e8c820"; c.fill(star); c.strokeStyle = ink; c.lineWidth = 1; c.setLineDash([]); c.stroke(star);
      c.translate(-toX(x), -toY(y));
    }
    const ends = [];
    for (const [name, { x, y, end }] of Object.entries(paths)) {
      const { color, dash } = E.RULES[name], followed = name === chosen.follow;
      let last = x.length - 1;
      while (last > 0 && !inside(x[last], y[last])) last--;
      const out = last < x.length - 1 || end;  // it leaves the window for good
      line(c, color, dash, followed ? 2.2 : 1.6);
      for (let i = 0; i <= last; i++) c.lineTo(clamp(toX(x[i]), -9999, 9999), clamp(toY(y[i]), -9999, 9999));
      if (out) {
        // Up to the frame, in the direction of the next point, if there is one.
        const [dx, dy] = last + 1 < x.length ? [x[last + 1] - x[last], y[last + 1] - y[last]] : [0, 0];
        const share = (from, step, low, high) => (step > 0 ? (high - from) / step : step < 0 ? (low - from) / step : Infinity);
        const t = clamp(Math.min(share(x[last], dx, x0, x1), share(y[last], dy, y0, y1), 1), 0, 1);
        const [ex, ey] = [toX(x[last] + t * dx), toY(y[last] + t * dy)];
        c.lineTo(ex, ey);
        ends.push([ex, ey, color]);
      }
      c.stroke();
      c.setLineDash([]);
      if (followed) {
        c.fillStyle = color;
        for (let i = 0; i <= last; i++) if (inside(x[i], y[i])) c.fillRect(toX(x[i]) - 1.5, toY(y[i]) - 1.5, 3, 3);
      }
      const at = Math.min(has("step") ? chosen.step : Infinity, x.length - 1);
      if (inside(x[at], y[at])) mark(c, name, toX(x[at]), toY(y[at]), 6);
    }
    const [sx, sy] = [toX(chosen.start[0]), toY(chosen.start[1])];
    line(c, ink, [], 2);
    c.moveTo(sx - 6, sy); c.lineTo(sx + 6, sy); c.moveTo(sx, sy - 6); c.lineTo(sx, sy + 6); c.stroke();
    c.restore();
    for (const [x, y, color] of ends) {  // a cross where a path leaves for good
      line(c, color, [], 3);
      c.moveTo(x - 5, y - 5); c.lineTo(x + 5, y + 5); c.moveTo(x - 5, y + 5); c.lineTo(x + 5, y - 5); c.stroke();
    }
    line(c, GREY, [], 1);
    c.strokeRect(left, top, width, height);
  }

  // A panel over the steps: lines are [values, color, dash, width, marker's rule], values clipped to the axis.
  function drawOverSteps(key, lines, scale, low, high, ticks, bottom) {
    const [c, box] = open(key, 38, bottom ? 16 : 5), { left, top, width, height } = box;
    const toX = t => left + width * t / chosen.steps;
    const toY = value => top + height * (1 - clamp((scale(value) - low) / (high - low || 1), 0, 1));
    c.textAlign = "right";
    line(c, `${GREY}55`, [], 1);
    const taken = [];
    for (const [value, text] of ticks) {
      const y = toY(value);
      if (taken.some(other => Math.abs(other - y) < 10)) continue;  // the first ones matter most
      taken.push(y);
      c.fillText(text, left - 4, y + 4);
      c.moveTo(left, y); c.lineTo(left + width, y);
    }
    c.stroke();
    c.textAlign = "center";
    for (const t of bottom ? [0, chosen.steps / 2, chosen.steps] : []) {
      c.fillText(t ? String(t) : "step 0", clamp(toX(t), left + 14, left + width - 9), top + height + 13);
    }
    if (has("step")) {
      line(c, ink, [1, 2], 1);
      c.moveTo(toX(chosen.step), top); c.lineTo(toX(chosen.step), top + height); c.stroke();
    }
    clip(c, { left: left - 4, top: top - 4, width: width + 8, height: height + 8 });
    for (const [values, color, dash, thick, first, name] of lines) {
      line(c, color, dash, thick);
      values.forEach((value, t) => c.lineTo(toX(t + first), toY(value)));
      c.stroke();
      c.setLineDash([]);
      const at = Math.min(chosen.step, values.length - 1);
      if (name && has("step")) mark(c, name, toX(at), toY(values[at]), 4.5);
    }
    c.restore();
    line(c, GREY, [], 1);
    c.moveTo(left, top); c.lineTo(left, top + height); c.lineTo(left + width, top + height); c.stroke();
  }
  const decades = (low, high, most) => {
    const every = Math.max(1, Math.ceil((high - low) / most)), found = [];
    for (let k = Math.ceil(low); k <= high + 1e-9; k++) if ((k - Math.ceil(low)) % every === 0) found.push([10 ** k, powerOfTen(k)]);
    return found;
  };
  const log = value => Math.log10(Math.max(value, 1e-300));
  function drawPlots() {
    const followed = paths[chosen.follow], floor = E.lowest(chosen.surface);
    const last = plots.filter(({ figure }) => !figure.hidden).at(-1);
    const bottom = key => panels[key] === last;
    if (panels.loss) {
      const lines = Object.entries(paths).map(([name, { losses }]) => {
        const heights = losses.map(loss => Math.max(loss - floor, LOWEST_LOSS)), { color, dash } = E.RULES[name];
        return [heights, color, dash, name === chosen.follow ? 2.2 : 1.6, 0, name];
      });
      const high = Math.ceil(log(lines[0][0][0])) + 1, least = Math.min(...lines.map(([heights]) => Math.min(...heights)));
      const low = Math.max(Math.floor(log(least)), -6, high - 10);
      caption("loss", "loss f − lowest f");
      drawOverSteps("loss", lines, log, low, high, decades(low, high, 5), bottom("loss"));
    }
    if (panels.sizes) {
      const moves = [followed.x, followed.y].map(values => values.slice(1).map((value, i) => Math.abs(value - values[i])));
      const every = [...moves.flat(), ...followed.rates].filter(value => value > 0);
      const most = Math.max(...every, LOWEST_STEP * 10), least = Math.min(...every);
      const high = Math.ceil(log(Math.min(most, 1e4))), low = Math.max(Math.floor(log(least)), -5, high - 6);
      caption("sizes", `${label(chosen.follow)}: step`, ...PARAMETERS.map(([name, color]) => `|Δ${name}|~${color}`), `rate α~${GREY}~dotted`);
      const lines = moves.map((values, i) => [values, PARAMETERS[i][1], [], 1.6, 1]);
      drawOverSteps("sizes", [...lines, [followed.rates, GREY, [2, 2], 1.6, 1]], log, low, high, decades(low, high, 3), bottom("sizes"));
    }
    if (panels.state && !panels.state.figure.hidden) {
      const shown = Object.keys(rule().state).filter(key => STATE[key]), lines = [];
      shown.forEach((key, k) => followed.states.forEach((state, i) => {
        lines.push([state[key], PARAMETERS[i][1], STROKES[k][1], 1.6, 0]);
      }));
      const every = lines.flatMap(([values]) => values), [least, most] = [Math.min(0, ...every), Math.max(0, ...every)];
      // Linear about zero, so that a momentum that swings looks like a swing; logarithmic beyond, for squares.
      const reach = Math.max(-least, most, 1e-300), unit = reach / 1000;
      const scale = value => Math.sign(value) * Math.log10(1 + Math.abs(value) / unit);
      const top = Math.floor(log(reach)), ticks = [[0, "0"]];
      for (const sign of [1, -1]) for (const k of [top, top - 2]) {
        const value = sign * 10 ** k;
        if (value <= most && value >= least && Math.abs(value) > unit) ticks.push([value, (sign < 0 ? "−" : "") + powerOfTen(k)]);
      }
      const entries = shown.map((key, k) => `${STATE[key]}~${ink}~${STROKES[k][0]}`);
      caption("state", `${label(chosen.follow)}: state`, ...entries, ...PARAMETERS.map(([name, color]) => `${name}~${color}`));
      drawOverSteps("state", lines, scale, scale(least), scale(most), ticks, bottom("state"));
    }
  }

  function drawMap() {
    const [c, box] = open("map", 40, 46), { left, top, width, height } = box, key = E.second(chosen.follow);
    const { rates: [a, b], memories: [low, high] } = E.axes(chosen.surface, chosen.follow);
    const toX = rate => left + width * (Math.log10(rate) - a) / (b - a);
    const toY = value => top + height * (1 - (E.memory(value) - low) / (high - low));
    caption("map", `${label(chosen.follow)}: steps needed`, key ? `α across, ${SLIDERS[key][0].slice(-2).trim()} up` : "α across");
    if (map?.of === `${chosen.surface} ${chosen.follow}`) {  // that of the last start stays until the next is there
      c.imageSmoothingEnabled = false;
      c.drawImage(map.picture, left, top, width, height);
    }
    const limits = [];
    for (let k = 0; k <= 60; k++) {
      const value = E.decay(low + (high - low) * k / 60);
      const limit = E.boundary(chosen.surface, chosen.follow, key ? { [key]: value } : {});
      if (limit) limits.push([toX(limit), key ? toY(value) : top + height * (1 - k / 60)]);
    }
    const bounded = limits.length && chosen.schedule === "constant";
    if (bounded) {
      clip(c, box);
      for (const [color, width] of [["#000", 4], ["#fff", 2]]) {
        line(c, color, [], width);
        for (const [x, y] of limits) c.lineTo(x, y);
        c.stroke();
      }
      c.restore();
    }
    const spot = preview ?? hyper[chosen.follow], x = clamp(toX(spot.lr), left, left + width);
    const y = key ? clamp(toY(spot[key]), top, top + height) : top + height / 2;
    for (const [color, width] of [["#000", 4], ["#fff", 2]]) { line(c, color, [], width); c.arc(x, y, 6, 0, 7); c.stroke(); }
    line(c, GREY, [], 1);
    c.strokeRect(left, top, width, height);
    c.fillStyle = ink;
    c.textAlign = "center";
    for (const [rate, text] of decades(a, b, 4)) c.fillText(text, clamp(toX(rate), left + 6, left + width - 6), top + height + 13);
    c.textAlign = "right";
    if (key) {
      for (const value of [0, 0.5, 0.9, 0.99, 0.999, 0.9999].filter(value => E.memory(value) <= high)) {
        c.fillText(String(value), left - 3, clamp(toY(value) + 4, top + 9, top + height));
      }
    }
    // The scale: colors are the logarithm of the steps.
    const long = text => c.measureText(text).width, y0 = top + height + 20;
    const wide = clamp(width - 40 - long("not reached") - long("diverges"), 30, 80), grey = left + wide + 8;
    for (let i = 0; i < wide; i++) { c.fillStyle = `rgb(${color(i / wide)})`; c.fillRect(left + i, y0, 1.5, 8); }
    c.fillStyle = "rgba(140,140,140,0.43)"; c.fillRect(grey, y0, 10, 8);
    c.fillStyle = ink;
    c.textAlign = "left";
    c.fillText("not reached", grey + 12, y0 + 8);
    const white = grey + 20 + long("not reached");
    c.strokeRect(white, y0, 10, 8); c.fillText("diverges", white + 12, y0 + 8);
    const [fewest, most] = [map?.fewest ?? 1, chosen.steps].map(String), end = left + Math.max(wide, long(fewest + most) + 8);
    c.fillText(fewest, left, y0 + 19);
    if (bounded) c.fillText("line: boundary by theory", Math.max(grey, end + 8), y0 + 20);
    c.textAlign = "right"; c.fillText(most, end, y0 + 19);
  }

  function drawTable() {
    const name = chosen.follow, path = paths[name], t = chosen.step, count = path.x.length - 1, { show } = E;
    const kinds = ["", "code", "number", "number"];
    const cells = (tag, texts) => make("tr", {}, ...texts.map((text, i) =>
      make(tag, { class: kinds[i], ...(tag === "th" ? { scope: "col" } : {}) }, i === 1 && tag === "td" ? make("code", {}, text) : text)));
    const rows = [];
    let title = `${label(name)}, step ${t}, α = ${t && t <= count ? show(path.rates[t - 1]) : ""}`;
    if (t === 0) {
      title = `${label(name)}, before the first step: x = ${show(path.x[0])}, y = ${show(path.y[0])}, f = ${show(path.losses[0])}`;
    } else if (t > count) {
      title = `${label(name)} ${path.end.replace(" at ", " at step ")}: there is no step ${t}`;
    } else {
      title += `: f from ${show(path.losses[t - 1])} to ${show(path.losses[t])}`;
      const g = `g = ∇f(${rule().ahead ? "θ − γ v" : "θ"})${chosen.noise ? " + noise" : ""}`;
      rows.push([g, "g = gradient(x, y)", `g = ${show(path.gx[t - 1])}`, `g = ${show(path.gy[t - 1])}`]);
      for (const { formula, code, numbers, results } of E.stepLines(name, preview ?? hyper[name], path, t)) {
        const symbol = formula.split("=")[0].trim();
        rows.push([formula, code, ...numbers.map((text, i) => `${symbol} = ${text} = ${show(results[i])}`)]);
      }
    }
    table.replaceChildren(make("table", {}, make("caption", {}, title),
      ...(rows.length ? [make("thead", {}, cells("th", ["formula", "code", "for x", "for y"]))] : []),
      make("tbody", {}, ...rows.map(row => cells("td", row)))));
  }

  function statusText() {
    const floor = E.lowest(chosen.surface), [x0, x1, y0, y1] = surface().window;
    const parts = Object.entries(paths).map(([name, path]) => {
      const out = path.x.findIndex((x, i) => !(x >= x0 && x <= x1 && path.y[i] >= y0 && path.y[i] <= y1));
      const steps = arrived(path, floor);
      if (path.end) return `${label(name)} ${path.end.replace(" at ", " at step ")}`;
      return `${label(name)} ${steps === null ? "not reached" : `${steps} steps`}${out >= 0 ? ` (outside from ${out})` : ""}`;
    });
    return `To a thousandth of the start's height: ${parts.join(" · ")}`;
  }

  function draw() {
    waiting = 0;
    const style = getComputedStyle(host), [r, g, b] = style.color.match(/[\d.]+/g).map(Number);
    if (ink !== style.color) {
      ink = style.color;
      font = `11px ${style.fontFamily}`;
      host.style.colorScheme = 0.3 * r + 0.6 * g + 0.1 * b > 127 ? "dark" : "light";
    }
    paths = {};
    for (const name in chosen.hyper) {
      paths[name] = E.run(chosen.surface, name, preview && name === chosen.follow ? preview : hyper[name], chosen);
    }
    if (panels.surface) drawSurface();
    drawPlots();
    if (panels.map) { askForMap(); drawMap(); }
    if (has("step")) drawTable();
    const text = statusText();
    if (status.textContent !== text) status.textContent = text;
    host.dispatchEvent(new CustomEvent("drawn"));
  }

  fit();
  el.append(host);
  const sizes = new ResizeObserver(update);
  for (const { canvas } of Object.values(panels)) sizes.observe(canvas.parentElement);
  const themes = new MutationObserver(update), scheme = matchMedia("(prefers-color-scheme: dark)");
  themes.observe(document.documentElement, { attributes: true });
  themes.observe(document.body, { attributes: true });
  scheme.addEventListener("change", update);
  update();
  return () => {
    worker?.terminate();
    sizes.disconnect();
    themes.disconnect();
    scheme.removeEventListener("change", update);
    host.remove();
  };
}

export default {
  render({ model, el }) {
    return mount(el, model.get("options"), {
      alt: model.get("alt"),
      changed: options => { model.set("options", options); model.save_changes(); },
    });
  },
};
