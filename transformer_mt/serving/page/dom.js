// Elements of the page. Text of the user and of the model is inserted as text nodes only.

export const get = (id) => document.getElementById(id);

/** Make an element; attributes that begin with "on" are listeners. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Say something beside the buttons of the translation; it fades when the next thing is said. */
export function say(text) {
  get("status").textContent = text;
}

/** Keep a choice between visits; where the browser allows no storage, it is forgotten. */
export const remembered = {
  get(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  },
  set(name, value) {
    try { localStorage.setItem(name, value); } catch { /* a private window */ }
  },
};
