// The page that translates while you type. It asks the server that it came from and nobody else.

import { ask, askForKey, askJson } from "./api.js";
import { closeChoices, listenToChoices, openChoices } from "./choices.js";
import { listenForFiles } from "./documents.js";
import { get, make, remembered, say } from "./dom.js";
import { draw, drawMirror, listen, placeOf, wordAt } from "./text.js";

const DELAY = 250, READ_OUT_DELAY = 1000, PATIENCE = 600, LINES_AT_ONCE = 64, LINES_KEPT = 1000, MOST_TERMS = 200;

const source = get("source"), fromList = get("source-language"), toList = get("target-language");
let settings = { charLimit: -1 }, languages = [];
/** Lines that were translated, by what was asked; a correction changes the line here. */
const known = new Map();
/** The text on the screen: its lines, and the languages they were translated between. */
let shown = { lines: [], from: "", to: "" };
let changes = [], corrections = [];
let controller = null, timers = {};

const later = (name, call, delay) => { clearTimeout(timers[name]); timers[name] = setTimeout(call, delay); };

// Translation ----------------------------------------------------------------------------------

/** Translate the text on the screen; what is still asked for an older one is cancelled. */
async function translate() {
  clearTimeout(timers.translate);
  controller?.abort();
  const { signal } = (controller = new AbortController());
  later("wait", () => say("Translating …"), PATIENCE);
  const text = source.value;
  count();
  if (!text.trim() || isTooLong(text)) return show([], "", toList.value);
  try {
    const from = await sourceOf(text, signal), to = toList.value;
    const lines = await translated(text.split("\n"), { source: from, target: to, ...withGlossary() }, signal);
    fault("");
    show(lines, from, to);
  } catch (error) {
    if (error.name !== "AbortError") failed(error, translate);
  }
}

async function sourceOf(text, signal) {
  if (fromList.value !== "auto") return fromList.value;
  const [{ language }] = await askJson("detect", { q: text }, signal);
  const name = languages.find((one) => one.code === language)?.name ?? language;
  fromList.options[0].textContent = `Detected: ${name}`;
  if (!(languages.find((one) => one.code === language)?.targets ?? []).includes(toList.value)) fillTargets(language);
  return language;
}

/** Return lines with their translations, and ask only for those that are not known. */
async function translated(lines, request, signal) {
  const keyOf = (line) => JSON.stringify([line, request]);
  const missing = [...new Set(lines)].filter((line) => line.trim() && !known.has(keyOf(line)));
  for (let i = 0; i < missing.length; i += LINES_AT_ONCE) {
    const some = missing.slice(i, i + LINES_AT_ONCE);
    const { translations } = await askJson("align", { ...request, q: some }, signal);
    translations.forEach(({ sentences }, n) => known.set(keyOf(some[n]), { source: some[n], sentences }));
  }
  const found = lines.map((line) => known.get(keyOf(line)) ?? { source: line, sentences: [] });
  for (const key of known.keys()) if (known.size > LINES_KEPT) known.delete(key);
  return found;
}

function show(lines, from, to) {
  shown = { lines, from, to };
  clearTimeout(timers.wait);
  say("");
  closeChoices();
  draw(lines, to);
  changedLanguages();
  get("target").classList.remove("stale");
  get("empty").hidden = lines.length > 0;
  get("copy").disabled = !lines.length;
  get("undo").hidden = !changes.some(({ line }) => lines.includes(line));
  get("keep").hidden = !settings.suggestions || !corrected().length;
  later("speak", () => { get("spoken").textContent = translation(); }, READ_OUT_DELAY);
}

const translation = () => shown.lines.map((line) => line.sentences.map((one) => one.target + one.glue).join("")).join("\n");

// Corrections ----------------------------------------------------------------------------------

