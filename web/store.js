// Conversations in this browser's IndexedDB. Where that is switched off they last as long as the page.

const NAME = "bitloom";
const WHOLE = "conversations";
const SHORT = "summaries"; // without messages, so that the list is quick

const memory = new Map();
let opened = null;

const summaryOf = ({ id, title, updated }) => ({ id, title, updated });

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function open() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(WHOLE, { keyPath: "id" });
    request.result.createObjectStore(SHORT, { keyPath: "id" });
  };
  return finished(request);
}

// The database, or null where there is none.
function database() {
  opened ??= open().catch(() => null);
  return opened;
}

export async function isLasting() {
  return (await database()) !== null;
}

// Runs `work` with both stores, and waits until its changes are on disk.
async function change(work) {
  const base = await database();
  if (base === null) return false;
  const transaction = base.transaction([WHOLE, SHORT], "readwrite");
  work(transaction.objectStore(WHOLE), transaction.objectStore(SHORT));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  return true;
}

export async function saveConversation(conversation) {
  const kept = await change((whole, short) => {
    whole.put(conversation);
    short.put(summaryOf(conversation));
  });
  if (!kept) memory.set(conversation.id, structuredClone(conversation));
}

export async function deleteConversation(id) {
  const gone = await change((whole, short) => {
    whole.delete(id);
    short.delete(id);
  });
  if (!gone) memory.delete(id);
}

// {id, title, updated} of all, the latest first.
export async function listConversations() {
  const base = await database();
  const all = base === null
    ? [...memory.values()].map(summaryOf)
    : await finished(base.transaction(SHORT).objectStore(SHORT).getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

// Undefined where there is none.
export async function loadConversation(id) {
  const base = await database();
  if (base === null) return memory.get(id);
  return finished(base.transaction(WHOLE).objectStore(WHOLE).get(id));
}

export async function allConversations() {
  const base = await database();
  if (base === null) return [...memory.values()];
  return finished(base.transaction(WHOLE).objectStore(WHOLE).getAll());
}
