// The two texts on the screen: words of the translation, and the marks under the text field.
//
// A text is an array of lines `{source, sentences}`; a sentence is
// `{source, target, glue, words, edited}`, where each word is `[begin, end]` in the target, and
// `[sourceBegin, sourceEnd]` after it where it is known, in characters (code points).

import { get, make } from "./dom.js";

/** Elements that belong together: `{word, origin}`; `origin` is null for a word without one. */
let links = [];
const SELECTOR = ".word";

/** Draw the translation and the marks of a text. */
export function draw(lines, language) {
  links = [];
  const mirror = get("mirror");
  mirror.replaceChildren();
  get("target").lang = language;
  get("target").replaceChildren(...lines.map((line, number) => {
    const marks = lineMarks(mirror, line);
    if (number < lines.length - 1) mirror.append("\n");
    return make("p", { dir: "auto" }, ...line.sentences.flatMap((sentence, i) => [
      ...drawWords(sentence, number, i, marks[i]), sentence.glue,
    ]));
  }));
  mirror.append("\u200b"); // gives an empty last line its height
  const first = document.querySelector(SELECTOR);
  if (first) first.tabIndex = 0;
}

/** Show the text alone, before it is translated. */
export function drawMirror(text) {
  for (const link of links) link.origin = null;
  get("mirror").replaceChildren(`${text}\u200b`);
}

/** Append a line of the source to the mirror; return the marks of each sentence by their places. */
function lineMarks(mirror, line) {
  let end = 0;
  const marks = line.sentences.map((sentence) => {
    const start = line.source.indexOf(sentence.source, end), found = new Map();
    mirror.append(line.source.slice(end, start));
    end = start + sentence.source.length;
    const characters = [...sentence.source], text = (from, to) => characters.slice(from, to).join("");
    const spans = new Map(sentence.words.filter((word) => word.length > 2).map(([, , from, to]) => [from, to]));
    let place = 0;
    for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
      const mark = make("span", {}, text(from, to));
      mirror.append(text(place, from), mark);
      found.set(from, mark);
      place = to;
    }
    mirror.append(text(place));
    return found;
  });
  mirror.append(line.source.slice(end));
  return marks;
}

function drawWords(sentence, line, number, marks) {
  const characters = [...sentence.target], nodes = [];
  let place = 0;
  sentence.words.forEach(([begin, end, from], i) => {
    nodes.push(characters.slice(place, begin).join(""));
    const word = make("span", { class: "word", role: "button", tabindex: -1, "data-place": `${line} ${number} ${i}` },
      characters.slice(begin, end).join(""));
    word.classList.toggle("kept", end <= (sentence.edited ?? 0));
    links.push({ word, origin: marks.get(from) ?? null });
    nodes.push(word);
    place = end;
  });
  nodes.push(characters.slice(place).join(""));
  return nodes;
}

/** The line, the sentence in it, and the word in that, of an element. */
export const placeOf = (word) => word.dataset.place.split(" ").map(Number);

export const wordAt = (place) => document.querySelector(`${SELECTOR}[data-place="${place.join(" ")}"]`);

/** Light up words and marks that belong together: those of an element, or none. */
export function light(element) {
  const own = element ? links.filter((link) => link.word === element || link.origin === element) : [];
  const origins = new Set(own.map((link) => link.origin));
  const lit = new Set([...own.map((link) => link.word), ...origins]);
  for (const { word, origin } of links) {
    word.classList.toggle("lit", lit.has(word));
    origin?.classList.toggle("lit", origins.has(origin));
  }
}

/** The mark at a point of the screen, or at a place of the text (in UTF-16 units). */
export const markAt = (x, y) => document.elementsFromPoint(x, y).find((one) => one.parentNode === get("mirror"));

export function markOf(place) {
  let end = 0;
  for (const node of get("mirror").childNodes) {
    end += node.textContent.length;
    if (place <= end) return node.nodeType === Node.ELEMENT_NODE ? node : null;
  }
  return null;
}

/** Let the arrow keys move from word to word; `open` is called for the one that is chosen. */
export function listen(open) {
  const target = get("target"), source = get("source");
  target.addEventListener("pointerover", (event) => light(event.target.closest(SELECTOR)));
  target.addEventListener("pointerleave", () => light(null));
  target.addEventListener("focusin", (event) => {
    const word = event.target.closest(SELECTOR);
    if (!word) return;
    for (const other of target.querySelectorAll(`${SELECTOR}[tabindex="0"]`)) other.tabIndex = -1;
    word.tabIndex = 0;
    light(word);
  });
  target.addEventListener("focusout", () => light(null));
  target.addEventListener("click", (event) => {
    const word = event.target.closest(SELECTOR);
    if (word && getSelection().isCollapsed) open(word);
  });
  target.addEventListener("keydown", (event) => {
    const words = [...target.querySelectorAll(SELECTOR)], at = words.indexOf(event.target);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const forward = getComputedStyle(event.target.parentNode).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const next = { Home: 0, End: words.length - 1, ArrowLeft: at - 1, ArrowRight: at + 1 };
    if (forward === "ArrowLeft") [next.ArrowLeft, next.ArrowRight] = [at + 1, at - 1];
    if (event.key in next) words[next[event.key]]?.focus();
    else if (event.key === "Enter" || event.key === " ") open(event.target);
    else return;
    event.preventDefault();
  });
  source.addEventListener("pointermove", (event) => light(markAt(event.clientX, event.clientY)));
  source.addEventListener("pointerleave", () => light(null));
  source.addEventListener("click", () => light(markOf(source.selectionStart)));
  source.addEventListener("keyup", (event) => {
    if (/^(Arrow|Home|End|Page)/.test(event.key)) light(markOf(source.selectionStart));
  });
}