/** Show other words from a word of the translation on. */
function open(word) {
  const place = placeOf(word), [number, i, at] = place, line = shown.lines[number], sentence = line.sentences[i];
  const request = { q: sentence.source, source: shown.from, target: shown.to, ...withGlossary() };
  const prefix = [...sentence.target].slice(0, sentence.words[at][0]).join("");
  openChoices(word, request, prefix, ({ translatedText, words }, part) => {
    changes.push({ line, i, old: sentence });
    line.sentences[i] = { ...sentence, target: translatedText, words, edited: [...part].length };
    redraw(place);
  });
}

function undo() {
  const at = changes.findLastIndex(({ line }) => shown.lines.includes(line));
  if (at < 0) return;
  const [{ line, i, old }] = changes.splice(at, 1);
  line.sentences[i] = old;
  redraw([shown.lines.indexOf(line), i, 0]);
}

function redraw(place) {
  show(shown.lines, shown.from, shown.to);
  wordAt(place)?.focus();
}

const corrected = () => [...new Set(shown.lines.flatMap((line) => line.sentences))].filter((one) => one.edited && !corrections.includes(one));

/** Give the corrected sentences to the server, which keeps them for training. */
async function keep() {
  try {
    for (const one of corrected()) {
      await ask("suggest", { q: one.source, s: one.target, source: shown.from, target: shown.to });
      corrections.push(one);
    }
    show(shown.lines, shown.from, shown.to);
    say("Kept.");
  } catch (error) {
    failed(error, keep);
  }
}

async function copy() {
  try {
    await navigator.clipboard.writeText(translation());
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(get("target"));
    say("Press Ctrl+C to copy what is selected.");
  }
}

// What is said to the user ---------------------------------------------------------------------

function fault(message) {
  get("error").hidden = !message;
  get("error").textContent = message;
}

/** Say what went wrong; `again` is called when the server may answer, or has got a key. */
function failed(error, again) {
  clearTimeout(timers.wait);
  say("");
  const { status, retryAfter } = error;
  if ((status === 401 || status === 403) && settings.apiKeys) askForKey(again);
  if (retryAfter) later("again", again, 1000 * retryAfter);
  fault(`${error.message}${retryAfter ? ` Next try in ${retryAfter} s.` : ""}`);
}

const isTooLong = (text) => settings.charLimit > 0 && [...text].length > settings.charLimit;

function count() {
  const length = [...source.value].length, { charLimit } = settings;
  get("clear").hidden = !length;
  get("count").textContent = length ? `${length.toLocaleString()}${charLimit > 0 ? ` / ${charLimit.toLocaleString()}` : ""}` : "";
  if (isTooLong(source.value)) fault(`This server translates ${charLimit.toLocaleString()} characters at a time: shorten the text${get("document-box").hidden ? "" : ", or drop it as a document"}.`);
  else if (!timers.again) fault("");
}

// Glossary -------------------------------------------------------------------------------------

function withGlossary() {
  const terms = {}, wrong = [];
  get("glossary").value.split("\n").forEach((line, i) => {
    const [term, ...rest] = line.split("="), word = rest.join("=").trim();
    if (term.trim() && word) terms[term.trim()] = word;
    else if (line.trim()) wrong.push(i + 1);
  });
  const number = Object.keys(terms).length;
  get("glossary-note").textContent = wrong.length ? `Line ${wrong.join(", ")}: write a term, an equals sign and its translation.`
    : number > MOST_TERMS ? `At most ${MOST_TERMS} terms are used.` : "";
  get("glossary-count").hidden = !number;
  get("glossary-count").textContent = number;
  return number ? { glossary: Object.fromEntries(Object.entries(terms).slice(0, MOST_TERMS)) } : {};
}

// Languages ------------------------------------------------------------------------------------

function fill(list, options, chosen) {
  list.replaceChildren(...options.map(({ code, name }) => make("option", { value: code }, name)));
  if (options.some(({ code }) => code === chosen)) list.value = chosen;
}

function fillTargets(from) {
  const targets = languages.find(({ code }) => code === from)?.targets ?? languages.map(({ code }) => code);
  const own = languages.filter(({ code }) => targets.includes(code) && (code !== from || targets.length === 1));
  fill(toList, own, own.some(({ code }) => code === toList.value) ? toList.value : remembered.get("target") ?? settings.language?.target.code);
  changedLanguages();
}

