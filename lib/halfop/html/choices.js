"use strict";
// Filters the rows of a table, and writes the command for those that are selected. It sends nothing. Text enters the
// page as text only; `data-named` and `data-start` are words of a shell already, `data-sql` are conditions.
{
  const PAGE = 200; // rows at once: a browser takes seconds to lay out thousands
  const chooser = document.querySelector("#choices .chooser");
  const find = (selector) => chooser.querySelector(selector);
  const ending = find("select[name=ending]");
  const filters = [...chooser.querySelectorAll("select")].filter((each) => each !== ending);
  const table = document.querySelector("#choices table");
  const rows = [...table.tBodies[0].rows].map((line) => ({ line, data: line.dataset, box: tick(line) }));
  let fitting = rows;
  let most = PAGE;

  function tick(line) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.ariaLabel = line.cells[0].textContent;
    const cell = document.createElement("td");
    cell.className = "tick";
    cell.append(box);
    line.prepend(cell);
    return box;
  }

  function chosen(select) {
    return select.selectedOptions[0];
  }

  function fits(data, filter) {
    const value = data[filter.name];
    const option = chosen(filter);
    if (option.value === "") return true;
    if (option.dataset.least !== undefined) return value !== undefined && Number(value) >= Number(option.dataset.least);
    return value === option.value;
  }

  // One word of a shell; conditions are printable.
  function word(text) {
    return /["$`\\!]/.test(text) ? `'${text.replaceAll("'", `'"'"'`)}'` : `"${text}"`;
  }

  function filter() {
    const set = filters.filter((each) => each.value !== "");
    fitting = rows.filter(({ data }) => set.every((each) => fits(data, each)));
    const fit = new Set(fitting);
    for (const row of rows) if (!fit.has(row)) row.box.checked = false;
    most = PAGE;
    show();
  }

  function show() {
    const shown = new Set(fitting.slice(0, most));
    for (const row of rows) row.line.hidden = !shown.has(row);
    find("button[name=more]").disabled = fitting.length <= most;
    write();
  }

  function more() {
    most += PAGE;
    show();
  }

  function write() {
    const taken = fitting.filter(({ box }) => box.checked).map(({ data }) => data.named);
    const conditions = filters.map((each) => chosen(each).dataset.sql).filter((sql) => sql);
    find(".chosen").textContent =
      `${count(rows.length)} listed, ${count(fitting.length)} fit, ` +
      `${count(Math.min(most, fitting.length))} shown, ${count(taken.length)} selected`;
    const limit = taken.length > Number(chooser.dataset.limit) ? [`--limit ${taken.length}`] : [];
    const where = [`${chooser.dataset.where} ${word(conditions.join(" AND "))}`];
    put(".by-key", taken.length ? [...limit, ...taken] : null, "Select messages");
    put(".by-where", conditions.length ? where : null, "Set a filter");
  }

  function count(number) {
    return number.toLocaleString("en");
  }

  function put(place, options, hint) {
    const ready = options !== null && ending.value !== "";
    find(`${place} .command`).textContent = ready
      ? [chooser.dataset.start, chosen(ending).dataset.sql, ...options].join(" ")
      : `${options === null ? hint : "Choose how to end them"}`;
    find(`${place} button`).disabled = !ready;
  }

  function all() {
    const every = fitting.every(({ box }) => box.checked);
    for (const { box } of fitting) box.checked = !every;
    write();
  }

  function copy(event) {
    const command = event.target.parentElement.querySelector(".command");
    getSelection().selectAllChildren(command);
    document.execCommand("copy");
  }

  table.tHead.rows[0].prepend(document.createElement("th"));
  table.addEventListener("change", () => {
    chooser.open = true;
    write();
  });
  for (const each of filters) each.addEventListener("change", filter);
  ending.addEventListener("change", write);
  find("button[name=all]").addEventListener("click", all);
  find("button[name=more]").addEventListener("click", more);
  for (const each of chooser.querySelectorAll("button[name=copy]")) each.addEventListener("click", copy);
  filter();
  chooser.hidden = false;
}
