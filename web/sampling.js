// The settings of a conversation: what can be set, and how it becomes part of a request.

// `known` are names under which the server tells the model's own value.
export const SAMPLING = [
  { key: "temperature", label: "Temperature", known: "temperature", tip: "Higher is more random; 0 picks the likeliest token." },
  { key: "top_p", label: "Top-p", known: "top_p", tip: "Keeps the likeliest tokens whose probabilities add up to this." },
  { key: "top_k", label: "Top-k", known: "top_k", whole: true, tip: "Keeps this many of the likeliest tokens; 0 keeps all." },
  { key: "min_p", label: "Min-p", known: "min_p", tip: "Drops tokens less likely than this share of the likeliest one." },
  { key: "repetition_penalty", label: "Repetition penalty", known: "repeat_penalty", tip: "Above 1, tokens that were said become less likely." },
  { key: "max_tokens", label: "Max tokens", known: "max_tokens", whole: true, tip: "Ends the answer after so many tokens." },
  { key: "seed", label: "Seed", whole: true, tip: "The same seed draws the same answer; empty draws a new one each time." },
];
const ALTERNATIVES = 5;

export const noSettings = () => ({ system: "", model: "", sampling: {}, stop: [], probabilities: false });

// Settings out of a file or an older page: only what is known, of the right kind.
export function readSettings(json) {
  const settings = noSettings();
  if (typeof json?.system === "string") settings.system = json.system;
  if (typeof json?.model === "string") settings.model = json.model;
  for (const { key } of SAMPLING) {
    if (Number.isFinite(json?.sampling?.[key])) settings.sampling[key] = json.sampling[key];
  }
  if (Array.isArray(json?.stop)) settings.stop = json.stop.filter((text) => typeof text === "string" && text);
  settings.probabilities = json?.probabilities === true;
  return settings;
}

// The body of a request that answers `path`, messages from first to last.
export function requestBody(settings, path) {
  const messages = path.map(({ role, content }) => ({ role, content }));
  if (settings.system.trim()) messages.unshift({ role: "system", content: settings.system });
  const body = { messages, stream: true, stream_options: { include_usage: true }, ...settings.sampling };
  // A seed of its own for each answer, so that another answer is another one.
  body.seed ??= crypto.getRandomValues(new Uint32Array(1))[0];
  if (settings.model) body.model = settings.model;
  if (settings.stop.length > 0) body.stop = settings.stop;
  if (settings.probabilities) Object.assign(body, { logprobs: true, top_logprobs: ALTERNATIVES });
  return body;
}
