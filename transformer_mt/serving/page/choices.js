// Other words at a place of the translation: a list, and a field to write one.

import { askJson } from "./api.js";
import { get, make } from "./dom.js";

const DELAY = 150, NUM_OTHERS = 5;

/** What the list is open for: the word's element, the request without its prefix, the prefix, and what to do. */
let opened = null;
let found = [], selected = -1, controller = null, timer = 0;

/**
 * Open the list at a word.
 *
 * @param word The element.
 * @param request Of `/complete`, for the sentence, without a prefix.
 * @param prefix What stands before the word in the translation.
 * @param choose Called with the completion that is chosen, and the part of it that a person decided.
 */
export function openChoices(word, request, prefix, choose) {
  closeChoices();
  opened = { word, request, prefix, choose };
  word.classList.add("open");
  const box = get("choices"), field = get("own-word"), { left, bottom } = word.getBoundingClientRect();
  field.value = "";
  field.lang = request.target;
  box.hidden = false;
  const edge = get("target").getBoundingClientRect().right; // of the pane, where it leaves room
  box.style.top = `${bottom + scrollY + 6}px`;
  box.style.left = `${Math.max(12, Math.min(left, edge - box.offsetWidth)) + scrollX}px`;
  // On a phone the keyboard would cover the list.
  if (!matchMedia("(pointer: coarse)").matches) field.focus({ preventScroll: true });
  search("");
}

/** Close the list; the word gets the focus back if the list had it. */
export function closeChoices() {
  if (!opened) return;
  controller?.abort();
  clearTimeout(timer);
  const { word } = opened, box = get("choices");
  opened = null;
  word.classList.remove("open");
  if (box.contains(document.activeElement)) word.focus();
  box.hidden = true;
  show([], "");
}

function ask(typed) {
  controller?.abort();
  controller = new AbortController();
  const { request, prefix } = opened;
  return askJson("complete", { ...request, prefix: prefix + typed, alternatives: NUM_OTHERS }, controller.signal);
}

/** List the words that may follow, or that begin with what is typed. */
async function search(typed) {
  if (!found.length) get("choice-note").textContent = "Looking for other words …";
  try {
    const { completions } = await ask(typed), current = typed ? "" : opened.word.textContent;
    const others = completions.filter((one) => one.word && one.word !== current);
    show(others, others.length ? "" : "No other words.");
  } catch (error) {
    if (error.name !== "AbortError") show([], error.message);
  }
}

function show(completions, note) {
  found = completions;
  get("choice-note").textContent = note;
  const language = opened?.request.target;
  get("choice-list").replaceChildren(...found.map((one, i) => {
    // What follows the word helps to choose.
    const rest = one.translatedText.slice(decided(one).length);
    return make("li", { role: "option", id: `choice-${i}`, "aria-selected": "false", dir: "auto", lang: language,
      onpointerenter: () => select(i), onclick: () => choose(i) }, make("b", {}, one.word), make("span", {}, rest));
  }));
  select(-1);
  if (opened) get("choices").scrollIntoView({ block: "nearest" });
}

function select(number) {
  selected = number;
  get("choice-list").childNodes.forEach((option, i) => option.setAttribute("aria-selected", String(i === number)));
  const field = get("own-word");
  if (number < 0) field.removeAttribute("aria-activedescendant");
  else field.setAttribute("aria-activedescendant", `choice-${number}`);
}

/** The beginning of a completion, with its word. */
function decided({ word, translatedText }) {
  const from = Math.max(0, opened.prefix.trimEnd().length - word.length);
  return translatedText.slice(0, translatedText.indexOf(word, from) + word.length);
}

function choose(number) {
  const { choose: use } = opened, completion = found[number], part = decided(completion);
  closeChoices();
  use(completion, part);
}

/** Take what is written as the next word, and the best completion of it. */
async function chooseOwn(typed) {
  clearTimeout(timer);
  try {
    const { completions } = await ask(`${typed} `), { prefix, choose: use } = opened;
    closeChoices();
    use(completions[0], prefix + typed);
  } catch (error) {
    if (error.name !== "AbortError") show([], error.message);
  }
}

export function listenToChoices() {
  const field = get("own-word");
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(field.value.trimStart()), DELAY);
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) select((selected + step + found.length + (selected < 0 && step < 0)) % found.length);
    else if (event.key === "Enter" && selected >= 0) choose(selected);
    else if (event.key === "Enter" && field.value.trim()) chooseOwn(field.value.trim());
    else if (event.key === "Escape" || event.key === "Tab") closeChoices();
    else return;
    event.preventDefault();
  });
  document.addEventListener("pointerdown", (event) => {
    if (opened && !get("choices").contains(event.target)) closeChoices();
  });
}
