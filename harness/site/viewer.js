// The survivor viewer. The data says after which pass each head let go of each token (-1: never), so every moment of
// every run is a comparison. Moments are numbers of tokens fed, since runs may be fed in different blocks.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const slider = document.getElementById("moment");
const layerChoice = document.getElementById("layer");
const LEVELS = 5;

const moments = [...new Set(data.runs.flatMap((run) => run.stops))].sort((a, b) => a - b);
const layers = Math.max(...data.runs.map((run) => run.layers));
for (let layer = 0; layer < layers; layer++) layerChoice.add(new Option(`layer ${layer}`, layer));
slider.max = moments.length - 1;
slider.value = Math.max(0, moments.findIndex((fed) => fed >= data.promptTokens)); // the end of the prompt

const panes = [...document.querySelectorAll(".pane")].map((element) => {
  const run = data.runs[element.dataset.run];
  const find = (name) => element.querySelector(`[data-${name}]`);
  const spans = data.pieces.map((piece, place) => {
    const span = document.createElement("span");
    span.className = "t";
    span.textContent = piece;
    span.dataset.place = place;
    return span;
  });
  for (const [name, places] of [["answer-place", data.answers], ["needle", data.needles]]) {
    for (const [from, to] of places) for (let at = from; at < to; at++) spans[at].classList.add(name);
  }
  find("tokens").append(...spans);
  const fedIn = new Int32Array(data.pieces.length);
  run.stops.forEach((stop, pass) => fedIn.fill(pass, pass ? run.stops[pass - 1] : 0, stop));
  return {
    element, run, spans, fedIn,
    leftAt: run.leftAt.map((head) => Int32Array.from(head)),
    text: find("tokens"), state: find("state"), strip: find("strip"), token: find("token"),
    levels: new Array(spans.length).fill(null),
  };
});
let chosen = null; // the token that is looked at, in all panes

const heads = (run) => {
  const layer = layerChoice.value;
  if (layer === "") return run.leftAt.map((_, head) => head);
  return Array.from({ length: run.heads }, (_, head) => Number(layer) * run.heads + head).filter(
    (head) => head < run.leftAt.length,
  );
};

// The last pass of a run that has ended when so many tokens are fed; -1 before the first.
const passAt = (run, fed) => run.stops.filter((stop) => stop <= fed).length - 1;

const holds = (pane, head, place, pass) => {
  const left = pane.leftAt[head][place];
  return pane.fedIn[place] <= pass && (left < 0 || left > pass);
};

const passName = (run, pass) => {
  if (pass < 0) return "nothing read yet";
  if (pass >= run.promptPasses) {
    return `after decode step ${pass - run.promptPasses + 1} of ${run.stops.length - run.promptPasses}`;
  }
  return run.promptPasses === 1 ? "after the prompt" : `after prompt block ${pass + 1} of ${run.promptPasses}`;
};

const drawPane = (pane, fed) => {
  const { run, spans } = pane;
  const pass = passAt(run, fed);
  const looked = heads(run);
  const read = pass < 0 ? 0 : run.stops[pass];
  const shares = new Float32Array(spans.length);
  let slots = 0;
  let held = 0;
  spans.forEach((span, place) => {
    let count = 0;
    for (const head of looked) count += holds(pane, head, place, pass);
    slots += count;
    held += count > 0;
    shares[place] = count / looked.length;
    let level = "unread";
    if (place < read) level = count ? String(Math.ceil((count / looked.length) * LEVELS)) : "gone";
    const fresh = pane.fedIn[place] === pass && place < read;
    const shown = `${level} ${fresh}`;
    if (pane.levels[place] !== shown) {
      pane.levels[place] = shown;
      span.dataset.level = level;
      span.classList.toggle("fresh", fresh);
    }
  });
  const mean = slots / looked.length;
  pane.state.textContent =
    pass < 0
      ? "Nothing read yet."
      : `${capital(passName(run, pass))}: ${held} of ${read} tokens held by some head, ` +
        `${mean.toFixed(Number.isInteger(mean) ? 0 : 1)} slots per head.`;
  drawStrip(pane, shares, read);
  drawToken(pane, pass);
};

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const drawStrip = (pane, shares, read) => {
  const width = Math.min(shares.length, 1024);
  const { strip } = pane;
  strip.width = width;
  const context = strip.getContext("2d");
  context.fillStyle = getComputedStyle(pane.element.querySelector(".dot")).backgroundColor;
  for (let x = 0; x < width; x++) {
    const [from, to] = [x, x + 1].map((edge) => Math.floor((edge * shares.length) / width));
    if (from >= read) break;
    context.globalAlpha = Math.max(...shares.subarray(from, Math.max(to, from + 1)));
    context.fillRect(x, 0, 1, 1);
  }
};

