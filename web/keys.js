// The keys of this server. They stay in this browser and go to this server alone.
import { askText } from "./dialogs.js";
import { loadValue, saveValue } from "./values.js";

const NAMES = { user: "key", admin: "adminKey" };
const TITLES = { user: "This server needs a key", admin: "This needs an admin key" };
const pending = { user: null, admin: null };

const keyOf = (kind) => loadValue(NAMES[kind], "");

// What requests send. An admin key is an ordinary one, too.
export function keyFields(kind) {
  const key = kind === "admin" ? keyOf("admin") || keyOf("user") : keyOf("user") || keyOf("admin");
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// Asks for a key, once for all requests that wait for it. Returns false where the user gives none.
// `message` is the server's.
export function askForKey(kind, message) {
  pending[kind] ??= askText({
    title: TITLES[kind], text: message, label: kind === "admin" ? "Admin key" : "API key", secret: true,
    ok: "Use this key",
  }).then((key) => {
    if (key) saveValue(NAMES[kind], key);
    return Boolean(key);
  }).finally(() => { pending[kind] = null; });
  return pending[kind];
}

export function forgetKeys() {
  for (const name of Object.values(NAMES)) saveValue(name, null);
}
