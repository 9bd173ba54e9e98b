// What happens to conversations: sending, answers, other versions of messages. Answers go on while
// another conversation is shown.
import { announce, notice } from "./dom.js";
import { generate } from "./generation.js";
import { saveConversation } from "./store.js";
import { addNode, childrenOf, choose, newConversation, nodeOf, pathAbove, shownPath, titleFrom } from "./tree.js";

const SAVE_EVERY = 2000; // ms, while an answer comes
const DRAW_EVERY = 50;   // ms at least; more where drawing takes long

export class Chat {
  current = null;
  #running = new Map(); // id of a conversation: {conversation, node, control}

  // `view` shows messages; `on` has functions that are called: {state, listed, asked},
  // and model(), which returns the id of the model that answers.
  constructor(view, on) {
    this.view = view;
    this.on = on;
  }

  runningNode(conversation = this.current) {
    return this.#running.get(conversation?.id)?.node ?? null;
  }
  // The conversation of this id while an answer to it comes; then it is newer than the stored one.
  runningConversation(id) {
    return this.#running.get(id)?.conversation ?? null;
  }
  get runningIds() {
    return [...this.#running.keys()];
  }

  open(conversation) {
    this.current = conversation;
    this.show();
  }
  openNew(settings) {
    this.open(newConversation(settings));
  }

  show() {
    this.view.show(this.current, this.runningNode());
    this.on.state();
  }

  async save(conversation, touched = true) {
    if (touched) conversation.updated = Date.now();
    try {
      await saveConversation(conversation);
    } catch (failure) {
      notice(`This conversation could not be saved: ${failure.message}`, "error");
    }
    this.on.listed();
  }

  send(text) {
    const conversation = this.current;
    const parent = shownPath(conversation).at(-1)?.id ?? null;
    conversation.title ||= titleFrom(text);
    this.#answer(conversation, addNode(conversation, parent, { role: "user", content: text }));
    this.view.scrollToEnd();
  }

  // Another version of a user's message, with an answer of its own.
  editUser(node, text) {
    this.#answer(this.current, addNode(this.current, node.parent, { role: "user", content: text }));
  }

  // Another version of an answer, as the user words it.
  editAssistant(node, text) {
    addNode(this.current, node.parent, { role: "assistant", content: text, finish: "edited" });
    this.show();
    this.save(this.current);
  }

  regenerate(node) {
    this.#answer(this.current, nodeOf(this.current, node.parent));
  }
  regenerateLast() {
    const last = shownPath(this.current).at(-1);
    if (!last || this.runningNode()) return;
    if (last.role === "assistant") this.regenerate(last);
    else this.#answer(this.current, last);
  }

  choose(node) {
    choose(this.current, node);
    this.show();
    this.save(this.current, false);
  }

  stop() {
    this.#running.get(this.current.id)?.control.abort();
  }

  // Ends what runs in a conversation that is being deleted, and does not store it again.
  async forget(id) {
    const run = this.#running.get(id);
    if (!run) return;
    run.isForgotten = true;
    run.control.abort();
    await run.done;
  }

  #answer(conversation, question) {
    const run = this.#begin(conversation, question);
    run.done = this.#finish(run);
  }

  #begin(conversation, question) {
    this.#running.get(conversation.id)?.control.abort();
    const node = addNode(conversation, question?.id ?? null, { role: "assistant", content: "" });
    const run = { conversation, node, control: new AbortController(), isForgotten: false };
    this.#running.set(conversation.id, run);
    if (conversation === this.current) this.show();
    this.save(conversation);
    this.on.asked();
    announce("The answer is being written.");
    return run;
  }

  async #finish(run) {
    const { conversation, node, control } = run;
    const saver = setInterval(() => this.save(conversation), SAVE_EVERY);
    await generate({
      node, path: pathAbove(conversation, node), signal: control.signal,
      settings: { ...conversation.settings, model: this.on.model() },
      changed: this.#drawer(run),
    });
    clearInterval(saver);
    if (this.#running.get(conversation.id) === run) this.#running.delete(conversation.id);
    this.#dropEmpty(conversation, node);
    announce(node.error ? `The answer failed: ${node.error}` : "The answer is complete.");
    if (conversation === this.current) this.show();
    if (!run.isForgotten) await this.save(conversation);
  }

  // An answer that was stopped before it began is no version of anything.
  #dropEmpty(conversation, node) {
    const isEmpty = node.finish === "stopped" && !node.content && !node.reasoning;
    if (!isEmpty || childrenOf(conversation, node.parent).length < 2) return;
    conversation.nodes.splice(conversation.nodes.indexOf(node), 1);
    if (conversation.chosen[node.parent ?? "first"] === node.id) {
      choose(conversation, childrenOf(conversation, node.parent).at(-1));
    }
  }

  // Draws a node at most so often that drawing takes a quarter of the time.
  #drawer({ conversation, node, control }) {
    let timer = 0;
    let pause = DRAW_EVERY;
    return () => {
      timer ||= setTimeout(() => {
        timer = 0;
        const begin = performance.now();
        const isRunning = this.#running.get(conversation.id)?.control === control;
        if (conversation === this.current) this.view.update(node, conversation, isRunning);
        pause = Math.max(DRAW_EVERY, 3 * (performance.now() - begin));
      }, pause);
    };
  }
}
