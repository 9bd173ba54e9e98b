// Builds elements without markup in strings, so that no text can become markup.

export const byId = (id) => document.getElementById(id);

// el("button", {class: "icon", onclick: f, disabled: true}, "text", node, null)
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Strokes on a grid of 24 units.
const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  check: "M5 13l4 4L19 7",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M13 6v4M7 14v4",
  bars: "M5 20v-6M10 20V9M15 20v-9M20 20V4",
  light: "M12 4V2M12 22v-2M4 12H2M22 12h-2M6.3 6.3L4.9 4.9M19.1 19.1l-1.4-1.4M6.3 17.7l-1.4 1.4"
    + "M19.1 4.9l-1.4 1.4M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  dark: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.500 10.500z",
  auto: "M4 5h16v11H4zM9 20h6M12 16v4",
  help: "M9 9.500a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 17.500v.5",
  upload: "M12 15V4M7 9l5-5 5 5M4 16v4h16v-4",
  download: "M12 4v11M7 10l5 5 5-5M4 16v4h16v-4",
};

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A button that shows an icon alone. `label` is read aloud and shown as its tip.
export function iconButton(name, label, onclick, more = {}) {
  return el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick, ...more },
    icon(name));
}

export function setIcon(button, name, label) {
  button.replaceChildren(icon(name));
  button.setAttribute("aria-label", label);
  button.title = label;
}

// Replaces the text of a button by a check mark for a moment.
export function confirmBriefly(button) {
  const before = [...button.childNodes];
  button.replaceChildren(icon("check"));
  setTimeout(() => button.replaceChildren(...before), 1200);
}

// Tells people who do not see the page what has happened.
export function announce(text) {
  byId("announcer").textContent = text;
}

let noticeTimer = 0;
// A line that passes, for news that need no answer. As a popover it lies above an open dialog, too.
export function notice(text, kind = "info") {
  const line = byId("notice");
  line.textContent = text;
  line.dataset.kind = kind;
  line.hidePopover();
  line.showPopover();
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => line.hidePopover(), kind === "error" ? 9000 : 4000);
}

export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages that came over plain HTTP from another machine have no clipboard of their own.
  const area = el("textarea", { class: "visually-hidden", readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}