function changedLanguages() {
  const { from } = shown, real = fromList.value === "auto" ? from : fromList.value;
  const back = languages.find(({ code }) => code === toList.value)?.targets ?? [];
  get("swap").disabled = !real || real === toList.value || !back.includes(real);
  get("swap").title = get("swap").disabled ? "No model of this server translates back" : "Swap the languages (Alt+X)";
  source.lang = real || "";
}

function swap() {
  if (get("swap").disabled) return;
  const from = fromList.value === "auto" ? shown.from : fromList.value, text = translation();
  fromList.value = toList.value;
  fillTargets(fromList.value);
  toList.value = from;
  if (text) source.value = text;
  chosen();
}

/** Languages were chosen: remember them, and translate. */
function chosen() {
  remembered.set("source", fromList.value);
  remembered.set("target", toList.value);
  if (fromList.options[0].value === "auto") fromList.options[0].textContent = "Detect language";
  changedLanguages();
  drawMirror(source.value);
  translate();
}

/** Let the server load what aligns words, which takes seconds once, while the first words are typed. */
function warmUp({ source: { code: from }, target: { code: to } }) {
  ask("align", { q: "a", source: from, target: to }).catch(() => {});
}

async function start() {
  try {
    [settings, languages] = await Promise.all([askJson("frontend/settings"), askJson("languages")]);
  } catch (error) {
    return failed(error, start);
  }
  fault("");
  const readable = languages.filter(({ code, targets }) => targets.some((target) => target !== code) || languages.length === 1);
  const options = readable.length > 1 ? [{ code: "auto", name: "Detect language" }, ...readable] : readable;
  fill(fromList, options, remembered.get("source") ?? settings.language.source.code);
  fillTargets(fromList.value);
  get("open-key").hidden = !settings.apiKeys;
  if (settings.supportedFilesFormat?.length) listenForFiles(settings.supportedFilesFormat, () => ({ source: fromList.value, target: toList.value }));
  document.body.dataset.ready = "yes";
  if (!settings.apiKeys) warmUp(settings.language);
  translate();
}

// Listeners ------------------------------------------------------------------------------------

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  get("theme").textContent = isDark() ? "Light" : "Dark";
}

function typed() {
  drawMirror(source.value);
  count();
  get("target").classList.add("stale");
  later("translate", translate, DELAY);
}

/** On a Mac the Alt key alone types letters such as ç and ß. */
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);
const SHORTCUTS = {
  KeyS: () => fromList.focus(),
  KeyT: () => toList.focus(),
  KeyX: swap,
  KeyC: copy,
  KeyZ: undo,
  KeyK: () => get("keep").hidden || keep(),
  KeyG: () => { get("glossary-box").open = true; get("glossary").focus(); },
  KeyN: clear,
};

function clear() {
  source.value = "";
  drawMirror("");
  translate();
  source.focus();
}

theme(remembered.get("theme"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
get("theme").addEventListener("click", () => { theme(isDark() ? "light" : "dark"); remembered.set("theme", document.documentElement.dataset.theme); });
source.addEventListener("input", typed);
get("glossary").addEventListener("input", () => { withGlossary(); later("translate", translate, 2 * DELAY); });
fromList.addEventListener("change", () => { if (fromList.value !== "auto") fillTargets(fromList.value); chosen(); });
toList.addEventListener("change", chosen);
for (const [id, action] of Object.entries({ swap, copy, undo, keep, clear, "open-help": () => get("help").showModal(), "open-key": () => askForKey(start) })) {
  get(id).addEventListener("click", action);
}
document.addEventListener("keydown", (event) => {
  if (event.key === "F1") get("help").showModal();
  else if (event.altKey && event.ctrlKey === IS_MAC && !event.metaKey && event.code in SHORTCUTS) SHORTCUTS[event.code]();
  else return;
  event.preventDefault();
});
listen(open);
listenToChoices();
addEventListener("resize", closeChoices);
drawMirror(source.value);
start();
