// Small values that this browser keeps: keys, theme, the settings used last.

const PREFIX = "bitloom.";

export function loadValue(name, otherwise) {
  try {
    return localStorage.getItem(PREFIX + name) ?? otherwise;
  } catch {
    return otherwise; // storage is switched off
  }
}

export function saveValue(name, text) {
  try {
    if (text === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, text);
  } catch {
    // The value then lasts as long as the page.
  }
}

export function loadJson(name, otherwise) {
  try {
    return JSON.parse(loadValue(name, "null")) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const saveJson = (name, value) => saveValue(name, JSON.stringify(value));
