"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("syncaudit-theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("syncaudit-theme", theme); } catch { /* a page from a file may not */ } };
  if (stored() === "dark" || stored() === "light") root.dataset.theme = stored();
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store(root.dataset.theme);
  });

  const detailOf = (row) => document.getElementById("detail-" + row.dataset.index);
  const open = (row, wanted) => {
    detailOf(row).hidden = !wanted;
    row.querySelector("button.open").setAttribute("aria-expanded", String(wanted));
  };
  const reveal = (index) => {
    const row = document.getElementById("site-" + index);
    if (!row) return;
    document.querySelectorAll("tr.found").forEach((other) => other.classList.remove("found"));
    row.hidden = false;
    row.classList.add("found");
    open(row, true);
    row.scrollIntoView({ block: "center" });
  };

  const table = document.getElementById("sites");
  if (table) {
    const body = table.tBodies[0];
    body.addEventListener("click", (event) => {
      const button = event.target.closest("button.open");
      if (button) open(button.closest("tr"), button.getAttribute("aria-expanded") !== "true");
    });
    table.tHead.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-sort]");
      if (!button) return;
      const head = button.closest("th");
      const column = head.cellIndex;
      const numeric = button.dataset.sort === "number";
      // Numbers are worth reading from the largest down.
      const first = numeric ? "descending" : "ascending";
      const other = numeric ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      table.querySelectorAll("th").forEach((th) => th.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", order);
      const key = (row) => row.cells[column].dataset.key;
      const by = numeric ? (a, b) => key(a) - key(b) : (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
      const rows = [...body.querySelectorAll("tr.site")];
      rows.sort((a, b) => (order === "ascending" ? by(a, b) : by(b, a)) || a.dataset.index - b.dataset.index);
      body.append(...rows.flatMap((row) => [row, detailOf(row)]));
    });
    document.getElementById("filter").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of body.querySelectorAll("tr.site")) {
        const text = (row.textContent + " " + detailOf(row).textContent).toLowerCase();
        const shown = words.every((word) => text.includes(word));
        row.hidden = !shown;
        if (!shown) open(row, false);
      }
    });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-site]");
    if (link) { event.preventDefault(); reveal(link.dataset.site); }
    const rule = event.target.closest('a[href^="#rule-"]');
    if (rule) document.getElementById(rule.getAttribute("href").slice(1)).open = true;
  });
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest && event.target.closest("rect[data-site]");
    if (box && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); reveal(box.dataset.site); }
  });
})();
