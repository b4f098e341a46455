"use strict";
// Draws pages of `tmt explain` with as little of a browser as their script needs, then points at and
// clicks everything. stdin: a JSON list of pages. stdout: a JSON list of what each of them shows.

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, dataset: {}, listeners: {}, hidden: false, clientWidth: 800, offsetWidth: 60 });
    this.style = { setProperty(name, value) { this[name] = value; } };
    this.classList = { toggle() {} };
  }
  get textContent() { return this.children.map((child) => child.textContent ?? child).join(""); }
  set textContent(text) { this.children = [String(text)]; }
  get parentElement() { return new Element("div"); }
  get lastChild() { return this.children.at(-1); }
  get all() { return this.children.flatMap((child) => (child instanceof Element ? [child, ...child.all] : [])); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(name, listener) { (this.listeners[name] ??= []).push(listener); }
  dispatchEvent(event) { for (const listener of this.listeners[event.type] ?? []) listener(event); }
  querySelectorAll(tag) { return this.all.filter((element) => element.tag === tag); }
  querySelector(tag) { return this.querySelectorAll(tag)[0]; }
  getContext() { return { createImageData: (w, h) => ({ data: new Uint8ClampedArray(4 * w * h) }), putImageData() {} }; }
}

class PointerEvent {
  constructor(type, { offsetX = 1, offsetY = 1 } = {}) { Object.assign(this, { type, offsetX, offsetY }); }
}

async function draw(page) {
  const elements = {}, body = [];
  for (const [, tag, attributes] of page.matchAll(/<(\w+)([^<>]*)>/g)) {
    const element = new Element(tag);
    body.push(element);
    for (const [, name, value] of attributes.matchAll(/([\w-]+)="([^"]*)"/g)) {
      if (name.startsWith("data-")) element.dataset[name.slice(5)] = value;
      if (name === "id") elements[value] = element;
      element.checked = true;
    }
  }
  const [, facts, script] = page.match(/id="facts">(.*?)<\/script>\s*<script>(.*)<\/script>/s);
  elements.facts.textContent = facts;
  const document = {
    documentElement: new Element("html"),
    getElementById: (id) => elements[id] ?? null,
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    querySelectorAll: (selector) => body.filter((element) => selector.match(/^\[data-(\w+)]$/)[1] in element.dataset),
  };
  const globals = {
    document, PointerEvent, innerWidth: 800, addEventListener() {},
    getComputedStyle: () => ({ color: "rgb(1, 2, 3)" }),
    matchMedia: () => ({ matches: false, addEventListener() {} }),
  };
  new Function(...Object.keys(globals), script)(...Object.values(globals));
  const [part] = JSON.parse(facts).parts, hasAttention = part?.cross ?? part?.encoder;
  const isDrawn = () => (hasAttention ? elements["chosen-head"].textContent : elements.attention.hidden);
  while (part && !isDrawn()) await new Promise((resolve) => setTimeout(resolve, 1));
  const found = {};
  for (const [id, element] of Object.entries(elements)) {
    found[id] = { hidden: element.hidden, text: element.textContent, inside: {} };
    for (const { tag } of element.all) found[id].inside[tag] = (found[id].inside[tag] ?? 0) + 1;
  }
  for (const event of !part ? [] : ["pointermove", "pointerdown", "pointerenter", "focus", "click", "change"]) {
    for (const element of Object.values(elements).flatMap((one) => [one, ...one.all])) {
      if (element !== elements.part) element.dispatchEvent(new PointerEvent(event));
    }
  }
  found.schemes = body.filter((element) => element.dataset.scheme && !element.hidden).map((element) => element.dataset.scheme);
  found.readouts = ["attention-readout", "beam-readout"].map((id) => elements[id].textContent);
  return found;
}

async function main() {
  let text = "";
  for await (const some of process.stdin) text += some;
  const drawn = [];
  for (const page of JSON.parse(text)) drawn.push(await draw(page));
  process.stdout.write(JSON.stringify(drawn));
}

main();
