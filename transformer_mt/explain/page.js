"use strict";
// Text of the user and of the vocabulary is inserted through textContent only.

const facts = JSON.parse(document.getElementById("facts").textContent);
const get = (id) => document.getElementById(id);
const MASKED = 0, MIN_CELL = 6, MAX_CELL = 26, LABELLED_CELL = 13, LABEL = 110, NARROW = 640, LINE = 26, GAP = 34, ROW = 30;
const NAMES = { encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention" };
const TEXTS = {
  encoder: "Each source piece attends to all of the source.",
  decoder: "Masked self-attention: each piece of the translation attends to itself and to those before it; the first row is the start symbol, from which the first piece is predicted.",
  cross: "Each row is a piece of the translation when it is predicted; the columns are the source pieces that the decoder attends to for it.",
};
const SCHEMES = {
  sinusoidal: "Attention alone ignores the order of the pieces. Therefore sines and cosines of the position, in many wavelengths, are added to each embedding.",
  learned: "Attention alone ignores the order of the pieces. Therefore a learned vector for each position is added to each embedding.",
  rotary: "Attention alone ignores the order of the pieces. Here queries and keys are rotated by angles that grow with the position.",
  relative: "Attention alone ignores the order of the pieces. Here a learned vector for each relative distance enters every attention score.",
  relative_bias: "Attention alone ignores the order of the pieces. Here a learned bias for each relative distance is added to every attention score.",
  alibi: "Attention alone ignores the order of the pieces. Here every attention score is lowered in proportion to the distance.",
  none: "This model has no positional encoding.",
};

let part, matrices, picture = null, active;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function svg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const percent = (p) => (p >= 0.1 ? (100 * p).toFixed(0) : p >= 0.001 ? (100 * p).toFixed(1) : "< 0.1") + " %";
const signed = (x) => (x < 0 ? "\u2212" : "") + Math.abs(x).toFixed(2);

// Pieces ---------------------------------------------------------------------------------------

const JOINED = /\p{Script=Arabic}|\p{Script=Syriac}|\p{Script=Mongolian}|\p{Script=Nko}/u;

/** Put a mark that combines with what is before it on a circle. */
const alone = (text) => (/^\p{M}/u.test(text) ? "\u25cc" + text : text);

/** Show one piece so that it stands alone: a mark on a circle, joined letters in their joined form. */
function shown(pieces, id, before = "", after = "") {
  const [piece, kind] = pieces[id];
  if (kind === "byte") return { text: piece.slice(3, 5), kind };
  if (kind === "special") return { text: { "<s>": "start", "</s>": "end" }[piece] ?? piece, kind };
  let text = alone(piece);
  const first = [...piece][0] ?? "", last = [...piece].at(-1) ?? "";
  if (JOINED.test(first) && JOINED.test(before)) text = "\u200d" + text;
  if (JOINED.test(last) && JOINED.test(after)) text += "\u200d";
  return { text, kind };
}

function shownAll(pieces, ids) {
  const edge = (id, at) => (id === undefined || pieces[id][1] !== "text" ? "" : ([...pieces[id][0]].at(at) ?? ""));
  return ids.map((id, i) => shown(pieces, id, edge(ids[i - 1], -1), edge(ids[i + 1], 0)));
}

function drawPieces(place, pieces, ids, lang) {
  place.replaceChildren();
  place.lang = lang;
  const labels = shownAll(pieces, ids);
  const chip = (i) => make("span", { class: "piece " + labels[i].kind, title: `number ${ids[i]} of the vocabulary` }, labels[i].text, make("small", {}, String(i)));
  for (let i = 0; i < ids.length; ) {
    if (labels[i].kind !== "byte") { place.append(chip(i++)); continue; }
    const byteAt = (at) => (labels[at]?.kind === "byte" ? parseInt(labels[at].text, 16) : 0);
    const bytes = [byteAt(i)], chips = [chip(i++)];
    for (; byteAt(i) >> 6 === 0b10; i++) { bytes.push(byteAt(i)); chips.push(chip(i)); }
    const text = new TextDecoder().decode(new Uint8Array(bytes));
    place.append(make("span", { class: "spelled", title: "bytes, and the character that they spell" }, ...chips, "= ", make("bdi", {}, alone(text))));
  }
}

function drawPositions() {
  const scheme = facts.model.positions?.type;
  get("positions").textContent = SCHEMES[scheme] ?? (scheme ? `Positions: ${scheme}.` : "A recurrent model needs no positional encoding: it reads one piece after another.");
  get("sinusoids").hidden = scheme !== "sinusoidal";
  if (scheme !== "sinusoidal") return;
  const length = Math.max(part.source.length, part.target.length), size = facts.model.d_model;
  const [zero, plus, minus] = ["--zero", "--full", "--negative"].map(colour);
  const canvas = make("canvas", { role: "img", "aria-label": "Sinusoids of each position" }), cell = cellSize(length, get("positions").clientWidth);
  const side = make("div", { class: "side" }, make("span", {}, "dimension 0"), make("span", {}, String(size - 1)));
  get("waves").replaceChildren(labelsOfAxis(Array.from({ length }, (_, i) => ({ text: String(i), kind: "" })), "top", "width", cell), side, framed(canvas, length, 1, cell, ""));
  paint(canvas, length, size, (row, column) => {
    const angle = column * Math.pow(10000, (-2 * (row % (size / 2))) / size);
    const value = row < size / 2 ? Math.sin(angle) : Math.cos(angle);
    return mix(zero, value > 0 ? plus : minus, Math.abs(value));
  });
}

// Colours --------------------------------------------------------------------------------------

function colour(name) {
  const probe = get("theme"), old = probe.style.color;
  probe.style.color = `var(${name})`;
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.style.color = old;
  return numbers;
}

const mix = (from, to, share) => from.map((x, i) => x + (to[i] - x) * share);

/** Fill a canvas with one pixel for each cell. */
function paint(canvas, columns, rows, colourOf) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let row = 0, i = 0; row < rows; row++)
    for (let column = 0; column < columns; column++, i += 4) image.data.set([...colourOf(row, column), 255], i);
  context.putImageData(image, 0, 0);
}

