// Tables that are sorted by their headings and filtered by the form above them. What is chosen stands in the address,
// so that a view can be linked to: leaderboard.html?paper=keydiff&budget=25%25&sort=3&down=1
"use strict";

for (const form of document.querySelectorAll("form.filters")) {
  const table = document.getElementById(form.dataset.table);
  const body = table.tBodies[0];
  const buttons = [...table.tHead.querySelectorAll("button")];
  const lines = [...body.rows].map((row, place) => ({
    row,
    place,
    keys: JSON.parse(row.dataset.keys),
    text: row.textContent.toLowerCase(),
  }));
  let sorted = { column: -1, down: false };

  const order = (line, column) => {
    const cell = line.row.cells[column];
    return cell.dataset.order ?? cell.textContent.trim();
  };

  const compare = (one, other) => {
    const { column, down } = sorted;
    if (column < 0) return one.place - other.place;
    const [a, b] = [order(one, column), order(other, column)];
    if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1) || one.place - other.place; // empty places stay below
    const numbers = !Number.isNaN(Number(a)) && !Number.isNaN(Number(b));
    const difference = numbers ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
    return (down ? -difference : difference) || one.place - other.place;
  };

  const show = () => {
    const wanted = new FormData(form);
    const words = (wanted.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    const choices = [...wanted].filter(([name, value]) => name !== "text" && value);
    let shown = 0;
    for (const line of lines) {
      const fits =
        choices.every(([name, value]) => line.keys[name].includes(value)) &&
        words.every((word) => line.text.includes(word));
      line.row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("[data-count]").value = shown;
    const query = new URLSearchParams(choices);
    if (words.length) query.set("text", wanted.get("text"));
    if (sorted.column >= 0) query.set("sort", sorted.column);
    if (sorted.column >= 0 && sorted.down) query.set("down", "1");
    const asked = query.toString();
    history.replaceState(null, "", asked ? `?${asked}` : location.pathname);
  };

  const sort = () => {
    body.append(...[...lines].sort(compare).map((line) => line.row));
    buttons.forEach((button, column) => {
      const heading = button.closest("th");
      if (column !== sorted.column) heading.removeAttribute("aria-sort");
      else heading.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    });
  };

  buttons.forEach((button, column) => {
    // Numbers start with the greatest, texts with the first; the third press gives the table's own order back.
    const first = Boolean(button.dataset.number);
    button.addEventListener("click", () => {
      if (sorted.column !== column) sorted = { column, down: first };
      else if (sorted.down === first) sorted = { column, down: !first };
      else sorted = { column: -1, down: false };
      sort();
      show();
    });
  });
  form.addEventListener("input", show);
  form.addEventListener("change", show); // a menu may tell of its choice by this alone
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    sorted = { column: -1, down: false };
    sort();
    setTimeout(show); // after the form is empty
  });

  const asked = new URLSearchParams(location.search);
  for (const [name, value] of asked) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  if (asked.has("sort")) sorted = { column: Number(asked.get("sort")), down: asked.get("down") === "1" };
  if (sorted.column >= 0 && sorted.column < buttons.length) sort();
  show();
}
