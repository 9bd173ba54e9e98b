// The panel beside the conversation: system prompt, sampling, token probabilities.
import { byId, el } from "./dom.js";
import { SAMPLING } from "./sampling.js";

// Stop sequences stand one a line; \n in a line is a line break.
const toLines = (stop) => stop.map((text) => text.replace(/\n/g, "\\n")).join("\n");
const fromLines = (text) => text.split("\n").filter(Boolean).map((line) => line.replace(/\\n/g, "\n"));

export class SettingsPanel {
  #settings = null;
  #inputs = new Map();

  // `changed` is called after each change of the settings that are shown.
  constructor(changed) {
    this.changed = changed;
    this.panel = byId("settings");
    for (const field of SAMPLING) byId("sampling").append(this.#row(field));
    this.#listen(byId("system"), (input) => { this.#settings.system = input.value; });
    this.#listen(byId("stop-sequences"), (input) => { this.#settings.stop = fromLines(input.value); });
    this.#listen(byId("probabilities"), (input) => { this.#settings.probabilities = input.checked; });
    byId("reset-sampling").addEventListener("click", () => this.#reset());
    byId("show-settings").addEventListener("click", () => this.toggle());
    byId("close-settings").addEventListener("click", () => this.toggle(false));
  }

  #listen(input, take) {
    input.addEventListener("input", () => {
      take(input);
      this.changed();
    });
  }

  #row({ key, label, whole, tip }) {
    const input = el("input", { type: "number", step: whole ? "1" : "any", inputmode: whole ? "numeric" : "decimal",
      id: `sampling-${key}`, "aria-describedby": `tip-${key}`, placeholder: "default" });
    this.#listen(input, () => {
      if (input.value === "" || !Number.isFinite(input.valueAsNumber)) delete this.#settings.sampling[key];
      else this.#settings.sampling[key] = input.valueAsNumber;
    });
    this.#inputs.set(key, input);
    return el("div", { class: "row", title: tip }, el("label", { for: input.id }, label), input,
      el("span", { class: "visually-hidden", id: `tip-${key}` }, tip));
  }

  #reset() {
    this.#settings.sampling = {};
    this.#settings.stop = [];
    this.show(this.#settings);
    this.changed();
  }

  show(settings) {
    this.#settings = settings;
    byId("system").value = settings.system;
    byId("stop-sequences").value = toLines(settings.stop);
    byId("probabilities").checked = settings.probabilities;
    for (const [key, input] of this.#inputs) input.value = settings.sampling[key] ?? "";
  }

  // What the model does where nothing is set, in the words of GET /props.
  showDefaults(parameters) {
    for (const { key, known } of SAMPLING) {
      const value = parameters?.[known];
      let text = "default";
      if (key === "seed") text = "random";
      else if (key === "max_tokens" && value < 0) text = "no limit";
      else if (typeof value === "number") text = String(Math.round(value * 1000) / 1000);
      this.#inputs.get(key).placeholder = text;
    }
  }

  toggle(open = this.panel.hidden) {
    this.panel.hidden = !open;
    byId("show-settings").setAttribute("aria-expanded", String(open));
    if (open) byId("system").focus();
    else byId("show-settings").focus();
  }
}
