// The page of a FormulaFigure: choices, and panels of bars and curves as SVG. It computes and draws by itself and asks nobody.
//     mount(element, {alt})       on any page
//     export default {render}     as an anywidget

const { colors, GREY, BLUE, RED } = ABOUT.look, WIDE = ABOUT.panels.length > 1 ? 460 : 640, HIGH = 230;
const CSS = `
:host { display: block; max-width: 1000px; font: 13px/1.3 var(--jp-ui-font-family, system-ui, sans-serif);
  color: var(--jp-content-font-color1, var(--color-foreground-primary, CanvasText)); }
.row { display: flex; flex-wrap: wrap; gap: 4px 18px; align-items: center; }
label { display: inline-flex; align-items: center; gap: 6px; min-height: 26px; white-space: nowrap; }
select { font: inherit; color: inherit; min-height: 26px; border: 1px solid ${GREY}; border-radius: 4px;
  background: var(--jp-layout-color2, var(--color-background-secondary, Canvas)); }
input { width: 150px; accent-color: currentColor; } output { min-width: 6.5em; }
svg { flex: 1 1 320px; min-width: 0; max-width: ${WIDE}px; } text { fill: currentColor; font-size: 13px; }
`;
const escaped = text => text.replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const text = (x, y, words, more = "") => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escaped(words)}</text>`;
const line = (x1, y1, x2, y2, more = `stroke="${GREY}" stroke-opacity="0.4"`) => {
  const [a, b, c, d] = [x1, y1, x2, y2].map(at => at.toFixed(1));
  return `<line x1="${a}" y1="${b}" x2="${c}" y2="${d}" ${more}/>`;
};
const grouped = value => Number(value.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
// A number with its unit: "120 GB", "34 ms", "61 %".
export function amount(value, unit) {
  if (unit === "%") return `${value.toFixed(0)} %`;
  return unit === "s" && value < 1 ? `${grouped(1e3 * value)} ms` : `${grouped(value)} ${unit}`;
}
// For each bar its value and its parts, or each curve's points.
export function values(index, given) {
  const panel = ABOUT.panels[index], [value, ...parts] = FORMULAS[index];
  if (!("over" in panel)) return panel.names.map((_, i) => [value, ...parts].map(formula => formula(i, ...given)));
  const at = ABOUT.choices.findIndex(({ name }) => name === panel.over);
  return panel.names.map((_, i) => Object.values(ABOUT.choices[at].values).map(x => value(i, ...given.map((v, k) => (k === at ? x : v)))));
}

function bars(panel, rows) {
  const { names, ends: [low, high], unit, log, limits, rest } = panel, scale = log ? Math.log10 : v => v;
  const said = rows.map(([value, ...parts]) => (parts.length ? `${parts.map(s => amount(s, "s")).join(" + ")}: ` : "") + amount(value, unit));
  const left = 12 + 7 * Math.max(...names.map(name => name.length), 24), right = WIDE - 26, step = 160 / names.length;
  const at = value => left + (right - left) * (scale(Math.min(Math.max(value, low), high)) - scale(low)) / (scale(high) - scale(low));
  const ticks = log ? Array.from({ length: 6 }, (_, k) => 10 ** (2 * k - 3)).filter(v => v >= low && v <= high)
    : [0, 1, 2, 3, 4].map(k => low + (high - low) * k / 4);
  let drawn = ticks.map(v => line(at(v), 22, at(v), 182) + text(at(v), 197, grouped(v), 'text-anchor="middle"')).join("");
  rows.forEach(([value], i) => {
    const y = 26 + step * i, box = (from, to, color, more = "") =>
      `<rect x="${from.toFixed(1)}" y="${y.toFixed(1)}" width="${Math.max(to - from, 0).toFixed(1)}" height="${(step * 0.7).toFixed(1)}" fill="${color}"${more}/>`;
    const words = step < 30 ? [`${names[i]}: ${said[i]}`] : [names[i], said[i]], top = y + step * 0.35 + (step < 30 ? 4 : -2);
    drawn += words.map((word, k) => text(left - 6, top + 15 * k, word, 'text-anchor="end"')).join("");
    drawn += box(left, at(value), rest ? GREY : BLUE) + (rest ? box(at(value), right, colors[i], ' fill-opacity="0.5"') : "");
  });
  for (const [name, where] of Object.entries(limits)) {
    drawn += line(at(where), 16, at(where), 182, `stroke="${RED}" stroke-dasharray="5 3"`) + text(at(where), 12, name, 'text-anchor="middle"');
  }
  return [drawn + text((left + right) / 2, 216, panel.label, 'text-anchor="middle"'), names.map((name, i) => `${name}: ${said[i]}`)];
}

function curves(panel, rows, chosen) {
  const { names, ends: [low, high], over } = panel, { values } = ABOUT.choices.find(({ name }) => name === over);
  const words = Object.keys(values), xs = Object.values(values).map(Math.log10), left = 40, right = WIDE - 26, top = 22, bottom = 182;
  const toX = x => left + (right - left) * (x - xs[0]) / (xs.at(-1) - xs[0]), toY = y => bottom - (bottom - top) * (y - low) / (high - low);
  const here = words.indexOf(chosen[over]);
  let drawn = [0, 25, 50, 75, 100].map(y => line(left, toY(y), right, toY(y)) + text(left - 4, toY(y) + 4, String(y), 'text-anchor="end"')).join("");
  words.forEach((word, i) => { if (i % 3 === 0) drawn += text(toX(xs[i]), 197, word, 'text-anchor="middle"'); });
  drawn += line(toX(xs[here]), top, toX(xs[here]), bottom, 'stroke="currentColor"');
  rows.forEach((ys, i) => {
    const points = ys.map((y, k) => `${toX(xs[k]).toFixed(1)},${toY(y).toFixed(1)}`).join(" "), x = left + 110 * i;
    const look = `stroke="${colors[i]}" stroke-width="2" stroke-dasharray="${["", "6 3", "2 3"][i % 3]}"`;
    drawn += `<polyline points="${points}" fill="none" ${look}/>` + line(x, 8, x + 22, 8, look) + text(x + 27, 12, names[i]);
  });
  drawn += text((left + right) / 2, 216, `${over}; ${panel.label}`, 'text-anchor="middle"');
  return [drawn, names.map((name, i) => `${name}: ${amount(rows[i][here], "%")}`)];
}

export function mount(el, { alt = "" } = {}) {
  const chosen = Object.fromEntries(ABOUT.choices.map(({ name, start }) => [name, start]));
  const host = Object.assign(document.createElement("div"), { className: "hpml-formula" });
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", alt);
  host.setAttribute("data-lm-suppress-shortcuts", "true");
  const root = host.attachShadow({ mode: "open" });
  root.innerHTML = `<style>${CSS}</style><div class="row"></div><div class="row"></div>`;
  const [controls, panels] = root.querySelectorAll(".row");
  panels.innerHTML = ABOUT.panels.map(() => `<svg viewBox="0 0 ${WIDE} ${HIGH}" role="img"></svg>`).join("");
  for (const { name, values, start, slider } of ABOUT.choices) {
    const label = document.createElement("label"), words = Object.keys(values);
    const box = document.createElement(slider ? "input" : "select"), says = document.createElement("output");
    if (slider) Object.assign(box, { type: "range", min: 0, max: words.length - 1, value: words.indexOf(start) });
    else words.forEach(word => box.add(new Option(word, word, false, word === start)));
    const take = () => {
      chosen[name] = slider ? words[box.value] : box.value;
      says.value = chosen[name];
      if (slider) box.setAttribute("aria-valuetext", chosen[name]);
      draw();
    };
    box.setAttribute("aria-label", name);
    box.addEventListener("input", take);
    label.append(name, box, ...(slider ? [says] : []));
    says.value = start;
    controls.append(label);
  }
  function draw() {
    const given = ABOUT.choices.map(({ name, values }) => values[chosen[name]]);
    ABOUT.panels.forEach((panel, i) => {
      const rows = values(i, given), svg = panels.children[i];
      const [drawn, said] = "over" in panel ? curves(panel, rows, chosen) : bars(panel, rows);
      svg.innerHTML = drawn;
      svg.setAttribute("aria-label", `${panel.label}. ${said.join("; ")}`);
    });
  }
  draw();
  el.append(host);
  return () => host.remove();
}

export default { render: ({ model, el }) => mount(el, { alt: model.get("alt") }) };
