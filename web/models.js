// The models of the server: which there are, which one answers, loading and unloading.
import { events, getJson, send } from "./api.js";
import { openDialog } from "./dialogs.js";
import { byId, el, notice } from "./dom.js";

const LOOK_AGAIN = 1500; // ms, while something is being loaded

export class ModelPicker {
  #models = [];
  #picked = "";
  #progress = new Map(); // id of a model that this page loads: 0 … 1, or null where it is not known
  #timer = 0;

  // `picked(id)` is called when the user picks a model, `known(id)` when a loaded one is in use.
  constructor(on) {
    this.on = on;
    this.list = byId("model-list");
    byId("model").addEventListener("click", () => this.open());
  }

  open() {
    openDialog(byId("models"));
    this.refresh();
    this.on.opened();
  }

  // The model that answers: the one that was picked, or else the server's.
  get current() {
    return this.#models.find(({ id }) => id === this.#picked)
      ?? this.#models.find(({ loaded }) => loaded) ?? this.#models[0] ?? null;
  }

  pick(id) {
    this.#picked = id;
    this.#draw();
    this.#tellDefaults();
  }

  async refresh(quiet = false) {
    clearTimeout(this.#timer);
    try {
      const { data } = await getJson("v1/models", { quiet });
      this.#models = data;
      this.#draw();
      this.#tellDefaults();
    } catch (failure) {
      byId("model-name").textContent = failure.status === 401 ? "key needed" : "no server";
      if (!quiet) notice(failure.message, "error");
    }
    const isSettled = this.#models.length > 0 && this.#models.every(({ status }) =>
      status.value === "loaded" || status.value === "unloaded");
    const wait = isSettled ? 20 * LOOK_AGAIN : LOOK_AGAIN;
    this.#timer = setTimeout(() => this.#look(), wait);
  }

  #look() {
    if (document.hidden) this.#timer = setTimeout(() => this.#look(), LOOK_AGAIN);
    else this.refresh(true);
  }

  #tellDefaults() {
    const { current } = this;
    const key = current?.loaded ? current.id : "";
    if (key === this.told) return;
    this.told = key;
    this.on.known(key);
  }

  // Loads a model through the route that tells how far it is.
  async load(id) {
    this.#progress.set(id, null);
    this.#draw();
    try {
      const response = await send("v1/model/load", { method: "POST", admin: true, body: { model_name: id } });
      for await (const { module, modules } of events(response)) {
        this.#progress.set(id, module / modules);
        this.#draw();
      }
    } catch (failure) {
      notice(failure.message, "error");
    }
    this.#progress.delete(id);
    this.refresh(true);
  }

  async unload(id) {
    try {
      await send("v1/model/unload", { method: "POST", admin: true, body: { model_name: id } });
    } catch (failure) {
      notice(failure.message, "error");
    }
    this.refresh(true);
  }

  #draw() {
    const { current } = this;
    byId("model-name").textContent = current?.id ?? "no model is loaded";
    byId("model").dataset.state = this.#stateOf(current);
    const focused = document.activeElement?.dataset?.key;
    this.list.replaceChildren(...this.#models.map((model) => this.#row(model, model === current)));
    if (focused) this.list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    if (this.#models.length === 0) this.list.append(el("p", { class: "quiet" }, "The server has no model yet."));
  }

  #stateOf(model) {
    if (!model) return "none";
    return this.#progress.has(model.id) ? "loading" : model.status.value;
  }

  #row(model, isCurrent) {
    const { id } = model;
    const state = this.#stateOf(model);
    const radio = el("input", { type: "radio", name: "model", "data-key": `pick ${id}`, onchange: () => {
      this.pick(id);
      this.on.picked(id);
    } });
    radio.checked = isCurrent;
    const context = model.context_length ? `, ${model.context_length.toLocaleString()} tokens` : "";
    const row = el("div", { class: "model-row", "data-model": id },
      el("label", {}, radio, el("span", { class: "model-id" }, id), el("small", {}, state + context)));
    if (state === "loading" || state === "queued") row.append(this.#bar(id));
    else if (state === "loaded" && !model.pinned) row.append(this.#button("Unload", id, () => this.unload(id)));
    else if (state === "unloaded") row.append(this.#button("Load", id, () => this.load(id)));
    return row;
  }

  #button(text, id, onclick) {
    return el("button", { type: "button", class: "plain", "data-key": `${text} ${id}`,
      "aria-label": `${text} ${id}`, onclick }, text);
  }

  #bar(id) {
    const bar = el("progress", { max: "1", "aria-label": `Loading ${id}` });
    const part = this.#progress.get(id);
    if (typeof part === "number") bar.value = part;
    return bar;
  }
}
