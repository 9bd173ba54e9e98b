// Requests to the server that the page came from.
import { askForKey, keyFields } from "./keys.js";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The message of an error in any of the server's shapes.
function messageIn(json) {
  const error = json?.error ?? json?.detail;
  if (typeof error === "string") return error;
  return error?.message ?? error?.msg ?? null;
}

async function errorOf(response) {
  const text = await response.text().catch(() => "");
  let message = text;
  try {
    message = messageIn(JSON.parse(text)) ?? text;
  } catch {
    // The text says it.
  }
  return new ApiError(response.status, message || `The server answered with status ${response.status}.`);
}

// Sends a request and returns the answer to it. Asks for a key where the server wants one, and then
// tries again, unless `quiet`. Throws ApiError with the server's message; an AbortError where `signal`
// says so.
export async function send(path, { method = "GET", body, admin = false, quiet = false, signal } = {}) {
  const kind = admin ? "admin" : "user";
  for (;;) {
    const headers = { ...keyFields(kind) };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      // Relative, so that the page also works below a path of a proxy.
      response = await fetch(path, {
        method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (failure) {
      if (failure.name === "AbortError") throw failure;
      throw new ApiError(0, "The server cannot be reached. Is it running?");
    }
    if (response.ok) return response;
    const error = await errorOf(response);
    const wantsKey = response.status === 401 || (admin && response.status === 403);
    if (!wantsKey || quiet) throw error;
    // Another request may have asked for the key meanwhile.
    const hasNewKey = keyFields(kind).Authorization !== headers.Authorization;
    if (!hasNewKey && !(await askForKey(kind, error.message))) throw error;
  }
}

export async function getJson(path, options = {}) {
  return (await send(path, options)).json();
}

// The data of server-sent events, as text.
async function* eventTexts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      } else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}

// The JSON documents of a stream of events. Throws ApiError where one of them is an error.
export async function* events(response) {
  for await (const text of eventTexts(response)) {
    if (text === "[DONE]") return;
    const json = JSON.parse(text);
    if (json.error) throw new ApiError(response.status, messageIn(json) ?? text);
    yield json;
  }
}
