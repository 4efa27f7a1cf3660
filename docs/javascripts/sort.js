// Sorts a table by the column whose head is clicked: numbers by value, "–" last, texts by letter.
document.addEventListener("click", (event) => {
  const head = event.target.closest("article th");
  const body = head && head.closest("table").tBodies[0];
  if (!body) return;
  const column = head.cellIndex, down = head.dataset.order !== "down";
  const value = (row) => {
    const text = row.cells[column].textContent.trim().replace(/[,\u2212]/g, (c) => (c === "," ? "" : "-"));
    return /^[-+\d.]/.test(text) ? parseFloat(text) : text;
  };
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return (typeof a === "number" ? b - a : b.localeCompare(a)) * (down ? 1 : -1);
  });
  body.append(...rows);
  head.dataset.order = down ? "down" : "up";
});
