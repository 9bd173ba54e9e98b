// Puts the page together.
import { getJson } from "./api.js";
import { AdapterPicker } from "./adapters.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { openDialog } from "./dialogs.js";
import { byId, icon, notice } from "./dom.js";
import { forgetKeys } from "./keys.js";
import { hasMarkdown } from "./markdown.js";
import { ModelPicker } from "./models.js";
import { noSettings, readSettings } from "./sampling.js";
import { SettingsPanel } from "./settings.js";
import { startShortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { isLasting, loadConversation } from "./store.js";
import { startTheme } from "./theme.js";
import { loadJson, saveJson } from "./values.js";
import { ConversationView } from "./view.js";

for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));
startTheme();

const view = new ConversationView({
  regenerate: (node) => {
    chat.regenerate(node);
    composer.focus();
  },
  editUser: (node, text) => {
    chat.editUser(node, text);
    composer.focus();
  },
  editAssistant: (node, text) => chat.editAssistant(node, text),
  choose: (node, step) => {
    chat.choose(node);
    view.focusBranch(node, step);
  },
});
const chat = new Chat(view, {
  state: showState,
  listed: () => sidebar.refresh(),
  // A request may load its model.
  asked: () => setTimeout(() => models.refresh(true), 300),
  model: () => models.current?.id ?? "",
});
const sidebar = new Sidebar(chat, { open: openById, removed: (id) => { if (id === chat.current.id) openNew(); } });
const composer = new Composer({ send: (text) => chat.send(text), stop: () => chat.stop() });
const settings = new SettingsPanel(keepSettings);
const adapters = new AdapterPicker(() => models.current?.id);
const models = new ModelPicker({
  opened: () => adapters.refresh(),
  picked: (id) => {
    chat.current.settings.model = id;
    keepSettings();
  },
  known: showDefaults,
});

function showState() {
  const { current } = chat;
  composer.show(chat.runningNode() !== null);
  if (current.nodes.length > 0 && location.hash !== `#/${current.id}`) history.replaceState(null, "", `#/${current.id}`);
  document.title = current.title ? `${current.title} – bitloom` : "bitloom";
  sidebar.draw();
}

let saver = 0;
// A new conversation begins with the settings that were used last.
function keepSettings() {
  const { current } = chat;
  saveJson("settings", current.settings);
  clearTimeout(saver);
  if (current.nodes.length > 0) saver = setTimeout(() => chat.save(current, false), 300);
}

async function showDefaults(id) {
  try {
    const props = id ? await getJson(`props?model=${encodeURIComponent(id)}`, { quiet: true }) : null;
    settings.showDefaults(props?.default_generation_settings.params);
  } catch {
    settings.showDefaults(null); // the fields then say "default"
  }
}

function enter(conversation) {
  chat.open(conversation);
  settings.show(conversation.settings);
  models.pick(conversation.settings.model);
  sidebar.makeRoom();
  composer.focus();
}

function openNew() {
  history.replaceState(null, "", "#/");
  chat.openNew(readSettings(loadJson("settings", noSettings())));
  enter(chat.current);
}

async function openById(id) {
  const conversation = chat.runningConversation(id) ?? await loadConversation(id);
  if (!conversation) {
    openNew();
    return;
  }
  if (location.hash !== `#/${id}`) history.pushState(null, "", `#/${id}`);
  enter(conversation);
}

// The address names the conversation, so that a reload shows it again.
function openByAddress() {
  const id = /^#\/(.+)$/.exec(location.hash)?.[1];
  return id ? openById(decodeURIComponent(id)) : openNew();
}

function openNeighbour(by) {
  const id = sidebar.neighbour(chat.current.id, by);
  if (id) openById(id);
}

const showHelp = () => openDialog(byId("help"));

byId("new-chat").addEventListener("click", openNew);
byId("show-help").addEventListener("click", showHelp);
byId("forget-keys").addEventListener("click", () => {
  forgetKeys();
  notice("The keys are forgotten.");
});
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
startShortcuts({
  fresh: openNew, regenerate: () => chat.regenerateLast(), edit: () => view.editLastOfUser(),
  next: () => openNeighbour(1), previous: () => openNeighbour(-1), settings: () => settings.toggle(),
  models: () => models.open(), sidebar: () => sidebar.toggle(), stop: () => chat.stop(), focus: () => byId("prompt").focus(),
  help: showHelp,
});
addEventListener("popstate", openByAddress);
// Another tab may have changed the list.
document.addEventListener("visibilitychange", () => { if (!document.hidden) sidebar.refresh(); });

await openByAddress();
await sidebar.refresh();
models.refresh();
if (!hasMarkdown) notice("This program was built without Markdown; answers are shown as plain text.");
if (!(await isLasting())) notice("This browser keeps no data here: conversations last until the page is closed.", "error");
document.body.dataset.ready = "true";