// The sentence with the accepted answer, as a mark above each strip.
for (const pane of panes) {
  for (const [from, to] of data.needles) {
    const mark = document.createElement("i");
    mark.style.left = `${(100 * from) / pane.spans.length}%`;
    mark.style.width = `${(100 * (to - from)) / pane.spans.length}%`;
    pane.element.querySelector("[data-marks]").append(mark);
  }
}

const drawToken = (pane, pass) => {
  if (chosen === null) return;
  const { run, spans, token } = pane;
  const kept = run.leftAt.map((_, head) => holds(pane, head, chosen, pass));
  const count = kept.filter(Boolean).length;
  const last = Math.max(...pane.leftAt.map((head) => (head[chosen] < 0 ? Infinity : head[chosen])));
  const read = pane.fedIn[chosen] <= pass;
  const fate = last === Infinity ? "Some head holds it to the end." : `Gone from all ${passName(run, last)}.`;
  const words = document.createElement("p");
  words.textContent =
    `“${spans[chosen].textContent.trim() || "⏎"}”, token ${chosen + 1}: ` +
    (read ? `held by ${count} of ${kept.length} heads. ${fate}` : "not read yet.");
  const grid = document.createElement("div");
  grid.className = "grid";
  grid.setAttribute("aria-hidden", "true");
  grid.style.setProperty("--layers", run.layers);
  grid.title = "one column per layer, one square per KV head";
  for (let head = 0; head < run.heads; head++) {
    for (let layer = 0; layer < run.layers; layer++) {
      const square = document.createElement("i");
      square.classList.toggle("held", kept[layer * run.heads + head]);
      grid.append(square);
    }
  }
  token.replaceChildren(words, grid);
};

const draw = () => {
  const fed = moments[slider.value];
  const prompt = Math.min(fed, data.promptTokens);
  const behind = fed - prompt;
  const text = `${prompt} of ${data.promptTokens} prompt tokens read` + (behind ? `, ${behind} of the answer fed` : "");
  document.getElementById("moment-text").value = text;
  slider.setAttribute("aria-valuetext", text);
  for (const pane of panes) if (!pane.element.hidden) drawPane(pane, fed);
};

const choosePanes = () => {
  for (const box of document.querySelectorAll("input[name=run]")) {
    document.querySelector(`.pane[data-run="${box.value}"]`).hidden = !box.checked;
  }
  draw();
};

const look = (place) => {
  if (place === chosen || place < 0 || place >= data.pieces.length) return;
  for (const pane of panes) {
    if (chosen !== null) pane.spans[chosen].classList.remove("looked");
    pane.spans[place].classList.add("looked");
  }
  chosen = place;
  const fed = moments[slider.value];
  for (const pane of panes) if (!pane.element.hidden) drawToken(pane, passAt(pane.run, fed));
};

for (const pane of panes) {
  pane.text.addEventListener("click", (event) => {
    if (event.target.dataset.place) look(Number(event.target.dataset.place));
  });
  pane.text.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    look(chosen === null ? 0 : chosen + step);
    const [box, span] = [pane.text.getBoundingClientRect(), pane.spans[chosen].getBoundingClientRect()];
    if (span.top < box.top || span.bottom > box.bottom) pane.text.scrollTop += span.top - box.top - box.height / 2;
  });
  // The panes show the same text: they scroll together.
  pane.text.addEventListener("scroll", () => {
    for (const other of panes) {
      if (other !== pane && Math.abs(other.text.scrollTop - pane.text.scrollTop) > 1) {
        other.text.scrollTop = pane.text.scrollTop;
      }
    }
  });
  pane.strip.addEventListener("click", (event) => {
    const share = event.offsetX / pane.strip.clientWidth;
    const span = pane.spans[Math.min(pane.spans.length - 1, Math.floor(share * pane.spans.length))];
    pane.text.scrollTop = span.offsetTop - pane.text.clientHeight / 2;
    look(Number(span.dataset.place));
  });
}
document.getElementById("to-answer")?.addEventListener("click", () => {
  const [first] = data.answers[0];
  for (const { text, spans } of panes) text.scrollTop = spans[first].offsetTop - text.clientHeight / 2;
  look(first);
});
slider.addEventListener("input", draw);
slider.addEventListener("keydown", (event) => {
  const step = { PageUp: 10, PageDown: -10 }[event.key];
  if (!step) return;
  event.preventDefault();
  slider.value = Number(slider.value) + step;
  draw();
});
layerChoice.addEventListener("change", draw);
document.querySelector(".choices").addEventListener("change", choosePanes);
document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
choosePanes();
