// What the lab's engine computes for the cases of a file, as JSON: node compare.mjs engine.mjs cases.json
import { readFileSync } from "node:fs";

const { engine } = await import(process.argv[2]);
const E = engine(), { cases, noises, maps, boundaries } = JSON.parse(readFileSync(process.argv[3], "utf8"));
// JSON has no nan and no infinity.
const plain = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);
const paths = cases.map(({ surface, optimizer, hyper, lines, ...chosen }) => {
  const path = E.run(surface, optimizer, hyper, chosen);
  const steps = Array.from({ length: Math.min(lines, path.rates.length) }, (_, t) => E.stepLines(optimizer, hyper, path, t + 1));
  return { x: path.x, y: path.y, losses: path.losses, rates: path.rates, end: path.end, steps };
});
process.stdout.write(JSON.stringify({
  paths,
  rules: Object.keys(E.RULES),
  noises: noises.map(([step, seed]) => E.unit_noise(step, seed)),
  maps: maps.map(({ columns, rows, row, ...asked }) => ({
    cells: [...E.mapRow(asked, columns, rows, row)],
    settings: Array.from({ length: columns }, (_, column) => E.setting(asked.surface, asked.name, asked.hyper, (column + 0.5) / columns, (row + 0.5) / rows)),
  })),
  boundaries: boundaries.map(([surface, optimizer, hyper]) => E.boundary(surface, optimizer, hyper)),
}, plain));
