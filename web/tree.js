// A conversation is a tree of messages: an edit or a new answer is a sibling, and nothing is lost.
// One child of each message is chosen; the chosen ones from the first message on are what is shown.
//
// Conversation: {id, title, created, updated, settings, nodes: [node …], chosen: {parent: child}}
// Node: {id, parent, role, content} and, of answers, {reasoning, tokens, usage, speed, finish, …}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return "m" + Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}

export function newConversation(settings) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, settings, nodes: [], chosen: {} };
}

const placeOf = (parent) => parent ?? "first";

export const nodeOf = (conversation, id) => conversation.nodes.find((node) => node.id === id) ?? null;

export const childrenOf = (conversation, parent) =>
  conversation.nodes.filter((node) => node.parent === parent);

export const siblingsOf = (conversation, node) => childrenOf(conversation, node.parent);

// Adds a message below `parent`, or as a first one where that is null, and chooses it.
export function addNode(conversation, parent, fields) {
  const node = { id: newId(), parent, at: Date.now(), ...fields };
  conversation.nodes.push(node);
  choose(conversation, node);
  return node;
}

export function choose(conversation, node) {
  conversation.chosen[placeOf(node.parent)] = node.id;
}

// The messages that are shown, first to last.
export function shownPath(conversation) {
  const path = [];
  for (let parent = null; ;) {
    const children = childrenOf(conversation, parent);
    if (children.length === 0) return path;
    const chosen = conversation.chosen[placeOf(parent)];
    const next = children.find((child) => child.id === chosen) ?? children[children.length - 1];
    path.push(next);
    parent = next.id;
  }
}

// The messages above a node, first to last, without it.
export function pathAbove(conversation, node) {
  const path = [];
  for (let parent = node.parent; parent !== null;) {
    const above = nodeOf(conversation, parent);
    path.unshift(above);
    parent = above.parent;
  }
  return path;
}

// A title out of the first words.
export function titleFrom(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? line.slice(0, 59) + "…" : line || "New chat";
}
