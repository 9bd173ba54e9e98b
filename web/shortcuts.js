// Keys for those who do not reach for the mouse. The dialog with id "help" lists them.
const isWriting = (target) => target.closest?.("input, textarea, select, [contenteditable]");

// `actions` has a function for each name: fresh, regenerate, edit, next, previous, settings, models,
// sidebar, stop, focus, help.
export function startShortcuts(actions) {
  const withAlt = {
    KeyN: actions.fresh, KeyR: actions.regenerate, KeyE: actions.edit, KeyS: actions.settings,
    KeyM: actions.models, KeyB: actions.sidebar, ArrowDown: actions.next, ArrowUp: actions.previous,
  };
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey) return;
    let action = null;
    // The code, since Alt changes the letter on some keyboards.
    if (event.altKey) action = withAlt[event.code];
    else if (event.key === "Escape") action = actions.stop;
    else if (event.key === "/" && !isWriting(event.target)) action = actions.focus;
    else if (event.key === "?" && !isWriting(event.target)) action = actions.help;
    if (!action) return;
    event.preventDefault();
    action();
  });
}
