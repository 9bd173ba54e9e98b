// The box in which messages are written.
import { byId, setIcon } from "./dom.js";

export class Composer {
  #isRunning = false;

  // `on`: {send(text), stop()}
  constructor(on) {
    this.on = on;
    this.box = byId("prompt");
    this.button = byId("send");
    this.box.addEventListener("input", () => this.#draw());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#go();
    });
  }

  focus() {
    // On a phone the keyboard would cover the conversation.
    if (!matchMedia("(pointer: coarse)").matches) this.box.focus();
  }

  show(isRunning) {
    this.#isRunning = isRunning;
    this.#draw();
  }

  #draw() {
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
    const name = this.#isRunning ? "stop" : "send";
    if (this.button.dataset.does !== name) {
      this.button.dataset.does = name;
      setIcon(this.button, name, this.#isRunning ? "Stop" : "Send");
    }
    this.button.disabled = !this.#isRunning && !this.box.value.trim();
  }

  #key(event) {
    const isEnter = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (!isEnter || matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    if (!this.#isRunning) this.#go();
  }

  #go() {
    if (this.#isRunning) {
      this.on.stop();
      return;
    }
    const text = this.box.value.trim();
    if (!text) return;
    this.box.value = "";
    this.#draw();
    this.on.send(text);
  }
}
