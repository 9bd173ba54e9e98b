// LoRA adapters: all users of a model share them, so that changing them needs the admin key.
import { getJson, send } from "./api.js";
import { byId, el, notice } from "./dom.js";

export class AdapterPicker {
  #adapters = [];

  // `model()` returns the id of the model that they are for.
  constructor(model) {
    this.model = model;
    this.list = byId("adapter-list");
    this.apply = byId("apply-adapters");
    this.bar = byId("adapter-progress");
    this.apply.addEventListener("click", () => this.#apply());
  }

  async refresh() {
    try {
      const { data } = await getJson("v1/loras", { quiet: true });
      this.#adapters = data;
    } catch {
      this.#adapters = []; // the list of models says what is wrong
    }
    byId("adapters").hidden = this.#adapters.length === 0;
    this.list.replaceChildren(...this.#adapters.map((adapter) => this.#row(adapter)));
  }

  #row({ id, loaded, scaling }) {
    const box = el("input", { type: "checkbox", value: id });
    box.checked = loaded;
    const scale = el("input", { type: "number", step: "any", class: "scale", "aria-label": `Weight of ${id}` });
    scale.value = scaling ?? 1;
    return el("div", { class: "adapter-row" }, el("label", {}, box, el("span", { class: "model-id" }, id)), scale);
  }

  #wanted() {
    return [...this.list.children]
      .map((row) => ({ box: row.querySelector("[type=checkbox]"), scale: row.querySelector(".scale") }))
      .filter(({ box }) => box.checked)
      .map(({ box, scale }) => ({ name: box.value, scaling: scale.valueAsNumber }));
  }

  async #apply() {
    this.apply.disabled = true;
    this.bar.hidden = false;
    const model = this.model() ?? undefined;
    const loras = this.#wanted();
    try {
      await send("v1/lora/unload", { method: "POST", admin: true, body: { model } });
      if (loras.length > 0) {
        const response = await send("v1/lora/load", { method: "POST", admin: true, body: { model, loras } });
        const { failure } = await response.json();
        if (failure.length > 0) throw new Error(`Could not be loaded: ${failure.join(", ")}. The server's log says why.`);
      }
      notice(loras.length > 0 ? "The adapters are in use." : "No adapter is in use.");
    } catch (failure) {
      notice(failure.message, "error");
    }
    this.apply.disabled = false;
    this.bar.hidden = true;
    this.refresh();
  }
}
