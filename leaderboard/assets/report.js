
// What follows draws a report (leaderboard/report.py): trees by view() above, charts as SVG. Text stays text.
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set("svg g line circle path text title".split(" "));
const PLACES = new Set("viewBox x y x1 x2 y1 y2 cx cy r d class text-anchor role aria-label".split(" "));

function drawing([tag, attributes, children]) {
  if (!SHAPES.has(tag)) return document.createTextNode("");
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (PLACES.has(name)) made.setAttribute(name, value);
  for (const child of children) made.append(typeof child === "string" ? child : drawing(child));
  return made;
}

function box(parent, cls) {
  const made = document.createElement("div");
  made.className = cls;
  parent.append(made);
  return made;
}

function place(parent, tree) {
  view({ data: tree, parentElement: box(parent, "part"), setTriggerValue() {} });
}

function sortable(parent, { tree, rows, orders }) {
  const at = box(parent, "part");
  const show = (data) => view({ data, parentElement: at, setTriggerValue(_, action) {
    const wanted = `${action.sort}|${action.order}`;
    if (!Object.hasOwn(orders, wanted)) return;
    const sorted = structuredClone(tree), table = sorted[6][0][6];
    table[1] = orders[wanted].head;
    table[2][6] = orders[wanted].rows.map((number) => rows[number]);
    show(sorted);
  } });
  show(tree);
}

const report = JSON.parse(document.getElementById("report").textContent);
const main = document.getElementById("page");
document.title = report.title;
place(main, report.head);
if (report.matrix) {
  const whole = drawing(report.matrix);
  // As wide as it was drawn: a wide matrix is scrolled, not squeezed.
  whole.style.width = Number(report.matrix[1].viewBox.split(" ")[2]) + "px";
  box(main, "chart whole").append(whole);
}
for (const section of report.sections) {
  place(main, section.head);
  sortable(main, section.table);
  for (const chart of section.charts) {
    place(main, chart.head);
    box(main, "chart").append(drawing(chart.drawing));
  }
  if (section.published) place(main, section.published);
  place(main, section.sources);
}
for (const table of report.behind) place(main, table);