// Attention ------------------------------------------------------------------------------------

async function unpacked(packed) {
  if (packed === null) return null;
  const bytes = Uint8Array.from(atob(packed.zlib), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const levels = new Uint8Array(await new Response(stream).arrayBuffer());
  const [layers, heads, rows, columns] = packed.shape;
  return { layers, heads, rows, columns, levels };
}

/** Roots of the weights of one head as bytes; head -1 is the mean of all. */
function headOf(matrix, layer, head) {
  const size = matrix.rows * matrix.columns, start = layer * matrix.heads * size;
  if (head >= 0) return matrix.levels.subarray(start + head * size, start + (head + 1) * size);
  const sums = new Float32Array(size);
  for (let i = 0; i < matrix.heads * size; i++) sums[i % size] += matrix.levels[start + i] ** 2;
  return Uint8Array.from(sums, (sum) => Math.max(Math.round(Math.sqrt(sum / matrix.heads)), sum > 0 ? 1 : 0));
}

function paintHead(canvas, matrix, levels) {
  const [hidden, zero, full] = ["--hidden", "--zero", "--full"].map(colour);
  const shades = Array.from({ length: 256 }, (_, level) => (level === MASKED ? hidden : mix(zero, full, level / 255)));
  paint(canvas, matrix.columns, matrix.rows, (row, column) => shades[levels[row * matrix.columns + column]]);
}

function drawMasks() {
  get("mask-list").replaceChildren();
  const [hidden, full] = ["--hidden", "--full"].map(colour);
  for (const [kind, matrix] of Object.entries(matrices)) {
    const different = new Map();
    for (let head = 0; head < matrix.heads; head++) {
      const seen = Array.from(headOf(matrix, 0, head), (level) => (level === MASKED ? 0 : 1));
      const key = seen.join("");
      different.set(key, { seen, heads: [...(different.get(key)?.heads ?? []), head + 1] });
    }
    for (const { seen, heads } of different.values()) {
      const canvas = make("canvas", { role: "img", "aria-label": "mask" }), [rows, columns] = labelsOf(kind);
      const cell = cellSize(Math.max(rows.length, columns.length), Math.min(440, get("mask-list").clientWidth));
      paint(canvas, matrix.columns, matrix.rows, (row, column) => (seen[row * matrix.columns + column] ? full : hidden));
      const note = seen.includes(0) ? "" : ": nothing is masked";
      const some = different.size > 1 ? `, heads ${heads.join(", ")}` : "";
      get("mask-list").append(make("figure", { class: "mask" }, make("div", { class: "scroll" }, make("div", { class: "heat" }, ...grid(canvas, rows, columns, cell))), make("figcaption", {}, NAMES[kind] + some + note)));
    }
  }
}

// Pictures -------------------------------------------------------------------------------------

/** Draw the source, its patches shaded by `share`, from 0 to 1. */
function inked(share) {
  const canvas = make("canvas", { role: "img", "aria-label": "source" }), { heads: patches, rows: height, columns: width, levels } = picture;
  const [zero, full, ink] = ["--zero", "--full", "--text"].map(colour);
  paint(canvas, patches * width, height, (row, column) => {
    const patch = Math.floor(column / width);
    return mix(mix(zero, full, share(patch)), ink, levels[(patch * height + row) * width + (column % width)] / 255);
  });
  return canvas;
}

function drawPicture() {
  get("source-picture").hidden = picture === null;
  if (picture === null) return;
  get("patches").textContent = `A picture, cut into ${picture.heads} patches of ${picture.columns} x ${picture.rows} pixels. Each is one vector of the encoder; below, what is written in a patch stands at the one in which it begins.`;
  get("ink").replaceChildren(inked((patch) => (patch % 2) / 8));
}

/** Lay the attention to the source over it, once for each piece of the translation. */
function drawOver(matrix, levels, rows) {
  get("over-picture").hidden = picture === null || active.kind !== "cross";
  if (get("over-picture").hidden) return;
  get("over").replaceChildren(...rows.flatMap((label, row) => [
    make("span", { dir: "auto" }, label.text), inked((patch) => levels[row * matrix.columns + patch] / 255),
  ]));
}

// Grids of cells -------------------------------------------------------------------------------

/** Pixels of a cell, so that so many of them and their labels fit into a width. */
const cellSize = (count, width) => Math.max(MIN_CELL, Math.min(MAX_CELL, Math.floor((width - LABEL) / count)));

function labelsOfAxis(labels, className, size, cell) {
  return make("div", { class: className, "aria-hidden": "true" }, ...(cell < LABELLED_CELL ? [] : labels.map((label) =>
    make("span", { class: label.kind, dir: "auto", style: { [size]: `${cell}px`, "line-height": `${cell}px`, "font-size": `${Math.min(14, cell - 2)}px` } }, label.text))));
}

/** Put lines between the cells of a canvas that are wide enough for them. */
function framed(canvas, columns, rows, cell, height = `${cell * rows}px`) {
  const isWide = cell >= LABELLED_CELL;
  for (const [name, value] of [["width", `${cell * columns}px`], ["height", height]]) canvas.style.setProperty(name, value);
  return make("div", { class: "cells", style: { "--across": isWide ? `${cell}px` : "200%", "--down": isWide && rows > 1 ? `${cell}px` : "200%" } }, canvas);
}

/** A canvas with its labels along the top and the side. */
function grid(canvas, rows, columns, cell) {
  return [labelsOfAxis(columns, "top", "width", cell), labelsOfAxis(rows, "side", "height", cell), framed(canvas, columns.length, rows.length, cell)];
}

/** Labels of the rows and of the columns of a kind of attention. */
function labelsOf(kind) {
  const source = shownAll(part.src_pieces, part.source);
  const read = [{ text: "start", kind: "special" }, ...shownAll(part.tgt_pieces, part.target).slice(0, -1)];
  if (kind === "encoder") return [source, source];
  return kind === "decoder" ? [read, read] : [shownAll(part.tgt_pieces, part.target), source];
}

function drawKinds() {
  const kinds = Object.keys(matrices);
  get("attention").hidden = kinds.length === 0;
  get("no-attention").hidden = kinds.length > 0;
  get("masks").hidden = !matrices.encoder && !matrices.decoder;
  if (!kinds.length) return;
  if (!active || !matrices[active.kind]) {
    const kind = matrices.cross ? "cross" : kinds[0];
    active = { kind, layer: matrices[kind].layers - 1, head: -1 };
  }
  get("kinds").replaceChildren(...kinds.map((kind) => make("button", {
    type: "button", "aria-pressed": String(kind === active.kind),
    onclick: () => { active = { ...active, kind, layer: Math.min(active.layer, matrices[kind].layers - 1), head: Math.min(active.head, matrices[kind].heads - 1) }; drawKinds(); },
  }, NAMES[kind])));
  get("kind-text").textContent = TEXTS[active.kind];
  drawHeads();
}

function drawHeads() {
  const matrix = matrices[active.kind], table = get("heads");
  const heads = Array.from({ length: matrix.heads }, (_, head) => head);
  if (matrix.heads > 1) heads.unshift(-1);
  const name = (head) => (head < 0 ? "mean" : `head ${head + 1}`);
  table.replaceChildren(make("tr", {}, make("th"), ...heads.map((head) => make("th", { scope: "col" }, name(head)))));
  for (let layer = 0; layer < matrix.layers; layer++) {
    const row = make("tr", {}, make("th", { scope: "row" }, `layer ${layer + 1}`));
    for (const head of heads) {
      const canvas = make("canvas");
      paintHead(canvas, matrix, headOf(matrix, layer, head));
      const button = make("button", {
        type: "button", "aria-label": `layer ${layer + 1}, ${name(head)}`, "aria-pressed": "false",
        onclick: () => { Object.assign(active, { layer, head }); choose(); },
      }, canvas);
      button.dataset.at = `${layer} ${head}`;
      row.append(make("td", {}, button));
    }
    table.append(row);
  }
  choose();
}

function choose() {
  const matrix = matrices[active.kind];
  if (active.head < 0 && matrix.heads === 1) active.head = 0;
  for (const button of get("heads").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.at === `${active.layer} ${active.head}`));
  const which = active.head < 0 ? "the mean of all heads" : `head ${active.head + 1}`;
  get("chosen-head").textContent = `${NAMES[active.kind]}, layer ${active.layer + 1}, ${which}`;
  get("attention-readout").textContent = "\u00a0";
  const levels = headOf(matrix, active.layer, active.head);
  const weight = (row, column) => (levels[row * matrix.columns + column] / 255) ** 2;
  const hidden = (row, column) => levels[row * matrix.columns + column] === MASKED;
  const labels = labelsOf(active.kind);
  drawOver(matrix, levels, labels[0]);
  drawHeat(matrix, levels, labels, weight, hidden);
  drawLines(labels, weight);
}

