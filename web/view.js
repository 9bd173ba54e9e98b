// The messages of the conversation that is open, and where the page is scrolled to.
import { byId } from "./dom.js";
import { MessageView } from "./message_view.js";
import { shownPath, siblingsOf } from "./tree.js";

const NEAR = 80; // pixels from the end within which the page follows an answer

export class ConversationView {
  #views = new Map();
  #conversation = null;
  #follows = true;

  constructor(actions) {
    this.actions = actions;
    this.list = byId("messages");
    this.scroller = byId("scroller");
    this.toEnd = byId("to-end");
    this.scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.scroller);
    this.toEnd.addEventListener("click", () => this.scrollToEnd());
  }

  #look() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.toEnd.hidden = this.#follows;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#follows = true;
    this.toEnd.hidden = true;
  }

  // Shows a conversation, or the one that is shown as it is now. `running` is the node whose answer is
  // coming, if any.
  show(conversation, running) {
    if (conversation !== this.#conversation) {
      this.#views.clear();
      this.list.replaceChildren();
      this.#conversation = conversation;
      this.#follows = true;
    }
    const path = shownPath(conversation);
    const elements = path.map((node) => this.#viewOf(node, conversation, running).element);
    this.#place(elements);
    byId("welcome").hidden = path.length > 0;
    this.list.setAttribute("aria-busy", String(Boolean(running)));
    this.#follow();
  }

  // Shows what is new of one node.
  update(node, conversation, running) {
    if (conversation !== this.#conversation) return;
    this.#views.get(node.id)?.update(siblingsOf(conversation, node), running);
    this.#follow();
  }

  // Keeps the focus where the keyboard left it when another version took the place of a message.
  focusBranch(node, step) {
    const { branches } = this.#views.get(node.id);
    (branches.querySelector(`.${step}:enabled`) ?? branches.querySelector("button:enabled")).focus();
  }

  editLastOfUser() {
    const last = shownPath(this.#conversation).findLast((node) => node.role === "user");
    if (last) this.#views.get(last.id).edit();
  }

  #follow() {
    if (this.#follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.#look();
  }

  #viewOf(node, conversation, running) {
    let view = this.#views.get(node.id);
    if (!view) {
      view = new MessageView(node, this.actions);
      this.#views.set(node.id, view);
    }
    view.update(siblingsOf(conversation, node), node === running);
    return view;
  }

  // Changes only what differs, so that focus and selection stay.
  #place(elements) {
    elements.forEach((element, index) => {
      const there = this.list.children[index];
      if (there !== element) this.list.insertBefore(element, there ?? null);
    });
    while (this.list.children.length > elements.length) this.list.lastChild.remove();
  }
}
