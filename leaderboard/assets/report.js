
// What follows draws a report (leaderboard/report.py): parts by view() above. Text stays text.
function box(parent, cls) {
  const made = document.createElement("div");
  made.className = cls;
  parent.append(made);
  return made;
}

function place(parent, tree) {
  view({ data: tree, parentElement: box(parent, "part"), setTriggerValue() {} });
}

const FLIPPED = { asc: "desc", desc: "asc" };

// Mark the column that a table is sorted by; a click on the head of another one sorts as it says.
function mark(head, column, order) {
  for (const [, , parts, { attributes }] of head[2][0][2]) {
    const button = parts.find((part) => part[0] === "button");
    if (!button) continue;
    const { action } = button[3], before = attributes.sort !== "none", now = action.sort === column;
    button[2] = now ? [button[2][0], ["span", "arrow", [order === "desc" ? "↓" : "↑"]]] : [button[2][0]];
    attributes.sort = now ? `${order}ending` : "none";
    if (now) action.order = FLIPPED[order];
    else if (before) action.order = FLIPPED[action.order];
  }
}

function sortable(parent, { tree, rows, orders }) {
  const at = box(parent, "part");
  const show = (data) => view({ data, parentElement: at, setTriggerValue(_, { action }) {
    const wanted = `${action.sort}|${action.order}`;
    if (!Object.hasOwn(orders, wanted)) return;
    const sorted = structuredClone(tree), table = sorted[2][0][2];
    mark(table[1], action.sort, action.order);
    table[2][2] = orders[wanted].map((number) => rows[number]);
    show(sorted);
  } });
  show(tree);
}

// Paper cannot be scrolled: a table that is wider is printed smaller.
const PAPER = 960;
addEventListener("beforeprint", () => document.querySelectorAll(".scroll").forEach((one) => {
  one.style.width = `${PAPER}px`;
  const fit = Math.min(1, PAPER / one.firstChild.offsetWidth);
  one.style.width = "";
  one.style.setProperty("--fit", fit);
}));

const report = JSON.parse(document.getElementById("report").textContent);
const main = document.getElementById("page");
document.title = report.title;
for (const part of report.parts) (part.orders ? sortable : place)(main, part);
