// One message as it is shown, with what can be done to it.
import { byId, confirmBriefly, copyText, el, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { tokenView } from "./probabilities.js";

const FINISHES = { length: "ended by the token limit", stopped: "stopped", undefined: "interrupted" };

const number = (value) => value.toLocaleString(undefined, { maximumFractionDigits: value < 100 ? 1 : 0 });

// "41.2 tokens/s · 120 tokens · prompt 31, 24 of them cached · smollm2"
function metaOf(node) {
  const parts = [];
  if (node.speed) parts.push(`${number(node.speed)} tokens/s`);
  if (node.usage) {
    parts.push(`${number(node.usage.answer)} tokens`);
    parts.push(`prompt ${number(node.usage.prompt)}, ${number(node.usage.cached)} cached`);
  }
  if (FINISHES[node.finish]) parts.push(FINISHES[node.finish]);
  if (node.model) parts.push(node.model);
  return parts.join(" · ");
}

// `actions` are what the conversation does: {regenerate, editUser, editAssistant, choose}.
export class MessageView {
  #showsTokens = false;
  #shown = {};

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.isUser = node.role === "user";
    this.body = el("div", { class: "body" });
    if (!this.isUser) this.#addAnswerParts();
    this.meta = el("span", { class: "meta" });
    this.branches = el("span", { class: "branches" });
    this.foot = el("div", { class: "foot" }, this.branches, this.#buttons(), this.meta);
    this.element = el("article", { class: `message ${node.role}`, "data-id": node.id,
      "aria-label": this.isUser ? "You" : "Answer" }, this.body, this.foot);
  }

  #addAnswerParts() {
    this.text = new MarkdownView();
    this.thoughts = new MarkdownView();
    this.summary = el("summary", {}, "Thinking…");
    this.reasoning = el("details", { class: "reasoning", hidden: true }, this.summary, this.thoughts.element);
    this.waiting = el("div", { class: "waiting", hidden: true, "aria-label": "Waiting for the answer" },
      el("i"), el("i"), el("i"));
    this.error = el("div", { class: "error", role: "alert", hidden: true });
    this.body.append(this.reasoning, this.text.element, this.waiting, this.error);
  }

  #buttons() {
    const copy = iconButton("copy", "Copy message", async () => {
      await copyText(this.node.content);
      confirmBriefly(copy);
    });
    const edit = iconButton("edit", "Edit message", () => this.edit(), { class: "icon edit" });
    const group = el("span", { class: "buttons" }, copy, edit);
    if (!this.isUser) {
      const again = iconButton("again", "Regenerate answer", () => this.actions.regenerate(this.node),
        { class: "icon again" });
      this.tokensButton = iconButton("bars", "Show token probabilities", () => this.#switchTokens(),
        { hidden: true, class: "icon show-tokens", "aria-pressed": "false" });
      group.append(again, this.tokensButton);
    }
    return group;
  }

  #switchTokens() {
    this.#showsTokens = !this.#showsTokens;
    this.tokensButton.setAttribute("aria-pressed", String(this.#showsTokens));
    this.body.querySelector(".tokens")?.remove();
    byId("token-card").hidden = true;
    this.text.element.hidden = this.#showsTokens;
    if (this.#showsTokens) this.text.element.before(tokenView(this.node.tokens));
  }

  // Shows the node as it is now. `running`: its answer is still coming.
  update(siblings, running) {
    const { node } = this;
    this.#showBranches(siblings);
    if (this.isUser) {
      if (!this.editing) this.body.textContent = node.content;
      return;
    }
    if (this.#shown.content !== node.content) this.text.show(node.content);
    this.#shown.content = node.content;
    this.#showReasoning(running);
    this.waiting.hidden = !running || Boolean(node.content || node.reasoning);
    this.error.hidden = !node.error;
    this.error.textContent = node.error ?? "";
    this.meta.textContent = running ? "" : metaOf(node);
    this.meta.title = node.wait === undefined ? "" : `first token after ${number(node.wait)} s`;
    this.tokensButton.hidden = running || !node.tokens;
    this.element.classList.toggle("running", running);
  }

  #showReasoning(running) {
    const { node } = this;
    this.reasoning.hidden = !node.reasoning;
    if (!node.reasoning) return;
    const label = node.thought === undefined ? (running ? "Thinking…" : "Thoughts")
      : `Thought for ${number(node.thought)} s`;
    if (this.summary.textContent !== label) this.summary.textContent = label;
    if (this.#shown.reasoning !== node.reasoning) this.thoughts.show(node.reasoning);
    this.#shown.reasoning = node.reasoning;
  }

  #showBranches(siblings) {
    const at = siblings.indexOf(this.node);
    const key = `${at}/${siblings.length}`;
    if (this.#shown.branches === key) return;
    this.#shown.branches = key;
    this.branches.hidden = siblings.length < 2;
    const to = (name, step, index) => iconButton(name, `Show the ${step} version`,
      () => this.actions.choose(siblings[index], step),
      { disabled: index < 0 || index >= siblings.length, class: `icon ${step}` });
    this.branches.replaceChildren(to("left", "previous", at - 1),
      el("span", { "aria-label": `Version ${at + 1} of ${siblings.length}` }, `${at + 1}/${siblings.length}`),
      to("right", "next", at + 1));
  }

  // Puts a text box in the place of the message.
  edit() {
    if (this.editing) return;
    this.editing = true;
    const area = el("textarea", { class: "edit-box", "aria-label": "Edit message", rows: "3" });
    area.value = this.node.content;
    const before = [...this.body.childNodes];
    const close = () => {
      this.editing = false;
      this.body.replaceChildren(...before);
      this.foot.hidden = false;
      this.element.classList.remove("editing");
    };
    const save = () => {
      close();
      if (area.value.trim() && area.value !== this.node.content) {
        (this.isUser ? this.actions.editUser : this.actions.editAssistant)(this.node, area.value);
      }
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
      else return;
      event.stopPropagation();
      event.preventDefault();
      this.element.querySelector(".edit")?.focus();
    });
    this.foot.hidden = true;
    this.element.classList.add("editing");
    this.body.replaceChildren(area, el("div", { class: "edit-buttons" },
      el("button", { type: "button", class: "plain cancel", onclick: close }, "Cancel"),
      el("button", { type: "button", class: "primary save", onclick: save }, this.isUser ? "Send" : "Save")));
    area.focus();
  }
}
