// The tokens of an answer, shaded by how likely the model held each, with its alternatives on a card.
import { byId, el } from "./dom.js";

const percent = (logprob) => {
  const value = Math.exp(logprob) * 100;
  return value >= 99.95 ? "100 %" : `${value.toPrecision(value < 1 ? 1 : 3)} %`;
};

// 0 for the unlikely, 4 for the likely.
function shadeOf(logprob) {
  const chance = Math.exp(logprob);
  return [0.05, 0.25, 0.5, 0.8].filter((limit) => chance >= limit).length;
}

const shown = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "→").replace(/ /g, "␣") || "∅";

function rowOf({ text, logprob }, isTaken) {
  const meter = el("meter", { min: "0", max: "1", "aria-hidden": "true" });
  meter.value = Math.exp(logprob);
  return el("tr", { class: isTaken ? "taken" : "" },
    el("th", { scope: "row" }, shown(text)), el("td", {}, percent(logprob)), el("td", {}, meter));
}

function hideCard() {
  byId("token-card").hidden = true;
}

function showCard(span, token) {
  const card = byId("token-card");
  const isAmongTop = token.top.some(({ text }) => text === token.text);
  const rows = isAmongTop ? token.top : [token, ...token.top];
  card.replaceChildren(el("table", {},
    el("caption", {}, `“${shown(token.text)}” ${percent(token.logprob)}`),
    el("tbody", {}, ...rows.map((row) => rowOf(row, row.text === token.text)))));
  card.hidden = false;
  const place = span.getClientRects()[0];
  const left = Math.min(place.left, innerWidth - card.offsetWidth - 8);
  const isRoomBelow = place.bottom + card.offsetHeight + 8 < innerHeight;
  const top = isRoomBelow ? place.bottom + 4 : place.top - card.offsetHeight - 4;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${Math.max(8, top)}px`;
}

// The arrow keys go from token to token; one of them is in the order of the Tab key.
function step(spans, from, key) {
  const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  if (!(key in moves)) return false;
  const to = Math.min(Math.max(from + moves[key], 0), spans.length - 1);
  spans[from].tabIndex = -1;
  spans[to].tabIndex = 0;
  spans[to].focus();
  return true;
}

export function tokenView(tokens) {
  const spans = tokens.map((token, index) => {
    const span = el("span", {
      class: "token", "data-shade": String(shadeOf(token.logprob)), tabindex: index === 0 ? "0" : "-1", role: "button",
      "aria-label": `${token.text}, ${percent(token.logprob)}`,
    }, token.text || "∅");
    return span;
  });
  const tokenAt = (event) => spans.indexOf(event.target.closest?.(".token"));
  const show = (event) => {
    const index = tokenAt(event);
    if (index >= 0) showCard(spans[index], tokens[index]);
  };
  return el("div", {
    class: "tokens", role: "group", "aria-label": "Tokens and their probabilities",
    onpointerover: show, onfocusin: show, onclick: show,
    onpointerleave: hideCard, onfocusout: hideCard,
    onkeydown: (event) => {
      const index = tokenAt(event);
      if (event.key === "Escape") hideCard();
      else if (index >= 0 && step(spans, index, event.key)) event.preventDefault();
    },
  }, ...spans);
}
