// Light, dark, or as the system has it.
import { byId, setIcon } from "./dom.js";
import { loadValue, saveValue } from "./values.js";

const THEMES = ["auto", "light", "dark"];
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  setIcon(byId("theme"), theme, `Theme: ${NAMES[theme]}`);
}

export function startTheme() {
  const known = loadValue("theme", "auto");
  let theme = THEMES.includes(known) ? known : "auto";
  apply(theme);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    saveValue("theme", theme);
    apply(theme);
  });
}
