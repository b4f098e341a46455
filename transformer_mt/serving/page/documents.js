// Documents: dropped or chosen files, translated one after the other and offered for download.

import { ask } from "./api.js";
import { get, make } from "./dom.js";

let queue = Promise.resolve();

/**
 * Let files be dropped anywhere on the page.
 *
 * @param formats Endings of the names that the server takes, such as ".docx".
 * @param languages Returns the languages chosen: `{source, target}`.
 */
export function listenForFiles(formats, languages) {
  const box = get("drop"), field = get("file");
  get("document-box").hidden = false;
  get("formats").textContent = formats.join(" ");
  field.accept = formats.join(",");
  field.addEventListener("change", () => { add(field.files, formats, languages); field.value = ""; });
  const isFile = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    get("document-box").open = true;
    box.classList.add("over");
  });
  for (const end of ["dragleave", "drop"]) document.addEventListener(end, () => box.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    add(event.dataTransfer.files, formats, languages);
  });
}

function add(files, formats, languages) {
  get("document-box").open = true;
  for (const file of files) {
    const state = make("p", { class: "quiet" }, "waiting …"), cancel = make("button", { type: "button" }, "Cancel");
    const entry = make("li", {}, make("span", { class: "name" }, file.name), " ", cancel, state);
    get("documents").prepend(entry);
    if (!formats.some((end) => file.name.toLowerCase().endsWith(end))) {
      cancel.remove();
      fail(state, `This server translates files that end with ${formats.join(", ")}.`);
      continue;
    }
    const controller = new AbortController();
    cancel.addEventListener("click", () => controller.abort());
    queue = queue.then(() => translate(file, languages(), state, controller.signal)).finally(() => cancel.remove());
  }
}

function fail(state, message) {
  state.className = "warning";
  state.setAttribute("role", "alert");
  state.textContent = message;
}

async function translate(file, { source, target }, state, signal) {
  const begun = Date.now(), seconds = make("span");
  state.replaceChildren(make("progress", { "aria-label": `Translating ${file.name}` }), seconds);
  const clock = setInterval(() => { seconds.textContent = `${Math.round((Date.now() - begun) / 1000)} s`; }, 1000);
  try {
    const form = new FormData();
    for (const [name, value] of Object.entries({ file, source, target })) form.append(name, value);
    await offer(await ask("translate_file", form, signal), file, target, state);
  } catch (error) {
    fail(state, error.name === "AbortError" ? "Cancelled." : error.message);
  } finally {
    clearInterval(clock);
  }
}

/** Offer the translated document, and list what was left as it was. */
async function offer(response, file, target, state) {
  const { translatedFileUrl, untouched } = await response.json();
  const dot = file.name.lastIndexOf("."), name = `${file.name.slice(0, dot)}.${target}${file.name.slice(dot)}`;
  // Only its end: a proxy may know the server under another name.
  const blob = await (await ask(translatedFileUrl.split("/").slice(-2).join("/"))).blob();
  const link = make("a", { href: URL.createObjectURL(blob), download: name }, `Save ${name}`);
  state.className = "";
  state.replaceChildren(link);
  if (!untouched.length) return;
  const list = make("ul", {}, ...untouched.map((one) => make("li", {}, make("q", { dir: "auto" }, one.text), `: ${one.reason}`)));
  const summary = make("summary", {}, untouched.length === 1 ? "1 segment was left as it was" : `${untouched.length} segments were left as they were`);
  state.append(make("details", {}, summary, list));
}
