"use strict";

const IN_ORDER = new Intl.Collator(undefined, { numeric: true });

/** A click on a column's name sorts up, the next one down, the third brings the given order back. */
function makeSortable(table) {
  const body = table.tBodies[0];
  const given = [...body.rows];
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = make("button", { type: "button", className: "sort" }, header.textContent);
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: null }[header.ariaSort];
      const direction = next === undefined ? "ascending" : next;
      for (const other of headers) other.ariaSort = null;
      header.ariaSort = direction;
      body.replaceChildren(...(direction ? sorted(given, column, direction) : given));
    });
  });
}

/** Numbers before texts; empty places last, whichever way it is sorted. */
function sorted(rows, column, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => {
    const { value } = row.cells[column].dataset;
    const text = value ?? row.cells[column].textContent;
    return { text, empty: text === "", number: text === "" ? NaN : Number(text) };
  };
  const compare = (a, b) => {
    if (a.empty || b.empty) return a.empty - b.empty;
    const numbers = !Number.isNaN(a.number) - !Number.isNaN(b.number);
    if (numbers) return -numbers;
    return sign * (Number.isNaN(a.number) ? IN_ORDER.compare(a.text, b.text) : a.number - b.number);
  };
  return rows.map((row) => ({ row, key: key(row) })).sort((a, b) => compare(a.key, b.key)).map(({ row }) => row);
}

/** On a narrow screen a line is a card, where each place stands beside its column's name. */
function label(table) {
  const names = [...table.tHead.rows[0].cells].map((header) => header.textContent);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => (cell.dataset.name = names[column]));
}

/** Above a long table a field that leaves the lines with all of its words. */
function makeFilterable(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 8) return;
  const place = table.closest(".scroll");
  const field = make("input", { type: "search", placeholder: "Filter lines", ariaLabel: `Filter lines of ${place.ariaLabel}` });
  const told = make("span", { className: "file", role: "status" });
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    told.textContent = field.value.trim() ? `${left} of ${rows.length} lines` : "";
  });
  place.before(make("p", { className: "line-filter" }, field, told));
}

for (const table of document.querySelectorAll("table.sortable")) {
  label(table);
  makeSortable(table);
  makeFilterable(table);
}

for (const button of document.querySelectorAll("button.zoom")) {
  button.addEventListener("click", () => {
    button.ariaPressed = String(button.closest("figure").classList.toggle("large"));
  });
}

// What is folded is printed too.
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
