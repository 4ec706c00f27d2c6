// Paths, steps and maps. This function runs on the page, and its text in the page's worker; Python fills in the rules.
export function engine() {
// The lowest 32 bits of a product.
const times32 = (a, b) => Math.imul(a, b) >>> 0;
// A division by 0 ends a path, as it does in Python.
let dividedByZero = false;
const divide = (a, b) => { if (b === 0) dividedByZero = true; return a / b; };
// The norm of both parameters of a layer, and the ratio of two norms: 1 where one of them is 0.
const norm = (a, b) => Math.sqrt(a * a + b * b);
const ratio = (a, b) => (a > 0 && b > 0 ? a / b : 1);
const above = (a, b, then, otherwise) => (a > b ? then : otherwise);
// a ** b, kept by step: neighboring cells of a map raise the same numbers to the same powers.
const power = (slot, t, a, b) => {
  const at = slot * LONGEST + t;
  if (BASES[at] !== a || EXPONENTS[at] !== b) { BASES[at] = a; EXPONENTS[at] = b; RESULTS[at] = Math.pow(a, b); }
  return RESULTS[at];
};
/* translated from Python */
const [BASES, EXPONENTS, RESULTS] = [0, 0, 0].map(() => new Float64Array(POWERS * LONGEST).fill(NaN));
const kept = new Map();
// The numbers 1 to `count` mapped, and remembered under a key.
const remembered = (key, count, make) => {
  if (!kept.has(key)) {
    if (kept.size > 50) kept.clear();
    kept.set(key, Array.from({ length: count }, (_, i) => make(i + 1)));
  }
  return kept.get(key);
};

// Descend with one rule, and call each(t, x, y, loss, gx, gy, rate, sx, sy) after each step; returns why it ended early, or "".
function descend(surface, name, hyper, { start, noise, schedule, steps, seed }, each) {
  const f = SURFACES[surface], rule = RULES[name], h = { ...hyper }, sx = { ...rule.state }, sy = { ...rule.state };
  const { step, layerwise } = rule;
  const factors = remembered(`${schedule} ${steps}`, steps, t => SCHEDULES[schedule](t - 1, steps));
  const noises = noise ? remembered(`noise ${seed} ${steps}`, steps, t => unit_noise(t, seed)) : null;
  let [x, y] = start;
  for (let t = 1; t <= steps; t++) {
    h.lr = hyper.lr * factors[t - 1];
    dividedByZero = false;
    let [gx, gy] = rule.ahead ? f.gradient(x - h.momentum * sx.v, y - h.momentum * sy.v) : f.gradient(x, y);
    if (noises) { gx = gx + noise * noises[t - 1][0]; gy = gy + noise * noises[t - 1][1]; }
    if (layerwise) {
      [x, y] = step([x, y], [gx, gy], [sx, sy], t, h);
    } else {
      x = step(x, gx, sx, t, h);
      y = step(y, gy, sy, t, h);
    }
    const loss = f.value(x, y);
    if (dividedByZero) return `divides by 0 at ${t}`;
    if (!(Math.abs(loss) < DIVERGED)) return `diverges at ${t}`;
    each(t, x, y, loss, gx, gy, h.lr, sx, sy);
  }
  return "";
}

// One path with all that its steps read and write: entry 0 of x, y, losses and states is the start.
function run(surface, name, hyper, chosen) {
  const [x, y] = chosen.start, state = RULES[name].state;
  const path = { x: [x], y: [y], losses: [SURFACES[surface].value(x, y)], gx: [], gy: [], rates: [], states: [{}, {}], end: "" };
  const pushed = Object.keys(state).map(key => {
    const lists = path.states.map(of => (of[key] = [state[key]]));
    return (sx, sy) => { lists[0].push(sx[key]); lists[1].push(sy[key]); };
  });
  path.end = descend(surface, name, hyper, chosen, (t, x, y, loss, gx, gy, rate, sx, sy) => {
    path.x.push(x); path.y.push(y); path.losses.push(loss); path.gx.push(gx); path.gy.push(gy); path.rates.push(rate);
    for (const push of pushed) push(sx, sy);
  });
  return path;
}

const lowest = surface => Math.min(...SURFACES[surface].minima.map(([x, y]) => SURFACES[surface].value(x, y)));

// The steps until the height over the minimum stays below a thousandth of the start's; 0: it does not; -1: the path diverges.
function arrival(surface, name, hyper, chosen) {
  const floor = lowest(surface), low = floor + 1e-3 * (SURFACES[surface].value(...chosen.start) - floor);
  let above = 0;
  const end = descend(surface, name, hyper, chosen, (t, x, y, loss) => { if (loss > low) above = t; });
  return end ? -1 : above < chosen.steps ? above + 1 : 0;
}

// The second hyperparameter of a rule's map, or null.
const second = name => RULES[name].second;
// Decay rates on a scale of memory: 0 at 0, 1 at 0.9, 2 at 0.99, and so on.
const decay = u => 1 - 10 ** -u;
const memory = value => -Math.log10(1 - value);
// The axes of a rule's map: powers of 10 of the rate, and memory.
function axes(surface, name) {
  const middle = Math.log10(SURFACES[surface].rates[name]), [low, high] = RATE_REACH;
  return { rates: [middle + low, middle + high], memories: [0, MEMORY_REACH[second(name)] ?? 2.5] };
}
// The hyperparameters at a point of the map, both from 0 to 1.
function setting(surface, name, hyper, across, up) {
  const { rates: [a, b], memories: [c, d] } = axes(surface, name), key = second(name);
  return { ...hyper, lr: 10 ** (a + (b - a) * across), ...(key ? { [key]: decay(c + (d - c) * up) } : {}) };
}
// Row `row` of `rows` of a map, from below: `arrival` for each of `columns` rates.
function mapRow({ surface, name, hyper, chosen }, columns, rows, row) {
  return Int16Array.from({ length: columns }, (_, column) =>
    arrival(surface, name, setting(surface, name, hyper, (column + 0.5) / columns, (row + 0.5) / rows), chosen));
}
// The largest stable rate by theory, where the surface is quadratic and the rule plain; else null.
function boundary(surface, name, hyper) {
  const { eigenvalues } = SURFACES[surface], { kind } = RULES[name];
  if (!eigenvalues || !kind) return null;
  return largest_stable_rate(kind === "nesterov" ? kind : "momentum", hyper.momentum ?? 0, Math.max(...eigenvalues));
}

// ---- one step, line by line -------------------------------------------------------------------------------------------
const OPERATORS = {
  "+": [1, " + ", (a, b) => a + b], "-": [1, " − ", (a, b) => a - b], "*": [2, "·", (a, b) => a * b],
  "/": [2, " / ", (a, b) => a / b], "**": [4, "^", (a, b) => Math.pow(a, b)],
};
const CALLS = { sqrt: Math.sqrt, largest: Math.max, abs: Math.abs, ratio, above };
// The branch that is taken in ["if", a, b, then, otherwise]: `then` where a is b.
const branch = ([, a, b, then, otherwise], at) => (value(a, at) === value(b, at) ? then : otherwise);
function value(node, at) {
  if (!Array.isArray(node)) return typeof node === "number" ? node : at[node];
  if (node[0] === "if") return value(branch(node, at), at);
  if (node[0] === "norm") return norm(...at.layer.map(one => value(node[1], one)));
  const [name, ...rest] = node, numbers = rest.map(other => value(other, at));
  return (OPERATORS[name]?.[2] ?? CALLS[name])(...numbers);
}
// A number with four digits and a true minus sign.
const show = number => String(Number(number.toPrecision(4)) + 0).replaceAll("-", "−");
// An expression with numbers for names, in brackets where the operator around it binds closer. A negative number is bracketed
// unless it comes first.
function written(node, at, precedence = 0, first = true) {
  if (!Array.isArray(node)) {
    const text = show(value(node, at));
    return text.startsWith("−") && !first ? `(${text})` : text;
  }
  const [name, left, right] = node;
  if (name === "if") return written(branch(node, at), at, precedence, first);
  if (name === "above") return written(value(left, at) > value(right, at) ? node[3] : node[4], at, precedence, first);
  if (name === "norm") return `‖(${at.layer.map(one => written(left, one)).join(", ")})‖`;
  if (name === "ratio") return value(left, at) > 0 && value(right, at) > 0 ? written(["/", left, right], at, precedence, first) : "1";
  if (name === "sqrt") return Array.isArray(left) ? `√(${written(left, at)})` : `√${written(left, at, 0, false)}`;
  if (name === "abs") return `|${written(left, at)}|`;
  if (name === "largest") return `max(${written(left, at)}, ${written(right, at)})`;
  const [own, sign] = OPERATORS[name], bracketed = own < precedence, raised = name === "**";
  const a = written(left, at, own + raised, (first || bracketed) && !raised);
  const text = a + sign + written(right, at, own + (name === "-" || name === "/" || raised), false);
  return bracketed ? `(${text})` : text;
}
// The lines of step t of a path, from 1: for x and for y the numbers inserted, and the result. The last gives the next point.
function stepLines(name, hyper, path, t) {
  const known = { ...hyper, lr: path.rates[t - 1], t };
  const scopes = [["x", "gx", 0], ["y", "gy", 1]].map(([theta, g, i]) => {
    const at = { ...known, theta: path[theta][t - 1], g: path[g][t - 1] };
    for (const key in path.states[i]) at[`s.${key}`] = path.states[i][key][t - 1];
    return at;
  });
  for (const at of scopes) at.layer = scopes;
  return RULES[name].lines.map(({ formula, code, to, value: node }) => {
    const numbers = scopes.map(at => written(node, at));
    return { formula, code, numbers, results: scopes.map(at => (at[to] = value(node, at))) };
  });
}
return { RULES, SURFACES, SCHEDULES, run, arrival, second, decay, memory, axes, setting, mapRow, boundary, stepLines, show, lowest,
         unit_noise };
}
