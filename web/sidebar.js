// The list of conversations: open, rename, delete, export, import.
import { askText, askYesNo } from "./dialogs.js";
import { byId, el, iconButton, notice } from "./dom.js";
import { allConversations, deleteConversation, listConversations, loadConversation, saveConversation } from "./store.js";
import { exportFile, readFile, withoutKnown } from "./transfer.js";

const day = () => new Date().toISOString().slice(0, 10);

export class Sidebar {
  #summaries = [];
  #drawn = "";

  // `chat` holds the conversations that are in use; `on`: {open(id), removed(id)}.
  constructor(chat, on) {
    this.chat = chat;
    this.on = on;
    this.list = byId("conversations");
    this.filter = byId("filter");
    this.filter.addEventListener("input", () => this.draw());
    byId("export").addEventListener("click", () => this.exportAll());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
    for (const id of ["show-sidebar", "close-sidebar", "shade"]) byId(id).addEventListener("click", () => this.toggle());
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", () => this.#tellState());
    this.#tellState();
  }

  // On a narrow screen the list lies over the conversation, and begins closed.
  get isOpen() {
    const { classList } = document.body;
    return this.narrow.matches ? classList.contains("sidebar-open") : !classList.contains("sidebar-hidden");
  }

  toggle(open = !this.isOpen) {
    if (this.narrow.matches) document.body.classList.toggle("sidebar-open", open);
    else document.body.classList.toggle("sidebar-hidden", !open);
    this.#tellState();
    if (this.narrow.matches) byId(open ? "new-chat" : "show-sidebar").focus();
  }

  // After a conversation was opened the list is in the way, where it lies over it.
  makeRoom() {
    if (this.narrow.matches && this.isOpen) this.toggle(false);
  }

  #tellState() {
    byId("show-sidebar").setAttribute("aria-expanded", String(this.isOpen));
  }

  async refresh() {
    this.#summaries = await listConversations();
    this.draw();
  }

  // The id of the conversation `by` places below the one of this id in the list.
  neighbour(id, by) {
    const at = this.#summaries.findIndex((summary) => summary.id === id);
    return this.#summaries[at < 0 ? 0 : at + by]?.id ?? null;
  }

  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    const shown = this.#summaries.filter(({ title }) => title.toLowerCase().includes(wanted));
    const running = new Set(this.chat.runningIds);
    // A list that is made again loses the focus.
    const drawn = JSON.stringify([shown.map(({ id, title }) => [id, title]), this.chat.current?.id, [...running]]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.list.replaceChildren(...shown.map((summary) => this.#row(summary, running.has(summary.id))));
  }

  #row({ id, title }, isRunning) {
    const isCurrent = id === this.chat.current?.id;
    const name = title || "New chat";
    return el("li", { class: isRunning ? "running" : "", "data-id": id },
      el("button", { type: "button", class: "open", "aria-current": isCurrent ? "page" : null, title: name,
        onclick: () => this.on.open(id) }, name),
      iconButton("edit", `Rename ${name}`, () => this.#rename(id, name), { class: "icon rename" }),
      iconButton("download", `Export ${name}`, () => this.#exportOne(id), { class: "icon export" }),
      iconButton("trash", `Delete ${name}`, () => this.#remove(id, name), { class: "icon delete" }));
  }

  // The conversation as it is in use, or else as it is stored.
  async #conversation(id) {
    if (this.chat.current?.id === id) return this.chat.current;
    return this.chat.runningConversation(id) ?? loadConversation(id);
  }

  async #rename(id, name) {
    const title = await askText({ title: "Rename", label: "Title", value: name, ok: "Rename" });
    if (!title) return;
    const conversation = await this.#conversation(id);
    conversation.title = title;
    await this.chat.save(conversation, false);
  }

  async #remove(id, name) {
    const isSure = await askYesNo({ title: "Delete this conversation?", text: name, ok: "Delete", danger: true });
    if (!isSure) return;
    await this.chat.forget(id);
    await deleteConversation(id);
    await this.refresh();
    this.on.removed(id);
  }

  async #exportOne(id) {
    exportFile([await this.#conversation(id)], `bitloom-conversation-${day()}.json`);
  }

  async exportAll() {
    exportFile(await allConversations(), `bitloom-conversations-${day()}.json`);
  }

  async #import(input) {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    try {
      const fresh = withoutKnown(readFile(await file.text()), this.#summaries);
      for (const conversation of fresh) await saveConversation(conversation);
      await this.refresh();
      notice(fresh.length === 1 ? "1 conversation was imported." : `${fresh.length} conversations were imported.`);
      if (fresh.length > 0) this.on.open(fresh[0].id);
    } catch (failure) {
      notice(failure.message, "error");
    }
  }
}