const quoted = (label) => (label.kind === "special" ? `(${label.text})` : `\u2068${label.text}\u2069`);

function drawHeat(matrix, levels, [rows, columns], weight, hidden) {
  const place = get("heat"), width = get("two").clientWidth, isNarrow = width < NARROW;
  const cell = cellSize(columns.length, isNarrow ? width : 0.6 * width), canvas = make("canvas");
  paintHead(canvas, matrix, levels);
  canvas.addEventListener("pointermove", (event) => {
    const row = Math.min(rows.length - 1, Math.floor(event.offsetY / cell)), column = Math.min(columns.length - 1, Math.floor(event.offsetX / cell));
    if (row < 0 || column < 0) return;
    const said = hidden(row, column) ? "may not attend to" : `gives ${percent(weight(row, column))} of its attention to`;
    get("attention-readout").textContent = `${quoted(rows[row])} at ${row} ${said} ${quoted(columns[column])} at ${column}`;
  });
  canvas.addEventListener("pointerdown", (event) => canvas.dispatchEvent(new PointerEvent("pointermove", event)));
  place.replaceChildren(...grid(canvas, rows, columns, cell));
}

/** Two columns of pieces; lines are drawn for the one that is pointed at. */
function drawLines([rows, columns], weight) {
  const place = get("lines");
  const height = LINE * Math.max(rows.length, columns.length);
  const drawing = svg("svg", { width: "100%", height, preserveAspectRatio: "none", viewBox: `0 0 100 ${height}` });
  const [full] = ["--full"].map(colour), middle = (i) => LINE * i + 12;
  const buttons = [rows, columns].map((labels, side) => labels.map((label, i) => make("button", {
    type: "button", class: `label ${side ? "key" : "query"} ${label.kind}`, dir: "auto", style: { top: `${LINE * i}px` },
    onpointerenter: () => show(side, i), onfocus: () => show(side, i), onclick: () => show(side, i),
  }, label.text)));
  function show(side, at) {
    drawing.replaceChildren();
    const others = side ? rows : columns, found = [];
    buttons.forEach((group, s) => group.forEach((button, i) => button.classList.toggle("on", s === side && i === at)));
    others.forEach((other, i) => {
      const share = side ? weight(i, at) : weight(at, i);
      buttons[1 - side][i].style.background = `rgb(${full.map(Math.round)} / ${(0.6 * share).toFixed(3)})`;
      found.push([share, i]);
      if (share < 0.002) return;
      const [from, to] = side ? [i, at] : [at, i];
      drawing.append(svg("line", { x1: 38.5, x2: 61.5, y1: middle(from), y2: middle(to), "vector-effect": "non-scaling-stroke",
        stroke: `rgb(${full.map(Math.round)})`, "stroke-opacity": Math.max(0.08, Math.sqrt(share)), "stroke-width": 0.5 + 5 * share }));
    });
    buttons[side].forEach((button) => { button.style.background = ""; });
    const best = found.sort((a, b) => b[0] - a[0]).slice(0, 5).map(([share, i]) => `${quoted(others[i])} ${percent(share)}`).join(",  ");
    const self = [rows, columns][side][at];
    get("attention-readout").textContent = `${quoted(self)} at ${at} ${side ? "is attended to by" : "attends to"}:  ${best}`;
  }
  place.style.height = `${height}px`;
  place.replaceChildren(drawing, ...buttons.flat());
  show(0, Math.min(1, rows.length - 1));
}

