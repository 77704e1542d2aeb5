// Builds the trees of leaderboard/elements/nodes.py. Text only ever becomes a text node: nothing is parsed as HTML.
const TAGS = new Set(("a button caption dd details div dl dt em h1 h2 h3 li mark ol p section small span strong " +
  "summary table tbody td th thead tr ul").split(" "));
const LONG = 30, STEP = 30;
const PHONE = matchMedia("(max-width: 640px)");
const SCROLLS = /^(scroll|conversation|verdict)\b/;
const NAMES = { colspan: "colspan", label: "aria-label", pressed: "aria-pressed", role: "role", scope: "scope",
  sort: "aria-sort", title: "title" };

// Pictures of leaderboard/elements/pictures.py; what a mark says on hover is its title.
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set("svg g line path text title".split(" "));
const PLACES = new Set("viewBox x y x1 x2 y1 y2 d class text-anchor role aria-label".split(" "));

// In a file, titles stay titles.
function vector([tag, attributes, children], filed = false) {
  if (!SHAPES.has(tag)) return document.createTextNode("");
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (PLACES.has(name)) made.setAttribute(name, value);
  for (const child of children) {
    if (child[0] === "title" && typeof child !== "string" && !filed) made.dataset.tip = child[2].join("");
    else made.append(typeof child === "string" ? child : vector(child, filed));
  }
  return made;
}

// A chart comes in two widths, for a wide page and for a phone; one is drawn.
function chart(made, [wide, narrow], { title, csv }) {
  const files = document.createElement("div"), name = title.replace(/[^\w.-]+/g, "-");
  files.className = "files";
  files.append(file("SVG", `${name}.svg`, "image/svg+xml", () => svgText(wide)), file("Data (CSV)", `${name}.csv`, "text/csv", () => csv));
  made.fit = () => made.replaceChildren(vector(PHONE.matches ? narrow : wide), files);
  made.fit();
}

const LOOK = `svg { background: #ffffff; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.name { fill: #1a1f26; stroke: none; } .tick { fill: #5b6470; } .grid { stroke: #dfe4ea; }
.reference, .front { stroke: #8a8f98; stroke-dasharray: 5 4; stroke-width: 1.5; fill: none; }
.curve { fill: none; stroke-width: 2; } .mark { stroke-width: 2.5; } .dot { stroke: none; }
` + ["#2a87c8", "#d55e00", "#009e73", "#cc79a7", "#c79500", "#56b4e9", "#8a8f98"].map(
  (color, at) => `.of-${at} { stroke: ${color}; fill: ${color}; }`).join(" ");

function svgText(wide) {
  const svg = vector(wide, true), look = document.createElementNS(SVG, "style");
  look.textContent = LOOK;
  svg.prepend(look);
  const [, , width, height] = wide[1].viewBox.split(" ");
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  // XML has no control characters.
  return new XMLSerializer().serializeToString(svg).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "");
}

