// Markdown to elements. Everything passes the sanitizer; nothing is made into markup without it.
import { marked } from "./marked.js";
import purify from "./purify.js";
import { confirmBriefly, copyText, el, icon } from "./dom.js";

// The program may have been built without the libraries.
export const hasMarkdown = marked !== null && purify !== null;

const ALLOWED = {
  ALLOWED_TAGS: ["a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i",
    "kbd", "li", "ol", "p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  // These hold no address; the pattern would be asked for them all the same.
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
// Tags that models use within Markdown. All others are shown as they were written.
const PLAIN_TAG = /^<\/?(?:b|br|i|kbd|s|sub|sup|u)\s*\/?>$/i;

const escaped = (text) => text.replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);

if (hasMarkdown) {
  marked.use({
    mangle: false,
    headerIds: false,
    gfm: true,
    breaks: true,
    renderer: {
      html: (html) => (PLAIN_TAG.test(html.trim()) ? html : escaped(html)),
      // An image would be fetched from elsewhere, so it is a link.
      image: (href, title, text) => `<a href="${escaped(href ?? "")}">${escaped(text || href || "")}</a>`,
      checkbox: (checked) => (checked ? "☑ " : "☐ "),
    },
  });
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName === "A") {
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer");
    }
    const name = node.getAttribute?.("class");
    if (name && !/^language-[\w+#.-]+$/.test(name)) node.removeAttribute("class");
  });
}

// A fragment of harmless elements.
export function sanitized(markup) {
  return purify.sanitize(markup, ALLOWED);
}

// Puts a head with the language and a button above a block of code.
function framedCode(pre) {
  const code = pre.querySelector("code") ?? pre;
  const language = /^language-(.+)$/.exec(code.className)?.[1] ?? "";
  const button = el("button", {
    type: "button", class: "copy-code", "aria-label": "Copy code",
    onclick: async () => {
      await copyText(code.textContent.replace(/\n$/, ""));
      confirmBriefly(button);
    },
  }, icon("copy"), el("span", {}, "Copy"));
  pre.tabIndex = 0; // so that the keyboard can scroll it
  const frame = el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", {}, language || "code"), button));
  pre.replaceWith(frame);
  frame.append(pre);
}

function blockOf(token, links) {
  const tokens = Object.assign([token], { links });
  const block = el("div", { class: "block" });
  block.append(sanitized(marked.parser(tokens)));
  block.querySelectorAll("pre").forEach(framedCode);
  block.querySelectorAll("table").forEach((table) => {
    const scroll = el("div", { class: "table", tabindex: "0" });
    table.replaceWith(scroll);
    scroll.append(table);
  });
  return block;
}

// Shows a text that grows. Only the blocks at its end that have changed are made again, so that a long
// answer stays quick and a selection in it stays.
export class MarkdownView {
  #sources = [];
  #links = "";

  constructor() {
    this.element = el("div", { class: hasMarkdown ? "markdown" : "plain-text" });
  }

  show(text) {
    if (!hasMarkdown) {
      this.element.textContent = text;
      return;
    }
    const tokens = marked.lexer(text);
    const blocks = tokens.filter((token) => token.type !== "space");
    // A definition of a link at the end may change what stands before it.
    const links = JSON.stringify(tokens.links);
    let same = 0;
    if (links === this.#links) {
      while (same < blocks.length && this.#sources[same] === blocks[same].raw) ++same;
    }
    while (this.element.children.length > same) this.element.lastChild.remove();
    for (const token of blocks.slice(same)) this.element.append(blockOf(token, tokens.links));
    this.#sources = blocks.map((token) => token.raw);
    this.#links = links;
  }
}