// Probabilities --------------------------------------------------------------------------------

function drawSteps() {
  const labels = shownAll(part.tgt_pieces, part.target);
  get("steps").replaceChildren(...part.steps.map(([logProb, ...best], i) => {
    const id = part.target[i];
    const line = (text, value, chosen) => make("div", { class: "choice" + (chosen ? " chosen" : ""), dir: "ltr", style: { "--share": `${100 * Math.exp(value)}%` } },
      make("span", { dir: "auto", lang: facts.languages[1] }, text), make("span", {}, percent(Math.exp(value))));
    const others = best.filter(([other]) => other !== id).slice(0, 5);
    return make("li", {}, make("small", { class: "quiet" }, `step ${i + 1}`), line(labels[i].text, logProb, true),
      ...others.map(([other, value]) => line(shown(part.tgt_pieces, other).text, value, false)));
  }));
}

// The search -----------------------------------------------------------------------------------

const PARENT = 0, TOKEN = 1, LOG_PROB = 2, TOTAL = 3, KEPT = 4, SCORE = 5;

/** Put nodes into columns by length, the best at the top, and tell what became of each. */
function layout() {
  const depths = [], states = [], columns = [], winner = new Set(part.winner), parents = new Set();
  part.nodes.forEach((node, i) => {
    depths[i] = node[PARENT] === null ? 0 : depths[node[PARENT]] + 1;
    if (node[KEPT]) parents.add(node[PARENT]);
    (columns[depths[i]] ??= []).push(i);
  });
  part.nodes.forEach((node, i) => {
    const open = depths[i] === columns.length - 1;
    states[i] = winner.has(i) ? "winner" : !node[KEPT] ? "cut" : node[SCORE] !== null ? "ended" : parents.has(i) || open ? "kept" : "lost";
  });
  for (const column of columns) column.sort((a, b) => part.nodes[b][KEPT] - part.nodes[a][KEPT] || part.nodes[b][TOTAL] - part.nodes[a][TOTAL]);
  return { states, columns };
}

