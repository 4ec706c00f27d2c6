// An empty corner of a table is no heading.
for (const cell of document.querySelectorAll("th")) if (!cell.textContent.trim()) cell.replaceWith(document.createElement("td"));

// On a phone a row of a wide table is a list, each cell after its heading: its last columns say what it gained, or what is asked.
for (const table of document.querySelectorAll("table.docutils")) {
  const names = [...table.tHead?.rows[0]?.cells ?? []].map(cell => cell.textContent.trim());
  if (names.length < 5) continue;
  table.classList.add("wide");
  for (const row of table.tBodies[0].rows)
    [...row.cells].forEach((cell, column) => { if (!["", "–"].includes(cell.textContent.trim())) cell.dataset.name = names[column]; });
}

// What scrolls can be reached by the keyboard, and each of the theme's side bars has a name.
for (const part of document.querySelectorAll("pre, div.math, .output.text_html, .table-wrapper"))
  if (part.tagName === "PRE" || part.scrollWidth > part.clientWidth) part.tabIndex = 0;
document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");

// A stepper: a slider over the stored pictures.
for (const place of document.querySelectorAll("[data-frames]")) {
  const { control, words, pictures } = JSON.parse(place.dataset.frames);
  const frames = pictures.map(png => `data:image/png;base64,${png}`);
  const picture = place.querySelector("img"), shown = Math.max(0, frames.indexOf(picture.src));
  const label = document.createElement("label"), says = document.createElement("output");
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: frames.length - 1, value: shown });
  slider.oninput = () => { picture.src = frames[slider.value]; says.value = words[slider.value]; };
  label.append(`${control} `, slider, says);
  place.prepend(label);
  slider.oninput();
}

// The optimizer lab and the sliders over formulas: what draws them in a notebook draws them here. Without it the picture stays.
for (const place of document.querySelectorAll("[data-optimizer-lab], [data-formula]")) {
  const picture = place.querySelector("img"), { optimizerLab, formula } = place.dataset, about = { alt: picture.alt };
  import(`./${formula ? JSON.parse(formula) : "lab"}.mjs`).then(({ mount }) => {
    if (formula) mount(place, about); else mount(place, JSON.parse(optimizerLab), about);
    picture.remove();
  }, () => {});
}

// A moving picture can be stopped, and stands from the start for who asked for less motion.
for (const picture of document.querySelectorAll('img[src$=".webp"]')) {
  const still = document.createElement("canvas"), button = document.createElement("button");
  still.setAttribute("role", "img");
  still.setAttribute("aria-label", picture.alt);
  still.style.maxWidth = "100%";
  const show = moves => {
    if (!moves) {
      [still.width, still.height] = [picture.naturalWidth, picture.naturalHeight];
      still.getContext("2d").drawImage(picture, 0, 0);
    }
    (still.isConnected ? still : picture).replaceWith(moves ? picture : still);
    button.textContent = moves ? "Stop" : "Play";
  };
  button.className = "play";
  button.onclick = () => show(still.isConnected);
  picture.after(button);
  picture.decode().then(() => show(!matchMedia("(prefers-reduced-motion: reduce)").matches), () => button.remove());
}
