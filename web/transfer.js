// Conversations as a file, and back. A file may come from anybody, so nothing of it is taken unchecked.
import { el } from "./dom.js";
import { readSettings } from "./sampling.js";
import { newId } from "./tree.js";

const FORMAT = "bitloom-conversations";

export function exportFile(conversations, name) {
  const text = JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const textOf = (value) => (typeof value === "string" ? value : undefined);
const numberOf = (value) => (Number.isFinite(value) ? value : undefined);

function readToken(token) {
  return {
    text: textOf(token?.text) ?? "",
    logprob: numberOf(token?.logprob) ?? 0,
    top: Array.isArray(token?.top)
      ? token.top.map((one) => ({ text: textOf(one?.text) ?? "", logprob: numberOf(one?.logprob) ?? 0 }))
      : [],
  };
}

function readUsage(usage) {
  if (typeof usage !== "object" || usage === null) return undefined;
  return { prompt: numberOf(usage.prompt), cached: numberOf(usage.cached), answer: numberOf(usage.answer) };
}

function readNode(node, known) {
  const isRoot = node?.parent === null;
  if (typeof node?.id !== "string" || known.has(node.id) || !(isRoot || known.has(node.parent))) {
    throw new Error("a message does not fit under an earlier one");
  }
  if (node.role !== "user" && node.role !== "assistant") {
    throw new Error("a message is neither a user's nor an assistant's");
  }
  known.add(node.id);
  const read = {
    id: node.id, parent: node.parent, role: node.role,
    content: textOf(node.content) ?? "", at: numberOf(node.at) ?? Date.now(),
  };
  const rest = {
    reasoning: textOf(node.reasoning), model: textOf(node.model), finish: textOf(node.finish),
    error: textOf(node.error), speed: numberOf(node.speed), wait: numberOf(node.wait),
    thought: numberOf(node.thought), usage: readUsage(node.usage),
    tokens: Array.isArray(node.tokens) ? node.tokens.map(readToken) : undefined,
  };
  for (const [name, value] of Object.entries(rest)) if (value !== undefined) read[name] = value;
  return read;
}

function readConversation(json) {
  if (typeof json?.id !== "string" || !Array.isArray(json.nodes)) {
    throw new Error("a conversation has no id or no messages");
  }
  const known = new Set();
  const nodes = json.nodes.map((node) => readNode(node, known));
  const chosen = {};
  for (const [parent, child] of Object.entries(json.chosen ?? {})) {
    if (known.has(child) && (parent === "first" || known.has(parent))) chosen[parent] = child;
  }
  const now = Date.now();
  return {
    id: json.id, title: textOf(json.title) ?? "", created: numberOf(json.created) ?? now,
    updated: numberOf(json.updated) ?? now, settings: readSettings(json.settings), nodes, chosen,
  };
}

// The conversations in a file's text. Throws an Error that says what is wrong.
export function readFile(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (json?.format !== FORMAT || !Array.isArray(json.conversations)) {
    throw new Error("This file is not an export of conversations.");
  }
  try {
    return json.conversations.map(readConversation);
  } catch (failure) {
    throw new Error(`This file cannot be imported: ${failure.message}.`);
  }
}

// Those that are to be stored: without what is there already, and with a new id where another
// conversation has the id.
export function withoutKnown(imported, summaries) {
  const known = new Map(summaries.map(({ id, updated }) => [id, updated]));
  return imported
    .filter(({ id, updated }) => known.get(id) !== updated)
    .map((one) => (known.has(one.id) ? { ...one, id: newId() } : one));
}