function drawTree() {
  const withCut = get("show-cut").checked, { states, columns } = layout(), at = [], labels = [];
  const ancestors = (i) => (i === null ? [] : [...ancestors(part.nodes[i][PARENT]), i]);
  const drawing = svg("svg", {}), place = get("tree");
  place.replaceChildren(drawing);
  let rows = 0;
  let left = 0, width = 0;
  columns.forEach((column, depth) => {
    const drawn = [];
    place.append(make("span", { class: "step", style: { left: `${left}px` } }, `step ${depth + 1}`));
    column.filter((i) => withCut || states[i] !== "cut").forEach((i, row) => {
      const node = part.nodes[i], before = node[PARENT];
      at[i] = [left, 24 + ROW * row];
      rows = Math.max(rows, row + 1);
      labels[i] = shown(part.tgt_pieces, node[TOKEN]);
      if (before !== null) {
        const [x, y] = [left - GAP, at[before][1] + 12], [x2, y2] = [at[i][0], at[i][1] + 12];
        drawing.append(svg("path", { class: states[i], d: `M${x},${y} C${x + 18},${y} ${x2 - 18},${y2} ${x2},${y2}` }));
      }
      const tell = () => {
        const path = ancestors(i), ids = path.map((one) => part.nodes[one][TOKEN]);
        const text = shownAll(part.tgt_pieces, ids).map((label) => (label.kind === "special" ? ` (${label.text})` : label.text)).join("").replaceAll("\u200d", "").replaceAll("\u25cc", "").replaceAll("\u2581", " ");
        const fate = { winner: "part of the translation", ended: "ended, with a lower score than the translation", kept: "kept", lost: "kept, but all its continuations were pruned", cut: "pruned: the beam was full of better ones" }[states[i]];
        get("beam-readout").textContent = `\u2068${text.trim()}\u2069:  ${percent(Math.exp(node[LOG_PROB]))} for the last piece,  log-probability ${signed(node[TOTAL])}` + (node[SCORE] === null ? "" : `,  score ${signed(node[SCORE])}`) + `;  ${fate}`;
      };
      drawn.push(make("button", { type: "button", class: `node ${states[i]}`, style: { left: `${at[i][0]}px`, top: `${at[i][1]}px` }, onpointerenter: tell, onfocus: tell, onclick: tell },
        make("span", { dir: "auto" }, labels[i].text), make("small", {}, signed(node[SCORE] ?? node[TOTAL]))));
    });
    // All nodes of a step are as wide as its longest piece.
    place.append(...drawn);
    width = Math.ceil(Math.max(0, ...drawn.map((node) => node.offsetWidth)));
    for (const node of drawn) node.style.setProperty("width", `${width}px`);
    left += width + GAP;
  });
  left -= GAP;
  drawing.setAttribute("width", left);
  drawing.setAttribute("height", 30 + ROW * rows);
  place.style.width = `${left}px`;
  place.style.height = `${30 + ROW * rows}px`;
  get("beam-width").hidden = left <= place.parentElement.clientWidth;
  get("beam-width").textContent = `The tree has ${columns.length} steps: scroll sideways to see all.`;
}

