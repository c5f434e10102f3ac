"use strict";
// Numbers sort by their full value, texts by letters, empty cells come last whatever the direction.
const sortKey = cell => {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  return cell.classList.contains("num") ? null : cell.textContent.trim().toLowerCase();
};
const sortBy = (table, column, head, heads) => {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0];
  [...body.rows].sort((a, b) => {
    const x = sortKey(a.cells[column]), y = sortKey(b.cells[column]);
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
  }).forEach(row => body.append(row));
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "sort";
    head.addEventListener("click", () => sortBy(table, column, head, heads));
    head.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortBy(table, column, head, heads);
    });
  });
}
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});
