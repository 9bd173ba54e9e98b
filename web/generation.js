// One answer on its way from the server into a node of the conversation.
import { events, send } from "./api.js";
import { requestBody } from "./sampling.js";

const LEAST = 5; // ms in which tokens must have come, so that a rate means something

const tokenOf = ({ token, logprob, bytes }) => ({
  text: token || (bytes ?? []).map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join(""),
  logprob,
});

function addTokens(node, logprobs) {
  for (const one of logprobs?.content ?? []) {
    node.tokens ??= [];
    node.tokens.push({ ...tokenOf(one), top: (one.top_logprobs ?? []).map(tokenOf) });
  }
}

// What is measured here, since the usage counts tokens and not time.
class Clock {
  start = performance.now();
  first = 0;
  last = 0;
  thinkingSince = 0;
  pieces = 0;

  piece() {
    this.last = performance.now();
    if (this.pieces++ === 0) this.first = this.last;
  }
  // The first token comes with the prompt, so the time behind it belongs to the others. Where all came
  // at once only the whole time is known.
  speed(tokens) {
    const behind = this.last - this.first;
    if (tokens > 1 && behind >= LEAST) return (1000 * (tokens - 1)) / behind;
    return tokens > 0 && this.last > this.start ? (1000 * tokens) / (this.last - this.start) : undefined;
  }
}

function addDelta(node, delta, clock) {
  const reasoning = delta?.reasoning_content ?? "";
  const content = delta?.content ?? "";
  if (reasoning) {
    clock.thinkingSince ||= performance.now();
    node.reasoning = (node.reasoning ?? "") + reasoning;
  }
  if (content) {
    if (node.reasoning && node.thought === undefined) {
      node.thought = (performance.now() - clock.thinkingSince) / 1000;
    }
    node.content += content;
  }
  if (reasoning || content) clock.piece();
}

function addUsage(node, usage, clock) {
  node.usage = {
    prompt: usage.prompt_tokens, answer: usage.completion_tokens,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
  };
  node.speed = clock.speed(usage.completion_tokens);
}

async function receive(node, response, clock, changed) {
  for await (const chunk of events(response)) {
    if (chunk.model) node.model = chunk.model;
    const choice = chunk.choices?.[0];
    if (choice) {
      addDelta(node, choice.delta, clock);
      addTokens(node, choice.logprobs);
      if (choice.finish_reason) node.finish = choice.finish_reason;
    }
    if (chunk.usage) addUsage(node, chunk.usage, clock);
    changed();
  }
  if (!node.finish) throw new Error("The answer ended early: the connection to the server was lost.");
}

// Fills `node` with the answer to `path`, the messages above it. Calls `changed` at every piece.
// Never throws: what went wrong is in node.error, and node.finish is "stopped" after an abort.
export async function generate({ node, path, settings, signal, changed }) {
  const clock = new Clock();
  try {
    const response = await send("v1/chat/completions", { method: "POST", body: requestBody(settings, path), signal });
    await receive(node, response, clock, changed);
  } catch (failure) {
    if (signal.aborted) {
      node.finish = "stopped";
    } else {
      node.finish = "error";
      node.error = failure instanceof TypeError
        ? "The answer ended early: the connection to the server was lost." : failure.message;
    }
  }
  if (clock.pieces > 0) node.wait = (clock.first - clock.start) / 1000;
  changed();
}