function tellSearch() {
  const { kind, strength } = part.length_penalty, size = part.nodes.filter((node) => node[PARENT] === null && node[KEPT]).length;
  const how = strength === 0 ? "the log-probability" : {
    gnmt: `the log-probability divided by ((5 + length) / 6)^${strength}`,
    average: `the log-probability divided by length^${strength}`,
    reward: `the log-probability plus ${strength} for each piece`,
  }[kind];
  get("search").textContent = `Here the beam size is ${size}; the score is ${how}. Numbers at the nodes are sums of log-probabilities, or scores of hypotheses that ended.`;
}

// The page -------------------------------------------------------------------------------------

function drawColoured() { drawPositions(); drawPicture(); drawMasks(); drawKinds(); }

async function showPart(number) {
  part = facts.parts[number];
  matrices = {};
  drawPieces(get("source-pieces"), part.src_pieces, part.source, facts.languages[0]);
  drawPieces(get("target-pieces"), part.tgt_pieces, part.target, facts.languages[1]);
  drawSteps();
  tellSearch();
  get("beam-readout").textContent = "Point at or tap a node.";
  drawTree();
  const chosen = part, found = {};
  for (const kind of Object.keys(NAMES)) {
    const matrix = await unpacked(chosen[kind]);
    if (matrix !== null) found[kind] = matrix;
  }
  const drawn = await unpacked(chosen.picture);
  if (part !== chosen) return;
  [matrices, picture] = [found, drawn];
  drawColoured();
}

function tellModel() {
  const model = facts.model, layers = `${model.num_encoder_layers} + ${model.num_decoder_layers} layers`;
  const heads = model.num_heads ? `, ${model.num_heads} heads` : "", cell = model.cell ? ` (${model.cell})` : "";
  get("model").textContent = `${facts.languages.join(" to ")}: ${model.type ?? "transformer"}${cell}, ${layers}, d_model ${model.d_model}${heads}`;
  for (const element of document.querySelectorAll("[data-for]")) element.hidden = !element.dataset.for.split(" ").includes(model.type ?? "transformer");
  for (const element of document.querySelectorAll("[data-scheme]")) element.hidden = element.dataset.scheme !== model.positions?.type;
}

get("theme").addEventListener("click", () => {
  const root = document.documentElement, isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = (root.dataset.theme ?? (isDark ? "dark" : "light")) === "dark" ? "light" : "dark";
  if (part) drawColoured();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => part && drawColoured());
get("show-cut").addEventListener("change", drawTree);
get("part").addEventListener("change", (event) => showPart(Number(event.target.value)));
let width = innerWidth;
addEventListener("resize", () => { if (part && innerWidth !== width) { width = innerWidth; drawColoured(); drawTree(); } });

tellModel();
get("main").hidden = false;
get("reversed").hidden = !facts.reversed;
get("part-choice").hidden = facts.parts.length === 1;
get("part").append(...facts.parts.map((_, i) => make("option", { value: i }, String(i + 1))));
showPart(0);
