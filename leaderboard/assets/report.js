
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
for (const part of report.parts) (part.orders ? sortable : place)(main, part);
