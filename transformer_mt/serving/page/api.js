// Requests to the server that the page came from, and its errors in words.

import { get } from "./dom.js";

/** What the server, or the way to it, says against a request; `retryAfter` in seconds, or null. */
export class ServerError extends Error {
  constructor(message, status, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const KEY = "api-key";

/** Send a request; `body` is an object, sent as JSON, or a form. */
export async function ask(path, body, signal) {
  const key = sessionStorage.getItem(KEY), headers = key ? { Authorization: `Bearer ${key}` } : {};
  const isForm = body instanceof FormData;
  if (body && !isForm) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: !body || isForm ? body : JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer.", 0, 3);
  }
  if (response.ok) return response;
  const retry = Number(response.headers.get("Retry-After")) || null;
  throw new ServerError(await messageOf(response), response.status, response.status === 503 ? retry ?? 2 : null);
}

export const askJson = async (...request) => (await ask(...request)).json();

async function messageOf(response) {
  try {
    const { error } = await response.json();
    if (error) return error;
  } catch { /* not JSON: a proxy between here and the server */ }
  return `The server answers with the error ${response.status}.`;
}

/** Ask for an API key; `then` is called with it in place. */
export function askForKey(then) {
  const dialog = get("key"), field = get("key-field");
  if (dialog.open) return;
  field.value = sessionStorage.getItem(KEY) ?? "";
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "use") return;
    sessionStorage.setItem(KEY, field.value.trim());
    then();
  }, { once: true });
  dialog.returnValue = "";
  dialog.showModal();
}
