/* The page: builds itself from a document, and again from an updated one. */
"use strict";
(() => {
  const page = fedkeelPage;
  const { el } = page;
  const VIEWS = {
    chart: page.chartView, curves: page.curvesView, small_curves: page.smallCurvesView, labels: page.labelsView,
    table: page.tableView, facts: page.factsView, code: page.codeView, text: page.textView,
    run_list: (block) => page.runListView(block), groups: (block) => page.groupsView(block),  // of a live page
  };
  const THEMES = { auto: ["Auto", "Auto: colours as the system has them"], light: ["Light", "Light colours"], dark: ["Dark", "Dark colours"] };
  let views = new Map();
  let shape = "";
  let queue = [];

  /* Charts are drawn one after the other, so that the page answers in between. */
  page.later = (call) => {
    window.document.documentElement.dataset.drawn = "no";
    queue.push(call);
    if (queue.length === 1) setTimeout(work, 0);
  };
  page.drew = (holder) => holder.dispatchEvent(new Event("fedkeel:drawn"));
  function work() {
    if (!queue.length) return;  // another document was shown
    queue[0]();
    queue.shift();
    if (queue.length) setTimeout(work, 0);
    else window.document.documentElement.dataset.drawn = "yes";
  }

  const shapeOf = (made) => JSON.stringify([made.title, made.sections.map((section) => [section.id, section.blocks.map((block) => [block.type, block.id, block.columns])])]);

  /* Show a document; where it has the parts of the one before, only their contents change. */
  page.update = (made) => {
    page.document = made;
    if (shapeOf(made) !== shape) build(made);
    else refresh(made);
  };

  /* Add points to a run's columns behind the first `keep`: { columns: { accuracy: { keep, rounds, values } }, axes: { … }, state, done }. */
  page.append = (id, added) => {
    const run = page.document.runs.find((one) => one.id === id);
    if (!run) return false;
    for (const kind of ["columns", "axes"]) {
      for (const [name, { keep, rounds, values }] of Object.entries(added[kind] ?? {})) {
        const old = run[kind][name] ?? { rounds: [], values: [] };
        const before = old.rounds ?? old.values.map((_, index) => old.first + old.step * index);
        run[kind][name] = { rounds: [...before.slice(0, keep), ...rounds], values: [...old.values.slice(0, keep), ...values] };
      }
    }
    for (const key of ["state", "done", "problem"]) if (key in added) run[key] = added[key];
    return true;
  };

  function head(made) {
    const tiles = made.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    return el("div", { id: "head" },
      el("h1", {}, made.title),
      made.subtitle ? el("p", { class: "quiet" }, made.subtitle) : null,
      made.verdict ? el("p", { class: `verdict ${made.verdict.tone}`.trim(), id: "verdict" }, made.verdict.text) : null,
      tiles.length ? el("dl", { class: "tiles" }, ...tiles) : null);
  }

  const isNarrow = (block) => block !== undefined && block.type === "chart" && !block.wide;

  function build(made) {
    shape = shapeOf(made);
    views = new Map();
    queue = [];
    page.forget();
    page.resetCurves();
    window.document.title = made.title;
    const sections = made.sections.map((section) => {
      const blocks = [];
      section.blocks.forEach((block, index) => {
        const view = VIEWS[block.type](block);
        views.set(`${section.id}/${block.id}`, view);
        const before = index > 0 && isNarrow(section.blocks[index - 1]);
        if (isNarrow(block) && before) blocks.at(-1).append(view.element);  // small charts stand side by side
        else if (isNarrow(block) && isNarrow(section.blocks[index + 1])) blocks.push(el("div", { class: "row" }, view.element));
        else blocks.push(view.element);
      });
      return el("section", { id: section.id, "aria-labelledby": `${section.id}-title` },
        el("h2", { id: `${section.id}-title` }, section.title),
        section.about ? el("p", { class: "about" }, section.about) : null, ...blocks);
    });
    window.document.getElementById("content").replaceChildren(head(made), ...sections);
    window.document.getElementById("contents").replaceChildren(...made.sections.map((section) => el("a", { href: `#${section.id}` }, section.title)));
    window.document.getElementById("all-csv").hidden = !made.runs.length;
    page.later(() => {});  // after the last chart the page says that it is drawn
  }

  function refresh(made) {
    window.document.getElementById("head").replaceWith(head(made));
    for (const section of made.sections) for (const block of section.blocks) views.get(`${section.id}/${block.id}`).refresh(block);
  }

  function setTheme(name) {
    const root = window.document.documentElement;
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    const button = window.document.getElementById("theme");
    [button.textContent] = THEMES[name];
    button.setAttribute("aria-label", THEMES[name][1]);
    button.dataset.name = name;
    page.redraw();
  }

  function nextTheme() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    const now = window.document.getElementById("theme").dataset.name ?? "auto";
    setTheme(order[(order.indexOf(now) + 1) % order.length]);
  }

  window.document.getElementById("theme").addEventListener("click", nextTheme);
  window.document.getElementById("print").addEventListener("click", () => window.print());
  window.document.getElementById("all-csv").addEventListener("click", () => page.download(`${page.fileName(page.document.title)}.csv`, page.toCsv(page.allRows(page.document)), "text/csv"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.redraw());
  window.addEventListener("beforeprint", () => page.redrawForPaper(true));
  window.addEventListener("afterprint", () => page.redrawForPaper(false));
  const given = window.document.getElementById("fedkeel-document");
  if (given && given.textContent.trim()) page.update(JSON.parse(given.textContent));
})();
