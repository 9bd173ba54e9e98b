// Questions in a dialog: a line of text, or yes and no.
import { el } from "./dom.js";

// Opens a dialog, and gives the focus back when it is closed. Chromium does so itself, but leaves a text
// box without its caret, so that nothing can be written there.
export function openDialog(dialog) {
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    before.blur();
    before.focus();
  }, { once: true });
  dialog.showModal();
}

function show(dialog) {
  document.body.append(dialog);
  openDialog(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

function frame({ title, text, ok, danger }, ...body) {
  // A form with this method closes its dialog, and sends nothing.
  const form = el("form", { method: "dialog" },
    el("h2", { id: "dialog-title" }, title),
    text ? el("p", {}, text) : null,
    ...body,
    el("div", { class: "dialog-buttons" },
      el("button", { type: "button", class: "plain", onclick: () => dialog.close("") }, "Cancel"),
      el("button", { type: "submit", value: "ok", class: danger ? "danger" : "primary" }, ok)));
  const dialog = el("dialog", { class: "question", "aria-labelledby": "dialog-title" }, form);
  return dialog;
}

// Returns the text, or null where it was cancelled.
export async function askText({ title, text, label, value = "", secret = false, ok = "OK" }) {
  const input = el("input", { type: secret ? "password" : "text", autocomplete: "off", required: true, autofocus: true });
  input.value = value;
  const dialog = frame({ title, text, ok }, el("label", { class: "field" }, label, input));
  const done = show(dialog);
  input.select();
  return (await done) === "ok" ? input.value.trim() : null;
}

export async function askYesNo({ title, text, ok, danger = false }) {
  return (await show(frame({ title, text, ok, danger }))) === "ok";
}