// Files are made here: nothing is loaded.
function file(label, name, kind, text) {
  const made = document.createElement("button");
  made.textContent = label;
  made.className = "turn";
  made.type = "button";
  made.addEventListener("click", () => {
    const link = document.createElement("a");
    link.download = name;
    link.href = URL.createObjectURL(new Blob([text()], { type: kind }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
  return made;
}

// What `drawing` holds: `old`, the table rows of the last tree by their JSON, and `rows`, those of this tree.
function element(row, drawing) {
  const [tag, classes, children, { attributes = {}, tip, action, numbers = {}, ...files } = {}] = row;
  if (!TAGS.has(tag)) return document.createTextNode("");
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  for (const name in attributes) {
    const value = attributes[name];
    if (name === "href") {
      if (!/^https?:\/\//i.test(value)) continue;
      made.href = value;
      made.target = "_blank";
      made.rel = "noopener noreferrer nofollow";
    } else if (name === "key") made.dataset.key = value;
    else if (name === "open") made.open = Boolean(value);
    else if (NAMES[name]) made.setAttribute(NAMES[name], String(value));
  }
  for (const name in numbers) made.style.setProperty("--" + name, Number(numbers[name]));
  if (tip) {
    made.dataset.tip = tip;
    made.classList.add("explained");
    made.setAttribute("aria-description", tip);
    // Marks of a picture, which tells readers as a whole what it shows, are no stops of the Tab key; cells see `stops`.
    if (!["button", "a", "summary"].includes(tag) && !made.classList.contains("hover")) {
      made.tabIndex = tag === "td" ? -1 : 0;
    }
  }
  if (tag === "button") made.type = "button";
  // What scrolls can be reached with the Tab key.
  if (SCROLLS.test(classes)) made.tabIndex = 0;
  if (action) made.does = action;
  if (classes === "chart") chart(made, children, files);
  else if (tag === "tbody") {
    if (children.length > LONG) growing(made, children, drawing);
    else for (const child of children) made.append(line(child, drawing));
  } else for (const child of children) made.append(typeof child === "string" ? child : element(child, drawing));
  const body = tag === "table" && children.find((child) => child[0] === "tbody");
  if (body && body[2].length > LONG) made.setAttribute("aria-rowcount", body[2].length + 1);
  return made;
}

// A row that was drawn before is used again: most changes leave most rows as they are.
function line(row, drawing) {
  const text = JSON.stringify(row), made = drawing.old.get(text) ?? element(row, drawing);
  drawing.old.delete(text);
  drawing.rows.set(text, made);
  return made;
}

// Rows of a long table are made when the reader comes near them.
function growing(body, rows, drawing) {
  let made = 0;
  const near = new IntersectionObserver((seen) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    near.disconnect();
    body.grow(made + STEP);
  }, { root: document.querySelector("[data-testid=stMain]"), rootMargin: "1500px 0px" });
  body.grow = (count) => {
    while (made < Math.min(count, rows.length)) body.append(line(rows[made++], drawing));
    if (made < rows.length) near.observe(body.lastElementChild);
  };
  body.grow(STEP);
}

const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

function neighbor(cell, [across, down]) {
  const next = (one) => across + down > 0 ? one.nextElementSibling : one.previousElementSibling;
  if (cell.matches(".pick")) return down && next(cell.parentElement)?.firstElementChild;
  let row = cell.parentElement, found = cell;
  do {
    if (across) found = next(found);
    else found = (row = next(row))?.cells[cell.cellIndex];
  } while ((across ? found : row) && !found?.dataset.tip);
  return found;
}

// Of a table's cells, and of a list's entries, one is a stop of the Tab key; arrows lead to the others.
function stops(root) {
  for (const body of root.querySelectorAll("tbody")) {
    for (const before of body.querySelectorAll("td[tabindex='0']")) before.tabIndex = -1;
    const first = body.querySelector("td[data-tip]");
    if (first) first.tabIndex = 0;
  }
  for (const list of root.querySelectorAll(".picks")) {
    const picks = [...list.querySelectorAll(".pick")];
    const current = picks.find((pick) => pick.getAttribute("aria-pressed") === "true") ?? picks[0];
    for (const pick of picks) pick.tabIndex = pick === current ? 0 : -1;
  }
}

function walker(root) {
  root.addEventListener("keydown", (pressed) => {
    const cell = pressed.target, way = ARROWS[pressed.key];
    if (!cell.matches("td[data-tip], .picks .pick")) return;
    if (pressed.key === "Enter" && cell.tagName === "TD") cell.click();
    if (!way) return;
    const found = neighbor(cell, way);
    if (!found) return;
    pressed.preventDefault();
    cell.tabIndex = -1;
    found.tabIndex = 0;
    found.focus();
  });
}

// One set of listeners for all of a tree: a matrix has thousands of cells that explain themselves.
function explainer(root, tip) {
  let shown = null;
  const hide = () => { shown = null; if (tip.matches(":popover-open")) tip.hidePopover(); };
  const show = (event) => {
    const target = event.target.closest("[data-tip]");
    if (target === shown) return;
    hide();
    if (!target) return;
    shown = target;
    tip.textContent = target.dataset.tip;
    tip.showPopover();
    const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left), window.innerWidth - own.width - 8);
    const below = at.bottom + 6 + own.height < window.innerHeight;
    tip.style.left = left + "px";
    tip.style.top = (below ? at.bottom + 6 : Math.max(8, at.top - own.height - 6)) + "px";
  };
  for (const event of ["mouseover", "focusin"]) root.addEventListener(event, show);
  for (const event of ["mouseleave", "focusout"]) root.addEventListener(event, hide);
  root.addEventListener("keydown", (pressed) => { if (pressed.key === "Escape") hide(); });
  return hide;
}

const STEPS = { j: "next", k: "previous" };

// Streamlit draws a popover at the end of the page, far from its button for the Tab key: a key that opens it leads into it.
function enter(event) {
  const opener = event.composedPath()[0].closest?.("[data-testid=stPopoverButton]");
  if (!opener || event.detail || opener.ariaExpanded === "true") return;
  const drawn = new MutationObserver(() => {
    const body = document.querySelector("[data-testid=stPopoverBody]");
    if (!body) return;
    drawn.disconnect();
    body.tabIndex = -1;
    body.focus();
  });
  drawn.observe(document.body, { childList: true, subtree: true });
}

// Streamlit's shortcuts are silent in every input; in a toggle or a radio button nobody writes.
function keys() {
  if (document.stepping) return;
  document.stepping = true;
  document.addEventListener("click", enter, { capture: true });
  document.addEventListener("keydown", (pressed) => {
    const at = pressed.composedPath()[0], step = STEPS[pressed.key];
    if (!step || !["checkbox", "radio"].includes(at.type)) return;
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || pressed.shiftKey) return;
    document.querySelector(`.st-key-${step} button:not(:disabled)`)?.click();
  });
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let root = parentElement.querySelector(".root");
  if (!root) {
    root = document.createElement("div");
    root.className = "root";
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("popover", "manual");
    tip.setAttribute("aria-hidden", "true");
    parentElement.append(root, tip);
    root.hideTip = explainer(root, tip);
    root.rows = new Map();
    root.addEventListener("click", (event) => {
      for (let at = event.target; at && at !== root; at = at.parentElement) if (at.does) return root.send(at);
    });
    walker(root);
    keys();
    PHONE.addEventListener("change", () => root.querySelectorAll(".chart").forEach((one) => one.fit()));
    addEventListener("beforeprint", () => root.querySelectorAll("tbody").forEach((body) => body.grow?.(Infinity)));
  }
  // A page sends bytes, whose text is compared and parsed only here; a report has its trees.
  const text = data instanceof Uint8Array ? new TextDecoder().decode(data) : JSON.stringify(data), hide = root.hideTip;
  root.send = (made) => setTriggerValue("action", { part: made.closest(".part")?.dataset.key ?? "", action: made.does });
  // A rerun that changes nothing must not disturb what the reader has opened, focused or scrolled to.
  if (root.drawn !== text) {
    const keyed = () => root.querySelectorAll("[data-key]");
    const kept = new Map();
    for (const old of keyed()) kept.set(old.dataset.key, { open: old.open, left: old.scrollLeft, top: old.scrollTop,
      rows: old.querySelectorAll("tbody > tr").length });
    const focused = parentElement.activeElement, around = focused?.closest(".scroll")?.dataset.key;
    hide();
    const drawing = { old: root.rows, rows: new Map() };
    root.replaceChildren(element(JSON.parse(text), drawing));
    root.rows = drawing.rows;
    stops(root);
    for (const fresh of keyed()) {
      const was = kept.get(fresh.dataset.key);
      if (!was) continue;
      if (fresh.tagName === "DETAILS") fresh.open = was.open;
      fresh.querySelector("tbody")?.grow?.(was.rows);
      fresh.scrollLeft = was.left;
      fresh.scrollTop = was.top;
    }
    // What had the focus may be gone, such as a row that was hidden: its table has it then.
    const found = [focused?.dataset?.key, around].map((key) => key && root.querySelector(`[data-key="${CSS.escape(key)}"]`));
    found.find(Boolean)?.focus({ preventScroll: true });
    root.drawn = text;
  }
  return hide;
}
