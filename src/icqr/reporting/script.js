"use strict";
(() => {
  // -- Tables sort by a click on a head ------------------------------------------------------------
  const key = (row, place) => row.cells[place].dataset.value;

  function compare(a, b) {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
  }

  function number(text) {
    // Python writes inf; what is not known is empty and stays last.
    return text.replace(/^(-?)inf$/, "$1Infinity");
  }

  function sort(table, head) {
    const place = head.cellIndex;
    const up = head.getAttribute("aria-sort") !== "ascending";
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    rows.sort((first, second) => {
      const a = number(key(first, place)), b = number(key(second, place));
      if (a === "" || b === "") return (a === "") - (b === "");
      return up ? compare(a, b) : compare(b, a);
    });
    body.append(...rows);
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  function button(cell) {
    const element = document.createElement("button");
    element.type = "button";
    element.append(...cell.childNodes);
    cell.append(element);
    return element;
  }

  for (const table of document.querySelectorAll("table")) {
    for (const head of table.tHead.rows[0].cells) {
      // On paper browsers repeat heads on each page, but not the buttons in them.
      const paper = document.createElement("span");
      paper.className = "paper";
      paper.textContent = head.textContent;
      button(head).addEventListener("click", () => sort(table, head));
      head.append(paper);
    }
  }

  // -- A group is highlighted in all tables and pictures ---------------------------------------------
  const PARTS = 'svg [class^="group-"]';
  const announcement = document.getElementById("announcement");
  let pinned = null;

  function light(group) {
    for (const row of document.querySelectorAll("tr[data-group]")) {
      row.classList.toggle("lit", row.dataset.group === group);
    }
    for (const svg of document.querySelectorAll("figure svg")) {
      svg.classList.toggle("choosing", group !== null && svg.querySelector(`.group-${group}`) !== null);
    }
    for (const part of document.querySelectorAll(PARTS)) {
      part.classList.toggle("lit", part.classList.contains(`group-${group}`));
    }
  }

  function pin(group) {
    pinned = group === pinned ? null : group;
    for (const pick of document.querySelectorAll("tr[data-group] button")) {
      pick.setAttribute("aria-pressed", String(pick.closest("tr").dataset.group === pinned));
    }
    light(pinned);
    announcement.textContent = pinned === null ? "No group is highlighted" : "Highlighted in tables and pictures";
  }

  const groupOf = (part) => part.classList[0].slice("group-".length);

  for (const row of document.querySelectorAll("tr[data-group]")) {
    const group = row.dataset.group;
    const pick = button(row.cells[0]);
    pick.setAttribute("aria-pressed", "false");
    pick.addEventListener("click", () => pin(group));
    pick.addEventListener("focus", () => light(group));
    pick.addEventListener("blur", () => light(pinned));
    row.addEventListener("pointerenter", () => light(group));
    row.addEventListener("pointerleave", () => light(pinned));
  }
  for (const part of document.querySelectorAll(PARTS)) {
    if (document.querySelector(`tr[data-group="${groupOf(part)}"]`) === null) continue;
    part.classList.add("points");
    part.addEventListener("pointerenter", () => light(groupOf(part)));
    part.addEventListener("pointerleave", () => light(pinned));
    part.addEventListener("click", () => pin(groupOf(part)));
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && pinned !== null) pin(pinned);
  });

  // -- What is larger than its box shows it, and can be scrolled by keyboard --------------------------
  const boxes = document.querySelectorAll(".scroll");

  function shade(box) {
    const right = box.scrollWidth - box.clientWidth, below = box.scrollHeight - box.clientHeight;
    const edge = box.parentElement.classList;
    edge.toggle("wide", right > 1);
    edge.toggle("more-right", right - box.scrollLeft > 1);
    edge.toggle("more-below", below - box.scrollTop > 1);
    if (right > 1 || below > 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }

  for (const box of boxes) {
    const words = document.createElement("p");
    words.className = "sideways";
    words.textContent = "Scroll sideways for more columns →";
    box.before(words);
    box.addEventListener("scroll", () => shade(box), { passive: true });
  }
  const reach = () => boxes.forEach(shade);
  window.addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
  reach();

  // -- The appendix opens as a whole, for a link into it, and on paper ---------------------------------
  const parts = Array.from(document.querySelectorAll(".part"));
  const all = document.getElementById("all");
  all.hidden = false;

  function name() {
    const open = parts.every((part) => part.open);
    all.textContent = open ? "Fold all" : "Show all";
    all.setAttribute("aria-expanded", String(open));
  }

  all.addEventListener("click", () => {
    const open = !parts.every((part) => part.open);
    for (const part of parts) part.open = open;
  });
  document.addEventListener("toggle", name, true);

  function follow() {
    const part = parts.find((part) => `#${part.id}` === location.hash);
    if (part) part.open = true;
  }
  window.addEventListener("hashchange", follow);
  follow();

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = parts.filter((part) => !part.open);
    for (const part of folded) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });

  // -- The numbers as a file -----------------------------------------------------------------------
  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    const text = document.getElementById("summary").textContent;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "summary.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
